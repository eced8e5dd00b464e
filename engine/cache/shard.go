package cache

import (
	"sync"
	"sync/atomic"

	"cairn/internal/invariant"
)

const minIndex = 16 // entries; a power of two

// shard is a part of the cache with its own mutex. The index is open addressing with linear probing; an entry is
// tag << 32 | ref, 0 is empty (no ref is 0, as page 0 does not exist). An entry's home is its tag modulo the size,
// so that growing and deleting read no rows. The index holds the newest row of each key and kind, dead ones too.
type shard struct {
	mu sync.Mutex
	c  *Cache

	index []uint64
	first atomic.Pointer[firstEntry] // of index
	rows  int

	pages     [][]byte
	freePages []uint32 // numbers without a page
	bins      [numBins]uint32
	binMap    [numBins/64 + 1]uint64

	briefs briefs

	limbo []uint32 // superseded rows, kept until their epoch is applied

	hand     uint32 // CLOCK: ref of the block to look at next, always the start of one
	shedHand uint32 // page to look at next when memory is given back
	barren   int    // allocations that need not sweep, since the last sweep found nothing

	random                  uint32
	hits, misses, evictions int64
}

func (s *shard) init(c *Cache, n uint32) {
	s.c = c
	s.pages = make([][]byte, 1)
	s.random = n*0x9e3779b9 + 1
	s.setIndex(make([]uint64, minIndex))
}

func (s *shard) setIndex(index []uint64) {
	s.c.total.Add(int64(len(index)-len(s.index)) * 8)
	s.index = index
	s.first.Store(&firstEntry{&index[0], uint32(len(index) - 1)})
}

// lookup returns the index position and the ref of a key's newest row, dead or alive; ref 0 if there is none.
func (s *shard) lookup(tag uint32, kind uint8, h uint64, key []byte) (pos, ref uint32) {
	mask := uint32(len(s.index) - 1)
	for pos = tag & mask; ; pos = (pos + 1) & mask {
		e := s.index[pos]
		if e == 0 {
			return 0, 0
		}
		if uint32(e>>32) == tag && s.row(uint32(e)).match(kind, h, key) {
			return pos, uint32(e)
		}
	}
}

// find returns a key's row if it is alive.
func (s *shard) find(tag uint32, kind uint8, ver uint32, h uint64, key []byte) row {
	_, ref := s.lookup(tag, kind, h, key)
	if ref == 0 {
		return nil
	}
	r := s.row(ref)
	if r.version() != ver {
		return nil
	}
	return r
}

// position returns where the index holds ref.
func (s *shard) position(ref uint32) uint32 {
	r := s.row(ref)
	tag := uint32(mix(r.kind(), r.hash()))
	want := uint64(tag)<<32 | uint64(ref)
	mask := uint32(len(s.index) - 1)
	for pos := tag & mask; ; pos = (pos + 1) & mask {
		e := s.index[pos]
		if e == want {
			return pos
		}
		if e == 0 {
			invariant.Fail("row at ref %d is not in its index of %d rows", ref, s.rows)
		}
	}
}

func (s *shard) insert(tag, ref uint32) {
	if (s.rows+1)*4 > len(s.index)*3 {
		s.resizeIndex(len(s.index) * 2)
	}
	s.rows++
	place(s.index, uint64(tag)<<32|uint64(ref))
}

// shrinkIndex halves an index that is for many more rows than there are: few large ones may have followed many small
// ones, and what the index keeps they lack. Half as many rows again are needed until it grows again.
func (s *shard) shrinkIndex() bool {
	if len(s.index) <= minIndex || s.rows*4 >= len(s.index) {
		return false
	}
	s.resizeIndex(len(s.index) / 2)
	return true
}

func place(index []uint64, e uint64) {
	mask := uint32(len(index) - 1)
	pos := uint32(e>>32) & mask
	for index[pos] != 0 {
		pos = (pos + 1) & mask
	}
	index[pos] = e
}

func (s *shard) resizeIndex(size int) {
	bigger := make([]uint64, size)
	for _, e := range s.index {
		if e != 0 {
			place(bigger, e)
		}
	}
	s.setIndex(bigger)
}

// removeAt empties a position and moves later entries of the run up, so that no tombstones are needed.
func (s *shard) removeAt(pos uint32) {
	mask := uint32(len(s.index) - 1)
	s.rows--
	for at := pos; ; {
		at = (at + 1) & mask
		e := s.index[at]
		if e == 0 {
			s.index[pos] = 0
			return
		}
		home := uint32(e>>32) & mask
		if (at-home)&mask >= (at-pos)&mask {
			s.index[pos] = e
			pos = at
		}
	}
}

// put writes a row of the current epoch. The slot's dirty list belongs to the caller, who holds the slot's lock.
func (s *shard) put(tag uint32, w *rowWrite) {
	c := s.c
	cur, applied, ver := c.cur.Load(), c.applied.Load(), c.versions[w.slot].Load()
	st := stamp{epoch: cur, version: ver, access: c.clock.now.Load(), freq: freqNew}
	units := w.units()

	pos, ref := s.lookup(tag, w.kind, w.hash, w.key)
	listed, had, was := false, uint32(0), ref
	if ref != 0 {
		r := s.row(ref)
		alive := r.version() == ver
		if alive && !r.is(flagDeleted) {
			st.freq = s.decayed(r)
		}
		st.flags = flagReferenced
		// A dead row of the current epoch is in no list: the drop emptied it.
		if listed = r.epoch() == cur && alive; listed {
			st.dirtyAt, had = r.dirtyAt(), r.units()
		}
		switch {
		case r.epoch() > applied && r.epoch() < cur:
			s.removeAt(pos)
			s.supersede(ref)
			ref = 0
		case r.units() < units || s.wasteful(ref, units):
			s.removeAt(pos)
			s.free(ref)
			ref = 0
		case r.units() > units+units/4+4:
			s.cutTail(ref, units)
		}
	}
	if ref == 0 {
		ref = s.obtain(units, true)
		s.insert(tag, ref)
	}
	r := s.row(ref)
	// A hot row that stays where it is needs no look at its list, which is memory of its own.
	if !listed || ref != was || r.units() != had {
		grown := (int64(r.units()) - int64(had)) * unit
		st.dirtyAt = c.list(dirtyRef{hash: w.hash, ref: ref, kind: w.kind}, w.slot, cur, listed, st.dirtyAt, grown)
	}
	r.store(w, st)
}

// fill keeps a clean row unless there is a row already or no room.
func (s *shard) fill(tag uint32, w *rowWrite) {
	c := s.c
	ver := c.versions[w.slot].Load()
	if pos, ref := s.lookup(tag, w.kind, w.hash, w.key); ref != 0 {
		r := s.row(ref)
		if r.version() == ver {
			return
		}
		s.removeAt(pos)
		if s.pinned(r) {
			s.supersede(ref)
		} else {
			s.free(ref)
		}
	}
	ref := s.obtain(w.units(), false)
	if ref == 0 {
		return
	}
	s.insert(tag, ref)
	s.row(ref).store(w, stamp{version: ver, access: c.clock.now.Load(), freq: freqNew})
}

// refresh changes a clean row in place, or lets it go when it does not fit there any more: then, and when there is none,
// it says false.
func (s *shard) refresh(tag uint32, w *rowWrite) bool {
	pos, ref := s.lookup(tag, w.kind, w.hash, w.key)
	if ref == 0 {
		return false
	}
	c, r := s.c, s.row(ref)
	invariant.Check(r.epoch() == 0, "refresh of a row of epoch %d, which may be dirty", r.epoch())
	units, ver := w.units(), c.versions[w.slot].Load()
	if r.version() != ver || r.units() < units || s.wasteful(ref, units) {
		s.removeAt(pos)
		s.free(ref)
		return false
	}
	if r.units() > units+units/4+4 {
		s.cutTail(ref, units)
	}
	s.row(ref).store(w, stamp{version: ver, access: c.clock.now.Load(), freq: r[offFreq], flags: flagReferenced})
	return true
}

// supersede keeps a frozen row that left the index until its epoch is applied.
func (s *shard) supersede(ref uint32) {
	s.row(ref)[offFlags] |= flagSuperseded
	s.limbo = append(s.limbo, ref)
}

// drainLimbo frees the superseded rows whose epoch is applied.
func (s *shard) drainLimbo() {
	applied := s.c.applied.Load()
	kept := s.limbo[:0]
	for _, ref := range s.limbo {
		if s.row(ref).epoch() > applied {
			kept = append(kept, ref)
			continue
		}
		s.free(ref)
	}
	s.limbo = kept
	if len(kept) == 0 && cap(kept) > 256 {
		s.limbo = nil
	}
}
