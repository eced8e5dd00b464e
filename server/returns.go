package server

import (
	"sync"
	"sync/atomic"

	"cairn/cluster"
	"cairn/engine"
)

// Slots whose keys come back. A tool that repairs a broken move may leave a slot with the node that it was leaving, and bring
// back what has gone. Until that is here the node lacks keys that exist: who asked for one would be told that it does not, and who
// wrote to it would make a second truth of it, so that the tool gives up. For doubtFor after such a move was ended, and on
// while keys come, clients are told to try again for keys that are not here.
//
// So what is here in that time was here all the time, and a copy of it that the other node still has counts for nothing: it is told
// so (command.Sender), and deletes an unchanged one.

// slotReturns knows the slots that keys have left, and those that they may come back to.
type slotReturns struct {
	some  atomic.Bool // there may be any of either: most nodes never have one
	waits atomic.Bool // there may be any in back, which every command asks for
	mu    sync.Mutex
	left  map[uint16]bool // leaving slots that keys have gone from; true: their move was ended once before
	back  map[uint16]slotReturn
}

// slotReturn is a slot that keys may come back to.
type slotReturn struct {
	until    int64 // Unix milliseconds
	original bool  // no key was made here since the first one left
}

// went notes that a key has left.
func (d *slotReturns) went(sl uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left, d.back = map[uint16]bool{}, map[uint16]slotReturn{}
	}
	if _, known := d.left[sl]; !known {
		d.left[sl] = false
	}
	d.some.Store(true)
}

// note compares the routing before with the one that takes its place.
func (d *slotReturns) note(before, after *engine.Routing, nowMs int64) {
	if !d.some.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for sl, again := range d.left {
		was, is := before.Slots[sl], after.Slots[sl]
		switch {
		case is&engine.SlotOwned == 0:
			delete(d.left, sl)
		case was&engine.SlotMigrating != 0 && is&engine.SlotMigrating == 0:
			b, lasts := d.lasting(sl, nowMs)
			d.back[sl] = slotReturn{nowMs + doubtFor.Milliseconds(), !again || lasts && b.original}
			d.left[sl] = true
		}
	}
	for sl := range d.back {
		if _, lasts := d.lasting(sl, nowMs); !lasts {
			delete(d.back, sl)
		}
	}
	d.counted()
}

// counted tells those who ask without the lock whether there is anything. mu is held.
func (d *slotReturns) counted() {
	d.waits.Store(len(d.back) > 0)
	d.some.Store(len(d.left)+len(d.back) > 0)
}

// lasting is has for who holds mu.
func (d *slotReturns) lasting(sl uint16, nowMs int64) (b slotReturn, ok bool) {
	b = d.back[sl]
	return b, stillDoubtful(b.until, nowMs)
}

// has says whether keys may come back to a slot, and whether all that is there was there all the time.
func (d *slotReturns) has(sl uint16, nowMs int64) (back, original bool) {
	if !d.waits.Load() {
		return false, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.lasting(sl, nowMs)
	if !ok {
		delete(d.back, sl)
		d.counted()
	}
	return ok, ok && b.original
}

// extend begins the time of a slot that keys come back to anew.
func (d *slotReturns) extend(sl uint16, nowMs int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.lasting(sl, nowMs); ok {
		b.until = nowMs + doubtFor.Milliseconds()
		d.back[sl] = b
	}
}

// leftBefore notes the slots that are leaving when this node begins to serve them: keys may have gone before.
func (d *slotReturns) leftBefore(v *cluster.View) {
	for sl := range v.Migrating {
		d.went(sl)
	}
}
