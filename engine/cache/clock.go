package cache

import "cairn/internal/invariant"

const (
	// A sweep spares referenced rows for a while, then takes any clean row. Bounded, so that one write never pays
	// for a whole shard.
	gentleSteps = 64
	sweepSteps  = 192
	barrenRest  = 16

	shedPages = 4 // pages that a shard looks at before it says that it has none to give
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

// takeOut ends what the index knows of a row whose memory is about to be another's.
func (s *shard) takeOut(ref uint32) {
	s.leave(s.row(ref))
	s.removeAt(s.position(ref))
	s.evictions++
}

// reclaimPage looks for a row that has a page of about the wanted size to itself. Reusing that page spares the
// collector the garbage that a new page for each large row would be.
func (s *shard) reclaimPage(units uint32) uint32 {
	n := s.shedHand
	for range gentleSteps {
		if n = s.pageAfter(n); n == 0 {
			break
		}
		ref := n << refOffBits
		r := s.row(ref)
		have := r.units()
		if have < units || have > units+units/4 || !s.atEnd(r, have) || !r.used() || !s.evictable(r, true) {
			continue
		}
		s.shedHand = n
		// free would drop the page when the limit is passed, so the block changes hands without it.
		s.takeOut(ref)
		r.setHead(have << headShift)
		s.link(ref, have)
		return ref
	}
	s.shedHand = n
	return 0
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
	if len(s.index) > minIndex && s.rows*8 < len(s.index) {
		s.resizeIndex(len(s.index) / 2)
		shrunk = true
	}
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
	for ref := n << refOffBits; ; {
		r := s.row(ref)
		units := r.units()
		end := s.atEnd(r, units)
		if r.used() {
			alone := end && ref&refOffMask == 0
			if alone && !s.evictable(r, true) || s.pinned(r) {
				return false
			}
		}
		if end {
			return true
		}
		ref += units
	}
}

// empty takes all blocks of a page out of bins and index. Referenced rows move to free blocks elsewhere, as far as
// there are any; the others are evicted.
func (s *shard) empty(n uint32) {
	walk := func(f func(ref uint32, r row)) {
		for ref := n << refOffBits; ; {
			r := s.row(ref)
			units := r.units()
			end := s.atEnd(r, units)
			f(ref, r)
			if end {
				return
			}
			ref += units
		}
	}
	walk(func(ref uint32, r row) { // first, so that no row moves within its page
		if !r.used() {
			s.unlink(ref)
		}
	})
	walk(func(ref uint32, r row) {
		if !r.used() {
			return
		}
		pos := s.position(ref)
		size := headerLen + r.keyLen() + r.valLen()
		if r.is(flagReferenced) && !s.dead(r) {
			if to := s.allocFree(uint32((size + unit - 1) / unit)); to != 0 {
				r[offFlags] &^= flagReferenced
				copy(s.row(to)[offFlags:], r[offFlags:size])
				s.index[pos] = s.index[pos]>>32<<32 | uint64(to)
				return
			}
		}
		s.takeOut(ref)
	})
}
