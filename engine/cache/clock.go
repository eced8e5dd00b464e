package cache

import "cairn/internal/invariant"

const (
	// A sweep spares referenced rows for a while, then takes any clean row. Bounded, so that one write never pays
	// for a whole shard.
	gentleSteps = 64
	sweepSteps  = 192
	barrenRest  = 16

	shedPages = 4 // pages of many rows that a shard looks at before it says that it has none to give
)

// pinned says that a row may not leave: it is dirty or superseded. A dead row of the current epoch may leave, the
// drop took it off its list.
//
// The version is read before the epoch. The other way round, a cut and a drop between the two reads would pass a
// frozen row, still on its list, for one that was dropped unfrozen.
func (s *shard) pinned(r row) bool {
	if r.is(flagSuperseded) {
		return true
	}
	if r.epoch() <= s.c.applied.Load() {
		return false
	}
	dead := s.dead(r)
	return !dead || s.c.cur.Load() != r.epoch()
}

func (s *shard) dead(r row) bool { return r.version() != s.c.versions[r.slot()].Load() }

// obtain returns a used block. With must it always does, above the limit if need be; otherwise 0 means no room.
func (s *shard) obtain(units uint32, must bool) uint32 {
	if ref := s.allocFree(units); ref != 0 {
		return ref
	}
	c := s.c
	size := s.pageFor(units)
	if c.total.Load()+size > c.limit.Load() {
		if ref := s.reclaim(units, size); ref != 0 {
			return ref
		}
		// The shard may have little and the others much: go one page above the limit, another gives one back
		// (trim). Clean rows do so only as long as that keeps working.
		if !must && c.total.Load() > c.limit.Load() {
			return 0
		}
	}
	if s.addPage(size) == 0 {
		invariant.Check(!must, "shard has %d pages, limit %d", len(s.pages), maxPages)
		return 0
	}
	return s.allocFree(units)
}

// reclaim evicts rows of this shard until a block of that size is free and takes it. 0 if it found none.
func (s *shard) reclaim(units uint32, size int64) uint32 {
	var ref uint32
	if int64(units)*unit == size {
		ref = s.reclaimPage(units)
	} else if s.barren > 0 {
		s.barren--
	} else {
		before := s.evictions
		if ref = s.sweep(units); ref == 0 && s.evictions == before {
			s.barren = barrenRest
		}
	}
	if ref != 0 {
		s.take(ref, units)
	}
	return ref
}

// sweep moves the CLOCK hand. Neighbours that it frees join, so a large enough block appears also among small rows.
func (s *shard) sweep(units uint32) uint32 {
	for n := 0; n < sweepSteps; n++ {
		if s.pages[pageOf(s.hand)] == nil {
			s.hand = s.pageAfter(pageOf(s.hand)) << refOffBits
			if s.hand == 0 {
				return 0
			}
		}
		ref := s.hand
		r := s.row(ref)
		if r.used() && s.evictable(r, n < gentleSteps) {
			if ref = s.evict(ref); ref == 0 {
				continue // the page is gone, and the hand on another
			}
			r = s.row(ref)
		}
		size := r.units()
		// The hand goes on even when the block is taken: standing on it, it would evict the row that is about to
		// be written there before all others.
		if s.atEnd(r, size) {
			s.hand = s.pageAfter(pageOf(ref)) << refOffBits
		} else {
			s.hand = ref + size
		}
		if !r.used() && size >= units {
			return ref
		}
	}
	return 0
}

// evictable gives a referenced row its second chance when gentle. Dead rows have none.
func (s *shard) evictable(r row, gentle bool) bool {
	if s.pinned(r) {
		return false
	}
	if gentle && r.is(flagReferenced) && !s.dead(r) {
		r[offFlags] &^= flagReferenced
		return false
	}
	return true
}

func (s *shard) evict(ref uint32) uint32 {
	s.takeOut(ref)
	return s.free(ref)
}

// takeOut ends what the index knows of a row whose memory is about to be another's. Positions in the index that were
// looked up before hold no longer.
func (s *shard) takeOut(ref uint32) {
	s.leave(s.row(ref))
	s.removeAt(s.position(ref))
	s.evictions++
	s.shrinkIndex()
}

// reclaimPage makes room for a row that will have a page to itself: it takes over that of a row of about its size, or
// drops pages until there is room for a new one, and returns 0. Taking over spares the collector the garbage that a new
// page for each large row would be. Small rows and large ones have the same chance to stay: a hand goes over all pages, and
// spares those that are in use.
func (s *shard) reclaimPage(units uint32) uint32 {
	shared, dropped := 0, uint32(0)
	for range gentleSteps {
		n := s.pageAfter(s.shedHand)
		if n == 0 || shared == shedPages {
			return 0
		}
		s.shedHand = n
		ref := n << refOffBits
		have := s.row(ref).units()
		if !s.alone(ref) {
			shared++
		}
		if !s.cold(n) {
			continue
		}
		if s.alone(ref) && have >= units && have <= units+units/4 {
			s.takeOut(ref)
			s.row(ref).setHead(have << headShift)
			s.link(ref, have)
			return ref
		}
		size := uint32(len(s.pages[n]) / unit)
		s.empty(n)
		s.dropPage(n)
		if dropped += size; dropped >= units {
			return 0
		}
	}
	return 0
}

// alone says that a row has its page to itself.
func (s *shard) alone(ref uint32) bool {
	r := s.row(ref)
	return ref&refOffMask == 0 && r.used() && s.atEnd(r, r.units())
}

// cold says that no row of a page is pinned and that what was accessed since this was asked last is less than half of it.
func (s *shard) cold(n uint32) bool {
	accessed, pinned := uint32(0), false
	s.walk(n, func(_ uint32, r row) bool {
		if r.used() {
			pinned = s.pinned(r)
			if r.is(flagReferenced) && !s.dead(r) {
				accessed += r.units()
			}
		}
		return !pinned
	})
	if pinned {
		return false
	}
	if int(accessed)*unit*2 < len(s.pages[n]) {
		return true
	}
	s.walk(n, func(_ uint32, r row) bool {
		if r.used() {
			r[offFlags] &^= flagReferenced
		}
		return true
	})
	return false
}

// walk goes over the blocks of a page, in their order, until f says false.
func (s *shard) walk(n uint32, f func(ref uint32, r row) bool) {
	for ref := n << refOffBits; ; {
		r := s.row(ref)
		units := r.units()
		end := s.atEnd(r, units)
		if !f(ref, r) || end {
			return
		}
		ref += units
	}
}

// trim brings the cache back to its limit, asking so many shards for a page.
func (c *Cache) trim(shards int) bool {
	progress := false
	for ; shards > 0 && c.total.Load() > c.limit.Load(); shards-- {
		s := &c.shards[c.next.Add(1)%numShards]
		s.mu.Lock()
		progress = s.shed() || progress
		s.mu.Unlock()
	}
	return progress
}

// trimAll trims until the limit holds or no shard has a page to give.
func (c *Cache) trimAll() {
	// A shard looks at a few pages at a time; this many fruitless rounds have looked at every page of most.
	for fruitless := 0; fruitless < 64 && c.total.Load() > c.limit.Load(); fruitless++ {
		if c.trim(numShards) {
			fruitless = 0
		}
	}
}

// shed gives a page back, or the spare room of index and briefs.
func (s *shard) shed() bool {
	shrunk := s.shedBriefs()
	shrunk = s.shrinkIndex() || shrunk
	for range shedPages {
		n := s.pageAfter(s.shedHand)
		if n == 0 {
			return shrunk
		}
		s.shedHand = n
		if s.sheddable(n) {
			s.empty(n)
			s.dropPage(n)
			return true
		}
	}
	return shrunk
}

// sheddable says that no row of the page is pinned. A row with a page to itself has a second chance here; rows that
// share one are moved if they deserve it.
func (s *shard) sheddable(n uint32) bool {
	if ref := n << refOffBits; s.alone(ref) {
		return s.evictable(s.row(ref), true)
	}
	pinned := false
	s.walk(n, func(_ uint32, r row) bool {
		pinned = r.used() && s.pinned(r)
		return !pinned
	})
	return !pinned
}

// empty takes all blocks of a page out of bins and index. Referenced rows move to free blocks elsewhere, as far as
// there are any; the others are evicted.
func (s *shard) empty(n uint32) {
	s.walk(n, func(ref uint32, r row) bool { // first, so that no row moves within its page
		if !r.used() {
			s.unlink(ref)
		}
		return true
	})
	s.walk(n, func(ref uint32, r row) bool {
		if !r.used() {
			return true
		}
		pos := s.position(ref)
		size := headerLen + r.keyLen() + r.valLen()
		if r.is(flagReferenced) && !s.dead(r) {
			if to := s.allocFree(uint32((size + unit - 1) / unit)); to != 0 {
				r[offFlags] &^= flagReferenced
				copy(s.row(to)[offFlags:], r[offFlags:size])
				s.index[pos] = s.index[pos]>>32<<32 | uint64(to)
				return true
			}
		}
		s.takeOut(ref)
		return true
	})
}
