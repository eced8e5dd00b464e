package cache

import "hash/maphash"

// Briefs. A record that is evicted may leave a brief behind: twelve bytes that stand for the whole of it, where a row
// takes eighty. Who is about to overwrite a key far beyond memory has to know what was there, so that counts and sizes
// stay exact; a brief tells it without a look into the store below. Which records fit into one, and how, is the caller's
// (SetBriefs).
//
// A brief does not hold its key but 80 bits of a hash of it, under seeds that nobody outside of the process knows: of a
// hundred million briefs one is taken for another key's once in 10^18 looks for keys that have none. The slot's version
// is part of the hash, so a drop makes the briefs of a slot dead as it does rows.
//
// What holds always: if there is a brief of a key, it says what the key's record is, or the cache has a row of the
// record. So readers look for the row first, and whatever takes a record's row out of the index tells the briefs
// (leave). While nothing is evicted there are none.
//
// They take two fifths of the limit at most, and as much as has been asked for. Giving it back while only reads of popular
// values have use for it was tried: these were no faster for it, and writes had to learn everything anew. Each is in one of two buckets, the
// emptier one when it came, and goes to the other to make way: so nearly all places are in use before one has to go.

const (
	briefShare     = 0.4 // of the limit
	bucketBriefs   = 5
	bucketBytes    = 64  // a line of memory
	briefsFewest   = 2   // buckets of a shard that has any
	briefsCrowded  = 0.8 // a key without a place makes the table grow once so much of it is in use
	briefsSpare    = 4   // a table that is larger than it may be by less than one part stays
	versionScatter = 0x9e3779b97f4a7c15
)

// bucket is where the briefs of some keys are. A mark of 0 is a free place.
type bucket struct {
	marks [bucketBriefs]uint64
	more  [bucketBriefs]uint16 // more bits of the hash
	says  [bucketBriefs]uint16
	_     uint32
}

// briefs are those of one shard, under its mutex. A key's buckets follow from its mark, so that the table can be made
// larger and smaller without keys.
type briefs struct {
	buckets []bucket
	used    int
	uses    int64
}

// mark is what a brief knows a key by.
type mark struct {
	hash uint64 // never 0
	more uint16
}

type briefMaker struct {
	seeds [2]maphash.Seed
	of    func(record []byte) (brief uint16, ok bool)
}

// SetBriefs makes records leave briefs: of gives what stands for an encoded record, or says that nothing so short does.
// Comes before the first row.
func (c *Cache) SetBriefs(of func(record []byte) (brief uint16, ok bool)) {
	c.briefs = briefMaker{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, of: of}
}

func (c *Cache) mark(ver uint32, key []byte) mark {
	hash := maphash.Bytes(c.briefs.seeds[0], key) ^ uint64(ver)*versionScatter
	if hash == 0 {
		hash = 1
	}
	return mark{hash, uint16(maphash.Bytes(c.briefs.seeds[1], key))}
}

// Brief returns what stands for the record of a key whose row Get did not find. The slot's lock must not have been let go
// since. counts says whether a look into the store below is spared by it.
func (c *Cache) Brief(slot uint16, h uint64, key []byte, counts bool) (brief uint16, ok bool) {
	if c.briefBytes.Load() == 0 {
		return 0, false
	}
	m := c.mark(c.versions[slot].Load(), key)
	s, _ := c.home(KindRecord, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	b, at := s.briefs.find(m)
	if b == nil {
		return 0, false
	}
	if counts {
		s.briefs.uses++
	}
	return b.says[at], true
}

// leave brings the briefs in step with a row that is about to leave the index.
func (s *shard) leave(r row) {
	if s.c.briefs.of == nil || r.kind() != KindRecord || s.dead(r) {
		return
	}
	var says uint16
	stands := false
	if !r.is(flagDeleted) {
		says, stands = s.c.briefs.of(r.val())
	}
	if !stands && s.briefs.used == 0 {
		return
	}
	m := s.c.mark(r.version(), r.key())
	b, at := s.briefs.find(m)
	switch {
	case b == nil && stands:
		s.keepBrief(m, says)
	case stands:
		b.says[at] = says
	case b != nil:
		b.marks[at] = 0
		s.briefs.used--
	}
}

// pair gives the two buckets of a hash; they may be one.
func (t *briefs) pair(hash uint64) [2]*bucket {
	n := uint64(len(t.buckets))
	return [2]*bucket{&t.buckets[hash>>32*n>>32], &t.buckets[hash&(1<<32-1)*n>>32]}
}

// find returns where m is, nil if nowhere.
func (t *briefs) find(m mark) (*bucket, int) {
	if t.used == 0 {
		return nil, 0
	}
	for _, b := range t.pair(m.hash) {
		for i := range b.marks {
			if b.marks[i] == m.hash && b.more[i] == m.more {
				return b, i
			}
		}
	}
	return nil, 0
}

// keepBrief finds a place for a brief that is in none, another's if need be.
func (s *shard) keepBrief(m mark, says uint16) {
	t := &s.briefs
	for len(t.buckets) == 0 || !t.put(m, says) {
		size := len(t.buckets)
		if size == 0 || float64(t.used) > float64(size*bucketBriefs)*briefsCrowded {
			size = min(max(2*size, briefsFewest), s.briefsMost())
		}
		if size > len(t.buckets) {
			s.resizeBriefs(size)
			continue
		}
		if size > 0 && !t.makeWay(m, says) {
			at := s.rand()
			t.pair(m.hash)[at&1].set(int(at>>1%bucketBriefs), m, says)
		}
		return
	}
}

// put puts a brief into the emptier of its buckets, if there is a place.
func (t *briefs) put(m mark, says uint16) bool {
	p := t.pair(m.hash)
	at, free := p[0].free()
	b := p[0]
	if at1, free1 := p[1].free(); free1 > free {
		b, at, free = p[1], at1, free1
	}
	if free == 0 {
		return false
	}
	b.set(at, m, says)
	t.used++
	return true
}

// makeWay is put for a brief whose buckets are full: one of those there goes to its other bucket, if there is a place.
func (t *briefs) makeWay(m mark, says uint16) bool {
	for _, b := range t.pair(m.hash) {
		for at, hash := range b.marks {
			for _, other := range t.pair(hash) {
				if to, free := other.free(); free > 0 {
					other.set(to, mark{hash, b.more[at]}, b.says[at])
					b.set(at, m, says)
					t.used++
					return true
				}
			}
		}
	}
	return false
}

func (b *bucket) set(at int, m mark, says uint16) {
	b.marks[at], b.more[at], b.says[at] = m.hash, m.more, says
}

// free returns a free place, and how many there are.
func (b *bucket) free() (at, n int) {
	for i, m := range b.marks {
		if m == 0 {
			at, n = i, n+1
		}
	}
	return at, n
}

// briefsMost is how many buckets a shard may have.
func (s *shard) briefsMost() int {
	return int(float64(max(0, s.c.limit.Load())) * briefShare / numShards / bucketBytes)
}

// resizeBriefs makes the table so many buckets large. What does not fit goes.
func (s *shard) resizeBriefs(size int) {
	old := s.briefs.buckets
	s.briefs.buckets, s.briefs.used = nil, 0
	if size > 0 {
		s.briefs.buckets = make([]bucket, size)
	}
	grown := int64(size-len(old)) * bucketBytes
	s.c.total.Add(grown)
	s.c.briefBytes.Add(grown)
	if size == 0 {
		return
	}
	for i := range old {
		b := &old[i]
		for at, hash := range b.marks {
			if hash != 0 {
				s.briefs.put(mark{hash, b.more[at]}, b.says[at])
			}
		}
	}
}

// shedBriefs gives back what a table has beyond what it may.
func (s *shard) shedBriefs() bool {
	most := s.briefsMost()
	if len(s.briefs.buckets) <= most+most/briefsSpare {
		return false
	}
	s.resizeBriefs(most)
	return true
}

// forgetBriefs empties all tables.
func (c *Cache) forgetBriefs() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.resizeBriefs(0)
		s.mu.Unlock()
	}
}
