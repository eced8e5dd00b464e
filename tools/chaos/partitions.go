package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	net     fabric
	cluster *node.Cluster
	watch   *watcher
}

func newLab(ctx context.Context, o options, out io.Writer) (*lab, error) {
	l := &lab{options: o, ctx: ctx, out: out}
	if l.net = fabric(newNetwork(2 * shards)); o.netns {
		var err error
		if l.net, err = newSpaces(2 * shards); err != nil {
			return nil, err
		}
	}
	var failed error
	own := func(i, port int) []string {
		directives, err := l.net.directives(i, port)
		failed = errors.Join(failed, err)
		return directives
	}
	var err error
	l.cluster, err = node.StartCluster(node.ClusterSpec{
		Program: o.command, Args: o.directives, Dir: o.dir, Primaries: shards, Replicas: 1, Timeout: o.timeout,
		Own: own, Place: l.net.place,
	}, settle)
	if err = errors.Join(err, failed); err != nil {
		l.close()
		return nil, err
	}
	var seats []seat
	for i := range l.cluster.Members {
		seats = append(seats, l.seat(i))
	}
	l.watch = watchEpochs(seats)
	return l, nil
}

// seat is where a client of a node sits: beside it, whatever happens to the network.
func (l *lab) seat(i int) seat { return seat{l.net.place(i), l.cluster.Members[i].Addr} }

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
		{"isolated", func(l *lab) error { return l.isolate("isolated", true, true) }},
		{"deaf", func(l *lab) error { return l.isolate("deaf", false, true) }},
		{"mute", func(l *lab) error { return l.isolate("mute", true, false) }},
		{"unplugged", (*lab).unplug},
		{"bridge", (*lab).bridge},
		{"flapping", (*lab).flap},
		{"slow", (*lab).slow},
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
			err := p.run(l)
			if errors.Is(err, errCannot) {
				l.say("%-10s SKIPPED: %v", p.name, err)
				continue
			}
			if err = errors.Join(err, l.heal()); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, p.name, err)
			}
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
	if err := l.await(func() error { return l.cluster.AwaitSteady(0) }); err != nil {
		return err
	}
	return l.await(func() error { return agree(l.cluster) })
}

// await waits until cond has no objection, or the run is interrupted.
func (l *lab) await(cond func() error) error {
	err := l.cluster.Await(settle, func() error {
		if l.ctx.Err() != nil {
			return nil
		}
		return cond()
	})
	return errors.Join(err, l.ctx.Err())
}

// heal ends all cuts.
func (l *lab) heal() error { return l.net.block(allWays(len(l.cluster.Members)), false) }

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
	return l.await(func() error {
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
	return l.await(func() error {
		if _, ok := w.lastAck(time.Now()); !ok {
			return errors.New("no write was acknowledged yet")
		}
		return nil
	})
}

// refuses waits for a client's first refusal after the cut.
func (l *lab) refuses(w *client, cut time.Time) (closed refusal, err error) {
	err = l.await(func() error {
		var ok bool
		if closed, ok = w.firstRefusal(cut); !ok {
			return errors.New("the node that was cut off still serves")
		}
		return nil
	})
	return closed, err
}

// isolate takes the primary of the first shard away from all others: what it says, what it hears, or both.
func (l *lab) isolate(name string, says, hears bool) error {
	at, err := l.primary(0)
	if err != nil {
		return err
	}
	var ways []way
	for _, i := range l.others(at) {
		if says {
			ways = append(ways, way{at, i})
		}
		if hears {
			ways = append(ways, way{i, at})
		}
	}
	return l.alone(name, at, says, hears, func() error { return l.net.block(ways, true) })
}

// unplug pulls the cable of the primary of the first shard.
func (l *lab) unplug() error {
	w, ok := l.net.(interface{ unplug(i int, out bool) error })
	if !ok {
		return fmt.Errorf("%w: there is no cable, --netns has some", errCannot)
	}
	at, err := l.primary(0)
	if err != nil {
		return err
	}
	return errors.Join(l.alone("unplugged", at, true, true, func() error { return w.unplug(at, true) }), w.unplug(at, false))
}

// alone looks at a primary that a cut takes away from all others, with what it says, hears, or both. A client beside it goes
// on writing. One that hears nobody must stop to acknowledge within the timeout; one that is heard by nobody cannot know,
// before somebody tells it.
func (l *lab) alone(name string, at int, says, hears bool, cutOff func() error) error {
	w := write(l.seat(at), l.cluster.Slots(0))
	defer w.end()
	if err := l.writes(w); err != nil {
		return err
	}
	if err := cutOff(); err != nil {
		return err
	}
	cut := time.Now()
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
	ways := between([]int{0, shards}, []int{1, 1 + shards})
	return l.serve("bridge", 3*l.timeout, func() error { return l.net.block(ways, true) })
}

// slow delays packets and loses some, on all cables: nobody is replaced for that.
func (l *lab) slow() error {
	before, err := l.epochs()
	if err != nil {
		return err
	}
	err = l.serve("slow", 5*l.timeout, func() error {
		how, err := l.net.slow()
		if err == nil {
			l.say("%-10s %s", "slow", how)
		}
		return err
	})
	if errors.Is(err, errCannot) {
		return err
	}
	after, errAfter := l.epochs()
	if err = errors.Join(err, errAfter, l.net.fast()); err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("epochs, and who serves: %s; before it: %s", after, before)
	}
	return nil
}

// epochs tells of each shard who serves it, with which epoch.
func (l *lab) epochs() (text string, err error) {
	for shard := range shards {
		p, _, err := l.cluster.Primary(shard)
		if err != nil {
			return "", err
		}
		info, err := p.Text("CLUSTER", "INFO")
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("%s %s, ", p.Name, node.Field(info, "cluster_my_epoch"))
	}
	return text, nil
}

// serve wants all primaries to serve for a while after something has happened to the network.
func (l *lab) serve(name string, lasting time.Duration, happen func() error) error {
	var writers []*client
	for shard := range shards {
		at, err := l.primary(shard)
		if err != nil {
			return err
		}
		w := write(l.seat(at), l.cluster.Slots(shard))
		defer w.end()
		writers = append(writers, w)
	}
	if err := happen(); err != nil {
		return err
	}
	began := time.Now()
	if err := l.wait(lasting); err != nil {
		return err
	}
	for shard, w := range writers {
		if r, refused := w.firstRefusal(began); refused {
			return fmt.Errorf("the primary of shard %d refused %v after it began: %s", shard, r.at.Sub(began), r.text)
		}
		if w.count(began, time.Now()) == 0 {
			return fmt.Errorf("the primary of shard %d acknowledged nothing", shard)
		}
	}
	l.say("%-10s all three primaries served for %v", name, lasting)
	return nil
}

// flap cuts a primary off and lets it in again, several times, faster and slower than the timeout, and disturbs its
// connections now and then. Nobody knows who will be the primary then; all must agree.
func (l *lab) flap() error {
	at, err := l.primary(1)
	if err != nil {
		return err
	}
	for i := range 6 {
		if err := l.net.block(between([]int{at}, l.others(at)), true); err != nil {
			return err
		}
		if err := l.wait(l.timeout * time.Duration(i+1) / 3); err != nil {
			return err
		}
		if err := l.heal(); err != nil {
			return err
		}
		if i%2 == 1 {
			if err := l.net.jolt(at); err != nil {
				return err
			}
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
