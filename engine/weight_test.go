package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// Many small changes of one key leave next to nothing pending and little log, and take long to be executed again: the store
// is flushed for them, without waiting for the interval.
func TestSmallChangesAreFlushed(t *testing.T) {
	const limit = 1 << 20
	open := func(log *memLog) *Store {
		s, _, err := Open(Options{
			FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20,
			CutInterval: time.Hour, RecoveryAge: time.Hour, RecoveryLogBytes: limit,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(log); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	log := &memLog{}
	s := open(log)
	txn := s.NewTxn()
	n := 0
	for Weight(log.End(), int64(n)) < limit/2 { // the look that finds it heavy comes at a whole number of lookEvery
		set(t, txn, "k", "1")
		n++
	}
	if log.End() >= limit/2 {
		t.Fatalf("%d bytes of log are heavy by themselves", log.End())
	}
	if got := s.Durable(); got != 0 {
		t.Fatalf("durable up to %d before anything was heavy", got)
	}
	for n%lookEvery != 0 {
		set(t, txn, "k", "1")
		n++
	}
	end := log.End()
	testkit.Eventually(t, 10*time.Second, func() bool { return s.Durable() == end }, "a flush for %d changes of %d bytes", n, end)
	testkit.Eventually(t, 10*time.Second, func() bool { return !s.flushing.Load() }, "the end of the flush")
	if s.logHeavy() || s.Changes() != int64(n) || s.changes.durable.Load() != int64(n) {
		t.Errorf("heavy %v, %d changes, %d of them durable, want none beyond %d", s.logHeavy(), s.Changes(), s.changes.durable.Load(), n)
	}

	// As many bytes in few changes weigh less.
	log = &memLog{}
	s = open(log)
	txn = s.NewTxn()
	for log.End() < end {
		set(t, txn, "k", string(make([]byte, 10_000)))
	}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	if s.flushing.Load() || s.Durable() != 0 {
		t.Errorf("%d bytes in %d changes were flushed", log.End(), s.Changes())
	}
}

// A commit counts for all that it changes.
func TestChangesOfACommit(t *testing.T) {
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	txn := s.NewTxn()
	sl := slot.Of([]byte("{k}"))
	for name, test := range map[string]struct {
		change func()
		want   int64
	}{
		"nothing":        {func() {}, 0},
		"an entry alone": {func() { txn.LogStrings("SPUBLISH", []byte("{k}"), []byte("m")) }, 1},
		"three keys": {func() {
			for i := range 3 {
				k, err := txn.Key(fmt.Appendf(nil, "{k}%d", i))
				if err != nil {
					t.Fatal(err)
				}
				k.Rec = layout.Record{Type: layout.String, Body: []byte("v")}
				txn.Put(k)
			}
		}, 3},
		"one key of five rows": {func() {
			k, err := txn.Key([]byte("{k}h"))
			if err != nil {
				t.Fatal(err)
			}
			k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: txn.NewGeneration(), Count: 5}
			for i := range 5 {
				txn.PutElement(k, fmt.Append(nil, i), []byte("v"))
			}
			txn.Put(k)
		}, 5},
		"all": {func() { txn.DropAll() }, 1},
	} {
		before := s.Changes()
		if name == "all" {
			txn.BeginAll(true, 1000)
		} else {
			txn.Begin([]uint16{sl}, true, 1000)
		}
		test.change()
		if _, err := txn.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := s.Changes() - before; got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
