package engine

import (
	"sync/atomic"

	"cairn/engine/layout"
)

// counters are exact at once: a commit moves them under its slot's lock and the cut lock's shared side. A cut
// copies the pages that were touched since the one before, so that the applier writes what was true at the cut.
type counters struct {
	live   [16384]layout.Counters
	dirty  [layout.Pages]atomic.Bool
	frozen map[int]*[layout.PageSlots]layout.Counters
}

func (c *counters) add(slot uint16, d layout.Counters) {
	if d == (layout.Counters{}) {
		return // a value in place of another of its length
	}
	v := &c.live[slot]
	if d.Keys|d.Large != 0 {
		atomic.AddInt64(&v.Keys, d.Keys)
		atomic.AddInt64(&v.Large, d.Large)
	}
	atomic.AddInt64(&v.Bytes, d.Bytes)
	if d.Deadlines|d.DeadlineSum != 0 {
		atomic.AddInt64(&v.Deadlines, d.Deadlines)
		atomic.AddInt64(&v.DeadlineSum, d.DeadlineSum)
	}
	c.touch(slot)
}

func (c *counters) clear(slot uint16) {
	c.live[slot].Store(&layout.Counters{})
	c.touch(slot)
}

func (c *counters) touch(slot uint16) {
	if p := &c.dirty[slot/layout.PageSlots]; !p.Load() {
		p.Store(true)
	}
}

// freeze copies the touched pages. Called with the whole cut lock.
func (c *counters) freeze() {
	c.frozen = make(map[int]*[layout.PageSlots]layout.Counters)
	for p := range c.dirty {
		if c.dirty[p].Load() {
			c.dirty[p].Store(false)
			page := new([layout.PageSlots]layout.Counters)
			copy(page[:], c.live[p*layout.PageSlots:])
			c.frozen[p] = page
		}
	}
}

// SlotCounters gives what is known of a slot.
func (s *Store) SlotCounters(slot uint16) layout.Counters {
	return s.counters.live[slot].Load()
}

// Keys counts the keys of all slots.
func (s *Store) Keys() (n int64) {
	for i := range s.counters.live {
		n += atomic.LoadInt64(&s.counters.live[i].Keys)
	}
	return n
}

// Deadlines counts the keys of all slots that have a deadline, and gives the mean of these, Unix milliseconds, to the second;
// 0 when there is none.
func (s *Store) Deadlines() (n, mean int64) {
	var sum int64
	for i := range s.counters.live {
		n += atomic.LoadInt64(&s.counters.live[i].Deadlines)
		sum += atomic.LoadInt64(&s.counters.live[i].DeadlineSum)
	}
	if n <= 0 {
		return 0, 0
	}
	return n, int64(float64(sum) / float64(n) * 1000)
}

// Bytes counts the payload bytes of all slots.
func (s *Store) Bytes() (n int64) {
	for i := range s.counters.live {
		n += atomic.LoadInt64(&s.counters.live[i].Bytes)
	}
	return n
}
