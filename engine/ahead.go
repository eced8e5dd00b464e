package engine

import (
	"unsafe"

	"cairn/engine/layout"
	"cairn/internal/prefetch"
	"cairn/internal/slot"
)

// Ahead is a key that a command is about to name, and what has to be reckoned of it anyway. Without a key it is of a
// command that names none.
type Ahead struct {
	Key  []byte
	Slot uint16
	hash uint64
}

// Prefetch has the processor fetch what a look at the keys will meet in memory: their misses are waited for together and
// not one after the other. It fills in the rest of each Ahead, takes no lock and reads no disk.
func (s *Store) Prefetch(keys []Ahead) {
	for i := range keys {
		a := &keys[i]
		if len(a.Key) == 0 {
			continue
		}
		a.Slot, a.hash = slot.Of(a.Key), layout.Hash(a.Key)
		st := &s.slots[a.Slot]
		prefetch.Line(unsafe.Pointer(&st.mu))
		prefetch.Line(unsafe.Pointer(&st.filter))
		s.cache.AheadIndex(a.Slot, a.hash)
	}
	for i := range keys {
		if len(keys[i].Key) > 0 {
			s.cache.AheadRow(keys[i].Slot, keys[i].hash)
		}
	}
}
