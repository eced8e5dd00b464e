package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

func stageRows(t *testing.T, s *Store, key string, rows int) *Staged {
	t.Helper()
	g, err := s.Stage(slot.Of([]byte(key)), false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := g.Put(fmt.Appendf(nil, "e%06d", i), make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	return g
}

func adopt(t *testing.T, s *Store, key string, g *Staged) error {
	t.Helper()
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte(key))}, true, 1000)
	k, err := txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := txn.Adopt(g); err != nil {
		txn.End()
		return err
	}
	k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: g.Gen(), Count: uint64(g.Rows())}
	txn.Put(k)
	_, err = txn.Commit()
	return err
}

func countRows(t *testing.T, s *Store) (n int) {
	t.Helper()
	it, err := s.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.SeekGE([]byte{layout.SpaceSlot}); ok; ok = it.Next() {
		n++
	}
	return n
}

// A staged value is there as a whole once adopted, also after a crash at any moment in between; what was never
// adopted leaves nothing behind.
func TestStaged(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store {
		s, _, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(&memLog{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	const rows = 5000
	stageRows(t, s, "never", rows) // and never closed either, as when the process dies
	if err := adopt(t, s, "kept", stageRows(t, s, "kept", rows)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	s = open()
	testkit.Eventually(t, 10*time.Second, func() bool {
		if err := s.Apply(); err != nil {
			t.Fatal(err)
		}
		return countRows(t, s) == rows+1
	}, "rows that nothing names to go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestStagedDropped(t *testing.T) {
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	g := stageRows(t, s, "k", 10)
	txn := s.NewTxn()
	txn.BeginAll(true, 1000)
	txn.DropAll()
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := adopt(t, s, "k", g); !errors.Is(err, ErrDropped) {
		t.Fatalf("adopting a value whose rows a drop took: %v, want %v", err, ErrDropped)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := adopt(t, s, "k", stageRows(t, s, "k", 10)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := countRows(t, s); n != 11 {
		t.Fatalf("%d rows, want a record and its 10 elements", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
