package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"cairn/tools/node"
)

// The scene news. What the old owner of a slot says is held back until the new owner has claimed it: all others hear the
// old news after the new. A slot has two owners, or none, at most for a moment.

// heldFor is how long the old owner's messages are held before the claim, as a part of the node timeout: long enough for
// pings to be under way, too short for anybody to be taken for dead.
const heldFor = 3 // a third

// newsLab is a cluster with a network that can hold messages back.
type newsLab struct {
	*lab
	tags []string
	dir  [2]int // shards, from and to
}

func (l *moveLab) news() error {
	network, err := newLab(l.ctx, options{
		program: l.program, redis: l.redis, timeout: l.timeout, untimed: l.untimed, dir: l.dir, command: l.command, directives: l.directives,
	}, l.out)
	if err != nil {
		return err
	}
	defer network.close()
	n := &newsLab{lab: network, tags: l.tags, dir: [2]int{0, 1}}
	var worst time.Duration
	for i := range l.moveOptions.rounds {
		longest, err := n.round(i)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		worst = max(worst, longest)
	}
	l.say("%d rounds: a slot had two owners or none for at most %v; node timeout %v", l.moveOptions.rounds, worst.Round(time.Millisecond), l.timeout)
	err = network.watch.end()
	network.watch = nil
	return err
}

// round moves a slot with a key to the other shard, and the next round moves it back.
func (n *newsLab) round(i int) (longest time.Duration, err error) {
	slot := uint16(i / 2 % len(n.tags))
	n.dir = [2]int{i % 2, 1 - i%2}
	var at [2]int
	for k, shard := range n.dir {
		if at[k], err = n.primary(shard); err != nil {
			return 0, err
		}
	}
	from, to := n.cluster.Members[at[0]], n.cluster.Members[at[1]]
	key, number := n.tags[slot], fmt.Sprint(slot)
	if err := from.OK("SET", key, fmt.Sprint(i)); err != nil {
		return 0, err
	}
	if err := errors.Join(to.OK("CLUSTER", "SETSLOT", number, "IMPORTING", from.ID), from.OK("CLUSTER", "SETSLOT", number, "MIGRATING", to.ID)); err != nil {
		return 0, err
	}
	if err := from.OK("MIGRATE", "127.0.0.1", to.Addr[len("127.0.0.1:"):], key, "0", "5000"); err != nil {
		return 0, err
	}
	w := watchOwners(n.cluster.Addrs(), slot)
	defer w.end()
	held := []way{}
	for _, other := range n.others(at[0]) {
		if other%shards != at[0]%shards { // its replica must acknowledge what it does
			held = append(held, way{at[0], other})
		}
	}
	defer n.heal() // said below, unless something worse is
	if err := n.net.block(held, true); err != nil {
		return 0, err
	}
	if err := n.wait(n.timeout / heldFor); err != nil {
		return 0, err
	}
	if err := to.OK("CLUSTER", "SETSLOT", number, "NODE", to.ID); err != nil {
		return 0, err
	}
	if i%3 != 0 { // else it learns it from the others
		if err := from.OK("CLUSTER", "SETSLOT", number, "NODE", to.ID); err != nil {
			return 0, err
		}
	}
	if err := n.known(slot, to, from.ID); err != nil {
		return 0, fmt.Errorf("after the claim of %s: %w", to.Name, err)
	}
	if err := errors.Join(n.heal(), n.wait(n.timeout/heldFor)); err != nil { // for the old news to arrive
		return 0, err
	}
	if err := n.known(slot, to, ""); err != nil {
		return 0, fmt.Errorf("after the old news of %s: %w", from.Name, err)
	}
	if n.redis { // keeps the mark of a slot that it has lost
		if err := from.OK("CLUSTER", "SETSLOT", number, "STABLE"); err != nil {
			return 0, err
		}
	}
	if got, err := to.Text("GET", key); err != nil || got != fmt.Sprint(i) {
		return 0, errors.Join(err, fmt.Errorf("%s at %s is %q, want %d", key, to.Name, got, i))
	}
	if longest = w.longest(); !n.untimed && longest > 2*n.timeout {
		return longest, fmt.Errorf("slot %d had two owners or none for %v, want at most %v", slot, longest, 2*n.timeout)
	}
	return longest, n.steady()
}

// known waits until all nodes say who owns the slot; not the one of that id, and its replicas.
func (n *newsLab) known(slot uint16, owner *node.Member, but string) error {
	return n.cluster.Await(settle, func() error {
		for _, m := range n.cluster.Members {
			nodes, err := m.Nodes()
			if err != nil {
				return err
			}
			skip, says := false, "nobody"
			for _, line := range nodes {
				skip = skip || line.Has("myself") && but != "" && (line.ID == but || line.Primary == but)
				if line.Owns(slot) {
					says = line.ID
				}
			}
			if !skip && says != owner.ID {
				return fmt.Errorf("%s says that slot %d belongs to %s, want %s", m.Name, slot, says, owner.ID)
			}
		}
		return nil
	})
}

// ownerWatch asks all nodes who claims a slot for itself.
type ownerWatch struct {
	stop  chan struct{}
	tasks sync.WaitGroup

	mu     sync.Mutex
	claims []bool
	wrong  time.Time // since when there is not one owner; zero: there is
	worst  time.Duration
}

func watchOwners(addrs []string, slot uint16) *ownerWatch {
	w := &ownerWatch{stop: make(chan struct{}), claims: make([]bool, len(addrs))}
	var first sync.WaitGroup
	for i, addr := range addrs {
		first.Add(1)
		w.tasks.Go(func() { // ends with stop
			once := sync.OnceFunc(first.Done)
			defer once()
			c, err := node.Dial(addr, time.Second)
			if err != nil {
				return
			}
			defer c.Close()
			for {
				text, err := c.Text("CLUSTER", "NODES")
				if err != nil {
					return
				}
				nodes, err := node.ParseNodes(text)
				if err != nil {
					return
				}
				for _, n := range nodes {
					if n.Has("myself") {
						w.note(i, n.Has("master") && n.Owns(slot))
					}
				}
				once()
				select {
				case <-w.stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	first.Wait()
	w.mu.Lock()
	w.worst = 0 // before all had been asked, some seemed not to claim
	w.mu.Unlock()
	return w
}

func (w *ownerWatch) note(i int, claims bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[i] = claims
	owners := 0
	for _, c := range w.claims {
		if c {
			owners++
		}
	}
	now := time.Now()
	switch {
	case owners != 1 && w.wrong.IsZero():
		w.wrong = now
	case owners == 1 && !w.wrong.IsZero():
		w.worst = max(w.worst, now.Sub(w.wrong))
		w.wrong = time.Time{}
	}
}

// longest is how long there was not exactly one owner, at the longest, up to now.
func (w *ownerWatch) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrong.IsZero() {
		return max(w.worst, time.Since(w.wrong))
	}
	return w.worst
}

func (w *ownerWatch) end() {
	close(w.stop)
	w.tasks.Wait()
}
