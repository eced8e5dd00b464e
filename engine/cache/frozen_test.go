package cache

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The rows of an epoch are handed out in windows. Whatever the sizes of slots and rows, and whatever is written meanwhile, each
// row of the epoch comes once, as it was at the cut, slots and rows in order.
func TestFrozenWindows(t *testing.T) {
	for seed := range uint64(40) {
		f := &frozenFill{c: New(4 << 20), rng: rand.New(rand.NewPCG(seed, 1)), want: map[string][]byte{}}
		f.slots, f.longest = 1+f.rng.IntN(300), []int{20, 300, 3000, 60_000}[seed%4]
		for range f.rng.IntN(12_000) {
			f.put(true)
		}
		f.c.Cut()
		for range 500 {
			f.put(false)
		}
		last := -1
		f.c.Frozen(func(slot uint16, rows []Row) bool {
			if int(slot) < last {
				t.Fatalf("seed %d: slot %d after %d", seed, slot, last)
			}
			last = int(slot)
			for i, r := range rows {
				if i > 0 && !rowBefore(rows[i-1], r) {
					t.Fatalf("seed %d, slot %d: row %d is not after the one before", seed, slot, i)
				}
				id := rowID(slot, r.Kind, r.Key)
				if val, ok := f.want[id]; !ok || !bytes.Equal(val, r.Val) {
					t.Fatalf("seed %d: row %s has %d bytes, want %d; wanted at all: %v", seed, id, len(r.Val), len(val), ok)
				}
				delete(f.want, id)
			}
			f.put(false)
			return true
		})
		if len(f.want) > 0 {
			t.Fatalf("seed %d: %d rows did not come", seed, len(f.want))
		}
		f.c.Applied()
	}
}

// frozenFill writes rows at random; want is what the epoch has.
type frozenFill struct {
	c              *Cache
	rng            *rand.Rand
	slots, longest int
	want           map[string][]byte
}

func (f *frozenFill) put(wanted bool) {
	slot := uint16(f.rng.IntN(f.slots))
	if f.rng.IntN(2) == 0 {
		slot = 7 // a large one
	}
	kind, n := uint8(f.rng.IntN(2)), f.rng.IntN(9000)
	key := fmt.Appendf(nil, "%d-%d", n, slot)
	val := bytes.Repeat([]byte{byte(f.rng.Uint32())}, f.rng.IntN(1+f.longest/(1+f.rng.IntN(50))))
	hash := uint64(n%500) * 0x9e3779b97f4a7c15 // several keys of one hash
	f.c.Put(kind, slot, hash, key, val)
	if wanted {
		f.want[rowID(slot, kind, key)] = val
	}
}

func rowID(slot uint16, kind uint8, key []byte) string {
	return fmt.Sprintf("%d/%d/%s", slot, kind, key)
}

// rowBefore is the order of rows within a slot.
func rowBefore(a, b Row) bool {
	if a.Kind != b.Kind {
		return a.Kind < b.Kind
	}
	if a.Hash>>16 != b.Hash>>16 {
		return a.Hash>>16 < b.Hash>>16
	}
	return bytes.Compare(a.Key, b.Key) < 0
}
