package cache

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"sync"

	"cairn/internal/invariant"
)

const (
	dirtyRefBytes = 16      // of a dirtyRef, counted with the dirty bytes
	keptRefs      = 8       // a list's room that may wait for the next but one epoch
	arenaChunk    = 1 << 20 // bytes of rows handed out at once, about
)

// Row is a row handed out. Deleted rows have no value.
type Row struct {
	Kind    uint8
	Deleted bool
	Hash    uint64
	Key     []byte
	Val     []byte
}

// dirtyRef is a row on a dirty list. It carries what rows are sorted by, so that sorting reads no rows.
type dirtyRef struct {
	hash uint64
	ref  uint32
	kind uint8
	old  bool // of the frozen epoch, in copies that hold both
}

// dirtyList holds a slot's rows of one epoch, each key once. While the epoch is current its writer is whoever holds
// the slot's lock; frozen, it has none. A list of an epoch gone by is empty, whatever it holds: the next writer of
// its parity resets it, so that a reader who still looks at it is never disturbed.
type dirtyList struct {
	epoch uint64
	bytes int64
	refs  []dirtyRef

	// Scans of a long list look into parts of it only: places in refs by the upper bits of the hash, as far as a
	// scan has brought it. Readers that share the slot's lock take turns.
	scanning sync.Mutex
	parts    *[listParts][]uint32
	parted   int // so many refs are in parts
}

const (
	listParts     = 256
	listPartsFrom = 2048 // refs from which parts pay
)

// part gives the places of refs whose upper bits are n. A place keeps its hash for the list's life.
func (l *dirtyList) part(n int) []uint32 {
	l.scanning.Lock()
	defer l.scanning.Unlock()
	if l.parts == nil {
		l.parts, l.parted = new([listParts][]uint32), 0
	}
	for ; l.parted < len(l.refs); l.parted++ {
		at := &l.parts[l.refs[l.parted].hash>>56]
		*at = append(*at, uint32(l.parted))
	}
	return l.parts[n]
}

// empty forgets all refs and keeps their room.
func (l *dirtyList) empty() {
	l.bytes, l.refs, l.parts, l.parted = 0, l.refs[:0], nil, 0
}

// list notes a dirty row, at its place if it is listed, else at the end, and returns the place. grown is the change of
// the row's bytes.
func (c *Cache) list(d dirtyRef, slot uint16, cur uint64, listed bool, at uint32, grown int64) uint32 {
	l := c.openList(slot, cur)
	if listed {
		l.refs[at] = d
	} else {
		at = uint32(len(l.refs))
		l.refs = append(l.refs, d)
		grown += dirtyRefBytes
	}
	l.bytes += grown
	c.dirty[cur&1].Add(grown)
	return at
}

// openList returns the slot's list of the current epoch.
func (c *Cache) openList(slot uint16, cur uint64) *dirtyList {
	p := &c.lists[cur&1][slot]
	l := p.Load()
	if l != nil && l.epoch == cur {
		return l
	}
	if l == nil {
		l = &dirtyList{}
		p.Store(l)
	}
	l.epoch = cur
	l.empty()
	c.touched[cur&1][slot/64].Or(1 << (slot % 64))
	return l
}

// DropSlot makes all rows of a slot dead: those written in the current epoch will not reach the applier, those of the
// frozen epoch will, and readers get Miss until somebody fills or writes.
func (c *Cache) DropSlot(slot uint16) {
	cur := c.cur.Load()
	if l := c.lists[cur&1][slot].Load(); l != nil && l.epoch == cur {
		c.dirty[cur&1].Add(-l.bytes)
		l.empty()
	}
	c.versions[slot].Add(1)
}

// DropAll drops every slot.
func (c *Cache) DropAll() {
	for slot := range NumSlots {
		c.DropSlot(uint16(slot))
	}
	c.forgetBriefs()
}

// Epoch returns the current epoch, the one that writes go to.
func (c *Cache) Epoch() uint64 { return c.cur.Load() }

// AppliedEpoch returns the last epoch whose rows are all in the store below.
func (c *Cache) AppliedEpoch() uint64 { return c.applied.Load() }

// Cut freezes the current epoch, opens the next, and returns the frozen one. The epoch frozen before must be applied.
func (c *Cache) Cut() (frozen uint64) {
	frozen = c.cur.Load()
	applied := c.applied.Load()
	invariant.Check(applied == frozen-1, "cut of epoch %d while %d is the last one applied", frozen, applied)
	c.cur.Store(frozen + 1)
	return frozen
}

// Applied says that the frozen epoch is in the store below. Its rows are clean from here on.
func (c *Cache) Applied() {
	frozen := c.cur.Load() - 1
	applied := c.applied.Load()
	invariant.Check(applied == frozen-1, "epoch %d applied, but no epoch after %d is frozen", frozen, applied)
	p := frozen & 1
	for w := range c.touched[p] {
		for m := c.touched[p][w].Swap(0); m != 0; m &= m - 1 {
			list := &c.lists[p][w*64+bits.TrailingZeros64(m)]
			// Large ones go; a reader that holds one keeps it alive. The others wait to be used again.
			if l := list.Load(); l != nil && cap(l.refs) > keptRefs {
				list.Store(nil)
			}
		}
	}
	c.dirty[p].Store(0)
	c.applied.Store(frozen) // last: from here the next Cut may come
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.barren = 0
		s.drainLimbo()
		s.mu.Unlock()
	}
	c.trimAll()
}

// DirtyBytes returns the memory of rows written in the current epoch and in the frozen one.
func (c *Cache) DirtyBytes() (cur, frozen int64) {
	p := c.cur.Load() & 1
	return c.dirty[p].Load(), c.dirty[1-p].Load()
}

// RowBuf is memory for rows handed out. The zero value is ready; rows are valid until its next use.
type RowBuf struct {
	refs  []dirtyRef
	rows  []Row
	arena []byte

	window window
}

func (b *RowBuf) reset() { b.rows, b.arena = b.rows[:0], b.arena[:0] }

// shrink forgets what an unusually large slot needed.
func (b *RowBuf) shrink() {
	if cap(b.arena) > 4*arenaChunk {
		b.arena = nil
	}
	if cap(b.refs) > arenaChunk/dirtyRefBytes {
		b.refs, b.rows = nil, nil
	}
}

// add copies a row. When the arena moves, rows copied before keep the old one.
func (b *RowBuf) add(r row) { b.rows = append(b.rows, b.copy(r)) }

func (b *RowBuf) copy(r row) Row {
	at := len(b.arena)
	b.arena = append(b.arena, r.key()...)
	mid := len(b.arena)
	b.arena = append(b.arena, r.val()...)
	end := len(b.arena)
	return Row{
		Kind: r.kind(), Deleted: r.is(flagDeleted), Hash: r.hash(),
		Key: b.arena[at:mid:mid], Val: b.arena[mid:end:end],
	}
}

func compareRefs(a, b dirtyRef) int {
	if a.kind != b.kind {
		return int(a.kind) - int(b.kind)
	}
	return cmp.Compare(a.hash>>16, b.hash>>16)
}

// sortTies orders rows of equal hash by key. The rows are in order otherwise.
func sortTies(rows []Row) {
	for i := 1; i < len(rows); i++ {
		if !tied(rows[i-1], rows[i]) {
			continue
		}
		end := i + 1
		for end < len(rows) && tied(rows[i], rows[end]) {
			end++
		}
		slices.SortFunc(rows[i-1:end], func(x, y Row) int { return bytes.Compare(x.Key, y.Key) })
		i = end - 1
	}
}

func tied(a, b Row) bool { return a.Kind == b.Kind && a.Hash>>16 == b.Hash>>16 }

// DirtyRecords returns all dirty key records of a slot, tombstones too, in order of the upper 48 bits of the hash,
// then key. They are the caller's. ScanDirty says what holds for a merge with the store below.
func (c *Cache) DirtyRecords(slot uint16) []Row {
	rows, _, _ := c.ScanDirty(&RowBuf{}, slot, 0, 0)
	return rows
}

// ScanDirty returns the slot's dirty key records (tombstones too, the newest of each key) from position from on, in
// order of the upper 48 bits of the hash, then key. With limit > 0 it returns about that many: when more is true, the
// rows are complete below next and there may be others from next on.
//
// A row that is applied while ScanDirty runs may be left out. So whoever merges the rows with the store below opens
// its iterator after the call, under the same slot lock.
func (c *Cache) ScanDirty(buf *RowBuf, slot uint16, from uint64, limit int) (rows []Row, next uint64, more bool) {
	buf.shrink()
	buf.reset()
	cur := c.cur.Load()
	buf.refs = buf.refs[:0]
	frozen := c.applied.Load() < cur-1
	if c.isLong(slot, cur) || frozen && c.isLong(slot, cur-1) {
		more = c.gatherParts(buf, slot, cur, from, limit, frozen)
	} else {
		c.gather(buf, slot, cur, from, false)
		if frozen {
			c.gather(buf, slot, cur-1, from, true)
		}
	}
	if limit > 0 && len(buf.refs) > limit {
		selectSmallest(buf.refs, limit)
		last := slices.MaxFunc(buf.refs[:limit], compareRefs)
		n := limit
		for i := limit; i < len(buf.refs); i++ { // all of one position, since next cannot point between them
			if compareRefs(buf.refs[i], last) == 0 {
				buf.refs[i], buf.refs[n] = buf.refs[n], buf.refs[i]
				n++
			}
		}
		more = more || n < len(buf.refs)
		next = last.hash>>16 + 1
		buf.refs = buf.refs[:n]
	}
	slices.SortFunc(buf.refs, compareRefs)
	c.copyDirty(buf, slot, cur)
	return buf.rows, next, more
}

// copyDirty copies the rows that buf.refs names, as far as they are still dirty and the newest of their key. cur is
// the epoch that was current when the refs were gathered.
func (c *Cache) copyDirty(buf *RowBuf, slot uint16, cur uint64) {
	ver := c.versions[slot].Load()
	for _, d := range buf.refs {
		epoch := cur
		if d.old {
			epoch--
		}
		s, _ := c.home(d.kind, d.hash)
		s.mu.Lock()
		// Rows are moved or freed under this mutex and after the epoch is applied: before that, ref holds.
		if c.applied.Load() < epoch {
			if r := s.row(d.ref); !r.is(flagSuperseded) && r.version() == ver {
				buf.add(r)
			}
		}
		s.mu.Unlock()
	}
	sortTies(buf.rows)
}

func (c *Cache) gather(buf *RowBuf, slot uint16, epoch, from uint64, old bool) {
	l := c.lists[epoch&1][slot].Load()
	if l == nil || l.epoch != epoch {
		return
	}
	for _, d := range l.refs {
		if d.kind == KindRecord && d.hash>>16 >= from {
			d.old = old
			buf.refs = append(buf.refs, d)
		}
	}
}

func (c *Cache) isLong(slot uint16, epoch uint64) bool {
	l := c.lists[epoch&1][slot].Load()
	return l != nil && l.epoch == epoch && len(l.refs) >= listPartsFrom
}

// gatherParts gathers part after part of the space of hashes. With a limit it ends after the part in which that is
// passed; more says whether parts were left out.
func (c *Cache) gatherParts(buf *RowBuf, slot uint16, cur, from uint64, limit int, frozen bool) (more bool) {
	for n := int(from >> 40); n < listParts; n++ {
		if limit > 0 && len(buf.refs) > limit {
			return true
		}
		c.gatherPart(buf, slot, cur, from, n, false)
		if frozen {
			c.gatherPart(buf, slot, cur-1, from, n, true)
		}
	}
	return false
}

func (c *Cache) gatherPart(buf *RowBuf, slot uint16, epoch, from uint64, n int, old bool) {
	l := c.lists[epoch&1][slot].Load()
	if l == nil || l.epoch != epoch {
		return
	}
	for _, at := range l.part(n) {
		if d := l.refs[at]; d.kind == KindRecord && d.hash>>16 >= from {
			d.old = old
			buf.refs = append(buf.refs, d)
		}
	}
}

// selectSmallest moves the k smallest refs to the front, in no order. Hashes are spread evenly by nature, so the
// middle one is a good pivot.
func selectSmallest(refs []dirtyRef, k int) {
	lo, hi := 0, len(refs)-1
	for lo < hi {
		pivot := refs[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for compareRefs(refs[i], pivot) < 0 {
				i++
			}
			for compareRefs(refs[j], pivot) > 0 {
				j--
			}
			if i <= j {
				refs[i], refs[j] = refs[j], refs[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}
