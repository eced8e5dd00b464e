package server

import (
	"strconv"
	"testing"

	"cairn/cluster"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// The keys of a slot that went to another node go, those of a slot that is this node's stay, though it was named.
func TestSlotDrops(t *testing.T) {
	n := startServer(t, "cluster-enabled yes")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	n.awaitState(t, c)
	const keys = 2*dropBatch + 10
	for i := range keys {
		for _, tag := range []string{"{gone}", "{kept}"} {
			if got := c.Do("SET", tag+strconv.Itoa(i), "v").Raw; got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
	}
	gone, kept := slot.Of([]byte("gone")), slot.Of([]byte("kept"))
	c.Do("CLUSTER", "DELSLOTS", strconv.Itoa(int(gone)))
	n.pauseWrites(pauseFailover, true)
	n.dropSlots([]uint16{kept, gone})
	n.pauseWrites(pauseFailover, false)
	testkit.Eventually(t, replyWait, func() bool { return n.store.SlotCounters(gone).Keys == 0 }, "the keys go")
	if got := n.store.SlotCounters(kept).Keys; got != keys {
		t.Errorf("%d keys in the slot that is this node's, want %d", got, keys)
	}
}

// While the bus has not ticked for long, as in a process that was stopped, no write is taken; reads go on.
func TestNoWritesWhileTheBusSleeps(t *testing.T) {
	n := startServer(t, "cluster-enabled yes", "cluster-node-timeout 500")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	n.awaitState(t, c)
	n.bus.Ask(func(*cluster.Machine) { // holds the ticks up
		testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "k", "v").Raw == "-"+textDown+"\r\n" }, "writes are refused")
		if got := c.Do("GET", "k").Raw; got[0] != '$' {
			t.Errorf("GET: %q", got)
		}
	})
	testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "k", "v").Raw == "+OK\r\n" }, "writes are taken again")
}

// awaitState waits until the node says that the cluster is ok.
func (n *testNode) awaitState(t *testing.T, c *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "first", "v").Raw == "+OK\r\n" }, "the cluster is ok")
}
