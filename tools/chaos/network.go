package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"cairn/tools/node"
)

// network stands between nodes, as proxies in this process, which needs no rights. Each node is known to the others by two ports of it: that of clients, which carries
// replication, and that of the bus. Who connects is told by the address that it comes from, so each node has one of its own.
//
// What is blocked from one node to another is held, not dropped, and connections stay: as with TCP when the packets of one
// direction are lost, both sides wait, and what was under way arrives after the healing.
type network struct {
	mu      sync.Mutex
	changed sync.Cond
	blocked [][]bool // from, to
	lagging bool
	pipes   []*pipe
	doors   []net.Listener
	tasks   sync.WaitGroup
}

// pipe is one connection between two nodes.
type pipe struct {
	from, to int
	a, b     net.Conn // the dialer's end, and the other node's; b is nil before it is open
	ended    bool     // under network.mu
}

func newNetwork(nodes int) *network {
	w := &network{blocked: make([][]bool, nodes)}
	w.changed.L = &w.mu
	for i := range w.blocked {
		w.blocked[i] = make([]bool, nodes)
	}
	return w
}

// place is this machine for all nodes: their ports tell them apart.
func (w *network) place(int) node.Place { return node.Place{} }

// directives make a node one that the others know by ports of this network.
func (w *network) directives(i, port int) ([]string, error) {
	clients, err := w.open(i, port)
	if err != nil {
		return nil, err
	}
	bus, err := w.open(i, port+10000)
	if err != nil {
		return nil, err
	}
	return []string{
		"--bind-source-addr", source(i), "--cluster-announce-ip", "127.0.0.1",
		"--cluster-announce-port", strconv.Itoa(clients), "--cluster-announce-bus-port", strconv.Itoa(bus),
	}, nil
}

// source is the address that a node's connections come from.
func source(i int) string { return "127.0.0." + strconv.Itoa(firstSource+i) }

const firstSource = 10

// nodeAt is the node behind an address; -1: none of them.
func (w *network) nodeAt(a net.Addr) int {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return -1
	}
	i := int(tcp.IP.To4()[3]) - firstSource
	if i < 0 || i >= len(w.blocked) {
		return -1
	}
	return i
}

// open makes a port that leads to a node's.
func (w *network) open(to, port int) (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("a port between nodes: %w", err)
	}
	w.mu.Lock()
	w.doors = append(w.doors, l)
	w.mu.Unlock()
	w.tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.tasks.Go(func() { w.carry(c, to, port) })
		}
	})
	return l.Addr().(*net.TCPAddr).Port, nil
}

// carry runs one connection to its end. It is not opened before both directions are free.
func (w *network) carry(c net.Conn, to, port int) {
	p := &pipe{from: w.nodeAt(c.RemoteAddr()), to: to, a: c}
	w.mu.Lock()
	w.pipes = append(w.pipes, p)
	w.mu.Unlock()
	defer w.end(p)
	if !w.pass(p, p.from, p.to) || !w.pass(p, p.to, p.from) {
		return
	}
	b, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), time.Second)
	if err != nil {
		return
	}
	w.mu.Lock()
	p.b = b
	if p.ended {
		_ = b.Close() // ended while it was opened
	}
	w.mu.Unlock()
	w.tasks.Go(func() {
		defer w.end(p)
		w.pump(p, p.b, p.a, p.to, p.from)
	})
	w.pump(p, p.a, p.b, p.from, p.to)
}

func (w *network) pump(p *pipe, in, out net.Conn, from, to int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && w.pass(p, from, to) {
			w.delay()
			if _, err := out.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until nothing is blocked from one node to another. False: the connection ended meanwhile.
func (w *network) pass(p *pipe, from, to int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !p.ended && from >= 0 && to >= 0 && w.blocked[from][to] {
		w.changed.Wait()
	}
	return !p.ended
}

func (w *network) end(p *pipe) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut(p)
	if i := slices.Index(w.pipes, p); i >= 0 {
		w.pipes = slices.Delete(w.pipes, i, i+1)
	}
}

func (w *network) cut(p *pipe) {
	p.ended = true
	_ = p.a.Close() // an end, however it is
	if p.b != nil {
		_ = p.b.Close()
	}
	w.changed.Broadcast()
}

// block holds what goes along the ways; on false it goes on.
func (w *network) block(ways []way, on bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range ways {
		w.blocked[x.from][x.to] = on
	}
	w.changed.Broadcast()
	return nil
}

// lostFor is how long a connection stands still when one of its packets is lost: until TCP sends it again.
const lostFor = 200 * time.Millisecond

// slow makes all connections so.
func (w *network) slow() (how string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lagging = true
	return fmt.Sprintf("%v more each way, and %v for %d%% of the pieces", slowDelay, lostFor, slowLoss), nil
}

func (w *network) fast() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lagging = false
	return nil
}

// delay is what slow costs one piece of a stream.
func (w *network) delay() {
	w.mu.Lock()
	lagging := w.lagging
	w.mu.Unlock()
	if !lagging {
		return
	}
	d := slowDelay
	if rand.IntN(100) < slowLoss {
		d += lostFor
	}
	time.Sleep(d)
}

// jolt breaks the connections of a node, in both directions.
func (w *network) jolt(node int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pipes {
		if p.from == node || p.to == node {
			w.cut(p)
		}
	}
	return nil
}

func (w *network) close() {
	w.mu.Lock()
	for _, l := range w.doors {
		_ = l.Close() // an end, however it is
	}
	for _, p := range w.pipes {
		w.cut(p)
	}
	w.mu.Unlock()
	w.tasks.Wait()
}
