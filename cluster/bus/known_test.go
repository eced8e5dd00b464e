package bus

import (
	"testing"

	"cairn/cluster"
	"cairn/internal/testkit"
)

// The health of a replica, as it shows its own, follows its offset, which no change of the view tells of: it may begin anew
// with nothing.
func TestKnownFollowsTheOffset(t *testing.T) {
	t.Parallel()
	a, b := start(t, nil), start(t, nil)
	a.addSlots(0, 16383)
	b.meet(a.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "both know each other")
	b.do(cluster.CmdReplicate{ID: idOf(a.port)})
	for i, offset := range []int64{0, 0, 7, 7, 0, 9} {
		b.recorder.offset.Store(offset)
		want := cluster.Online
		if offset == 0 {
			want = cluster.Loading
		}
		if v := b.Known(); v.Nodes[v.Myself].Health != want {
			t.Errorf("step %d, offset %d: %s, want %s", i, offset, v.Nodes[v.Myself].Health, want)
		}
	}
}
