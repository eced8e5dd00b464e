package engine

import "cairn/engine/layout"

// SetClock tells the record cache the time in seconds, for OBJECT IDLETIME and FREQ.
func (s *Store) SetClock(sec uint32) { s.cache.SetNow(sec) }

// Access says how long ago, in seconds, a key's record was used and how often, as the record cache knows: it
// forgets what it no longer holds. Asking is no use.
func (s *Store) Access(slot uint16, key []byte) (idleSec uint32, freq uint8, ok bool) {
	return s.cache.Access(kindRecord, slot, layout.Hash(key), key)
}

// SetAccess sets both.
func (s *Store) SetAccess(slot uint16, key []byte, idleSec uint32, freq uint8) {
	s.cache.SetAccess(kindRecord, slot, layout.Hash(key), key, idleSec, freq)
}
