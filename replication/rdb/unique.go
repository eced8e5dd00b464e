package rdb

import (
	"hash/maphash"
	"slices"
)

// unique finds duplicate elements with 8 bytes for each: it collects hashes and
// looks for equal neighbours after sorting. It looks at the end, and whenever its
// memory is used up: who makes it gives it room for as many different elements as
// the input can hold, so that a value made of nothing but duplicates gets no more.
//
// Two different elements can share a hash: once in 37 million values of a million
// elements. Whoever can read the value again therefore asks a second one, with
// another seed, before believing it.
type unique struct {
	seed   maphash.Seed
	hashes []uint64
}

// newUnique makes one with memory for n elements, spare if that is enough. More
// elements may come.
func newUnique(n int, spare []uint64) *unique {
	if cap(spare) < n {
		spare = make([]uint64, 0, n)
	}
	return &unique{seed: maphash.MakeSeed(), hashes: spare[:0]}
}

// add takes one element. It reports false when a duplicate showed up.
func (u *unique) add(elem []byte) bool {
	if len(u.hashes) == cap(u.hashes) && !u.ok() {
		return false
	}
	u.hashes = append(u.hashes, maphash.Bytes(u.seed, elem))
	return true
}

// ok looks through all elements so far.
func (u *unique) ok() bool {
	slices.Sort(u.hashes)
	for i := 1; i < len(u.hashes); i++ {
		if u.hashes[i] == u.hashes[i-1] {
			return false
		}
	}
	return true
}
