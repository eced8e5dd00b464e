package cluster

import (
	"testing"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

func TestThreeNodesJoinAndAgree(t *testing.T) {
	w := joined(t, 3)
	for _, n := range w.nodes {
		if n.m.me.IP != n.ip() {
			t.Errorf("node %d thinks that it is at %q, is at %q", n.at, n.m.me.IP, n.ip())
		}
		for _, other := range w.nodes {
			p := n.peer(other)
			if p.Slots != other.m.me.Slots || p.Epoch != other.m.me.Epoch || p.Shard != other.m.me.Shard ||
				p.address() != other.m.me.address() {
				t.Errorf("node %d has of %d: %+v, is %+v", n.at, other.at, p, other.m.me)
			}
		}
		for s := range slot.Count {
			if got, want := n.m.owner(uint16(s)).ID, w.nodes[0].m.owner(uint16(s)).ID; got != want {
				t.Fatalf("node %d: slot %d of %s, want %s", n.at, s, got, want)
			}
		}
	}
}

func TestDeadNodeFailsAndComesBack(t *testing.T) {
	w := joined(t, 3)
	dead := w.nodes[2]
	dead.stop()
	took := w.until("both others agree that it failed", 3*testTimeout, func() bool {
		return w.all(func(n *node) bool { return n.flags(dead)&wire.FlagFailed != 0 })
	})
	if took < testTimeout {
		t.Errorf("failed after %d ms, before the node timeout of %d", took, testTimeout)
	}
	w.run(100)
	if w.nodes[0].m.state.ok || w.nodes[1].m.state.ok {
		t.Error("the cluster is ok although slots have no owner that lives")
	}
	dead.restart()
	w.until("the mark goes", 4*testTimeout, func() bool {
		return w.all(func(n *node) bool { return n.m.state.ok && n.flags(dead)&anyFailure == 0 })
	})
}
