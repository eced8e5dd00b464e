package engine

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errNoRoom says that the disk took no table when the store was to be flushed for the last time.
var errNoRoom = errors.New("no room on the disk for a flush")

// Close applies and flushes everything and closes Pebble. Nobody may be using the store.
//
// Without room on the disk it gives up at the first flush that fails, and leaves Pebble as a kill would: what it lacks is in
// the log, and the next start executes that. Pebble itself tries again until there is room, and cannot be closed meanwhile.
func (s *Store) Close() error {
	s.closing.Store(true)
	err := s.halt()
	if err == nil {
		err = s.settle()
	}
	if errors.Is(err, errNoRoom) {
		s.opts.Logf("store closed without its last flush, the next start executes the log", "err", err)
		return nil
	}
	return errors.Join(err, s.closeDB(), s.releaseCaches())
}

// Abandon ends the store's goroutines and closes Pebble without writing anything, as after a failure.
func (s *Store) Abandon() error {
	s.closing.Store(true)
	err := s.halt()
	if errors.Is(err, errNoRoom) {
		return nil
	}
	return errors.Join(err, s.closeDB(), s.releaseCaches())
}

// halt ends the store's goroutines.
func (s *Store) halt() error {
	close(s.stop)
	s.endLife()
	if err := s.await(s.applierDone); err != nil {
		return err
	}
	s.background.Wait()
	if err := s.waitFlushed(); err != nil {
		return err
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// settle makes everything durable and says in the floor file that all is in order.
func (s *Store) settle() error {
	applied := make(chan struct{})
	var err error
	go func() { // ends with the group; or never, when Pebble waits for room
		defer close(applied)
		err = s.Apply()
	}()
	if err := s.await(applied); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	// The last group may have begun a flush, which would write the floor file after us.
	if err := s.waitFlushed(); err != nil {
		return err
	}
	if err := s.flushNow(); err != nil {
		return err
	}
	return s.floor.write(s.applied.Load(), true)
}

// waitFlushed waits for the flush in the background, if there is one. Nobody begins another.
func (s *Store) waitFlushed() error {
	for s.flushing.Load() {
		if err := s.givesUp(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// await waits for done, while closing only as long as the disk has room.
func (s *Store) await(done <-chan struct{}) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			if err := s.givesUp(); err != nil {
				return err
			}
		}
	}
}

// givesUp says whether nothing is waited for any more.
func (s *Store) givesUp() error {
	if s.noRoom.Load() {
		return errNoRoom
	}
	return nil
}

// noteRoom hears of each failure in the background.
func (s *Store) noteRoom(err error) {
	if s.closing.Load() && vfs.IsNoSpaceError(err) {
		s.noRoom.Store(true)
	}
}
