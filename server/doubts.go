package server

import (
	"sync"
	"sync/atomic"
	"time"

	"cairn/engine"
)

// Doubtful slots. A tool that repairs a broken move may make the target the owner first and bring what is still at the source
// after that ("redis-cli --cluster fix" does when source and target have as many keys). In between the owner has older copies of
// some keys, and of others none: whoever read them would go back in time, and what somebody wrote to them would be one of two
// truths, so that the tool gives up. Until doubtFor has passed in which nothing came, only keys that were written here since they
// arrived are served; for others clients are told to try again, as Redis tells them of keys that are not all here yet.

const (
	doubtFor   = time.Second
	textDoubts = "TRYAGAIN The slot is still being brought here"
)

// slotDoubts knows until when slots are doubtful.
type slotDoubts struct {
	some  atomic.Bool // there may be any: most nodes never have one
	mu    sync.Mutex
	until map[uint16]int64 // Unix milliseconds
}

// unfinished is the state of a slot that came to be this node's before all of its keys were here.
const unfinished = engine.SlotOwned | engine.SlotUnfinished

// note compares the routing before with the one that takes its place.
func (d *slotDoubts) note(before, after *engine.Routing, nowMs int64) {
	for sl := range after.Slots {
		if after.Slots[sl]&unfinished == unfinished && before.Slots[sl]&engine.SlotOwned == 0 {
			d.extend(uint16(sl), nowMs)
		}
	}
}

// extend begins the time anew: something came.
func (d *slotDoubts) extend(sl uint16, nowMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = map[uint16]int64{}
	}
	d.until[sl] = nowMs + doubtFor.Milliseconds()
	d.some.Store(true)
}

// has says whether a slot is doubtful.
func (d *slotDoubts) has(sl uint16, nowMs int64) bool {
	if !d.some.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	until, noted := d.until[sl]
	if noted && until <= nowMs {
		delete(d.until, sl)
		d.some.Store(len(d.until) > 0)
	}
	return until > nowMs
}

// doubtful says whether not every key of a slot that this node owns may be served.
func (s *Server) doubtful(r *engine.Routing, sl uint16) bool {
	return r.Slots[sl]&(unfinished|engine.SlotMigrating) == unfinished && !r.Replica && s.doubts.has(sl, s.clock())
}

// cameAgain notes that a key was brought to a slot.
func (s *Server) cameAgain(sl uint16) {
	if now := s.clock(); s.doubts.has(sl, now) {
		s.doubts.extend(sl, now)
	}
}
