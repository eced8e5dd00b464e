package engine

import (
	"fmt"
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
	history, changes := s.appliedHistory, s.changes.applied
	go func() { // ends with the flush; Close waits for flushing to fall
		defer s.flushing.Store(false)
		<-done
		if err := s.flushed(applied, history, changes); err != nil {
			s.fail(err)
		}
	}()
	return nil
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
