package server

import (
	"fmt"
	"strings"
	"testing"

	"cairn/cluster"
	"cairn/internal/testkit"
)

func TestUnsavedSlots(t *testing.T) {
	var u unsavedSlots
	unsaved := false
	want := func(when string, end, from int64) {
		t.Helper()
		if got := u.since(end, func() bool { return unsaved }); got != from {
			t.Errorf("%s: read again from %d, want %d", when, got, from)
		}
	}
	at := func(offset int64) func() int64 { return func() int64 { return offset } }
	want("nothing was said", 100, 100)
	u.begin(at(100))
	want("one is under way", 150, 100)
	u.begin(at(160))
	u.end()
	want("another one is", 200, 100)
	unsaved = true
	u.end()
	want("they are done and not saved", 250, 100)
	want("the log was cut back", 90, 90)
	u.begin(at(260))
	u.end()
	want("one more is done", 300, 100)
	unsaved = false
	want("all are saved", 300, 300)
	unsaved = true
	want("something else is not", 310, 310)
	u.begin(at(320))
	u.end()
	want("one came later", 330, 320)
}

// What the log says of slots is found before the part that is executed, too, and the store keeps from where.
func TestSlotsAreRecalledFromBehindTheStore(t *testing.T) {
	n := startServer(t, "cluster-enabled yes")
	c := n.dial(t)
	mustOK(t, c, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	testkit.Eventually(t, replyWait, func() bool { return strings.Contains(c.Do("CLUSTER", "INFO").Raw, "cluster_state:ok") }, "the state is ok")
	mustOK(t, c, "SET", "before", "x")
	testkit.Eventually(t, replyWait, func() bool { return n.recallFrom(n.wal.End()) == n.wal.End() }, "the slots are saved")
	from := n.wal.End()
	n.unsavedSlots.begin(n.wal.End)
	if _, err := n.logOpen(5, openMark{cluster.SlotMigrating, fmt.Sprintf("%040d", 1)}); err != nil {
		t.Fatal(err)
	}
	mustOK(t, c, "SET", "behind", "x")
	if err := n.store.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := n.recallFrom(n.wal.End()); got != from {
		t.Errorf("read again from %d, want %d", got, from)
	}
	n.openSlots.recalled = nil
	if err := n.recallEarlier(n.wal, from, n.wal.End()); err != nil {
		t.Fatal(err)
	}
	if got := n.openSlots.recalled[5].last.Action; len(n.openSlots.recalled) != 1 || got != cluster.SlotMigrating {
		t.Errorf("recalled %+v", n.openSlots.recalled)
	}
	n.unsavedSlots.end()
}
