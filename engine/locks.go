package engine

import (
	"sync"
	"sync/atomic"

	"cairn/internal/invariant"
)

// slotState is what the store holds of a slot in memory beside its rows.
type slotState struct {
	mu sync.RWMutex
	// end is the log offset after the slot's last entry: a reply that shows a value of the slot waits for the
	// log to have it, so that no crash takes back what was seen. Written under mu.
	end int64
	// nextDeadline is the earliest deadline in the expiry index, about: never later than the truth.
	// 0 while unknown, noDeadline when there is none.
	nextDeadline atomic.Int64
	// drops counts how often the slot was emptied as a whole. Written under mu.
	drops atomic.Int64
	// swept is the deadline below which the expiry index is known to be empty, so that a walk does not pass
	// over the tombstones of what expired before.
	swept atomic.Int64
	// filter knows which keys the slot surely does not have.
	filter slotFilter
	// values foretells what a look for a string will find.
	values valueGuess
}

const cutShards = 16

// cutLock is held shared by commits, each on one of its shards so that cores do not share a word, and whole
// by whoever cuts. Holders wait for nothing; a shared holder never takes it again (a waiting writer would
// block the second one for ever).
type cutLock struct {
	shards [cutShards]struct {
		sync.RWMutex
		_ [40]byte // a cache line each
	}
}

func (c *cutLock) rlock(lane int)   { c.shards[lane%cutShards].RLock() }
func (c *cutLock) runlock(lane int) { c.shards[lane%cutShards].RUnlock() }

func (c *cutLock) lock() {
	for i := range c.shards {
		c.shards[i].Lock()
	}
}

func (c *cutLock) unlock() {
	for i := range c.shards {
		c.shards[i].Unlock()
	}
}

// lockSlots takes the locks of slots, which are sorted and distinct.
func (s *Store) lockSlots(slots []uint16, write bool) {
	for i, slot := range slots {
		invariant.Check(i == 0 || slots[i-1] < slot, "slots %v are not locked in order", slots)
		if write {
			s.slots[slot].mu.Lock()
		} else {
			s.slots[slot].mu.RLock()
		}
	}
}

func (s *Store) unlockSlots(slots []uint16, write bool) {
	for _, slot := range slots {
		if write {
			s.slots[slot].mu.Unlock()
		} else {
			s.slots[slot].mu.RUnlock()
		}
	}
}
