package cache

import (
	"math/bits"
	"runtime"
	"slices"

	"cairn/internal/invariant"
)

// The applier reads a hundred thousand rows in an order that has nothing to do with where they lie, so each costs the
// time of memory, several times. It reads them by windows of neighbouring slots: within a window shard by shard, so that
// a mutex is taken once for many rows and the processor fetches them side by side.

// windowRefs is about how many rows a window has. Each shard then has eight of them. After a window others may run.
const windowRefs = 8 * numShards

// window is a run of slots whose rows are handed out together.
type window struct {
	slots []windowSlot
	order []uint32 // places in refs, shard by shard
	from  [numShards + 1]uint32
	bytes int64
	loads byte // so that no read of fetch is left out
}

// windowSlot is a slot and where its refs end.
type windowSlot struct {
	slot uint16
	end  int
}

// Frozen calls f with the rows of the frozen epoch, as they were at the cut: slots ascending, the rows of a slot in
// order of kind, upper 48 bits of the hash, key. A slot with more than about a megabyte comes in several calls. The
// rows are valid during the call. f returns false to stop. Other goroutines have their turn now and then.
func (c *Cache) Frozen(f func(slot uint16, rows []Row) bool) {
	frozen := c.cur.Load() - 1
	if c.applied.Load() >= frozen {
		return
	}
	p := frozen & 1
	buf := &c.frozenBuf
	defer buf.shrink()
	buf.openWindow()
	for w := range c.touched[p] {
		for m := c.touched[p][w].Load(); m != 0; m &= m - 1 {
			slot := uint16(w*64 + bits.TrailingZeros64(m))
			l := c.lists[p][slot].Load()
			if l == nil || l.epoch != frozen || len(l.refs) == 0 {
				continue
			}
			full := len(buf.refs)+len(l.refs) > windowRefs || buf.window.bytes+l.bytes > arenaChunk
			if full && !c.frozenWindow(frozen, buf, f) {
				return
			}
			if len(l.refs) > windowRefs || l.bytes > arenaChunk {
				if !c.frozenSlot(slot, l, buf, f) {
					return
				}
				buf.openWindow()
				continue
			}
			at := len(buf.refs)
			buf.refs = append(buf.refs, l.refs...)
			sortRefs(buf.refs[at:])
			buf.window.bytes += l.bytes
			buf.window.slots = append(buf.window.slots, windowSlot{slot, len(buf.refs)})
		}
	}
	c.frozenWindow(frozen, buf, f)
}

func (b *RowBuf) openWindow() {
	b.reset()
	b.refs, b.window.slots, b.window.bytes = b.refs[:0], b.window.slots[:0], 0
}

// frozenWindow hands out what has been gathered.
func (c *Cache) frozenWindow(frozen uint64, buf *RowBuf, f func(uint16, []Row) bool) bool {
	buf.rows = slices.Grow(buf.rows, len(buf.refs))[:len(buf.refs)]
	buf.arena = slices.Grow(buf.arena, int(buf.window.bytes))
	c.sortByShard(buf)
	w := &buf.window
	for n := range c.shards {
		if refs := w.order[w.from[n]:w.from[n+1]]; len(refs) > 0 {
			c.copyFrozen(&c.shards[n], frozen, buf, refs)
		}
	}
	at := 0
	for _, s := range w.slots {
		rows := buf.rows[at:s.end]
		sortTies(rows)
		if !f(s.slot, rows) {
			return false
		}
		at = s.end
	}
	buf.openWindow()
	runtime.Gosched()
	return true
}

// sortByShard fills the window's order: by counting.
func (c *Cache) sortByShard(buf *RowBuf) {
	w := &buf.window
	w.order = slices.Grow(w.order[:0], len(buf.refs))[:len(buf.refs)]
	var count [numShards]uint32
	for _, d := range buf.refs {
		count[mix(d.kind, d.hash)>>56]++
	}
	at := uint32(0)
	for n := range count {
		w.from[n], count[n], at = at, at, at+count[n]
	}
	w.from[numShards] = at
	for i, d := range buf.refs {
		n := mix(d.kind, d.hash) >> 56
		w.order[count[n]] = uint32(i)
		count[n]++
	}
}

// copyFrozen copies a shard's rows to their places.
func (c *Cache) copyFrozen(s *shard, frozen uint64, buf *RowBuf, refs []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range refs { // reads that wait for nothing: all are under way before the first row is looked at
		r := s.row(buf.refs[at].ref)
		buf.window.loads += r[offEpoch] + r[min(len(r)-1, lineBytes)] + r[min(len(r)-1, 2*lineBytes)]
	}
	for _, at := range refs {
		d := &buf.refs[at]
		r := s.row(d.ref)
		if !r.used() || r.epoch() != frozen || r.hash() != d.hash {
			invariant.Fail("dirty row at ref %d of epoch %d is gone", d.ref, frozen)
		}
		buf.rows[at] = buf.copy(r)
	}
}

// lineBytes is what memory gives at a time.
const lineBytes = 64

// sortRefs is for the few refs of a slot that most windows have; many are sorted by the library.
func sortRefs(refs []dirtyRef) {
	if len(refs) > 24 {
		slices.SortFunc(refs, compareRefs)
		return
	}
	for i := 1; i < len(refs); i++ {
		d, at := refs[i], i
		for ; at > 0 && before(d, refs[at-1]); at-- {
			refs[at] = refs[at-1]
		}
		refs[at] = d
	}
}

// before is compareRefs < 0.
func before(a, b dirtyRef) bool {
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.hash>>16 < b.hash>>16
}

// frozenSlot hands out a slot that is too large for a window.
func (c *Cache) frozenSlot(slot uint16, l *dirtyList, buf *RowBuf, f func(uint16, []Row) bool) bool {
	buf.refs = append(buf.refs[:0], l.refs...)
	slices.SortFunc(buf.refs, compareRefs)
	buf.reset()
	for i, d := range buf.refs {
		if len(buf.arena) >= arenaChunk && compareRefs(buf.refs[i-1], d) != 0 {
			sortTies(buf.rows)
			if !f(slot, buf.rows) {
				return false
			}
			buf.reset()
			runtime.Gosched()
		}
		s, _ := c.home(d.kind, d.hash)
		s.mu.Lock()
		r := s.row(d.ref)
		ok := r.used() && r.epoch() == l.epoch && r.hash() == d.hash
		if ok {
			buf.add(r)
		}
		s.mu.Unlock()
		if !ok {
			invariant.Fail("slot %d: dirty row %d of epoch %d is gone", slot, i, l.epoch)
		}
	}
	sortTies(buf.rows)
	return f(slot, buf.rows)
}
