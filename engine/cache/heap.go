package cache

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// The memory of a shard: pages of at most 64 KiB cut into blocks, free blocks in bins by size class, neighbours that
// are free joined at once. Plain slabs, a page per size class, would bind 256 shards times some thirty classes before
// the first byte is well used, and what a class has it never gives back when values change their size. Joined blocks
// give it back by themselves, and the CLOCK hand can walk a page from block to block.
//
// A row larger than half a page has a page of its own, of any size.
const (
	minPage = 4 << 10
	maxPage = 64 << 10 // what an offset of 12 bits in units can reach

	refOffBits = 12
	refOffMask = 1<<refOffBits - 1
	maxPages   = 1 << (32 - refOffBits)

	exactBins = 32 // sizes of 1..32 units have a bin each
	numBins   = exactBins + 8*7 + 1
)

// bin returns the bin of a free block. From 32 units on, eight bins share a doubling.
func bin(units uint32) uint32 {
	if units <= exactBins {
		return units - 1
	}
	top := uint32(bits.Len32(units)) - 1 // 5 for 32..63
	b := exactBins + (top-5)*8 + (units>>(top-3))&7
	return min(b, numBins-1)
}

// wasteful says that a row of that size should not stay where it is, as its page is far too large and cannot be cut.
func (s *shard) wasteful(ref, units uint32) bool {
	return len(s.pages[pageOf(ref)]) > maxPage && s.row(ref).units()/2 > units
}

func pageOf(ref uint32) uint32 { return ref >> refOffBits }

// row returns the block at ref.
func (s *shard) row(ref uint32) row {
	p := s.pages[ref>>refOffBits]
	return row(p[(ref&refOffMask)*unit:])
}

// atEnd says that nothing follows a block of that size.
func (s *shard) atEnd(r row, units uint32) bool { return len(r) == int(units)*unit }

// allocFree takes a block from the bins, or returns 0.
func (s *shard) allocFree(units uint32) uint32 {
	b := bin(units)
	if b >= exactBins {
		// Blocks in its own bin may be a little too small: look at a few, then go to a bin where all fit.
		ref := s.bins[b]
		for n := 0; ref != 0 && n < 8; n++ {
			r := s.row(ref)
			if r.units() >= units {
				s.take(ref, units)
				return ref
			}
			ref = binary.LittleEndian.Uint32(r[offNext:])
		}
		b++
	}
	for w := b / 64; w < uint32(len(s.binMap)); w++ {
		m := s.binMap[w]
		if w == b/64 {
			m &= ^uint64(0) << (b % 64)
		}
		if m != 0 {
			ref := s.bins[w*64+uint32(bits.TrailingZeros64(m))]
			s.take(ref, units)
			return ref
		}
	}
	return 0
}

// take makes a free block of at least that size a used one and frees what is left of it.
func (s *shard) take(ref, units uint32) {
	s.unlink(ref)
	r := s.row(ref)
	have := r.units()
	r.setHead(have<<headShift | r.head()&headPrevFree | headUsed)
	if !s.atEnd(r, have) {
		next := row(r[have*unit:])
		next.setHead(next.head() &^ headPrevFree)
	}
	s.cutTail(ref, units)
}

// cutTail frees what a used block has beyond units, unless that is too little to be of use: no row has less than
// three units, and a large row leaves its page to the next only while it fills it. Only pages that refs can point into
// are cut.
func (s *shard) cutTail(ref, units uint32) {
	r := s.row(ref)
	have := r.units()
	if have-units < max(3, units/8) || len(s.pages[pageOf(ref)]) > maxPage {
		return
	}
	r.setHead(units<<headShift | r.head()&headPrevFree | headUsed)
	rest := row(r[units*unit:])
	rest.setHead((have-units)<<headShift | headUsed)
	s.free(ref + units)
}

// free gives a used block back, joined with its free neighbours, and returns the ref of the joined block: 0 if the
// page went with it.
func (s *shard) free(ref uint32) uint32 {
	r := s.row(ref)
	units := r.units()
	if !s.atEnd(r, units) {
		if next := row(r[units*unit:]); !next.used() {
			s.unlink(ref + units)
			s.joined(ref+units, ref)
			units += next.units()
		}
	}
	prevFree := r.head() & headPrevFree
	if prevFree != 0 {
		page := s.pages[pageOf(ref)]
		off := (ref & refOffMask) * unit
		before := binary.LittleEndian.Uint32(page[off-4:])
		s.unlink(ref - before)
		s.joined(ref, ref-before)
		ref -= before
		units += before
		r = s.row(ref)
	}
	// Two free blocks are never neighbours, so the block before the joined one is a row.
	r.setHead(units << headShift)
	whole := int(units)*unit == len(s.pages[pageOf(ref)])
	if whole && (len(r) > maxPage || s.c.total.Load() > s.c.limit.Load()) {
		s.dropPage(pageOf(ref))
		return 0
	}
	binary.LittleEndian.PutUint32(r[units*unit-4:], units)
	if !s.atEnd(r, units) {
		next := row(r[units*unit:])
		next.setHead(next.head() | headPrevFree)
	}
	s.link(ref, units)
	return ref
}

// joined keeps the CLOCK hand on the start of a block.
func (s *shard) joined(gone, start uint32) {
	if s.hand == gone {
		s.hand = start
	}
}

func (s *shard) link(ref, units uint32) {
	b := bin(units)
	r := s.row(ref)
	head := s.bins[b]
	binary.LittleEndian.PutUint32(r[offNext:], head)
	binary.LittleEndian.PutUint32(r[offPrev:], 0)
	if head != 0 {
		binary.LittleEndian.PutUint32(s.row(head)[offPrev:], ref)
	}
	s.bins[b] = ref
	s.binMap[b/64] |= 1 << (b % 64)
}

func (s *shard) unlink(ref uint32) {
	r := s.row(ref)
	next := binary.LittleEndian.Uint32(r[offNext:])
	prev := binary.LittleEndian.Uint32(r[offPrev:])
	if next != 0 {
		binary.LittleEndian.PutUint32(s.row(next)[offPrev:], prev)
	}
	if prev != 0 {
		binary.LittleEndian.PutUint32(s.row(prev)[offNext:], next)
		return
	}
	b := bin(r.units())
	s.bins[b] = next
	if next == 0 {
		s.binMap[b/64] &^= 1 << (b % 64)
	}
}

// pageBytes is the size of an ordinary page: small under a small limit, since every shard has at least one.
func (s *shard) pageBytes() int64 {
	per := s.c.limit.Load() / numShards / 8
	if per < minPage {
		return minPage
	}
	return min(int64(1)<<(bits.Len64(uint64(per))-1), maxPage)
}

// pageFor is the size of the page that a row of that size would be put into.
func (s *shard) pageFor(units uint32) int64 {
	size := s.pageBytes()
	if need := int64(units) * unit; need > size/2 {
		return need
	}
	return size
}

// addPage makes a page of at least size bytes, one free block, and returns its ref; 0 if page numbers ran out.
func (s *shard) addPage(size int64) uint32 {
	var n uint32
	if last := len(s.freePages) - 1; last >= 0 {
		n = s.freePages[last]
		s.freePages = s.freePages[:last]
	} else if n = uint32(len(s.pages)); n >= maxPages {
		return 0
	} else {
		s.pages = append(s.pages, nil)
	}
	// Grow tells what the allocator really spends. Its bytes may hold anything, and nothing reads them unwritten.
	p := slices.Grow([]byte(nil), int(size))
	room := cap(p) &^ (unit - 1)
	if size <= maxPage {
		room = min(room, maxPage)
	}
	s.pages[n] = p[:room:room]
	s.c.total.Add(int64(room))
	ref := n << refOffBits
	units := uint32(room / unit)
	r := s.row(ref)
	r.setHead(units << headShift)
	binary.LittleEndian.PutUint32(r[len(r)-4:], units)
	s.link(ref, units)
	return ref
}

// dropPage gives a page back. None of its blocks may be in a bin or in the index.
func (s *shard) dropPage(n uint32) {
	s.c.total.Add(-int64(len(s.pages[n])))
	s.pages[n] = nil
	s.freePages = append(s.freePages, n)
	if pageOf(s.hand) == n {
		s.hand = s.pageAfter(n) << refOffBits
	}
}

// pageAfter returns the number of the next page that exists, in a circle; 0 if there is none.
func (s *shard) pageAfter(n uint32) uint32 {
	count := uint32(len(s.pages))
	for i := uint32(1); i <= count; i++ {
		if at := (n + i) % count; s.pages[at] != nil {
			return at
		}
	}
	return 0
}
