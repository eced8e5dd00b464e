package command

import (
	"bytes"
	"errors"
	"math/bits"
	"math/rand/v2"
	"strconv"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/glob"
	"cairn/internal/resp"
	"cairn/internal/slot"
)

// Walks over all keys: SCAN, KEYS, RANDOMKEY. Semantics follow Redis 7.2, db.c.
//
// A cursor of SCAN is a place in the order of keys, which is slot, then the first 48 bits of the key's hash:
//
//	bits 61-14 hash, its first bit lowest   bits 13-0 slot
//
// Keys at or after the place have not been listed. 0 is the start and, in a reply, the end. Nothing is kept
// between two calls, and the hash has no seed, so a cursor holds over a restart and at a replica that took
// over. A key that is there from the first call to the last is listed; one whose value changes stays where it
// is, so it is listed once. Keys with the same 48 bits are listed by the same call, or a part would be lost.
//
// Cursors are small numbers where they can be, as Redis's are: of the places between the last key listed and
// the next one, a call ends at the one whose hash has the fewest bits. There are tools that keep a cursor in 32
// bits (redis-cli --cluster import), or in a floating-point number. A call looks at some keys more than it was
// asked to if its cursor is below 2^31 then.
//
// These commands lock one slot at a time, only to open their view of it, and walk with no lock at all. Inside
// EXEC all slots are locked already and the view includes what was changed before.
//
// Expired keys are read like others, so that they count as work, and then left out.

const (
	slotCount  = slot.Count
	cursorBits = 48 // of a hash
	slotBits   = 14
	// smallBits of the hash fit a cursor below 2^31, and scanMore keys more than asked for are looked at for it.
	smallBits = 31 - slotBits
	scanMore  = 100
)

// cursorOf gives the cursor of a place.
func cursorOf(s, h48 uint64) uint64 {
	return bits.Reverse64(h48)>>(64-cursorBits)<<slotBits | s
}

// placeOf gives the place of a cursor; what nobody was given is behind all keys.
func placeOf(cursor uint64) (s, h48 uint64) {
	if cursor>>(slotBits+cursorBits) != 0 {
		return slotCount, 0
	}
	return cursor & (1<<slotBits - 1), bits.Reverse64(cursor>>slotBits) >> (64 - cursorBits)
}

// placeBetween gives the place behind one hash and not behind another, higher one that has the fewest bits, and how many
// these are.
func placeBetween(last, next uint64) (h48 uint64, n int) {
	low := bits.Len64(last^next) - 1
	return next >> low << low, cursorBits - low
}

// keyFilter is what a walk shows of the keys it meets.
type keyFilter struct {
	pattern  []byte // nil: all
	typeName []byte // nil: all; a word that is no type matches nothing
	nowMs    int64
	onlySlot int  // keys that match are in this slot; -1: in any
	meets    *Ctx // learns of expired keys that match; nil for KEYS, which Redis lets delete nothing either
}

func (f *keyFilter) setPattern(p []byte) {
	f.onlySlot = -1
	if f.pattern = nil; len(p) != 1 || p[0] != '*' {
		f.pattern = p
		f.onlySlot = patternSlot(p)
	}
}

// patternSlot gives the slot that all names matching p are in, -1 when they may be in several. A name that
// matches begins with what stands before the first special byte; when a whole hash tag is in there, it is the
// tag of all of them.
func patternSlot(p []byte) int {
	if glob.Literal(p) {
		return int(slot.Of(p))
	}
	head := p[:bytes.IndexAny(p, `*?[\`)]
	if tag := slot.Tag(head); len(tag) < len(head) {
		return int(slot.Of(head))
	}
	return -1
}

func (f *keyFilter) shows(r *keyWalk) bool {
	rec := r.record()
	switch {
	case rec.Deadline != 0 && rec.Deadline < f.nowMs:
		if f.meets != nil && (f.pattern == nil || glob.Match(f.pattern, r.key(), false)) {
			f.meets.meetExpired(bytes.Clone(r.key()))
		}
		return false
	case f.typeName != nil && !resp.IsWord(f.typeName, typeName(rec.Type)):
		return false
	}
	return f.pattern == nil || glob.Match(f.pattern, r.key(), false)
}

// keyWalk walks the keys of one slot, view after view, expired ones too: each view has a page of the keys that are
// not in the store below yet, so that a short walk costs the same however many there are. What changes between two
// views shows in the later one; a key's place never changes.
type keyWalk struct {
	c    *Ctx
	slot uint16
	page int
	view *engine.Records // nil at the end
	gone bool            // the slot went to another node meanwhile
	err  error
}

// walkPage is the page of walks over all keys, walkPageMin the least.
const (
	walkPage    = 1024
	walkPageMin = 16
)

// walkKeys walks the keys of s from the hash on.
func (c *Ctx) walkKeys(s uint16, fromH48 uint64, page int) (*keyWalk, error) {
	w := &keyWalk{c: c, slot: s, page: min(max(page, walkPageMin), walkPage)}
	w.open(fromH48)
	w.settle()
	return w, w.err
}

// open opens the view from the hash on.
func (w *keyWalk) open(fromH48 uint64) {
	w.view = nil
	t := w.c.Txn
	if t.Open() {
		w.view, w.err = t.Records(w.slot, fromH48, w.page)
		return
	}
	one := [1]uint16{w.slot}
	t.Begin(one[:], false, engine.Forever)
	if r := t.Routing(); !r.Cluster || r.Slots[w.slot]&engine.SlotOwned != 0 {
		w.view, w.err = t.Records(w.slot, fromH48, w.page)
	} else {
		w.gone = true
	}
	w.c.Host.ReplyAfter(w.c, t.End())
}

// settle goes on to the next view where one has ended.
func (w *keyWalk) settle() {
	for w.err == nil && w.view != nil && !w.view.Valid() {
		from, more := w.view.More()
		if w.err = w.view.Close(); w.err != nil || !more {
			w.view = nil
			return
		}
		w.open(from)
	}
}

func (w *keyWalk) valid() bool            { return w.err == nil && w.view != nil }
func (w *keyWalk) key() []byte            { return w.view.Key() }
func (w *keyWalk) hash48() uint64         { return w.view.Hash48() }
func (w *keyWalk) record() *layout.Record { return w.view.Record() }

func (w *keyWalk) next() {
	w.view.Next()
	w.settle()
}

// close ends the walk and gives the first error met.
func (w *keyWalk) close() error {
	if w.view != nil {
		w.err = errors.Join(w.err, w.view.Close())
		w.view = nil
	}
	return w.err
}

// nameList gathers names as the bulk strings of a reply, in blocks, so that a long list is neither copied as it
// grows nor held twice.
type nameList struct {
	blocks [][]byte
	n      int
}

func (l *nameList) add(name []byte) {
	last := len(l.blocks) - 1
	if last < 0 {
		l.blocks, last = append(l.blocks, nil), 0
	} else if len(l.blocks[last]) >= StreamFrom {
		l.blocks = append(l.blocks, make([]byte, 0, StreamFrom+1024))
		last++
	}
	l.blocks[last] = resp.AppendBulk(l.blocks[last], name)
	l.n++
}

// reply appends the list as an array.
func (l *nameList) reply(c *Ctx) {
	c.W.Array(l.n)
	if len(l.blocks) == 1 {
		c.W.Buf = append(c.W.Buf, l.blocks[0]...)
		return
	}
	if l.n == 0 {
		return
	}
	blocks := l.blocks
	c.Stream(func(w *resp.Writer, flush func() error) error {
		for i, b := range blocks {
			w.Buf = append(w.Buf, b...)
			blocks[i] = nil
			if err := flush(); err != nil {
				return err
			}
		}
		return nil
	}, func() error { return nil })
}

func keysMatching(c *Ctx) error {
	f := keyFilter{nowMs: c.NowMs}
	f.setPattern(c.Args[1])
	counts := c.keyCounts()
	var names nameList
	first, last := 0, slotCount-1
	if f.onlySlot >= 0 {
		first, last = f.onlySlot, f.onlySlot
	}
	for s := first; s <= last; s++ {
		if counts.of(uint16(s)) == 0 {
			continue
		}
		r, err := c.walkKeys(uint16(s), 0, walkPage)
		if err != nil {
			return err
		}
		for ; r.valid(); r.next() {
			if f.shows(r) {
				names.add(r.key())
			}
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	names.reply(c)
	return nil
}

const defaultScanCount = 10

func scan(c *Ctx) error {
	cursor, ok := parseHashCursor(c.Args[1])
	if !ok {
		return Reply("ERR invalid cursor")
	}
	w := scanWalk{left: defaultScanCount, filter: keyFilter{nowMs: c.NowMs, onlySlot: -1, meets: c}}
	var err error
	for i := 2; i < len(c.Args); i += 2 {
		switch {
		case i+1 == len(c.Args):
			return ErrSyntax
		case c.Is(i, "count"):
			if w.left, err = c.Int(i + 1); err != nil {
				return err
			}
			if w.left < 1 {
				return ErrSyntax
			}
		case c.Is(i, "match"):
			w.filter.setPattern(c.Args[i+1])
		case c.Is(i, "type"):
			w.filter.typeName = c.Args[i+1]
		default:
			return ErrSyntax
		}
	}
	next, err := w.run(c, cursor)
	if err != nil {
		return err
	}
	c.W.Array(2)
	c.W.Bulk(strconv.AppendUint(nil, next, 10))
	w.names.reply(c)
	return nil
}

// scanWalk is one call of SCAN.
type scanWalk struct {
	filter keyFilter
	left   int64 // keys still to look at; those that the filter hides count
	first  bool  // one name is enough; the cursor is then of no use
	names  nameList
}

// run walks from the cursor and gives the next one.
func (w *scanWalk) run(c *Ctx, cursor uint64) (next uint64, err error) {
	counts := c.keyCounts()
	at, from := placeOf(cursor)
	last := uint64(slotCount - 1)
	if only := w.filter.onlySlot; only >= 0 {
		if last = uint64(only); at < last {
			at, from = last, 0
		}
	}
	for ; at <= last; at, from = at+1, 0 {
		if counts.of(uint16(at)) == 0 {
			continue
		}
		if w.left <= 0 || w.first && w.names.n > 0 {
			return cursorOf(at, 0), nil
		}
		h48, more, err := w.slot(c, uint16(at), from)
		if err != nil {
			return 0, err
		}
		if more {
			return cursorOf(at, h48), nil
		}
	}
	return 0, nil
}

// slot walks one slot. more says that keys are left, from h48 on.
func (w *scanWalk) slot(c *Ctx, s uint16, from uint64) (h48 uint64, more bool, err error) {
	r, err := c.walkKeys(s, from, int(min(w.left, walkPage)))
	if err != nil {
		return 0, false, err
	}
	for started := false; r.valid() && !(w.first && w.names.n > 0); r.next() {
		if w.left <= 0 && started && r.hash48() != h48 {
			if next, n := placeBetween(h48, r.hash48()); n <= smallBits || w.left <= -scanMore {
				return next, true, r.close()
			}
		}
		h48, started = r.hash48(), true
		w.left--
		if w.filter.shows(r) {
			w.names.add(r.key())
		}
	}
	return 0, false, r.close()
}

// A random key is picked in two steps: the slot, by the number of its keys, then the key. Keys lie in the
// space of 48-bit hashes as if thrown there, so a random place and the key behind it would favour those after
// a wide gap. Instead the space is cut into equal buckets of 8 to 16 keys on average; bucket and rank, below
// bucketMost, are drawn, and drawn again when the bucket has fewer keys. So each draw hits each key with the
// same chance, and about every fourth hits. A bucket of more than bucketMost keys, whose last ones could not be
// picked, is met once in 10^9.
const (
	bucketMean = 8
	bucketMost = 48
	pickTries  = 100
	// pickWalk is how many keys are looked at, after pickTries only met expired ones, before giving up.
	pickWalk = 10000
)

// randomKey answers null when there is no key, or when so many are expired that none was met that lives.
func randomKey(c *Ctx) error {
	counts := c.keyCounts()
	total := counts.all()
	if total <= 0 {
		c.W.Null()
		return nil
	}
	for range pickTries {
		s, n := counts.pick(rand.Int64N(total))
		if n == 0 {
			continue // keys went while we looked
		}
		done, err := pickIn(c, s, n)
		if done || err != nil {
			return err
		}
	}
	return firstLiving(c)
}

// pick gives the slot of the i-th key of all, and how many keys the slot has.
func (n *keyCounts) pick(i int64) (s uint16, keys int64) {
	for s := range slotCount {
		if keys = n.of(uint16(s)); i < keys {
			return uint16(s), keys
		}
		i -= keys
	}
	return 0, 0
}

// pickIn draws until it hits one of the n keys of s, and replies with its name when it lives.
func pickIn(c *Ctx, s uint16, n int64) (done bool, err error) {
	most, shift := n, cursorBits
	if n > bucketMost {
		most = bucketMost
		shift -= bits.Len64(uint64(n/bucketMean)) - 1
	}
	for range pickTries {
		bucket := rand.Uint64N(1 << (cursorBits - shift))
		rank := rand.Int64N(most)
		r, err := c.walkKeys(s, bucket<<shift, bucketMost)
		if err != nil || r.gone {
			return false, err
		}
		for ; rank > 0 && r.valid() && r.hash48()>>shift == bucket; rank-- {
			r.next()
		}
		hit := rank == 0 && r.valid() && r.hash48()>>shift == bucket
		all := keyFilter{nowMs: c.NowMs, meets: c}
		if done = hit && all.shows(r); done {
			c.W.Bulk(r.key())
		}
		if err := r.close(); err != nil || hit {
			return done, err
		}
	}
	return false, nil
}

// firstLiving replies with a key that lives, from a random slot on.
func firstLiving(c *Ctx) error {
	w := scanWalk{left: pickWalk, first: true, filter: keyFilter{nowMs: c.NowMs, onlySlot: -1}}
	start := rand.Uint64N(slotCount)
	for _, from := range [...]uint64{cursorOf(start, 0), 0} {
		if w.left > 0 && w.names.n == 0 {
			if _, err := w.run(c, from); err != nil {
				return err
			}
		}
	}
	if w.names.n == 0 {
		c.W.Null()
		return nil
	}
	c.W.Buf = append(c.W.Buf, w.names.blocks[0]...)
	return nil
}
