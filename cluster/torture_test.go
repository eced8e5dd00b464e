package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"cairn/cluster/wire"
)

// torture runs a small cluster through failures, crashes, slow disks and manual failovers, and holds what may never
// happen against every message. Then all is healed, and the cluster must find itself.
type torture struct {
	*lab
	t     *testing.T
	rng   *rand.Rand
	votes map[string]string // voter and epoch: candidate
	epoch map[string]uint64 // highest current epoch that a node has told
	owner map[string]string // slot and config epoch: who claimed it
}

func TestTorture(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a", "e of a", "f of b", "9 of c")
			x := &torture{
				lab: w, t: t, rng: rand.New(rand.NewPCG(seed, 7)),
				votes: map[string]string{}, epoch: map[string]uint64{}, owner: map[string]string{},
			}
			w.heard = x.watch
			for range 60 {
				x.harm()
				w.run(int64(x.rng.IntN(20)) * 100)
			}
			x.heal()
		})
	}
}

// watch holds a message against what its sender has said before, in whatever life.
func (x *torture) watch(d *passage) {
	m := d.msg
	if m.Type <= wire.Meet { // others may have waited for their link
		if m.CurrentEpoch < x.epoch[d.from] {
			x.t.Fatalf("node %s fell from epoch %d to %d", d.from, x.epoch[d.from], m.CurrentEpoch)
		}
		x.epoch[d.from] = m.CurrentEpoch
	}
	if m.Type == wire.AuthAck {
		key := fmt.Sprint(d.from, m.CurrentEpoch)
		if other := x.votes[key]; other != "" && other != d.to {
			x.t.Fatalf("node %s voted for %s and %s in epoch %d", d.from, other, d.to, m.CurrentEpoch)
		}
		x.votes[key] = d.to
	}
	// One slot stands for all of its shard: nothing moves slots here.
	if m.Primary.IsZero() && m.Slots != nil {
		for _, s := range []uint16{0, 6000, 16383} {
			if !m.Slots.Has(s) {
				continue
			}
			key := fmt.Sprint(s, m.ConfigEpoch)
			if other := x.owner[key]; other != "" && other != d.from {
				x.t.Fatalf("slot %d claimed by %s and %s under epoch %d", s, other, d.from, m.ConfigEpoch)
			}
			x.owner[key] = d.from
		}
	}
}

func (x *torture) harm() {
	n := x.nodes[x.order[x.rng.IntN(len(x.order))]]
	switch x.rng.IntN(10) {
	case 0, 1:
		x.deaf[n.name] = true
	case 2, 3, 4:
		x.deaf[n.name] = false
	case 5:
		x.crash(n)
	case 6:
		x.slow = !x.slow
	case 7:
		x.command(n.name, CmdFailover{Mode: FailoverMode(x.rng.IntN(2))}) // refused at times
	default:
		x.catchUp()
	}
	for _, name := range x.order {
		if x.rng.IntN(3) == 0 {
			x.flush(x.nodes[name])
		}
	}
	x.deliver()
}

// catchUp writes to primaries and lets replicas that can reach theirs have all of it.
func (x *torture) catchUp() {
	for _, name := range x.order {
		n := x.nodes[name]
		if n.me.primary() && n.me.Slots > 0 && n.writes {
			n.data.offset += int64(x.rng.IntN(100))
		}
		if p := n.me.Primary; p != nil && !x.deaf[name] && !x.deaf[p.ID.String()[:1]] {
			n.data.up, n.data.since = true, x.now
			n.data.offset = x.nodes[p.ID.String()[:1]].data.offset
		}
	}
}

// crash ends a node's life with what is on its disk, and begins the next.
func (x *torture) crash(n *resident) {
	for _, link := range slices.Sorted(maps.Keys(n.peer)) {
		to := n.peer[link]
		other := x.nodes[to.name]
		delete(other.peer, to.link)
		delete(n.peer, link)
		x.do(other, other.Closed(x.now, to.link))
	}
	x.start(n.name, n.last)
}

// heal ends all harm and waits until all is well: every slot has an owner that lives, and all see the same.
func (x *torture) heal() {
	x.slow = false
	for _, name := range x.order {
		x.deaf[name] = false
		x.flush(x.nodes[name])
	}
	x.until(20*labTimeout, "well and of one mind", func() bool {
		x.catchUp()
		for _, name := range x.order {
			n := x.nodes[name]
			if !n.state.ok || !n.writes || x.roles(name) != x.roles("a") {
				return false
			}
		}
		return true
	})
}
