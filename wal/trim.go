package wal

import (
	"fmt"
	"slices"
)

// Pin keeps the log from an offset on, for a running sync, migration or backup.
type Pin struct {
	l      *Log
	offset int64 // guarded by Log.mu
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
	p := &Pin{l: l, offset: offset, lost: make(chan struct{})}
	l.pins = append(l.pins, p)
	return p, nil
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

// endPins ends all pins as lost. Log.mu is held.
func (l *Log) endPins() {
	for _, p := range slices.Clone(l.pins) {
		p.drop()
		close(p.lost)
	}
}

// EndPins ends all pins as lost: the disk is too full to keep the log for others.
func (l *Log) EndPins() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endPins()
}

// Trim removes the segments that nobody needs: wholly below durableApplied, the offset from which the
// store would replay after a crash now, below what is kept for replicas, and below every pin. Pins that
// hold more than Options.PinLimit are ended first, lowest offset first. Files of abandoned chains go
// too: after Reset, call it only when the store names the new history durably.
func (l *Log) Trim(durableApplied int64) error {
	if err := l.Failed(); err != nil {
		return err
	}
	l.mu.Lock()
	l.applied = max(l.applied, min(durableApplied, l.end.Load()))
	limit := min(durableApplied, l.end.Load()-l.keep.Load(), l.synced.Load())
	limit = min(limit, l.pinned())
	n := 0
	// The first segment kept must survive a crash, or nothing is left to find the chain by.
	for n+1 < len(l.segments) && l.segments[n+1].hdr.Start <= limit && l.segments[n+1].durable {
		n++
	}
	gone := l.segments[:n:n]
	l.segments = slices.Clone(l.segments[n:])
	foreign := l.foreign
	l.foreign = nil
	recycle := -1
	if n > 0 && l.spare == nil && !l.preparing && !l.closed && gone[n-1].size == l.o.SegmentBytes {
		recycle, l.preparing = n-1, true
	}
	l.mu.Unlock()

	// From the front on, so that a crash leaves no hole.
	for _, name := range foreign {
		if err := l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, name)); err != nil {
			l.o.Logf("log segment not removed", "segment", name, "reason", err)
		}
	}
	for i, s := range gone {
		if i == recycle {
			l.recycle(s)
			continue
		}
		if err := l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, s.name)); err != nil {
			// Left behind it is harmless: the next start finds it in front of the chain.
			l.o.Logf("log segment not removed", "segment", s.name, "reason", err)
		}
	}
	return nil
}

// pinned ends the pins that hold too much and returns the lowest offset the others hold. Log.mu is held.
func (l *Log) pinned() int64 {
	low := int64(noLimit)
	for _, p := range slices.Clone(l.pins) {
		if l.end.Load()-p.offset > l.o.PinLimit {
			p.drop()
			close(p.lost)
			continue
		}
		low = min(low, p.offset)
	}
	return low
}

// recycle makes the file of a trimmed segment the next one. Its old blocks need not go: their checksums
// start from another seed. The caller has set preparing.
func (l *Log) recycle(s *segment) {
	sp, err := l.adopt(s)
	if err != nil {
		l.o.Logf("log segment not recycled", "segment", s.name, "reason", err)
	}
	l.mu.Lock()
	l.preparing = false
	l.spare = sp
	l.mu.Unlock()
}

func (l *Log) adopt(s *segment) (*spare, error) {
	fs := l.o.FS
	path := fs.PathJoin(l.o.Dir, spareName)
	if err := fs.Rename(fs.PathJoin(l.o.Dir, s.name), path); err != nil {
		return nil, fmt.Errorf("recycle log segment %s: %w", s.name, err)
	}
	// The old name must be gone for good before the contents change, or a crash brings back an old
	// segment with new bytes in it.
	if err := l.syncDir(); err != nil {
		return nil, l.fail(err)
	}
	w, sy, err := openPair(fs, path)
	if err != nil {
		_ = fs.Remove(path)
		return nil, fmt.Errorf("recycle log segment %s: %w", s.name, err)
	}
	return &spare{w: w, s: sy, size: s.size}, nil
}
