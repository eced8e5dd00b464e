package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Each group keeps from where entries without rows are to be read again.
func TestRecallIsKept(t *testing.T) {
	mem := vfs.NewMem()
	before := int64(0) // the log's end is that much further
	o := Options{FS: mem, Dir: "s", MemoryBudget: 16 << 20, Recall: func(end int64) int64 { return end - before }}
	for _, before = range []int64{0, 3, -3} { // none is later than what is applied
		s, _, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		log := &memLog{}
		if err := s.Attach(log); err != nil {
			t.Fatal(err)
		}
		set(t, s.NewTxn(), "a", "1")
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		want := s.Applied() - max(before, 0)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		after, opened, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if opened.Recall != want {
			t.Errorf("%d before the end: read again from %d, want %d", before, opened.Recall, want)
		}
		if err := after.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
}
