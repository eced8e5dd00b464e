package server

import (
	"unsafe"

	"cairn/engine"
	"cairn/internal/slot"
)

// aheadMost is how many commands of a pipeline are looked at ahead: as many as the processor can wait for at once.
const aheadMost = 8

// lookAhead is what a connection knows of the commands that come next in its buffer. Their keys lie anywhere in memory,
// and to fetch them together costs little more than to fetch one. It holds for as long as the buffer does.
type lookAhead struct {
	keys []engine.Ahead
	used int // so many of keys have had their turn
	room [aheadMost]engine.Ahead
}

// look looks at the next commands when those seen before are through.
func (a *lookAhead) look(c *client) {
	if a.used < len(a.keys) {
		a.used++
		return
	}
	a.keys, a.used = a.room[:0], 1
	if c.txn == nil {
		return
	}
	var names [aheadMost][]byte
	for _, name := range c.framer.SecondArgs(names[:0]) {
		a.keys = append(a.keys, engine.Ahead{Key: name})
	}
	c.txn.Store().Prefetch(a.keys)
}

// slotOf is the slot of a key of the command whose turn it is, which was reckoned if it was seen ahead.
func (a *lookAhead) slotOf(key []byte) uint16 {
	if at := a.used - 1; at >= 0 && at < len(a.keys) {
		k := a.keys[at].Key
		if len(k) > 0 && len(k) == len(key) && unsafe.SliceData(k) == unsafe.SliceData(key) {
			return a.keys[at].Slot
		}
	}
	return slot.Of(key)
}

// forget lets go of the buffer.
func (a *lookAhead) forget() {
	clear(a.room[:])
	a.keys, a.used = nil, 0
}
