package engine

import (
	"math/bits"
	"sync/atomic"
)

// newcomers decides which values that were read from the disk the full record cache takes in: those that were asked for
// before, not long ago. Values are much larger than records. Of data far beyond memory most are read once in a long
// time; each of these would push out twenty records, or a value that is asked for every second.
//
// It is a set of bits, one for the hash of each value that was refused, emptied when a quarter of them is set: when about as
// many were refused as the cache has room for. Who comes back later than that would have left the cache, too. Two values may
// share a bit: then one comes in the first time.
type newcomers struct {
	words []atomic.Uint64
	set   atomic.Int64 // bits, about: several goroutines may empty the set at once
}

const (
	newcomerValue = 1 << 10 // bytes: how large a value is held to be
	newcomerBits  = 4       // for each value that the cache has room for
)

// newNewcomers is for a record cache of so many bytes.
func newNewcomers(cacheBytes int64) *newcomers {
	words := uint64(max(1, cacheBytes/newcomerValue*newcomerBits/64))
	return &newcomers{words: make([]atomic.Uint64, 1<<bits.Len64(words-1))}
}

// again says whether the value with this hash was refused lately. If not, it is now.
func (n *newcomers) again(hash uint64) bool {
	word := &n.words[hash>>6&uint64(len(n.words)-1)]
	bit := uint64(1) << (hash & 63)
	if word.Load()&bit != 0 || word.Or(bit)&bit != 0 {
		return true
	}
	if n.set.Add(1) > int64(len(n.words))*64/4 {
		n.set.Store(0)
		for i := range n.words {
			n.words[i].Store(0)
		}
	}
	return false
}

// keeps says whether the record cache takes in a value that was read from the disk.
func (s *Store) keeps(hash uint64) bool { return s.roomy() || s.newcomers.again(hash) }

// roomy says whether the record cache has room that nobody needs.
func (s *Store) roomy() bool {
	const room = 8 // one part of the cache that is free for whatever comes
	limit := s.cache.Limit()
	return s.cache.Bytes() < limit-limit/room
}
