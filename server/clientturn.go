package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// turnQueue is the line of clients that need room while there is little. Whoever has the turn may take what its command
// needs, though it be more than all others hold together; so every command comes through in the end.
//
// The turn ends with the command. A client that has it and does not send must not hold up the others: the next one may
// take the turn away from one that has sent nothing for turnIdle, or not the whole command in turnFor.
type turnQueue struct {
	mu    sync.Mutex // a leaf
	line  []*client  // in order of their coming
	owner atomic.Pointer[client]
	since time.Time // when the owner got it
}

const (
	turnIdle = 400 * time.Millisecond // a sender at the other end of the world has more on the way by then, or lines up again
	turnFor  = 30 * time.Second
	turnLook = 50 * time.Millisecond // how often one in line looks whether waiting is still needed
	roomless = 4 << 10               // this much room is nothing to wait for
)

// awaitTurn waits, when clients hold much and this one needs more room, until there is some or the turn is its. false: the
// connection has ended.
func (c *client) awaitTurn() bool {
	m := &c.s.memory
	if !c.needsTurn() {
		return true
	}
	c.s.restIdle()
	called := m.turn.enter(c)
	if called == nil {
		return true
	}
	defer func() {
		m.turn.leave(c)
		if !m.crowded() {
			m.turn.callFirst()
		}
	}()
	look := time.NewTicker(turnLook)
	defer look.Stop()
	for m.crowded() && !m.turn.takeOver(c) {
		select {
		case <-called:
		case <-look.C:
		case <-c.s.stop:
			return false
		}
		if c.killed.Load() {
			return false
		}
	}
	return true
}

// needsTurn says whether clients hold much and this one needs more room.
func (c *client) needsTurn() bool {
	m := &c.s.memory
	return m.crowded() && !m.strict.Load() && m.turn.owner.Load() != c &&
		c.framer.Room(readLeast) > max(roomless, c.framer.MemoryBytes())
}

// enter gives c the turn when it is free, else a place in line: the channel is written to when c should look again.
func (q *turnQueue) enter(c *client) (called chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owner.Load() == nil && len(q.line) == 0 {
		q.give(c)
		return nil
	}
	c.called = make(chan struct{}, 1)
	q.line = append(q.line, c)
	return c.called
}

// give makes c the owner. mu is held.
func (q *turnQueue) give(c *client) {
	q.owner.Store(c)
	q.since = time.Now()
}

// takeOver says whether c has the turn, and takes it from an owner that had it for long when c is the first in line.
func (q *turnQueue) takeOver(c *client) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	owner := q.owner.Load()
	if owner == c {
		return true
	}
	if len(q.line) == 0 || q.line[0] != c || owner != nil && !q.overstayed(owner) {
		return false
	}
	q.line = q.line[1:]
	q.give(c)
	return true
}

// overstayed says whether the owner waits for bytes and has done so for too long. mu is held.
func (q *turnQueue) overstayed(owner *client) bool {
	waits, now := owner.reading.Load(), time.Now()
	return waits > 0 && (now.UnixMilli()-waits >= turnIdle.Milliseconds() || now.Sub(q.since) >= turnFor)
}

// leave takes c out of the line.
func (q *turnQueue) leave(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line = slices.DeleteFunc(q.line, func(other *client) bool { return other == c })
}

// callFirst wakes the first in line: there may be room.
func (q *turnQueue) callFirst() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) > 0 {
		q.line[0].call()
	}
}

// call wakes c.
func (c *client) call() {
	select {
	case c.called <- struct{}{}:
	default: // it is called already
	}
}

// end passes the turn on, if it is c's.
func (q *turnQueue) end(c *client) {
	if q.owner.Load() != c {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.owner.Load() != c { // somebody took it over
		return
	}
	if len(q.line) == 0 {
		q.owner.Store(nil)
		q.line = nil
		return
	}
	next := q.line[0]
	q.line[0] = nil
	q.line = q.line[1:]
	q.give(next)
	next.call()
}
