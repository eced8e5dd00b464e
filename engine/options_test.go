package engine

import "testing"

// What Go may take, what C's allocator has and the program itself never exceed the budget, and leave Go room beyond
// the caches that are on its heap.
func TestMemorySplit(t *testing.T) {
	for budget := int64(minMemoryBudget); budget < 1<<40; budget += budget / 3 {
		o := Options{MemoryBudget: budget}
		limit := GoMemoryLimit(budget)
		if sum := limit + o.offHeapBytes() + min(programBytes, budget/2); sum > budget {
			t.Errorf("budget %d: the parts are %d bytes", budget, sum)
		}
		if budget >= 64<<20 && limit < o.cacheBytes()*15/8 {
			t.Errorf("budget %d: Go may take %d bytes, its cache alone %d", budget, limit, o.cacheBytes())
		}
	}
}

// A merge of what was flushed brings at least a third of what the level below may hold, whatever the budget: else every
// byte written is written again many times.
func TestMergesAreWorthTheirLevel(t *testing.T) {
	for budget := int64(minMemoryBudget); budget < 1<<40; budget += budget / 3 {
		o := Options{MemoryBudget: budget}
		brings := int64(o.l0Threshold()) / 2 * o.memTableBytes() * 3 / 4
		if level := o.baseLevelBytes(); brings < level/3 {
			t.Errorf("budget %d: %d bytes are merged into up to %d", budget, brings, level)
		}
	}
}
