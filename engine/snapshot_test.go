package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
)

// checkSnapshot holds a snapshot against what putSet gave.
func checkSnapshot(t *testing.T, sn *Snapshot, tag string, n int) {
	t.Helper()
	if sn.Keys() != int64(n) {
		t.Errorf("snapshot counts %d keys, want %d", sn.Keys(), n)
	}
	seen := map[string]bool{}
	for _, part := range [][2]uint16{{0, 5000}, {5001, 5001}, {5002, 16383}} { // as parts, to see the borders
		w, err := sn.Walk(part[0], part[1])
		if err != nil {
			t.Fatal(err)
		}
		last := part[0]
		for w.Next() {
			if w.Slot() < last || w.Slot() > part[1] {
				t.Fatalf("key of slot %d after slot %d in a walk over %v", w.Slot(), last, part)
			}
			last = w.Slot()
			seen[string(w.Key())] = true
			checkSnapshotKey(t, w, tag)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != n {
		t.Errorf("walks show %d keys, want %d", len(seen), n)
	}
}

func checkSnapshotKey(t *testing.T, w *SnapshotWalk, tag string) {
	t.Helper()
	i := 0
	if _, err := fmt.Sscanf(string(w.Key()), "k%d", &i); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(tag, i)
	if w.Record().Form == layout.Rows {
		rows := 0
		err := w.Elements(func(_, val []byte) error {
			rows++
			if v, err := layout.DecodeHashValue(val); err != nil || string(v.Value) != want {
				return fmt.Errorf("element %q, %w", v.Value, err)
			}
			return nil
		})
		if err != nil || rows != 3 {
			t.Fatalf("%s: %d elements, %v", w.Key(), rows, err)
		}
		return
	}
	if w.Record().Form == layout.ValueRow {
		want = strings.Repeat(want, 200)
	}
	if v, err := w.Value(); err != nil || string(v) != want {
		t.Fatalf("%s: %.40q, %v", w.Key(), v, err)
	}
}

// A snapshot has everything up to its offset and nothing of what comes after, also when that is flushed and
// compacted.
func TestSnapshot(t *testing.T) {
	log := &cutLog{}
	s, _ := openWithLog(t, replaceOptions(vfs.NewMem()), log)
	empty, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	commitSet(t, s, log, "old", 300, 10)
	txn := s.NewTxn()
	set(t, txn, "k3", "old3") // pending when the snapshot is taken
	at := log.End()
	sn, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		set(t, txn, fmt.Sprint("k", i), "later")
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{3}, false); err != nil {
		t.Fatal(err)
	}
	if sn.Offset() != at || string(sn.History()) != "history old" {
		t.Errorf("snapshot at %d, want %d, history %q", sn.Offset(), at, sn.History())
	}
	checkSnapshot(t, sn, "old", 300)
	checkSnapshot(t, empty, "", 0)
	for range 2 {
		if err := sn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
