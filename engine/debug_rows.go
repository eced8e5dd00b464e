package engine

import (
	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// DumpRows calls f for every row of keys and values that Pebble holds, in the order of row keys, until f fails.
// Node rows are left out: they say where a store stands, not what is in it. Both slices are valid within the
// call only. Two nodes with the same data have the same rows once Flush has come before, but for their
// generations and for what waits to be dropped: it is for tests and for people who look into a store.
func (s *Store) DumpRows(f func(row, val []byte) error) error {
	s.place.RLock()
	defer s.place.RUnlock()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SpaceSlot}})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		val, err := it.ValueAndErr()
		if err == nil {
			err = f(it.Key(), val)
		}
		if err != nil {
			_ = it.Close() // err says enough
			return err
		}
	}
	return it.Close()
}
