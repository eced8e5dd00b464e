package cache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Pages of a long list, in both epochs and while it grows, give what one scan of everything gives.
func TestScanDirtyLong(t *testing.T) {
	c := New(64 << 20)
	r := rand.New(rand.NewPCG(3, 4))
	want := map[string]uint64{}
	hashOf := func(i int) uint64 {
		h := rand.New(rand.NewPCG(uint64(i), 9)).Uint64()
		if i%50 == 0 {
			h = h >> 60 << 60 // many share a place and differ in name only
		}
		return h
	}
	write := func(n int) {
		for range n {
			i := r.IntN(3 * listPartsFrom)
			key := fmt.Appendf(nil, "k%d", i)
			c.Put(KindRecord, 5, hashOf(i), key, []byte("v"))
			c.Put(KindValue, 5, hashOf(i), key, []byte("v"))
			want[string(key)] = hashOf(i)
		}
	}
	check := func(limit int) {
		t.Helper()
		var got []Row
		buf := &RowBuf{}
		for from, more := uint64(0), true; more; {
			var rows []Row
			rows, from, more = c.ScanDirty(buf, 5, from, limit)
			for _, row := range rows {
				row.Key = bytes.Clone(row.Key)
				got = append(got, row)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("pages of %d give %d rows, want %d", limit, len(got), len(want))
		}
		for i, row := range got {
			if want[string(row.Key)] != row.Hash {
				t.Fatalf("row %s has hash %x, want %x", row.Key, row.Hash, want[string(row.Key)])
			}
			if i > 0 && (got[i-1].Hash>>16 > row.Hash>>16 || got[i-1].Hash>>16 == row.Hash>>16 && string(got[i-1].Key) >= string(row.Key)) {
				t.Fatalf("row %d is not behind the one before", i)
			}
		}
	}
	for range 4 {
		write(listPartsFrom)
		for _, limit := range []int{0, 1, 7, 1000} {
			check(limit)
		}
	}
	c.Cut()
	check(100)
	write(2 * listPartsFrom)
	check(50)
	c.DropSlot(5)
	clear(want)
	check(10)
	write(listPartsFrom)
	check(10)
	if rows, _, _ := c.ScanDirty(&RowBuf{}, 6, 0, 10); len(rows) != 0 {
		t.Fatal("another slot has rows")
	}
}
