package wal

import (
	"errors"
	"fmt"

	"cairn/wal/record"
)

// errAppended is the failure of a caller that did not keep appends away.
var errAppended = errors.New("entries were appended while the log was cut or replaced")

// SetHistory makes everything appended from now on belong to h, which must keep the present id or name
// it as its second id up to the present end (Offset2 = End()+1, as Redis counts). The change and
// everything before it are on stable storage when it returns.
func (l *Log) SetHistory(h History) error {
	return l.exclusive(func() error {
		start, err := l.drain()
		if err != nil {
			return err
		}
		old := l.current()
		l.mu.Lock()
		before := l.history
		if !h.Follows(&before, start) {
			l.mu.Unlock()
			return &HistoryError{Offset: start, Offset2: h.Offset2}
		}
		prev, prevSeed, replaces := old.hdr.Sequence, old.hdr.Seed, false
		if old.hdr.Start == start && h.ID == before.ID && (old.hdr.Prev == 0 || h.Follows(l.historyBefore(), start)) {
			// Nothing was written to it and the store finds the new one by the same id.
			prev, prevSeed, replaces = old.hdr.Prev, old.hdr.PrevSeed, true
		}
		hdr := l.nextHeader(start, h, prev, prevSeed)
		l.mu.Unlock()
		if !replaces {
			return l.install(hdr, nil)
		}
		return l.install(hdr, []*segment{old})
	})
}

// historyBefore is the history of the last segment but one. Log.mu is held.
func (l *Log) historyBefore() *History {
	if n := len(l.segments); n > 1 {
		return &l.segments[n-2].hdr.History
	}
	return &History{Offset2: -1}
}

// CutTo drops everything behind offset, which must be the end of an entry and not below what the store
// has applied. The history becomes the one of the last byte
// kept, so the store must name that one at its applied offset. The cut is on stable storage when it
// returns. Nobody may append meanwhile.
func (l *Log) CutTo(offset int64) error {
	return l.exclusive(func() error {
		end, err := l.drain()
		if err != nil {
			return err
		}
		if offset == end {
			return nil
		}
		l.mu.Lock()
		first := l.segments[0].hdr.Start
		if offset > end || offset < first || offset < l.applied {
			low := max(first, l.applied)
			l.mu.Unlock()
			return fmt.Errorf("cut log to offset %d: outside [%d, %d]", offset, low, end)
		}
		// The segment that holds the last byte kept is continued; those from the cut on go.
		at := len(l.segments) - 1
		for at > 0 && l.segments[at].hdr.Start >= offset {
			at--
		}
		keep := l.segments[at]
		prev, prevSeed := keep.hdr.Sequence, keep.hdr.Seed
		gone := append([]*segment(nil), l.segments[at+1:]...)
		if keep.hdr.Start == offset {
			prev, prevSeed = keep.hdr.Prev, keep.hdr.PrevSeed
			gone = append([]*segment{keep}, gone...)
		}
		hdr := l.nextHeader(offset, keep.hdr.History, prev, prevSeed)
		l.mu.Unlock()
		return l.install(hdr, gone)
	})
}

// Reset abandons the chain and starts a new one with history h at offset, after a full sync. The old
// chain is made durable first and its files stay until the next Trim, so that a crash finds the chain
// of whichever history the store then names. Nobody may append meanwhile.
func (l *Log) Reset(h History, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("reset log: offset %d is below 0", offset)
	}
	return l.exclusive(func() error {
		if _, err := l.drain(); err != nil {
			return err
		}
		l.mu.Lock()
		hdr := l.nextHeader(offset, h, 0, 0)
		hdr.Synced = offset
		l.mu.Unlock()
		seg, err := l.begin(hdr, true, true)
		if err != nil {
			return l.fail(err)
		}
		l.mu.Lock()
		for _, s := range l.segments {
			s.closeFiles()
			l.foreign = append(l.foreign, s.name)
		}
		l.segments = []*segment{seg}
		l.applied = offset
		lost := l.endPins()
		err = l.restart(seg, h)
		l.mu.Unlock()
		l.tellLost("the log begins anew", lost)
		if err != nil {
			return l.fail(err)
		}
		return nil
	})
}

// drain writes and syncs everything and returns the end of the log. What is appended from then on stays
// in memory until the caller gives up the batons.
func (l *Log) drain() (end int64, err error) {
	for {
		if err := l.writeOut(); err != nil {
			return 0, err
		}
		l.mu.Lock()
		end = l.written.Load()
		empty := end == l.end.Load()
		l.mu.Unlock()
		if empty {
			return end, l.syncFiles()
		}
	}
}

// install puts a new last segment into the chain, durably, and then removes those it replaces, which
// are the last ones. The caller holds both batons and has drained the log.
func (l *Log) install(hdr record.Header, gone []*segment) error {
	seg, err := l.begin(hdr, true, true)
	if err != nil {
		return l.fail(err)
	}
	l.mu.Lock()
	cut := hdr.Start < l.written.Load()
	l.segments[len(l.segments)-1].closeFiles() // synced by drain
	l.segments = append(l.segments[:len(l.segments)-len(gone):len(l.segments)-len(gone)], seg)
	l.declared = hdr.Synced
	if cut {
		err = l.restart(seg, hdr.History)
	} else {
		l.history = hdr.History
	}
	l.mu.Unlock()
	if err != nil {
		return l.fail(err)
	}
	return l.remove(gone)
}

// restart makes the log end where seg starts. Log.mu is held.
func (l *Log) restart(seg *segment, h History) error {
	if l.end.Load() != l.written.Load() {
		return errAppended
	}
	l.history = h
	l.setEnd(seg.hdr.Start)
	l.changes++
	l.wakeReaders()
	return nil
}

// remove removes files that the chain no longer needs, and makes that durable.
func (l *Log) remove(gone []*segment) error {
	for _, s := range gone {
		if err := l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, s.name)); err != nil {
			return l.fail(fmt.Errorf("remove log segment %s: %w", s.name, err))
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if err := l.syncDir(); err != nil {
		return l.fail(err)
	}
	return nil
}

// Reign is a history and the offset from which it holds.
type Reign struct {
	From    int64
	History History
}

// Reigns lists the histories that the log holds, in order of offset: whoever executes the log again must note
// with each offset the history that held there.
func (l *Log) Reigns() []Reign {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Reign
	for _, s := range l.segments {
		if n := len(out); n == 0 || out[n-1].History != s.hdr.History {
			out = append(out, Reign{s.hdr.Start, s.hdr.History})
		}
	}
	return out
}
