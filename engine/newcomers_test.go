package engine

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// A value is refused once, and again when so many others were refused that the set was emptied.
func TestNewcomersForget(t *testing.T) {
	n := newNewcomers(64 << 10)
	bits := uint64(len(n.words)) * 64
	if n.again(1) || !n.again(1) {
		t.Error("the first time is not told from the second")
	}
	for h := uint64(2); h <= bits/4+1; h++ {
		n.again(h)
	}
	if n.again(1) {
		t.Errorf("a value is known after %d others, of %d bits", bits/4, bits)
	}
	if got := len(newNewcomers(0).words); got != 1 {
		t.Errorf("the set for no cache has %d words, want 1", got)
	}
}

// A full cache takes in a value that is read from the disk for the second time, one with room any.
func TestValueIsKeptTheSecondTime(t *testing.T) {
	s := openFilterStore(t, vfs.NewMem())
	value := bytes.Repeat([]byte("v"), 2*layout.InlineMax)
	const values = 5000 // twice as many as there is room for
	s.change(func(txn *Txn) {
		for i := range values {
			k := s.key(i)
			k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(value))}
			txn.SetValue(k, value)
			txn.Put(k)
		}
	})
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	read := func(i int) (before, after cache.State) {
		t.Helper()
		s.txn.Begin([]uint16{slot.Of([]byte("{s}"))}, false, Forever)
		defer s.txn.End()
		k := s.key(i)
		before = s.cache.Has(kindValue, k.Slot, k.Hash, k.Name)
		if v, err := s.txn.Value(k); err != nil || !bytes.Equal(v, value) {
			t.Fatalf("value %d reads as %d bytes, %v", i, len(v), err)
		}
		return before, s.cache.Has(kindValue, k.Slot, k.Hash, k.Name)
	}
	limit := s.cache.Limit()
	const tried = 100
	first, second, missed := 0, 0, 0
	for i := 0; i < values && missed < tried; i++ {
		if before, after := read(i); before == cache.Hit {
			continue
		} else if after == cache.Hit {
			first++
		}
		if _, after := read(i); after == cache.Hit {
			second++
		}
		missed++
	}
	if missed < tried || first > tried/2 || second < tried*9/10 {
		t.Errorf("of %d values that are not in the full cache, %d are after the first time, %d after the second", missed, first, second)
	}
	s.cache.SetLimit(0)
	s.cache.SetLimit(limit)
	if before, after := read(0); before == cache.Hit || after != cache.Hit {
		t.Errorf("in a cache with room a value is in state %d before it was read, %d after it", before, after)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
