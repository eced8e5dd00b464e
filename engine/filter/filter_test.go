package filter

import (
	"math/rand/v2"
	"testing"
)

func add(f *Filter, h uint64) {
	if f.Full() {
		f.Grow()
	}
	f.Add(h)
}

// wrong is how many of n hashes that were not added the filter does not deny, in thousandths.
func wrong(f *Filter, r *rand.Rand, n int) int {
	maybe := 0
	for range n {
		if f.Has(r.Uint64()) {
			maybe++
		}
	}
	return maybe * 1000 / n
}

func TestNothingForgotten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, keys := range []int{0, 1, 47, 48, 49, 1000, 200_000} {
		f, other := New(int64(keys/3)), &Filter{}
		var all []uint64
		for i := range keys {
			h := r.Uint64()
			all = append(all, h)
			if i%5 == 0 {
				add(other, h)
			} else {
				add(f, h)
			}
		}
		before := f.Bytes() + other.Bytes()
		f.Take(other)
		if f.Bytes() != before || f.Added() != int64(keys) {
			t.Fatalf("%d keys: %d bytes and %d added after Take, want %d and %d", keys, f.Bytes(), f.Added(), before, keys)
		}
		for _, h := range all {
			if !f.Has(h) || !f.Has(h&^0xffff) {
				t.Fatalf("%d keys: %x is denied", keys, h)
			}
		}
	}
}

func TestFalseAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name  string
		keys  int64
		made  int64 // for how many keys
		limit int   // thousandths
	}{
		{"empty", 0, 0, 0},
		{"as made", 100_000, 100_000, 25},
		{"grown from one block", 100_000, 0, 80}, // 12 layers
		{"crowded", 200_000, 100_000, 300},
	} {
		f := New(c.made)
		for range c.keys {
			if f.Full() && (c.made == 0 || f.Crowded()) {
				f.Grow()
			}
			f.Add(r.Uint64())
		}
		if got := wrong(f, r, 100_000); got > c.limit {
			t.Errorf("%s: %d thousandths of false answers in %d layers, limit %d", c.name, got, f.Layers(), c.limit)
		}
	}
}

// Keys that a walk finds one after the other have the upper bits of their hashes alike.
func TestAlikeHashes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	f := New(10_000)
	for i := range uint64(10_000) {
		f.Add(i << 16)
	}
	maybe := 0
	for i := range uint64(10_000) {
		if f.Has((1<<20 + i) << 16) {
			maybe++
		}
	}
	if maybe > 500 {
		t.Fatalf("%d of 10000 neighbours are not denied", maybe)
	}
	if got := wrong(f, r, 10_000); got > 25 {
		t.Fatalf("%d thousandths of false answers, limit 25", got)
	}
}

func TestSizes(t *testing.T) {
	f := &Filter{}
	if !f.Full() || !f.Crowded() || f.Bytes() != 0 || f.Has(7) {
		t.Fatal("the empty filter is not empty, or not full")
	}
	if New(1000).Bytes() != BytesFor(1000) || BytesFor(0) != New(0).Bytes() {
		t.Fatalf("a filter for 1000 keys takes %d bytes, foretold %d", New(1000).Bytes(), BytesFor(1000))
	}
	for range 20 {
		want := f.Bytes() + f.Growth()
		f.Grow()
		if f.Bytes() != want {
			t.Fatalf("grown to %d bytes, foretold %d", f.Bytes(), want)
		}
	}
	if most := int64(maxBlocks*blockBytes + layerBytes); f.Growth() != most {
		t.Fatalf("a large filter grows by %d bytes, want %d", f.Growth(), most)
	}
	g := New(blockKeys)
	for i := range uint64(blockKeys) {
		if g.Full() {
			t.Fatalf("full with %d keys of %d", i, blockKeys)
		}
		g.Add(i << 40)
	}
	for i := range uint64(blockKeys) {
		if !g.Full() || g.Crowded() {
			t.Fatalf("%d keys above its measure: full %v, crowded %v", i, g.Full(), g.Crowded())
		}
		g.Add(i << 30)
	}
	if !g.Crowded() {
		t.Fatal("twice as many keys as it was made for, and not crowded")
	}
}

func BenchmarkHas(b *testing.B) {
	r := rand.New(rand.NewPCG(7, 8))
	f := &Filter{}
	for range 200 {
		add(f, r.Uint64())
	}
	h := uint64(0)
	for b.Loop() {
		h += 0x9e3779b97f4a7c15
		f.Has(h)
	}
}
