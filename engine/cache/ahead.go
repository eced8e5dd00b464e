package cache

import (
	"unsafe"

	"cairn/internal/prefetch"
)

// Who knows which keys come next asks for them ahead: AheadIndex for all of them, then AheadRow. Both are advice, may be
// called without any lock, and never wait.

// rowLines is how much of a row is fetched: its header, its key and a short value.
const rowLines = 3

// firstEntry is where a shard's index is, for who looks without its mutex.
type firstEntry struct {
	first *uint64
	mask  uint32
}

// AheadIndex fetches where a record of slot with hash h would be found.
func (c *Cache) AheadIndex(slot uint16, h uint64) {
	s, tag := c.home(KindRecord, h)
	if at := s.first.Load(); at != nil {
		prefetch.Line(unsafe.Add(unsafe.Pointer(at.first), uintptr(tag&at.mask)*unsafe.Sizeof(*at.first)))
	}
	prefetch.Line(unsafe.Pointer(&c.lists[c.cur.Load()&1][slot]))
}

// AheadRow fetches the record, and for who will write the slot's dirty list.
func (c *Cache) AheadRow(slot uint16, h uint64) {
	if l := c.lists[c.cur.Load()&1][slot].Load(); l != nil {
		prefetch.Line(unsafe.Pointer(l))
	}
	s, tag := c.home(KindRecord, h)
	if !s.mu.TryLock() {
		return
	}
	ref := s.likely(tag)
	var at row
	if ref != 0 {
		at = s.row(ref)
	}
	s.mu.Unlock()
	for n := 0; n < rowLines && n*prefetch.LineBytes < len(at); n++ {
		prefetch.Line(unsafe.Pointer(&at[n*prefetch.LineBytes])) // the page may be another's by now: it is not read
	}
}

// likely is the ref of a row with that tag, 0 if there is none. It looks at no row.
func (s *shard) likely(tag uint32) uint32 {
	mask := uint32(len(s.index) - 1)
	for pos := tag & mask; ; pos = (pos + 1) & mask {
		e := s.index[pos]
		if e == 0 || uint32(e>>32) == tag {
			return uint32(e)
		}
	}
}
