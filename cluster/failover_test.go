package cluster

import (
	"testing"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// pairs makes a cluster of n primaries, 0 to n-1, and as many replicas: node n+i replicates node i.
func pairs(t *testing.T, n int) *world {
	t.Helper()
	w := joined(t, n)
	for i := range n {
		r := w.add(n + i)
		r.data.linkUp, r.data.since = true, w.now
		w.nodes[0].meet(r)
	}
	w.until("all know all", 20000, func() bool {
		return w.all(func(x *node) bool { return len(x.m.peers) == 2*n && x.m.handshakes == 0 })
	})
	for i := range n {
		r := w.nodes[n+i]
		a, effects := r.m.Command(w.now, CmdReplicate{ID: w.nodes[i].m.me.ID.String()})
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		r.do(effects)
	}
	w.until("all know who replicates whom", 20000, func() bool {
		return w.all(func(x *node) bool {
			for i := range n {
				if p := x.peer(w.nodes[n+i]); p.Primary != x.peer(w.nodes[i]) || p.Shard != p.Primary.Shard {
					return false
				}
			}
			return x.m.state.ok
		})
	})
	return w
}

// agree fails the test unless all nodes that are up have the same table.
func (w *world) agree() {
	w.t.Helper()
	var first *node
	for _, n := range w.nodes {
		if wrong := n.m.checkTable(); wrong != "" {
			w.t.Errorf("node %d: %s", n.at, wrong)
		}
		if !n.up {
			continue
		}
		if first == nil {
			first = n
		}
		for s := range uint16(slot.Count) {
			a, b := first.m.owner(s), n.m.owner(s)
			if a == nil || b == nil || a.ID != b.ID {
				w.t.Fatalf("slot %d: nodes %d and %d do not agree: %v, %v", s, first.at, n.at, a, b)
			}
		}
		for i, p := range first.m.peers {
			const same = wire.FlagPrimary | wire.FlagReplica | anyFailure
			q := n.m.peers[i]
			if p.ID != q.ID || p.Flags&same != q.Flags&same || p.primary() && p.Epoch != q.Epoch ||
				(p.Primary == nil) != (q.Primary == nil) || p.Primary != nil && p.Primary.ID != q.Primary.ID {
				w.t.Errorf("nodes %d and %d do not agree:\n%+v\n%+v", first.at, n.at, p, q)
			}
		}
	}
}

func TestFailoverAndReturn(t *testing.T) {
	w := pairs(t, 3)
	dead, heir := w.nodes[0], w.nodes[3]
	dead.stop()
	took := w.until("the replica has taken over, and all are ok", 10*testTimeout, func() bool {
		return w.all(func(n *node) bool { return n.m.state.ok && n.peer(heir).Slots > 0 })
	})
	if took > 3*testTimeout {
		t.Errorf("took %d ms, want at most %d", took, 3*testTimeout)
	}
	w.run(2000)
	w.agree()
	dead.restart()
	w.until("it is its heir's replica", 10*testTimeout, func() bool {
		return dead.m.me.replica() && dead.m.me.Primary == dead.peer(heir)
	})
	w.run(5 * testTimeout)
	w.agree()
	if n := len(find[DropSlots](dead.effects)); n != 0 {
		t.Errorf("%d orders to drop slots; its data is replaced as a whole", n)
	}
}

func TestPrimaryInAMinority(t *testing.T) {
	w := pairs(t, 3)
	alone, heir := w.nodes[0], w.nodes[3]
	isolate := func(cut bool) {
		for _, other := range w.nodes {
			if other != alone {
				w.cut[[2]int{other.at, alone.at}], w.cut[[2]int{alone.at, other.at}] = cut, cut
			}
		}
	}
	isolate(true)
	var closed, taken int64
	w.until("the replica has taken over", 10*testTimeout, func() bool {
		if closed == 0 && !alone.m.state.ok {
			closed = w.now
		}
		if taken == 0 && heir.m.me.primary() {
			taken = w.now
		}
		return taken != 0
	})
	if closed == 0 || closed > taken {
		t.Errorf("the primary closed at %d, its replica took over at %d", closed, taken)
	}
	w.run(2000)
	isolate(false)
	w.until("the old primary follows the new one", 10*testTimeout, func() bool {
		return alone.m.me.replica() && alone.m.me.Primary == alone.peer(heir)
	})
	w.run(5 * testTimeout)
	w.agree()
}

// All stop at once, and come back: what they knew is enough.
func TestAllRestart(t *testing.T) {
	w := pairs(t, 3)
	w.run(1000)
	for _, n := range w.nodes {
		n.stop()
	}
	w.run(10_000)
	for _, n := range w.nodes {
		n.restart()
	}
	w.until("all are ok", 10*testTimeout, func() bool { return w.all(func(n *node) bool { return n.m.state.ok }) })
	w.run(5 * testTimeout)
	w.agree()
}
