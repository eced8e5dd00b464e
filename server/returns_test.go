package server

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/server/command"
)

// A slot stays with the node that it was leaving, and its keys come back. Until they are here nobody is told that they do not
// exist, or makes them anew; what is here was here all the time, and whoever brings a copy of it is told so.
func TestSlotWhoseKeysComeBack(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	s, x := arrivalsOn(t, vfs.NewMem(), &now)
	x.must(t, ok, "SET", "x", "copy")
	dump := bulk(x.do("DUMP", "x"))
	x.must(t, ok, "SET", "{k}here", "original")
	sl := slot.Of([]byte("k"))
	const leaving = engine.SlotOwned | engine.SlotMigrating
	change := func(to engine.SlotState) {
		before := s.store.Routing()
		route(s, to)
		s.returns.note(before, s.store.Routing(), now.Load())
	}
	const (
		again    = "-" + textDoubts + "\r\n"
		original = "-" + string(command.ErrBusyOriginal) + "\r\n"
		busy     = "-BUSYKEY Target key name already exists.\r\n"
		none     = "$-1\r\n"
	)

	// No key has left.
	change(leaving)
	change(engine.SlotOwned)
	x.must(t, none, "GET", "{k}gone")
	x.must(t, busy, "RESTORE-ASKING", "{k}here", "0", dump)

	change(leaving)
	s.returns.went(sl)
	change(engine.SlotOwned)
	x.must(t, again, "GET", "{k}gone")
	x.must(t, again, "INCR", "{k}gone")
	x.must(t, again, "MGET", "{k}here", "{k}gone")
	x.must(t, "$8\r\noriginal\r\n", "GET", "{k}here")
	x.must(t, ":9\r\n", "APPEND", "{k}here", "!")
	x.must(t, original, "RESTORE-ASKING", "{k}here", "0", dump)
	now.Add(doubtFor.Milliseconds() - 1)
	change(0) // a tool takes the slot from the node, and gives it again
	change(engine.SlotOwned)
	x.must(t, ok, "RESTORE-ASKING", "{k}gone", "0", dump)
	x.must(t, "$4\r\ncopy\r\n", "GET", "{k}gone")
	now.Add(doubtFor.Milliseconds() - 1)
	x.must(t, again, "GET", "{k}other") // more may be on their way
	x.must(t, original, "RESTORE-ASKING", "{k}here", "0", dump)
	now.Add(1)
	x.must(t, none, "GET", "{k}other")
	x.must(t, busy, "RESTORE-ASKING", "{k}here", "0", dump)

	// Keys may have been made here since the first move was ended.
	change(leaving)
	s.returns.went(sl)
	change(engine.SlotOwned)
	now.Add(doubtFor.Milliseconds())
	x.must(t, ok, "SET", "{k}made", "1")
	change(leaving)
	change(engine.SlotOwned)
	x.must(t, again, "GET", "{k}other")
	x.must(t, busy, "RESTORE-ASKING", "{k}made", "0", dump)
	change(0)
	now.Add(doubtFor.Milliseconds())
	change(engine.SlotOwned)
	if s.returns.some.Load() {
		t.Error("something is remembered of a slot that went and came")
	}
}

// A tool that repairs a broken move may bring keys back to where they come from. What that node had all the time is the truth,
// and an unchanged copy of it goes without an error; one that was written here is for somebody to decide.
func TestKeyGoesBack(t *testing.T) {
	t.Parallel()
	nodes, a, b := arrivingSlot(t)
	mustOK(t, a, "CLUSTER", "SETSLOT", "12182", "STABLE")
	mustOK(t, a, "MSET", "{foo}both", "older", "{foo}moved", "1", "{foo}written", "a", "{foo}made", "b")
	copies := map[string]string{}
	for _, key := range []string{"{foo}both", "{foo}written"} {
		copies[key] = a.Do("DUMP", key).Value.(string)
	}
	mustOK(t, a, "CLUSTER", "SETSLOT", "12182", "MIGRATING", b.Do("CLUSTER", "MYID").Value.(string))
	for key, dump := range copies { // the replies are lost
		mustOK(t, b, "RESTORE-ASKING", key, "0", dump)
	}
	migrate := func(from *testkit.Conn, to *testNode, more ...string) string {
		return from.Do(append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), "", "0", "50000"}, more...)...).Raw
	}
	if got := migrate(a, nodes[1], "KEYS", "{foo}moved", "{foo}made"); got != "+OK\r\n" {
		t.Fatalf("MIGRATE: %q", got)
	}
	mustOK(t, b, "ASKING")
	if got := b.Do("APPEND", "{foo}written", "b").Raw; got != ":2\r\n" {
		t.Fatalf("APPEND: %q", got)
	}
	mustOK(t, a, "SET", "{foo}both", "newer")
	nodes[2].stopped.Store(nodes[2].clock()) // this machine may be slower than the time in which keys are to come
	mustOK(t, a, "CLUSTER", "SETSLOT", "12182", "STABLE")
	const busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists"
	if got := migrate(b, nodes[2], "COPY", "KEYS", "{foo}both"); got != busy+", and is the original.\r\n" {
		t.Errorf("MIGRATE COPY: %q", got)
	}
	if got := migrate(b, nodes[2], "KEYS", "{foo}both", "{foo}moved", "{foo}written"); got != busy+", and is the original.\r\n" {
		t.Errorf("MIGRATE: %q", got)
	}
	nodes[2].stopped.Store(0)
	if got, want := a.Do("MGET", "{foo}both", "{foo}moved", "{foo}written").Raw, "*3\r\n$5\r\nnewer\r\n$1\r\n1\r\n$1\r\na\r\n"; got != want {
		t.Errorf("at the source: %q, want %q", got, want)
	}
	testkit.Eventually(t, replyWait, func() bool { return a.Do("SETNX", "{foo}made", "anew").Raw == ":1\r\n" }, "a key that did not come back is made anew")
	if got := migrate(b, nodes[2], "KEYS", "{foo}made"); got != busy+".\r\n" {
		t.Errorf("MIGRATE of a key that was made anew: %q", got)
	}
	if got := b.Do("CLUSTER", "COUNTKEYSINSLOT", "12182").Raw; got != ":2\r\n" { // written, made
		t.Errorf("left at the target: %q", got)
	}
}
