package wal

import (
	"fmt"
	"slices"
)

// Pin keeps the log from an offset on, for a running sync, migration or backup. What pins may hold has two bounds: the
// pin limit (SetPinLimit, looked at once a second and by Trim), and the owner's disk (EndOldestPin). A pin that is ended is
// lost to its holder, who has to begin anew: the writes of the node go before a copy of them.
type Pin struct {
	l      *Log
	offset int64  // guarded by Log.mu
	what   string // the same
	lost   chan struct{}
	gone   bool
}

// Pin keeps the log from offset on until the pin is released, moved, or lost.
func (l *Log) Pin(offset int64) (*Pin, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.segments[0].hdr.Start; offset < first {
		return nil, &TrimmedError{Want: offset, First: first}
	}
	if offset > l.end.Load() {
		return nil, ErrAhead
	}
	p := &Pin{l: l, offset: offset, what: "a copy under way", lost: make(chan struct{})}
	l.pins = append(l.pins, p)
	return p, nil
}

// Name says for whom the pin is, as the log line that tells of its end names it.
func (p *Pin) Name(what string) {
	p.l.mu.Lock()
	p.what = what
	p.l.mu.Unlock()
}

// Move moves the pin forward to offset.
func (p *Pin) Move(offset int64) {
	p.l.mu.Lock()
	p.offset = max(p.offset, offset)
	p.l.mu.Unlock()
}

// Lost is closed when the log gave the pin up because pins held too much.
func (p *Pin) Lost() <-chan struct{} { return p.lost }

// Release ends the pin. It may be called twice.
func (p *Pin) Release() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	p.drop()
}

func (p *Pin) drop() {
	if !p.gone {
		p.gone = true
		p.l.pins = slices.DeleteFunc(p.l.pins, func(q *Pin) bool { return q == p })
	}
}

// lose ends the pin as lost and gives what is to be told of it. Log.mu is held.
func (p *Pin) lose() lostPin {
	p.drop()
	close(p.lost)
	return lostPin{p.what, p.offset, p.l.end.Load() - p.offset}
}

// lostPin is told outside the lock.
type lostPin struct {
	what         string
	offset, held int64
}

func (l *Log) tellLost(reason string, lost []lostPin) {
	for _, p := range lost {
		l.o.Logf("log pin ended", "of", p.what, "offset", p.offset, "held", p.held, "reason", reason)
	}
}

// endPins ends all pins as lost. Log.mu is held.
func (l *Log) endPins() (lost []lostPin) {
	for _, p := range slices.Clone(l.pins) {
		lost = append(lost, p.lose())
	}
	return lost
}

// EndPins ends all pins as lost: the disk is too full to keep the log for others.
func (l *Log) EndPins() {
	l.mu.Lock()
	lost := l.endPins()
	l.mu.Unlock()
	l.tellLost("all pins are ended", lost)
}

// EndOldestPin ends the pin of the lowest offset as lost, if segments could go without it, and removes them. It says
// whether it did. Its owner calls it, again and again, while the disk is too full.
func (l *Log) EndOldestPin(reason string) (ended bool, err error) {
	l.mu.Lock()
	oldest := l.oldestPin()
	limit := l.unpinned()
	if oldest == nil || l.removable(limit) == l.removable(min(limit, oldest.offset)) {
		l.mu.Unlock()
		return false, nil
	}
	lost := oldest.lose()
	l.mu.Unlock()
	l.tellLost(reason, []lostPin{lost})
	return true, l.trim(false)
}

func (l *Log) oldestPin() (oldest *Pin) {
	for _, p := range l.pins {
		if oldest == nil || p.offset < oldest.offset {
			oldest = p
		}
	}
	return oldest
}

// SetPinLimit changes how many bytes behind the end pins may hold.
func (l *Log) SetPinLimit(n int64) { l.pinLimit.Store(n) }

// checkPins ends the pins that hold more than the limit, lowest offset first, and lets go of what they held.
func (l *Log) checkPins() error {
	l.mu.Lock()
	lost := l.overLimit()
	l.mu.Unlock()
	if len(lost) == 0 {
		return nil
	}
	l.tellOverLimit(lost)
	return l.trim(false)
}

// overLimit ends the pins that hold more than the limit. Log.mu is held.
func (l *Log) overLimit() (lost []lostPin) {
	for p := l.oldestPin(); p != nil && l.end.Load()-p.offset > l.pinLimit.Load(); p = l.oldestPin() {
		lost = append(lost, p.lose())
	}
	return lost
}

func (l *Log) tellOverLimit(lost []lostPin) {
	l.tellLost(fmt.Sprintf("it held more than repl-pin-limit, %d bytes", l.pinLimit.Load()), lost)
}

// pinned is the lowest offset that a pin holds. Log.mu is held.
func (l *Log) pinned() int64 {
	if p := l.oldestPin(); p != nil {
		return p.offset
	}
	return noLimit
}
