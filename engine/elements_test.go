package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// An element that is in the record cache is what the last commit made of it, also after a drop of its slot.
func TestCachedElementIsTheNewest(t *testing.T) {
	s := openFilterStore(t, vfs.NewMem())
	element := []byte("e")
	put := func(value string) {
		s.change(func(txn *Txn) {
			k := s.key(0)
			if !k.Exists() {
				k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: txn.NewGeneration(), Count: 1}
			}
			if value == "" {
				txn.DeleteElement(k, element)
			} else {
				txn.PutElement(k, element, []byte(value))
			}
			txn.Put(k)
		})
	}
	check := func(want string, wantState cache.State) {
		t.Helper()
		s.txn.Begin([]uint16{slot.Of([]byte("{s}"))}, false, Forever)
		defer s.txn.End()
		k := s.key(0)
		if !k.Exists() {
			if want != "" {
				t.Fatalf("no key, want element %q", want)
			}
			return
		}
		name := elementName(layout.AppendElementKey(nil, k.Slot, k.Rec.Gen, element))
		if got := s.cache.Has(kindElement, k.Slot, layout.Hash(name), name); got != wantState {
			t.Errorf("element %q: the cache says %d, want %d", want, got, wantState)
		}
		v, ok, err := s.txn.Element(k, element)
		if err != nil || string(v) != want || ok != (want != "") {
			t.Fatalf("element reads as %q, %v, %v, want %q", v, ok, err, want)
		}
	}
	long := string(make([]byte, 300))
	put("first")
	check("first", cache.Hit) // there was room for it
	put("other")
	check("other", cache.Hit)
	put(long) // does not fit in its place
	check(long, cache.Hit)
	put("")
	check("", cache.Absent)
	put("again")
	check("again", cache.Hit)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	check("again", cache.Hit) // and not asked from below
	s.change(func(txn *Txn) { txn.DropSlot(slot.Of([]byte("{s}"))) })
	check("", cache.Miss)
	put("new")
	check("new", cache.Hit)
}
