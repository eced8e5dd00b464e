package wal

import (
	"fmt"
	"slices"
)

// Trim removes the segments that nobody needs: wholly below durableApplied, the offset from which the
// store would replay after a crash now, below what is kept for replicas, and below every pin. Pins that
// hold more than the limit are ended first, lowest offset first. Files of abandoned chains go
// too: after Reset, call it only when the store names the new history durably.
func (l *Log) Trim(durableApplied int64) error {
	if err := l.Failed(); err != nil {
		return err
	}
	l.mu.Lock()
	l.applied = max(l.applied, min(durableApplied, l.end.Load()))
	lost := l.overLimit()
	l.mu.Unlock()
	l.tellOverLimit(lost)
	return l.trim(true)
}

// unpinned is the offset below which nobody but pins needs the log. Log.mu is held.
func (l *Log) unpinned() int64 { return min(l.applied, l.end.Load()-l.keep.Load(), l.synced.Load()) }

// removable counts the segments wholly below limit. Log.mu is held.
func (l *Log) removable(limit int64) (n int) {
	// The first segment kept must survive a crash, or nothing is left to find the chain by.
	for n+1 < len(l.segments) && l.segments[n+1].hdr.Start <= limit && l.segments[n+1].durable {
		n++
	}
	return n
}

// trim removes what nobody needs by what Trim was told last. abandoned says that files of abandoned chains go too.
func (l *Log) trim(abandoned bool) error {
	if err := l.Failed(); err != nil {
		return err
	}
	l.mu.Lock()
	n := l.removable(min(l.unpinned(), l.pinned()))
	gone := l.segments[:n:n]
	l.segments = slices.Clone(l.segments[n:])
	var foreign []string
	if abandoned {
		foreign, l.foreign = l.foreign, nil
	}
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
