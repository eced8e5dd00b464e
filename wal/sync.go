package wal

import (
	"fmt"
	"sync"
)

// waitSynced returns when all bytes before end are on stable storage.
func (l *Log) waitSynced(end int64) error {
	for {
		if f := l.failed.Load(); f != nil {
			return f
		}
		if l.synced.Load() >= end {
			return nil
		}
		l.mu.Lock()
		switch {
		case l.synced.Load() >= end:
			l.mu.Unlock()
			continue
		case end > l.end.Load():
			l.mu.Unlock()
			return ErrAhead
		case !l.syncing.take():
			ch := l.syncing.queue(end <= l.syncingTo)
			l.mu.Unlock()
			if _, handed := <-ch; !handed {
				continue
			}
			l.mu.Lock()
			l.syncing.received()
		}
		// Whoever appended up to now is served by this round and must wait for it, not for
		// the next one.
		l.syncingTo = l.end.Load()
		target := l.syncingTo
		l.mu.Unlock()
		err := l.waitWritten(target)
		if err == nil {
			err = l.syncFiles()
		}
		l.mu.Lock()
		l.syncing.done()
		l.syncingTo = -1
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// syncFiles makes everything written so far durable: full segments, then the directory, then the
// segment in use. The caller holds the sync baton.
func (l *Log) syncFiles() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	l.mu.Lock()
	target := l.written.Load()
	full := append([]*segment(nil), l.unsynced...)
	cur := l.segments[len(l.segments)-1]
	dir := l.dirStale
	l.dirStale = false
	l.syncingTo = max(l.syncingTo, target)
	l.mu.Unlock()

	began := l.o.Now()
	if err := syncFull(full); err != nil {
		return l.fail(err)
	}
	if dir {
		if err := l.syncDir(); err != nil {
			return l.fail(err)
		}
	}
	if err := cur.s.SyncData(); err != nil {
		return l.fail(fmt.Errorf("sync log segment %s: %w", cur.name, err))
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	// A failure that another goroutine met meanwhile is final for this sync too.
	if f := l.failed.Load(); f != nil {
		return f
	}
	l.synced.Store(target)
	cur.durable = true
	l.lastAt.Store(began)
	l.fsyncTook = l.o.Now() - began
	l.unsynced = l.unsynced[len(full):] // only appended to since
	for _, s := range full {
		s.durable = true
		s.closeFiles()
	}
	l.wakeReaders()
	return nil
}

// syncFull syncs segments at the same time: of a long entry that was laid ahead there are many, with a header to sync each,
// and one after the other each would wait for the disk's cache anew.
func syncFull(full []*segment) error {
	errs := make([]error, len(full))
	var all sync.WaitGroup
	for i, s := range full {
		one := func() {
			if err := s.s.SyncData(); err != nil {
				errs[i] = fmt.Errorf("sync log segment %s: %w", s.name, err)
			}
		}
		if i+1 == len(full) {
			one()
			break
		}
		all.Go(one)
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) syncDir() error {
	return syncDir(l.o.FS, l.o.Dir)
}

// Tick is the work of each second: it hands over what nobody waits for, syncs with EverySec, and when
// nothing was written since the last sync, leaves a mark that declares it. It ends pins that hold too much. Errors are
// sticky.
func (l *Log) Tick() {
	if l.checkPins() != nil {
		return
	}
	if l.waitWritten(l.End()) != nil {
		return
	}
	if l.Policy() == EverySec && l.Synced() < l.Written() && l.SyncAll() != nil {
		return
	}
	l.mu.Lock()
	quiet := l.synced.Load() == l.end.Load()
	if quiet {
		l.lastAt.Store(l.o.Now())
	}
	due := quiet && l.declared < l.synced.Load() && !l.writing.held
	l.mu.Unlock()
	if !due {
		return
	}
	l.mu.Lock()
	l.acquire(&l.writing)
	l.writingTo = -1
	l.mu.Unlock()
	_ = l.mark(0)
	l.mu.Lock()
	l.writing.done()
	l.mu.Unlock()
}
