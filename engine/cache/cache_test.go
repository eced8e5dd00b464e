package cache

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// spread is a good hash of a number, for tests that want even shards.
func spread(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func numKey(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst[:0], "key:"...), n)
}

func slotOf(n uint64) uint16 { return uint16(n * 7919 % NumSlots) }

func cycle(c *Cache) {
	c.Cut()
	c.Applied()
}

// The sizes that the design counts on. A longer header is paid by every key.
func TestSizes(t *testing.T) {
	if headerLen != 44 {
		t.Errorf("row header of %d bytes, was 44: every key in memory pays the difference", headerLen)
	}
	for units := uint32(1); units < 5000; units++ {
		if bin(units) > bin(units+1) || bin(units) >= numBins {
			t.Fatalf("bin of %d units is %d, of one more %d", units, bin(units), bin(units+1))
		}
	}
	// A block of the bin after must be large enough for any size of the bin before.
	for units := uint32(exactBins + 1); units < 4096; units++ {
		for larger := units; bin(larger) <= bin(units); larger++ {
			if bin(larger) != bin(units) {
				t.Fatalf("bins out of order at %d", larger)
			}
			if larger > units*2 {
				t.Fatalf("bin %d is wider than a doubling", bin(units))
			}
			if larger > 4095 {
				break
			}
		}
	}
}

// What the index took for many small rows goes to the few large ones that come after them, whoever removes the small ones.
func TestIndexFollowsTheRows(t *testing.T) {
	const limit = 4 << 20
	small, large := make([]byte, 8), make([]byte, 2000)
	var key []byte
	fill := func(c *Cache, from, n uint64, val []byte) {
		for i := from; i < from+n; i++ {
			key = numKey(key, i)
			c.Fill(KindValue, slotOf(i), spread(i), key, val)
		}
	}
	for _, test := range []struct {
		name   string
		change func(c *Cache)
	}{
		{"evicted", func(c *Cache) { fill(c, 1<<20, 20000, large) }},
		{"limit lowered", func(c *Cache) { c.SetLimit(limit / 16) }},
		{"dropped", func(c *Cache) {
			for slot := range NumSlots {
				c.DropSlot(uint16(slot))
			}
			fill(c, 1<<20, 20000, large)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New(limit)
			fill(c, 0, 60000, small)
			before := indexBytes(c)
			test.change(c)
			rows, after := c.Stats().Rows, indexBytes(c)
			if most := rows*8*4 + numShards*minIndex*8; after > most || after*2 > before {
				t.Errorf("%d rows have an index of %d bytes, %d before; want at most %d", rows, after, before, most)
			}
		})
	}
}

// Rows that have pages to themselves push out those that share one when nobody asks for these, and only then; and the other
// way round.
func TestLargeAndSmallRowsShare(t *testing.T) {
	const limit, each = 32 << 20, 4 << 20 // bytes of rows that are asked for all the time
	sizes := []int{150, 1000, 3000, 20000}
	for _, hot := range sizes {
		for _, passing := range sizes {
			t.Run(fmt.Sprintf("%d hot %d", hot, passing), func(t *testing.T) {
				c := New(limit)
				var key []byte
				read := func(i uint64, size int) State {
					key = numKey(key, i)
					_, state := c.Get(KindValue, slotOf(i), spread(i), key, nil)
					if state == Miss {
						c.Fill(KindValue, slotOf(i), spread(i), key, make([]byte, size))
					}
					return state
				}
				const old, stream = 1 << 30, 1 << 31 // where the numbers of the others begin
				for i := range uint64(2 * limit / passing) {
					read(old+i, passing)
				}
				n, next := uint64(each/(hot+64)), uint64(0)
				hits, asked := 0, 0
				for round := range 6 {
					for i := range n {
						if state := read(i, hot); round >= 3 {
							asked++
							if state == Hit {
								hits++
							}
						}
						for ; next*uint64(passing) < (uint64(round)*n+i)*uint64(hot); next++ {
							read(stream+next, passing)
						}
					}
				}
				if hits*4 < asked*3 {
					t.Errorf("%d of %d were there: rows that all together are an eighth of the cache", hits, asked)
				}
			})
		}
	}
}

func indexBytes(c *Cache) (n int64) {
	for i := range c.shards {
		n += int64(len(c.shards[i].index)) * 8
	}
	return n
}

// A clean row is overwritten where it is; a frozen one is left for the applier, also when the slot is dropped and
// the key written again.
func TestFrozenRowSurvivesOverwriteAndDrop(t *testing.T) {
	c := New(1 << 20)
	key := []byte("k")
	c.Put(KindRecord, 5, 9, key, []byte("one"))
	c.Cut()
	c.Put(KindRecord, 5, 9, key, []byte("two"))
	c.DropSlot(5)
	if _, s := c.Get(KindRecord, 5, 9, key, nil); s != Miss {
		t.Errorf("after the drop: state %d, want Miss", s)
	}
	c.Put(KindRecord, 5, 9, key, []byte("three"))
	var got []string
	c.Frozen(func(_ uint16, rows []Row) bool {
		for _, r := range rows {
			got = append(got, string(r.Val))
		}
		return true
	})
	if len(got) != 1 || got[0] != "one" {
		t.Errorf("frozen rows %q, want the one of the cut", got)
	}
	if v, _ := c.Get(KindRecord, 5, 9, key, nil); string(v) != "three" {
		t.Errorf("read %q, want three", v)
	}
	c.Applied()
	checkCache(t, c)
}

// An applied tombstone is a negative entry, and rows of the two kinds do not meet.
func TestTombstoneBecomesNegativeEntry(t *testing.T) {
	c := New(1 << 20)
	key := []byte("k")
	c.Put(KindValue, 5, 9, key, []byte("v"))
	c.Delete(KindRecord, 5, 9, key)
	cycle(c)
	if s := c.Has(KindRecord, 5, 9, key); s != Absent {
		t.Errorf("record: state %d, want Absent", s)
	}
	if s := c.Has(KindValue, 5, 9, key); s != Hit {
		t.Errorf("value: state %d, want Hit", s)
	}
}

// A slot that is written and dropped within an epoch leaves nothing for the applier and nothing in the dirty bytes.
func TestDropEmptiesCurrentEpoch(t *testing.T) {
	c := New(1 << 20)
	for n := range uint64(1000) {
		c.Put(KindRecord, 7, spread(n), numKey(nil, n), []byte("value"))
	}
	c.DropSlot(7)
	if cur, frozen := c.DirtyBytes(); cur != 0 || frozen != 0 {
		t.Errorf("dirty bytes %d and %d after the drop, want 0", cur, frozen)
	}
	c.Cut()
	c.Frozen(func(slot uint16, rows []Row) bool {
		t.Errorf("slot %d hands out %d rows", slot, len(rows))
		return true
	})
	c.Applied()
}

// While rows are dirty the limit is passed rather than a row lost; once they are clean it holds. The values change
// their size, which would strand memory in a plain slab.
func TestLimit(t *testing.T) {
	const limit = 4 << 20
	c := New(limit)
	var key, val []byte
	for round, size := range []int{100, 900, 3000, 60, 20000} {
		val = []byte(strings.Repeat("x", size))
		count := uint64(2 * limit / size)
		for n := range count {
			key = numKey(key, n)
			c.Put(KindRecord, slotOf(n), spread(n), key, val)
		}
		if dirty, _ := c.DirtyBytes(); dirty < limit || c.Bytes() < dirty {
			t.Errorf("round %d: %d bytes dirty of %d, limit %d", round, dirty, c.Bytes(), limit)
		}
		for n := range count {
			key = numKey(key, n)
			if s := c.Has(KindRecord, slotOf(n), spread(n), key); s != Hit {
				t.Fatalf("round %d: dirty row %d: state %d", round, n, s)
			}
		}
		cycle(c)
		if got := c.Bytes(); got > limit {
			t.Errorf("round %d: %d bytes after the apply, limit %d", round, got, limit)
		}
		checkCache(t, c)
		// Fills of another size find room, and pass the limit by no more than the page that is being traded.
		for n := range count {
			key = numKey(key, n+1<<32)
			c.Fill(KindRecord, slotOf(n), spread(n+1<<32), key, val[:size/2])
			if got := c.Bytes(); got > limit+maxPage {
				t.Fatalf("round %d: %d bytes after fill %d, limit %d", round, got, n, limit)
			}
		}
		if got := c.Bytes(); got < limit*3/4 {
			t.Errorf("round %d: fills use %d bytes, limit %d", round, got, limit)
		}
		checkCache(t, c)
	}
	c.SetLimit(2 << 20)
	if got := c.Bytes(); got > 2<<20 {
		t.Errorf("%d bytes under a lower limit of %d", got, 2<<20)
	}
	checkCache(t, c)
}

// Rows that are asked for again and again outlive a stream of rows that are not.
func TestClockKeepsHotRows(t *testing.T) {
	c := New(8 << 20)
	const hot = 5000
	val := make([]byte, 100)
	var key []byte
	for n := range uint64(hot) {
		key = numKey(key, n)
		c.Fill(KindRecord, slotOf(n), spread(n), key, val)
	}
	misses := 0
	for n := range uint64(400000) {
		key = numKey(key, n%hot)
		h := spread(n % hot)
		if _, s := c.Get(KindRecord, slotOf(n%hot), h, key, nil); s == Miss {
			misses++
			c.Fill(KindRecord, slotOf(n%hot), h, key, val)
		}
		key = numKey(key, n+1<<40)
		c.Fill(KindRecord, slotOf(n), spread(n+1<<40), key, val)
	}
	if misses > 400000/100 {
		t.Errorf("%d misses of hot rows in 400000 reads, want at most 1 %%", misses)
	}
}

func TestNoAllocations(t *testing.T) {
	c := New(64 << 20)
	key, val, dst := numKey(nil, 1), make([]byte, 100), make([]byte, 0, 256)
	c.Put(KindRecord, 1, 77, key, val)
	state := Miss
	if n := testing.AllocsPerRun(1000, func() { dst, state = c.Get(KindRecord, 1, 77, key, dst[:0]) }); n != 0 || state != Hit {
		t.Errorf("Get: %v allocations, state %d", n, state)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Put(KindRecord, 1, 77, key, val) }); n != 0 {
		t.Errorf("Put in place: %v allocations", n)
	}
	size := 50
	grow := func() {
		size = 50 + (size+37)%100
		c.Put(KindRecord, 1, 77, key, val[:min(size, 100)])
	}
	if n := testing.AllocsPerRun(1000, grow); n != 0 {
		t.Errorf("Put of changing size: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Delete(KindRecord, 1, 77, key) }); n != 0 {
		t.Errorf("Delete: %v allocations", n)
	}
}

// A slot with many bytes comes in pieces that are in order together, rows of one position never apart. A walk may be
// stopped and begun again.
func TestFrozenInPieces(t *testing.T) {
	c := New(64 << 20)
	val := make([]byte, 3000)
	const count = 3000
	for n := range uint64(count) {
		c.Put(uint8(n%2), 9, n/100<<16, numKey(nil, spread(n)), val)
	}
	c.Put(KindValue, 10, 1, []byte("large"), make([]byte, 8<<20))
	c.Cut()
	for range 2 {
		calls := 0
		c.Frozen(func(uint16, []Row) bool { calls++; return calls < 3 })
		if calls != 3 {
			t.Fatalf("%d calls, want to stop at 3", calls)
		}
	}
	var before *Row
	pieces, rows := map[uint16]int{}, 0
	c.Frozen(func(slot uint16, piece []Row) bool {
		pieces[slot]++
		rows += len(piece)
		for i, r := range piece {
			if before != nil && slot == 9 {
				order := cmp.Or(cmp.Compare(before.Kind, r.Kind), cmp.Compare(before.Hash>>16, r.Hash>>16), bytes.Compare(before.Key, r.Key))
				if order >= 0 || i == 0 && before.Kind == r.Kind && before.Hash>>16 == r.Hash>>16 {
					t.Fatalf("%d %x %q stands before %d %x %q", before.Kind, before.Hash, before.Key, r.Kind, r.Hash, r.Key)
				}
			}
			before = &Row{Kind: r.Kind, Hash: r.Hash, Key: bytes.Clone(r.Key)}
		}
		return true
	})
	if rows != count+1 || pieces[9] < 5 || pieces[10] != 1 {
		t.Errorf("%d rows in pieces %v, want %d, 5 or more of slot 9 and 1 of slot 10", rows, pieces, count+1)
	}
	if room := cap(c.frozenBuf.arena); room > 4*arenaChunk {
		t.Errorf("%d bytes are kept after a row of 8 MiB", room)
	}
	c.Applied()
}

// A row that shrinks gives its room back, also from a page that cannot be cut.
func TestShrinkingRow(t *testing.T) {
	c := New(64 << 20)
	for _, large := range []int{200, 5000, 60000, 1 << 20} {
		key := numKey(nil, uint64(large))
		c.Put(KindValue, 1, 5, key, make([]byte, large))
		c.Put(KindValue, 1, 5, key, []byte("small"))
		if v, s := c.Get(KindValue, 1, 5, key, nil); s != Hit || string(v) != "small" {
			t.Errorf("after %d bytes: %q, state %d", large, v, s)
		}
		checkCache(t, c)
		c.DropSlot(1)
	}
	c.Put(KindValue, 1, 5, []byte("k"), make([]byte, 1<<20))
	c.Put(KindValue, 1, 5, []byte("k"), nil)
	if cur, _ := c.DirtyBytes(); cur > 200 {
		t.Errorf("%d bytes dirty, want those of a small row", cur)
	}
}

// The applier may finish in the middle of a scan; then rows are evicted and their memory holds other things. What the
// scan had not copied yet it leaves to the store below.
func TestScanWhileApplied(t *testing.T) {
	c := New(4 << 20)
	for n := range uint64(1000) {
		c.Put(KindRecord, 3, spread(n), numKey(nil, n), []byte("value"))
	}
	var buf RowBuf
	c.gather(&buf, 3, c.Epoch(), 0, false)
	cur := c.Epoch()
	c.Cut()
	c.copyDirty(&buf, 3, cur)
	if len(buf.rows) != 1000 {
		t.Errorf("%d rows after the cut, want 1000", len(buf.rows))
	}
	c.Applied()
	c.SetLimit(0)
	buf.reset()
	c.copyDirty(&buf, 3, cur)
	if len(buf.rows) != 0 {
		t.Errorf("%d rows after the apply, want none", len(buf.rows))
	}
}

// The collector sees pages and tables, not rows.
func TestCollectorSeesNoRows(t *testing.T) {
	if testing.Short() {
		t.Skip("a million rows")
	}
	c := New(1 << 30)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var key []byte
	val := make([]byte, 100)
	for n := range uint64(1000000) {
		key = numKey(key, n)
		c.Fill(KindRecord, slotOf(n), spread(n), key, val)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if st := c.Stats(); st.Rows != 1000000 {
		t.Errorf("%d rows, want 1000000", st.Rows)
	}
	objects := int64(after.HeapObjects) - int64(before.HeapObjects)
	if objects > 10000 {
		t.Errorf("1000000 rows are %d heap objects", objects)
	}
	t.Logf("%d objects, %d bytes counted, %d bytes of heap", objects, c.Bytes(), after.HeapAlloc-before.HeapAlloc)
}

func TestAccess(t *testing.T) {
	c := New(1 << 20)
	key := []byte("k")
	access := func() string {
		idle, freq, ok := c.Access(KindRecord, 1, 1, key)
		return fmt.Sprint(idle, freq, ok)
	}
	check := func(what, want string) {
		t.Helper()
		if got := access(); got != want {
			t.Errorf("%s: idle, freq, ok = %s, want %s", what, got, want)
		}
	}
	c.SetNow(6000)
	check("no row", "0 0 false")
	c.Put(KindRecord, 1, 1, key, []byte("v"))
	check("new", "0 5 true")
	c.SetNow(6059)
	check("59 s later, same minute", "59 5 true")
	c.SetNow(6120)
	check("two minutes on", "120 3 true")
	c.GetNoTouch(KindRecord, 1, 1, key, nil)
	check("read without touch", "120 3 true")
	c.Get(KindRecord, 1, 1, key, nil) // at or below the counter of a new key, an access always counts
	check("read", "0 4 true")
	c.SetNow(6180)
	c.Put(KindRecord, 1, 1, key, []byte("v2"))
	check("overwritten", "0 3 true")
	if !c.SetAccess(KindRecord, 1, 1, key, 1000, 200) {
		t.Error("SetAccess did not find the row")
	}
	check("set", "1000 183 true") // 6180 s is minute 103, 5180 s minute 86
	c.SetLFU(10, 0)
	check("no decay", "1000 200 true")
	c.Delete(KindRecord, 1, 1, key)
	check("deleted", "0 0 false")
	c.Put(KindRecord, 1, 1, key, []byte("v"))
	check("created again", "0 5 true")

	// With factor 0 every access counts, up to the top.
	c.SetLFU(0, 1)
	for range 1000 {
		c.Get(KindRecord, 1, 1, key, nil)
	}
	check("factor 0", "0 255 true")
	// Redis's own table in redis.conf: with factor 10, 1000 hits give 18, 100 k hits 142.
	c.SetLFU(10, 1)
	for _, want := range []struct{ hits, low, high int }{{1000, 12, 24}, {100000, 125, 160}} {
		c.Delete(KindRecord, 1, 1, key)
		c.Put(KindRecord, 1, 1, key, []byte("v"))
		for range want.hits {
			c.Get(KindRecord, 1, 1, key, nil)
		}
		if _, freq, _ := c.Access(KindRecord, 1, 1, key); int(freq) < want.low || int(freq) > want.high {
			t.Errorf("%d hits: counter %d, want %d to %d", want.hits, freq, want.low, want.high)
		}
	}
}

func TestCutTwiceIsABug(t *testing.T) {
	c := New(1 << 20)
	mustPanic := func(what string, f func()) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "BUG: ") {
				t.Errorf("%s: %s, want a panic with BUG", what, got)
			}
		}()
		f()
	}
	mustPanic("applied without a cut", c.Applied)
	if got := c.Cut(); got != 1 {
		t.Errorf("first cut freezes epoch %d, want 1", got)
	}
	mustPanic("second cut", func() { c.Cut() })
	c.Applied()
	if cur, applied := c.Epoch(), c.AppliedEpoch(); cur != 2 || applied != 1 {
		t.Errorf("epochs %d and %d, want 2 and 1", cur, applied)
	}
}
