package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"cairn/tools/node"
)

// settle bounds every wait for a cluster that has what it needs.
const settle = 60 * time.Second

// slack is how much longer than the node timeout a primary may serve that hears from no majority: a tick, and what the
// machine adds.
const slack = 300 * time.Millisecond

// shards is how many primaries there are, with a replica each: node i and node i+shards.
const shards = 3

// lab is a cluster whose nodes speak through a network that can be cut.
type lab struct {
	options
	ctx     context.Context
	out     io.Writer
	net     *network
	cluster *node.Cluster
	watch   *watcher
}

func newLab(ctx context.Context, o options, out io.Writer) (*lab, error) {
	l := &lab{options: o, ctx: ctx, out: out, net: newNetwork(2 * shards)}
	var failed error
	own := func(i, port int) []string {
		clients, err := l.net.open(i, port)
		bus, err2 := l.net.open(i, port+10000)
		failed = errors.Join(failed, err, err2)
		return []string{
			"--bind-source-addr", source(i), "--cluster-announce-ip", "127.0.0.1",
			"--cluster-announce-port", strconv.Itoa(clients), "--cluster-announce-bus-port", strconv.Itoa(bus),
		}
	}
	var err error
	l.cluster, err = node.StartCluster(node.ClusterSpec{
		Program: o.command, Args: o.directives, Dir: o.dir, Primaries: shards, Replicas: 1, Timeout: o.timeout, Own: own,
	}, settle)
	if err = errors.Join(err, failed); err != nil {
		l.close()
		return nil, err
	}
	l.watch = watchEpochs(l.cluster.Addrs())
	return l, nil
}

func (l *lab) close() {
	if l.watch != nil {
		_ = l.watch.end() // told by all, unless something worse was
	}
	l.net.close()
	if l.cluster != nil {
		l.cluster.Close()
	}
}

// partition is one way in which a network fails.
type partition struct {
	name string
	run  func(l *lab) error
}

func partitions() []partition {
	return []partition{
		{"isolated", func(l *lab) error { return l.isolate(true, true) }},
		{"deaf", func(l *lab) error { return l.isolate(false, true) }},
		{"mute", func(l *lab) error { return l.isolate(true, false) }},
		{"bridge", (*lab).bridge},
		{"flapping", (*lab).flap},
	}
}

// all runs the partitions that are asked for, one after the other on one cluster.
func (l *lab) all() error {
	for round := range l.rounds {
		for _, p := range partitions() {
			if l.only != "" && l.only != p.name {
				continue
			}
			if l.ctx.Err() != nil {
				return l.ctx.Err()
			}
			if err := l.steady(); err != nil {
				return fmt.Errorf("before %s: %w", p.name, err)
			}
			if err := p.run(l); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, p.name, err)
			}
			l.net.heal()
			if err := l.steady(); err != nil {
				return fmt.Errorf("round %d, after %s: %w", round+1, p.name, err)
			}
			l.say("%-10s all tables are equal after the healing", p.name)
		}
	}
	err := l.watch.end()
	l.watch = nil
	return err
}

// steady waits until all is well, and all nodes say the same.
func (l *lab) steady() error {
	if err := l.cluster.AwaitSteady(settle); err != nil {
		return err
	}
	return agree(l.cluster, settle)
}

func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.out, time.Now().Format("15:04:05.000")+"  "+format+"\n", args...)
}

// primary is the place of a shard's primary.
func (l *lab) primary(shard int) (int, error) {
	p, _, err := l.cluster.Primary(shard)
	if err != nil {
		return 0, err
	}
	for i, m := range l.cluster.Members {
		if m == p {
			return i, nil
		}
	}
	return 0, fmt.Errorf("shard %d: its primary is none of the nodes", shard)
}

// others are all nodes but one.
func (l *lab) others(but int) (all []int) {
	for i := range l.cluster.Members {
		if i != but {
			all = append(all, i)
		}
	}
	return all
}

// replaced waits until another node than the old one serves its shard, as a third one sees it.
func (l *lab) replaced(old int) error {
	third := l.cluster.Members[(old+1)%shards]
	return l.cluster.Await(settle, func() error {
		nodes, err := third.Nodes()
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if n.ID == l.cluster.Members[old].ID && n.Slots > 0 {
				return fmt.Errorf("%s says that %s serves", third.Name, l.cluster.Members[old].Name)
			}
		}
		return nil
	})
}

// writes waits for a client's first acknowledgement.
func (l *lab) writes(w *client) error {
	return l.cluster.Await(settle, func() error {
		if _, ok := w.lastAck(time.Now()); !ok {
			return errors.New("no write was acknowledged yet")
		}
		return nil
	})
}

// refuses waits for a client's first refusal after the cut.
func (l *lab) refuses(w *client, cut time.Time) (closed refusal, err error) {
	err = l.cluster.Await(settle, func() error {
		var ok bool
		if closed, ok = w.firstRefusal(cut); !ok {
			return errors.New("the node that was cut off still serves")
		}
		return nil
	})
	return closed, err
}

// isolate takes the primary of the first shard away from all others: what it says, what it hears, or both. A client beside it
// goes on writing. One that hears nobody must stop to acknowledge within the timeout; one that is heard by nobody cannot
// know, before somebody tells it.
func (l *lab) isolate(says, hears bool) error {
	name := map[[2]bool]string{{true, true}: "isolated", {false, true}: "deaf", {true, false}: "mute"}[[2]bool{says, hears}]
	at, err := l.primary(0)
	if err != nil {
		return err
	}
	w := write(l.cluster.Members[at].Addr, l.cluster.Slots(0))
	defer w.end()
	if err := l.writes(w); err != nil {
		return err
	}
	cut := time.Now()
	for _, i := range l.others(at) {
		l.net.block(at, i, says)
		l.net.block(i, at, hears)
	}
	closed, err := l.refuses(w, cut)
	if err != nil {
		return err
	}
	if says { // else its pings tell that it lives
		if err := l.replaced(at); err != nil {
			return err
		}
	}
	before := time.Now() // the healing
	last, _ := w.lastAck(closed.at)
	l.say("%-10s last acknowledgement %v after the cut, with a timeout of %v; then %.40q", name, last.Sub(cut).Round(time.Millisecond), l.timeout, closed.text)
	if says {
		l.say("%-10s another node serves %v after the cut", name, before.Sub(cut).Round(time.Millisecond))
	}
	if hears && !l.untimed && last.Sub(cut) > l.timeout+slack {
		return fmt.Errorf("writes were acknowledged for %v after the cut, want at most %v", last.Sub(cut), l.timeout+slack)
	}
	if n := w.count(closed.at, before); n > 0 {
		return fmt.Errorf("%d writes were acknowledged after the node had closed, before the healing", n)
	}
	return nil
}

// bridge cuts two shards from each other while the third one sees both: no majority sees anybody fail, so everybody serves.
func (l *lab) bridge() error {
	var writers []*client
	for shard := range shards {
		at, err := l.primary(shard)
		if err != nil {
			return err
		}
		w := write(l.cluster.Members[at].Addr, l.cluster.Slots(shard))
		defer w.end()
		writers = append(writers, w)
	}
	cut := time.Now()
	l.net.part([]int{0, shards}, []int{1, 1 + shards})
	defer l.net.heal()
	select { // time in which nothing is to happen
	case <-l.ctx.Done():
		return l.ctx.Err()
	case <-time.After(3 * l.timeout):
	}
	for shard, w := range writers {
		if r, refused := w.firstRefusal(cut); refused {
			return fmt.Errorf("the primary of shard %d refused %v after the cut: %s", shard, r.at.Sub(cut), r.text)
		}
		if w.count(cut, time.Now()) == 0 {
			return fmt.Errorf("the primary of shard %d acknowledged nothing", shard)
		}
	}
	l.say("%-10s all three primaries served for %v", "bridge", 3*l.timeout)
	return nil
}

// flap cuts a primary off and lets it in again, several times, faster and slower than the timeout, and breaks its connections
// now and then. Nobody knows who will be the primary then; all must agree.
func (l *lab) flap() error {
	at, err := l.primary(1)
	if err != nil {
		return err
	}
	for i := range 6 {
		l.net.part([]int{at}, l.others(at))
		if err := l.wait(l.timeout * time.Duration(i+1) / 3); err != nil {
			return err
		}
		l.net.heal()
		if i%2 == 1 {
			l.net.reset(at)
		}
		if err := l.wait(l.timeout / 4); err != nil {
			return err
		}
	}
	l.say("%-10s six cuts of up to %v", "flapping", 2*l.timeout)
	return nil
}

func (l *lab) wait(d time.Duration) error {
	select {
	case <-l.ctx.Done():
		return l.ctx.Err()
	case <-time.After(d):
		return nil
	}
}
