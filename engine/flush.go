package engine

import (
	"fmt"
	"runtime/debug"
	"time"
)

// startFlush makes everything up to the applied offset durable in the background. Called by the applier only,
// so that the group of this offset is in the memtables that are flushed.
func (s *Store) startFlush(applied int64) error {
	done, err := s.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("flush at offset %d: %w", applied, err)
	}
	s.sinceFlush, s.lastFlush = 0, time.Now()
	s.flushing.Store(true)
	history, changes, huge := s.appliedHistory, s.changes.applied, s.hugeGroup
	s.hugeGroup = false
	go func() { // ends with the flush; Close waits for flushing to fall
		defer s.flushing.Store(false)
		<-done
		if err := s.flushed(applied, history, changes); err != nil {
			s.fail(err)
		}
		if huge {
			s.letBatchGo()
		}
	}()
	return nil
}

// queueTurns is after how many memtables the array behind Pebble's queue of them is a new one, if not many waited when it
// was made. Pebble makes a batch of half a memtable or more a memtable by itself, and names it in that array also after its
// flush: a huge group's batch would be in memory until as much has been written, and the collector begin again and again.
const queueTurns = 8

// letBatchGo makes Pebble forget such a batch. Each empty memtable costs an edit of its MANIFEST.
func (s *Store) letBatchGo() {
	for range queueTurns {
		if s.closing.Load() {
			return
		}
		done, err := s.db.AsyncFlush()
		if err != nil {
			return // it stays in memory for a while
		}
		<-done
	}
	debug.FreeOSMemory()
}

// flushNow makes everything applied durable before it returns.
func (s *Store) flushNow() error {
	s.applying.Lock()
	defer s.applying.Unlock()
	applied := s.applied.Load()
	done, err := s.db.AsyncFlush()
	if err == nil {
		err = s.await(done)
	}
	if err != nil {
		return fmt.Errorf("flush at offset %d: %w", applied, err)
	}
	return s.flushed(applied, s.appliedHistory, s.changes.applied)
}

// Flush applies what is pending and makes it durable.
func (s *Store) Flush() error {
	if err := s.Apply(); err != nil {
		return err
	}
	return s.flushNow()
}

// flushed notes that the store is durable up to an offset: first in the floor file, then for the log to let go.
// The log keeps everything while the durable state row names an older history than the log's own: the way from
// one to the other is in the segments between them. changes is how many had been counted at that offset.
func (s *Store) flushed(applied, history, changes int64) error {
	s.floor.mu.Lock()
	defer s.floor.mu.Unlock()
	if applied < s.durable.Load() {
		return nil
	}
	if err := s.floor.raise(applied); err != nil {
		return err
	}
	s.changes.durable.Store(changes)
	s.durable.Store(applied)
	if history != s.histories.Load() {
		return nil
	}
	return s.attached().Trim(applied)
}
