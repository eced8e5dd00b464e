package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

// seat is where a client sits, and the node that it talks to.
type seat struct {
	place node.Place
	addr  string
}

func (s seat) dial() (*node.Conn, error) { return s.place.Dial(s.addr, time.Second) }

// client writes to one node, past the network, as fast as it is answered.
type client struct {
	stop chan struct{}
	done chan struct{}

	mu       sync.Mutex
	acks     []time.Time
	refusals []refusal
}

type refusal struct {
	at   time.Time
	text string
}

// write starts a client of a node that writes keys of these slots.
func write(at seat, slots slot.Range) *client {
	c := &client{stop: make(chan struct{}), done: make(chan struct{})}
	key := ""
	for i := 0; ; i++ {
		if key = "chaos-" + strconv.Itoa(i); slots.Has(slot.Of([]byte(key))) {
			break
		}
	}
	go func() {
		defer close(c.done)
		var conn *node.Conn
		for i := 0; ; i++ {
			select {
			case <-c.stop:
				if conn != nil {
					conn.Close()
				}
				return
			case <-time.After(time.Millisecond):
			}
			if conn == nil {
				var err error
				if conn, err = at.dial(); err != nil {
					conn = nil
					continue
				}
			}
			reply, err := conn.Do("SET", key, strconv.Itoa(i))
			if err != nil {
				conn.Close()
				conn = nil
			}
			c.note(reply.Err(), err)
		}
	}()
	return c
}

func (c *client) note(text string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		text = err.Error()
	}
	if text == "" {
		c.acks = append(c.acks, time.Now())
		return
	}
	c.refusals = append(c.refusals, refusal{time.Now(), text})
}

// end stops the client, after its last reply.
func (c *client) end() {
	close(c.stop)
	<-c.done
}

// lastAck is the last acknowledgement before a moment, firstRefusal the first refusal after one.
func (c *client) lastAck(before time.Time) (last time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range slices.Backward(c.acks) {
		if at.Before(before) {
			return at, true
		}
	}
	return last, false
}

func (c *client) firstRefusal(after time.Time) (refusal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.refusals {
		if r.at.After(after) {
			return r, true
		}
	}
	return refusal{}, false
}

// count is how many acknowledgements there were between two moments.
func (c *client) count(from, to time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.acks {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// watcher looks at the epochs of all nodes, which never fall.
type watcher struct {
	stop chan struct{}
	done chan error
}

func watchEpochs(nodes []seat) *watcher {
	w := &watcher{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() { w.done <- w.run(nodes) }()
	return w
}

func (w *watcher) run(nodes []seat) error {
	last := make([]int64, len(nodes))
	conns := make([]*node.Conn, len(nodes))
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	for {
		for i, at := range nodes {
			if conns[i] == nil {
				conns[i], _ = at.dial() // tried again in the next round
			}
			if conns[i] == nil {
				continue
			}
			info, err := conns[i].Text("CLUSTER", "INFO")
			if err != nil {
				conns[i].Close()
				conns[i] = nil
				continue
			}
			epoch, err := strconv.ParseInt(node.Field(info, "cluster_current_epoch"), 10, 64)
			if err != nil {
				return fmt.Errorf("%s: current epoch: %w", at.addr, err)
			}
			if epoch < last[i] {
				return fmt.Errorf("%s: the current epoch fell from %d to %d", at.addr, last[i], epoch)
			}
			last[i] = epoch
		}
		select {
		case <-w.stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *watcher) end() error {
	close(w.stop)
	return <-w.done
}

// table is CLUSTER NODES of a node without what differs between nodes by nature: who it is itself, times, links.
func table(m *node.Member) (string, error) {
	text, err := m.Text("CLUSTER", "NODES")
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return "", fmt.Errorf("%s: CLUSTER NODES: %q", m.Name, line)
		}
		f[2] = strings.TrimPrefix(f[2], "myself,")
		lines = append(lines, strings.Join(append(f[:4:4], f[6:]...), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

var errDiffer = errors.New("the tables differ")

// agree says what keeps the nodes from having the same table and the same current epoch.
func agree(c *node.Cluster) error {
	first := ""
	for i, m := range c.Members {
		text, err := table(m)
		if err != nil {
			return err
		}
		info, err := m.Text("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		text += "\nepoch " + node.Field(info, "cluster_current_epoch")
		if i == 0 {
			first = text
		} else if text != first {
			return fmt.Errorf("%w: %s has\n%s\n%s has\n%s", errDiffer, c.Members[0].Name, first, m.Name, text)
		}
	}
	return nil
}
