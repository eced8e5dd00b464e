package engine

import (
	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// Warm brings the record of a key into the record cache, if it is not there: for whoever knows which keys come
// next and has several goroutines, while commands must be executed one after the other. An error is left to who
// reads the key for good.
func (s *Store) Warm(name, scratch []byte) []byte {
	sl, h := slot.Of(name), layout.Hash(name)
	st := &s.slots[sl]
	st.mu.RLock()
	defer st.mu.RUnlock()
	if s.cache.Has(kindRecord, sl, h, name) != cache.Miss || s.droppedBelow(sl) || s.surelyAbsent(sl, h) {
		return scratch
	}
	if _, ok := s.cache.Brief(sl, h, name, true); ok {
		return scratch
	}
	row := layout.AppendRecordKey(scratch[:0], sl, h, name)
	raw, ok, err := s.get(row, row)
	switch {
	case err != nil:
	case ok:
		s.cache.Fill(kindRecord, sl, h, name, raw[len(row):])
	default:
		s.foundAbsent(sl)
		s.cache.FillAbsent(kindRecord, sl, h, name)
	}
	return raw
}
