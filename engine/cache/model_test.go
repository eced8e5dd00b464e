package cache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The model: what a store with pending rows means, in maps.
type modelKey struct {
	kind uint8
	slot uint16
	key  string
}

type modelVal struct {
	val     string
	deleted bool
}

type model struct {
	below       map[modelKey]string
	rows        [2]map[modelKey]modelVal // 0 current, 1 frozen
	drop        [2]map[uint16]bool
	frozenValid bool
}

func newModel() *model {
	m := &model{below: map[modelKey]string{}}
	for i := range m.rows {
		m.rows[i], m.drop[i] = map[modelKey]modelVal{}, map[uint16]bool{}
	}
	return m
}

// truth returns what a reader must see, and whether the cache must know it.
func (m *model) truth(k modelKey) (v modelVal, dirty bool) {
	if v, ok := m.rows[0][k]; ok {
		return v, true
	}
	if m.drop[0][k.slot] {
		return modelVal{deleted: true}, false
	}
	if v, ok := m.rows[1][k]; ok {
		return v, true
	}
	if m.drop[1][k.slot] {
		return modelVal{deleted: true}, false
	}
	val, ok := m.below[k]
	return modelVal{val: val, deleted: !ok}, false
}

func (m *model) dropSlot(slot uint16) {
	for k := range m.rows[0] {
		if k.slot == slot {
			delete(m.rows[0], k)
		}
	}
	m.drop[0][slot] = true
}

func (m *model) cut() {
	m.rows[0], m.rows[1] = m.rows[1], m.rows[0]
	m.drop[0], m.drop[1] = m.drop[1], m.drop[0]
	m.frozenValid = true
}

func (m *model) applied() {
	for k := range m.below {
		if m.drop[1][k.slot] {
			delete(m.below, k)
		}
	}
	for k, v := range m.rows[1] {
		if v.deleted {
			delete(m.below, k)
		} else {
			m.below[k] = v.val
		}
	}
	clear(m.rows[1])
	clear(m.drop[1])
	m.frozenValid = false
}

// testHash has few different values in the upper 48 bits, so that order among equals counts, and equal tags.
func testHash(key string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(key) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h ^= h >> 29
	switch h % 4 {
	case 0:
		return h % 64 << 16 // many keys share all 64 bits
	case 1:
		return h%64<<16 | h>>48
	}
	return h
}

func describe(slot uint16, rows []Row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%05d/%d/%012x/%s=%d:%.40q,%v", slot, r.Kind, r.Hash>>16, r.Key, len(r.Val), r.Val, r.Deleted))
	}
	return out
}

func (m *model) expect(rows map[modelKey]modelVal, pick func(modelKey) bool) []string {
	var out []string
	for k, v := range rows {
		if pick(k) {
			out = append(out, describe(k.slot, []Row{{
				Kind: k.kind, Hash: testHash(k.key), Key: []byte(k.key), Val: []byte(v.val), Deleted: v.deleted,
			}})...)
		}
	}
	slices.Sort(out)
	return out
}

type modelRun struct {
	t *testing.T
	c *Cache
	m *model
	r *rand.Rand
	b RowBuf

	briefs int // how many were told
}

func (x *modelRun) key() modelKey {
	n := x.r.IntN(1500)
	return modelKey{uint8(n % 3), uint16(n % 17 * 963), fmt.Sprintf("key-%d%s", n, strings.Repeat("k", n%7*9))}
}

func (x *modelRun) value() string {
	n := x.r.IntN(200)
	switch x.r.IntN(40) {
	case 0:
		n = x.r.IntN(5000)
	case 1:
		n = x.r.IntN(40000)
	case 2:
		n = 60000 + x.r.IntN(100000)
	case 3:
		n = 0
	}
	return strings.Repeat(string(rune('a'+x.r.IntN(26))), n)
}

func (x *modelRun) get(k modelKey) {
	want, dirty := x.m.truth(k)
	h, key := testHash(k.key), []byte(k.key)
	val, state := x.c.Get(k.kind, k.slot, h, key, []byte("before"))
	if has := x.c.Has(k.kind, k.slot, h, key); has != state {
		x.t.Fatalf("%v: Get says %d, Has says %d", k, state, has)
	}
	if again, state2 := x.c.GetNoTouch(k.kind, k.slot, h, key, []byte("before")); state2 != state || !bytes.Equal(again, val) {
		x.t.Fatalf("%v: Get %d %.40q, GetNoTouch %d %.40q", k, state, val, state2, again)
	}
	switch state {
	case Hit:
		if want.deleted || string(val) != "before"+want.val {
			x.t.Fatalf("%v: hit %.60q (%d), want %+.60v", k, val, len(val), want)
		}
	case Absent:
		if !want.deleted {
			x.t.Fatalf("%v: absent, want %.60q", k, want.val)
		}
	case Miss:
		if dirty && k.kind != KindElement {
			x.t.Fatalf("%v: miss of a dirty row", k)
		}
		if k.kind == KindRecord {
			x.brief(k, want)
		}
		if want.deleted {
			x.c.FillAbsent(k.kind, k.slot, h, key)
		} else {
			x.c.Fill(k.kind, k.slot, h, key, []byte(want.val))
		}
	}
}

// testBrief is of values in the first half of the alphabet.
func testBrief(val []byte) (brief uint16, ok bool) {
	if len(val) == 0 || val[0] > 'm' || len(val) >= 1<<12 {
		return 0, false
	}
	return uint16(len(val))<<4 | uint16(val[0]-'a'), true
}

func (x *modelRun) brief(k modelKey, want modelVal) {
	got, ok := x.c.Brief(k.slot, testHash(k.key), []byte(k.key), true)
	if !ok {
		return
	}
	x.briefs++
	if stands, short := testBrief([]byte(want.val)); want.deleted || !short || got != stands {
		x.t.Fatalf("%v: brief %#x, want %+.60v", k, got, want)
	}
}

func (x *modelRun) frozen() {
	var got []string
	x.c.Frozen(func(slot uint16, rows []Row) bool {
		got = append(got, describe(slot, rows)...)
		return true
	})
	want := x.m.expect(x.m.rows[1], func(k modelKey) bool { return k.kind != KindElement })
	if !slices.Equal(got, want) {
		x.t.Fatalf("frozen rows differ: %d, want %d\n%v\n%v", len(got), len(want), diff(got, want), diff(want, got))
	}
}

func diff(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func (x *modelRun) scan(slot uint16) {
	newest := map[modelKey]modelVal{}
	if !x.m.drop[0][slot] {
		for k, v := range x.m.rows[1] {
			newest[k] = v
		}
	}
	for k, v := range x.m.rows[0] {
		newest[k] = v
	}
	want := x.m.expect(newest, func(k modelKey) bool { return k.slot == slot && k.kind == KindRecord })
	if got := describe(slot, x.c.DirtyRecords(slot)); !slices.Equal(got, want) {
		x.t.Fatalf("slot %d: dirty records %v\nwant %v", slot, got, want)
	}
	var got []string
	limit := 1 + x.r.IntN(20)
	for from, more := uint64(0), true; more; {
		var rows []Row
		rows, from, more = x.c.ScanDirty(&x.b, slot, from, limit)
		got = append(got, describe(slot, rows)...)
	}
	if !slices.Equal(got, want) {
		x.t.Fatalf("slot %d: dirty records by %d: %v\nwant %v", slot, limit, got, want)
	}
}

func (x *modelRun) step() {
	k := x.key()
	h, key := testHash(k.key), []byte(k.key)
	switch n := x.r.IntN(1000); {
	case n < 500 && k.kind == KindElement: // what is written of it waits elsewhere
		v := modelVal{deleted: n >= 400}
		if !v.deleted {
			v.val = x.value()
		}
		x.c.Refresh(k.kind, k.slot, h, key, []byte(v.val), v.deleted)
		x.m.rows[0][k] = v
	case n < 400:
		v := x.value()
		x.c.Put(k.kind, k.slot, h, key, []byte(v))
		x.m.rows[0][k] = modelVal{val: v}
	case n < 500:
		x.c.Delete(k.kind, k.slot, h, key)
		x.m.rows[0][k] = modelVal{deleted: true}
	case n < 960:
		x.get(k)
	case n < 962:
		x.c.DropSlot(k.slot)
		x.m.dropSlot(k.slot)
	case n == 962 && x.r.IntN(10) == 0:
		x.c.DropAll()
		for slot := range NumSlots {
			x.m.dropSlot(uint16(slot))
		}
	case n < 975 && !x.m.frozenValid:
		x.c.Cut()
		x.m.cut()
	case n < 980 && x.m.frozenValid:
		x.frozen()
		if x.r.IntN(3) == 0 {
			x.c.Applied()
			x.m.applied()
		}
	case n < 990:
		x.scan(k.slot)
	case n == 990:
		x.c.SetLimit(int64(256<<10 + x.r.IntN(2<<20)))
	}
}

func TestModel(t *testing.T) {
	steps, seeds := 15000, uint64(8)
	if testing.Short() {
		steps = 4000
	}
	for seed := range seeds {
		x := &modelRun{t: t, c: New(1 << 20), m: newModel(), r: rand.New(rand.NewPCG(seed, 7))}
		x.c.SetBriefs(testBrief)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x.t = t
			for i := range steps {
				x.step()
				if i%500 == 0 {
					checkCache(t, x.c)
				}
			}
			if x.m.frozenValid {
				x.frozen()
				x.c.Applied()
				x.m.applied()
			}
			x.c.Cut()
			x.m.cut()
			x.frozen()
			x.c.Applied()
			x.m.applied()
			checkCache(t, x.c)
			if got, limit := x.c.Bytes(), x.c.Limit(); got > limit {
				t.Errorf("all rows clean: %d bytes, limit %d", got, limit)
			}
			if st := x.c.Stats(); st.Evictions == 0 || st.Hits == 0 || st.Misses == 0 || x.briefs == 0 || st.BriefHits != int64(x.briefs) {
				t.Errorf("the run did not reach all parts, or counted wrong: %+v, %d briefs told", st, x.briefs)
			}
		})
	}
}

// checkCache walks all memory: blocks fill pages, free ones are in their bin and never neighbours, the index holds
// exactly the rows that were not superseded, and the byte counters are what the rows add up to.
func checkCache(t *testing.T, c *Cache) {
	t.Helper()
	var total int64
	for i := range c.shards {
		s := &c.shards[i]
		total += int64(len(s.index))*8 + int64(len(s.briefs.buckets))*bucketBytes
		for _, p := range s.pages {
			total += int64(len(p))
		}
		checkShard(t, s)
		checkBriefs(t, s)
	}
	if total != c.total.Load() {
		t.Fatalf("%d bytes, counted %d", total, c.total.Load())
	}
	checkLists(t, c)
}

func checkBriefs(t *testing.T, s *shard) {
	t.Helper()
	used := 0
	for i := range s.briefs.buckets {
		for _, hash := range s.briefs.buckets[i].marks {
			if hash == 0 {
				continue
			}
			used++
			if p := s.briefs.pair(hash); p[0] != &s.briefs.buckets[i] && p[1] != &s.briefs.buckets[i] {
				t.Fatalf("a brief is in bucket %d, which is not its own", i)
			}
		}
	}
	if used != s.briefs.used {
		t.Fatalf("%d briefs, counted %d", used, s.briefs.used)
	}
}

func checkShard(t *testing.T, s *shard) {
	t.Helper()
	rows, free := 0, 0
	hand := s.hand == 0
	for n, p := range s.pages {
		prevFree := false
		for off := 0; off < len(p); {
			r := row(p[off:])
			ref := uint32(n)<<refOffBits | uint32(off/unit)
			hand = hand || ref == s.hand
			if r.units() == 0 || (r.head()&headPrevFree != 0) != prevFree {
				t.Fatalf("page %d byte %d: head %x after free %v", n, off, r.head(), prevFree)
			}
			switch {
			case !r.used():
				free++
				if prevFree {
					t.Fatalf("page %d byte %d: two free neighbours", n, off)
				}
			case r.is(flagSuperseded):
				if !slices.Contains(s.limbo, ref) {
					t.Fatalf("superseded row %d is not in limbo", ref)
				}
			default:
				rows++
				s.position(ref)
			}
			prevFree = !r.used()
			off += int(r.units()) * unit
		}
	}
	if !hand {
		t.Fatalf("hand %d stands on no block", s.hand)
	}
	for b, ref := range s.bins {
		if (ref != 0) != (s.binMap[b/64]&(1<<(b%64)) != 0) {
			t.Fatalf("bin %d and its bit differ", b)
		}
		for ; ref != 0; ref = binary.LittleEndian.Uint32(s.row(ref)[offNext:]) {
			if r := s.row(ref); r.used() || int(bin(r.units())) != b {
				t.Fatalf("block %d of %d units in bin %d", ref, r.units(), b)
			}
			free--
		}
	}
	if free != 0 || rows != s.rows {
		t.Fatalf("%d free blocks in no bin; %d rows, counted %d", free, rows, s.rows)
	}
}

func checkLists(t *testing.T, c *Cache) {
	t.Helper()
	var dirty [2]int64
	cur, applied := c.cur.Load(), c.applied.Load()
	for slot := range NumSlots {
		for epoch := applied + 1; epoch <= cur; epoch++ {
			l := c.lists[epoch&1][slot].Load()
			if l == nil || l.epoch != epoch {
				continue
			}
			for at, d := range l.refs {
				s, _ := c.home(d.kind, d.hash)
				r := s.row(d.ref)
				if !r.used() || r.epoch() != epoch || r.slot() != uint16(slot) || r.dirtyAt() != uint32(at) {
					t.Fatalf("slot %d epoch %d: entry %d of the dirty list is not its row", slot, epoch, at)
				}
				dirty[epoch&1] += int64(r.units())*unit + dirtyRefBytes
			}
		}
	}
	gotCur, gotFrozen := c.DirtyBytes()
	if gotCur != dirty[cur&1] || gotFrozen != dirty[1-cur&1] {
		t.Fatalf("dirty %d and %d bytes, counted %d and %d", dirty[cur&1], dirty[1-cur&1], gotCur, gotFrozen)
	}
}
