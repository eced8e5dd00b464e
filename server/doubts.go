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
			d.begin(uint16(sl), nowMs)
		}
	}
}

func (d *slotDoubts) begin(sl uint16, nowMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = map[uint16]int64{}
	}
	d.until[sl] = nowMs + doubtFor.Milliseconds()
	d.some.Store(true)
}

// extend begins the time of a slot that is doubtful anew: a key was brought there. One that is not any more does not become
// so again.
func (d *slotDoubts) extend(sl uint16, nowMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lasts(sl, nowMs) {
		d.until[sl] = nowMs + doubtFor.Milliseconds()
	}
}

// has says whether a slot is doubtful.
func (d *slotDoubts) has(sl uint16, nowMs int64) bool {
	if !d.some.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lasts(sl, nowMs) {
		return true
	}
	delete(d.until, sl)
	d.some.Store(len(d.until) > 0)
	return false
}

// lasts is has for who holds mu.
func (d *slotDoubts) lasts(sl uint16, nowMs int64) bool { return stillDoubtful(d.until[sl], nowMs) }

// stillDoubtful says whether a time that was doubtFor away at most is still to come. A clock that was set back ends all doubts.
func stillDoubtful(until, nowMs int64) bool {
	left := until - nowMs
	return left > 0 && left <= doubtFor.Milliseconds()
}

// doubtful says whether not every key of a slot that this node owns may be served.
func (s *Server) doubtful(r *engine.Routing, sl uint16) bool {
	return s.arrivedDoubtful(r, sl) || s.missingDoubtful(r, sl)
}

// arrivedDoubtful says whether newer values may still come for what has arrived in a slot.
func (s *Server) arrivedDoubtful(r *engine.Routing, sl uint16) bool {
	return r.Slots[sl]&(unfinished|engine.SlotMigrating) == unfinished && !r.Replica && s.doubts.has(sl, s.clock())
}

// missingDoubtful says whether keys may come back to a slot, see returns.go.
func (s *Server) missingDoubtful(r *engine.Routing, sl uint16) bool {
	if !s.returns.waits.Load() || r.Slots[sl]&(engine.SlotOwned|engine.SlotMigrating) != engine.SlotOwned || r.Replica {
		return false // the clock is not read for every command
	}
	back, _ := s.returns.has(sl, s.clock())
	return back
}
