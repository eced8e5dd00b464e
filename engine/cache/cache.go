// Package cache keeps point rows in memory: what was read from the store below, and what was written and is not
// there yet. It is the record cache and the pending set of small rows in one structure.
//
// Shape. A row belongs to a key of a slot and is of a kind: the key's record (KindRecord), the separate value
// of a string (KindValue), or an element of a large value that was read (KindElement: its key is the caller's name for
// it, and what is written of elements waits elsewhere). 256 shards, chosen by the key's hash, each with a mutex, an open-addressing index of
// {tag, ref} and pages of bytes that hold the rows (heap.go). Nothing in index or pages is a Go pointer, so the
// collector sees a few large objects whatever the number of rows.
//
// Epochs. Every row carries the epoch of its last write. Rows up to the applied epoch are clean: they are in the
// store below and may be evicted, and a tombstone among them says that the key does not exist. Rows of the current
// epoch and of the one before it, once frozen, are dirty and stay until they are applied.
//
//	... applied | frozen (at most one) | current
//	    clean   | read by the applier  | written by commits
//
// So that an apply ends is one store of a number, not a pass over rows. A write to a row of the current epoch, or
// to a clean one, replaces its bytes. A write to a frozen row makes a new one beside it, for the applier still has
// to read the old; that one is kept until its epoch is applied.
//
// Dropping a slot changes the slot's version; a row that carries another version is dead for readers. Dead rows
// of a frozen epoch are still handed to the applier, since the drop came after them.
//
// Memory. The limit binds pages, indexes and briefs (brief.go) together. Clean rows are evicted by a CLOCK hand per shard; a shard
// that finds nothing takes a page above the limit and another shard gives one back. If the rest is dirty the limit
// is passed: the caller slows down its writers by DirtyBytes. Beside the limit stand 16 bytes per dirty row, and
// up to about 6 MiB when every slot was written in two epochs.
//
// Locks. The caller guarantees:
//
//	Put, Delete, DropSlot            the slot's exclusive lock; no Cut meanwhile
//	Refresh                          the slot's exclusive lock
//	DropAll                          every slot's exclusive lock; no Cut meanwhile
//	Get, Brief, Fill, ScanDirty, ... at least the slot's shared lock
//	Cut                              no writer runs; readers may
//	Frozen, Applied                  one goroutine at a time, no slot lock
//
// A shard's mutex is innermost, is held for one row at a time (a page of rows when memory is given back, and the shard's part of
// a window of rows when they are applied), and never
// together with another shard's.
//
// Units. Sizes are bytes. Times are whole seconds of a clock that the caller advances with SetNow. Hashes are the
// caller's, 64 bits; rows are ordered by the upper 48 of them, then by key.
//
// Errors. None: a clean row that finds no room is not kept. A broken belief about rows panics with "BUG:".
//
// Not here: changes of elements that the store has not yet, the store, encodings of rows, expiry.
package cache

import (
	"sync/atomic"

	"cairn/internal/invariant"
)

const (
	// NumSlots is the number of slots of a cluster.
	NumSlots = 16384

	// KindRecord and KindValue are the two kinds of point rows. KindElement is one element of a large value, which is
	// only ever clean.
	KindRecord  uint8 = 0
	KindValue   uint8 = 1
	KindElement uint8 = 2

	numShards = 256
)

// State is what the cache knows of a row.
type State uint8

const (
	// Miss: nothing is known; ask the store below.
	Miss State = iota
	// Hit: the row exists and its value is here.
	Hit
	// Absent: it is known that the row does not exist.
	Absent
)

// Stats are counters since the start, and the number of rows now. A row that a dropped slot left behind counts until
// its memory is reclaimed.
type Stats struct {
	Hits, Misses, Evictions, Rows int64

	Briefs, BriefHits int64 // briefs of dead slots count until others take their place
}

// Cache is the record cache. See the package comment for who may call what.
type Cache struct {
	shards [numShards]shard

	cur     atomic.Uint64 // epoch of writes, from 1
	applied atomic.Uint64 // last epoch that is in the store below; cur-1, or cur-2 while an epoch is frozen

	versions [NumSlots]atomic.Uint32 // a row is alive if it carries its slot's version

	// By parity of the epoch, so that the applier reads the frozen ones while commits fill the others.
	lists   [2][NumSlots]atomic.Pointer[dirtyList]
	touched [2][NumSlots / 64]atomic.Uint64 // slots that have a list of this epoch
	dirty   [2]atomic.Int64                 // bytes of rows

	limit atomic.Int64
	total atomic.Int64 // bytes of pages, indexes and briefs
	next  atomic.Uint32
	clock accessClock

	briefs     briefMaker
	briefBytes atomic.Int64

	frozenBuf RowBuf // of the one goroutine that applies
}

// New makes a cache that keeps clean rows within limitBytes. Nothing is allocated ahead but the slots' tables (about
// half a megabyte).
func New(limitBytes int64) *Cache {
	c := &Cache{}
	c.limit.Store(limitBytes)
	c.cur.Store(1)
	c.clock.init()
	for i := range c.shards {
		c.shards[i].init(c, uint32(i))
	}
	return c
}

// SetLimit changes the limit. A lower one is enforced before it returns, as far as rows are clean.
func (c *Cache) SetLimit(limitBytes int64) {
	c.limit.Store(limitBytes)
	c.trimAll()
}

// Limit returns the limit in bytes.
func (c *Cache) Limit() int64 { return c.limit.Load() }

// Bytes returns the bytes of pages, indexes and briefs, the number that the limit binds.
func (c *Cache) Bytes() int64 { return c.total.Load() }

// Stats adds up the shards' counters.
func (c *Cache) Stats() Stats {
	var sum Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum.Hits += s.hits
		sum.Misses += s.misses
		sum.Evictions += s.evictions
		sum.Rows += int64(s.rows)
		sum.Briefs += int64(s.briefs.used)
		sum.BriefHits += s.briefs.uses
		s.mu.Unlock()
	}
	return sum
}

// home spreads the caller's hash over shards and tags. A key's two kinds land in different places.
func (c *Cache) home(kind uint8, h uint64) (s *shard, tag uint32) {
	m := mix(kind, h)
	return &c.shards[m>>56], uint32(m)
}

// mix is a multiplication and a shift: the caller's hash is good already, but its upper bits are the order of rows
// in the store below and may be alike in a scan.
func mix(kind uint8, h uint64) uint64 {
	m := (h ^ uint64(kind)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
	return m ^ m>>33
}

// Get appends the row's value to dst and returns the longer slice and Hit, or dst and Miss or Absent. It counts as
// an access.
func (c *Cache) Get(kind uint8, slot uint16, h uint64, key, dst []byte) ([]byte, State) {
	s, tag := c.home(kind, h)
	ver := c.versions[slot].Load()
	s.mu.Lock()
	r := s.find(tag, kind, ver, h, key)
	if r == nil {
		s.misses++
		s.mu.Unlock()
		return dst, Miss
	}
	s.hits++
	s.touch(r)
	if r.is(flagDeleted) {
		s.mu.Unlock()
		return dst, Absent
	}
	dst = append(dst, r.val()...)
	s.mu.Unlock()
	return dst, Hit
}

// GetNoTouch is Get without counting as an access, neither for OBJECT IDLETIME and FREQ nor for eviction.
func (c *Cache) GetNoTouch(kind uint8, slot uint16, h uint64, key, dst []byte) ([]byte, State) {
	s, tag := c.home(kind, h)
	ver := c.versions[slot].Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(tag, kind, ver, h, key)
	switch {
	case r == nil:
		return dst, Miss
	case r.is(flagDeleted):
		return dst, Absent
	}
	return append(dst, r.val()...), Hit
}

// Has says what Get would say, and counts as no access.
func (c *Cache) Has(kind uint8, slot uint16, h uint64, key []byte) State {
	s, tag := c.home(kind, h)
	ver := c.versions[slot].Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(tag, kind, ver, h, key)
	switch {
	case r == nil:
		return Miss
	case r.is(flagDeleted):
		return Absent
	}
	return Hit
}

// Put writes a row in the current epoch.
func (c *Cache) Put(kind uint8, slot uint16, h uint64, key, val []byte) {
	c.write(rowWrite{kind: kind, slot: slot, hash: h, key: key, val: val})
}

// Delete writes a tombstone in the current epoch.
func (c *Cache) Delete(kind uint8, slot uint16, h uint64, key []byte) {
	c.write(rowWrite{kind: kind, slot: slot, hash: h, key: key, deleted: true})
}

func (c *Cache) write(w rowWrite) {
	s, tag := c.home(w.kind, w.hash)
	if w.size() > maxRowBytes {
		invariant.Fail("row of %d bytes, limit %d", w.size(), int64(maxRowBytes))
	}
	s.mu.Lock()
	s.put(tag, &w)
	s.mu.Unlock()
	c.trim(2)
}

// Fill keeps a row that was read from the store below. It is ignored when the cache holds a row for the key already,
// when the row is very large for the cache, and when all memory is dirty.
func (c *Cache) Fill(kind uint8, slot uint16, h uint64, key, val []byte) {
	c.fill(rowWrite{kind: kind, slot: slot, hash: h, key: key, val: val})
}

// FillAbsent keeps the knowledge that the store below has no such row.
func (c *Cache) FillAbsent(kind uint8, slot uint16, h uint64, key []byte) {
	c.fill(rowWrite{kind: kind, slot: slot, hash: h, key: key, deleted: true})
}

// Refresh gives a clean row that is kept another value, which the store below will have too before anybody may ask it.
// It says false when the cache holds no row for the key, or none any more since the value did not fit in its place.
func (c *Cache) Refresh(kind uint8, slot uint16, h uint64, key, val []byte, deleted bool) bool {
	w := rowWrite{kind: kind, slot: slot, hash: h, key: key, val: val, deleted: deleted}
	s, tag := c.home(kind, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refresh(tag, &w)
}

func (c *Cache) fill(w rowWrite) {
	// One row must not push out a large part of everything else.
	if w.size() > c.limit.Load()/64 && w.size() > maxPage || w.size() > maxRowBytes {
		return
	}
	s, tag := c.home(w.kind, w.hash)
	s.mu.Lock()
	s.fill(tag, &w)
	s.mu.Unlock()
	c.trim(16)
}
