package cache

import (
	"strconv"
	"testing"
)

const benchRows = 100000

func filled(b *testing.B, limit int64) *Cache {
	c := New(limit)
	var key []byte
	val := make([]byte, 100)
	for n := range uint64(benchRows) {
		key = numKey(key, n)
		c.Put(KindRecord, slotOf(n), spread(n), key, val)
	}
	b.ReportAllocs()
	b.ResetTimer()
	return c
}

func BenchmarkGetHit(b *testing.B) {
	c := filled(b, 256<<20)
	var key, dst []byte
	for i := range uint64(b.N) {
		n := spread(i) % benchRows
		key = numKey(key, n)
		dst, _ = c.Get(KindRecord, slotOf(n), spread(n), key, dst[:0])
	}
}

func BenchmarkGetHitParallel(b *testing.B) {
	c := filled(b, 256<<20)
	b.RunParallel(func(pb *testing.PB) {
		var key, dst []byte
		for i := uint64(0); pb.Next(); i++ {
			n := spread(i) % benchRows
			key = numKey(key, n)
			dst, _ = c.Get(KindRecord, slotOf(n), spread(n), key, dst[:0])
		}
	})
}

func BenchmarkGetOneKeyParallel(b *testing.B) {
	c := filled(b, 256<<20)
	b.RunParallel(func(pb *testing.PB) {
		var dst []byte
		key := numKey(nil, 7)
		for pb.Next() {
			dst, _ = c.Get(KindRecord, slotOf(7), spread(7), key, dst[:0])
		}
	})
}

func BenchmarkGetMiss(b *testing.B) {
	c := filled(b, 256<<20)
	var key []byte
	for i := range uint64(b.N) {
		key = numKey(key, i+benchRows)
		c.Get(KindRecord, slotOf(i), spread(i+benchRows), key, nil)
	}
}

func BenchmarkPutOverwrite(b *testing.B) {
	c := filled(b, 256<<20)
	var key []byte
	val := make([]byte, 100)
	for i := range uint64(b.N) {
		n := spread(i) % benchRows
		key = numKey(key, n)
		c.Put(KindRecord, slotOf(n), spread(n), key, val)
	}
}

// Overwrites with a cut every 100 k writes: rows enter the dirty lists, and some are frozen when overwritten.
func BenchmarkPutOverwriteCut(b *testing.B) {
	c := filled(b, 256<<20)
	var key []byte
	val := make([]byte, 100)
	c.Cut()
	for i := range uint64(b.N) {
		switch i % 100000 {
		case 20000:
			c.Applied()
		case 99999:
			c.Cut()
		}
		n := spread(i) % benchRows
		key = numKey(key, n)
		c.Put(KindRecord, slotOf(n), spread(n), key, val)
	}
}

// New rows with the cache at its limit, so that each evicts.
func BenchmarkPutNewAtLimit(b *testing.B) {
	c := filled(b, 32<<20)
	var key []byte
	val := make([]byte, 100)
	for i := range uint64(b.N) {
		if i%50000 == 49999 {
			cycle(c)
		}
		key = numKey(key, i+1<<40)
		c.Put(KindRecord, slotOf(i), spread(i+1<<40), key, val)
	}
}

// New rows when nothing can be evicted.
func BenchmarkPutNewAllDirty(b *testing.B) {
	c := filled(b, 1<<20)
	var key []byte
	val := make([]byte, 100)
	for i := range uint64(b.N) {
		key = numKey(key, i%1000000+1<<40)
		c.Put(KindRecord, slotOf(i), spread(i%1000000+1<<40), key, val)
	}
}

func BenchmarkFillAtLimit(b *testing.B) {
	c := filled(b, 32<<20)
	cycle(c)
	var key []byte
	val := make([]byte, 100)
	for i := range uint64(b.N) {
		key = numKey(key, i+1<<40)
		c.Fill(KindRecord, slotOf(i), spread(i+1<<40), key, val)
	}
}

func BenchmarkFillLargeAtLimit(b *testing.B) {
	c := filled(b, 64<<20)
	cycle(c)
	var key []byte
	val := make([]byte, 20000)
	for i := range uint64(b.N) {
		key = numKey(key, i+1<<40)
		c.Fill(KindValue, slotOf(i), spread(i+1<<40), key, val[:12000+i*997%8000])
	}
}

func BenchmarkFrozen100k(b *testing.B) {
	c := filled(b, 256<<20)
	c.Cut()
	b.ResetTimer()
	for range b.N {
		rows := 0
		c.Frozen(func(_ uint16, r []Row) bool {
			rows += len(r)
			return true
		})
		if rows != benchRows {
			b.Fatal(rows)
		}
	}
}

func BenchmarkDropAll(b *testing.B) {
	c := filled(b, 256<<20)
	for range b.N {
		c.DropAll()
	}
}

// BenchmarkScanDirtyLong is one page of SCAN in a slot with 100 000 dirty records.
func BenchmarkScanDirtyLong(b *testing.B) {
	c := New(64 << 20)
	for i := range 100_000 {
		c.Put(KindRecord, 5, uint64(i)*0x9e3779b97f4a7c15, strconv.AppendInt([]byte("key:"), int64(i), 10), []byte("v"))
	}
	buf := &RowBuf{}
	from := uint64(0)
	for b.Loop() {
		from += 1 << 40
		from &= 1<<48 - 1
		c.ScanDirty(buf, 5, from, 10)
	}
}
