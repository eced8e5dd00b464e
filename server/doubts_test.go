package server

import (
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/slot"
)

// A node that was made a slot's owner before the slot had arrived serves of it what was written here. Of the rest the copies
// at the source may be newer: nobody reads or writes older ones, nor makes keys anew that are still to come.
func TestDoubtfulSlot(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	s, x := arrivalsOn(t, vfs.NewMem(), &now)
	dumpOf := func(value string) string {
		x.must(t, ok, "SET", "x", value)
		return bulk(x.do("DUMP", "x"))
	}
	older, newer := dumpOf("older"), dumpOf("newer")
	route(s, engine.SlotImporting)
	x.must(t, ok, "RESTORE-ASKING", "{k}arrived", "0", older)
	x.must(t, ok, "RESTORE-ASKING", "{k}written", "0", older)
	x.asking = true
	x.must(t, ":6\r\n", "APPEND", "{k}written", "!")
	before := s.store.Routing()
	route(s, unfinished)
	s.doubts.note(before, s.store.Routing(), now.Load())

	again := "-" + textDoubts + "\r\n"
	x.must(t, "$6\r\nolder!\r\n", "GET", "{k}written")
	x.must(t, ok, "SET", "{k}written", "1")
	x.must(t, again, "GET", "{k}arrived")
	x.must(t, again, "APPEND", "{k}arrived", "!")
	x.must(t, again, "SET", "{k}absent", "1")
	x.must(t, again, "MGET", "{k}written", "{k}arrived")
	x.must(t, ok, "MULTI")
	x.must(t, "+QUEUED\r\n", "INCR", "{k}written")
	x.must(t, again, "INCR", "{k}arrived")
	x.must(t, "-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	now.Add(doubtFor.Milliseconds() - 1)
	x.must(t, ok, "RESTORE-ASKING", "{k}arrived", "0", newer)
	now.Add(doubtFor.Milliseconds() - 1)
	x.must(t, again, "GET", "{k}arrived") // others may be on their way
	now.Add(1)
	x.must(t, "$5\r\nnewer\r\n", "GET", "{k}arrived")
	x.must(t, ok, "SET", "{k}absent", "1")

	// A slot that this node had all the time is none, and neither is one that came with its last step.
	sl := slot.Of([]byte("k"))
	s.doubts.note(s.store.Routing(), s.store.Routing(), now.Load())
	if s.doubts.has(sl, now.Load()) {
		t.Error("a slot that was owned before is doubtful")
	}
	route(s, engine.SlotOwned)
	s.doubts.note(before, s.store.Routing(), now.Load())
	if s.doubts.has(sl, now.Load()) || s.doubts.some.Load() && len(s.doubts.until) == 0 {
		t.Error("a slot that has arrived is doubtful")
	}
}
