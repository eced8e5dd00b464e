package bus

import (
	"sync"

	"cairn/cluster"
)

// saver writes the state on a goroutine of its own. Of the saves that wait only the last is written: it holds all that the
// ones before it do.
type saver struct {
	mu      sync.Mutex
	changed sync.Cond
	seq     uint64
	state   *cluster.State // nil: nothing waits
	closed  bool
}

func (s *saver) init() { s.changed.L = &s.mu }

func (s *saver) want(seq uint64, state *cluster.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq, s.state = seq, state
	s.changed.Signal()
}

func (s *saver) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Signal()
}

func (s *saver) next() (seq uint64, state *cluster.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.state == nil && !s.closed {
		s.changed.Wait()
	}
	seq, state = s.seq, s.state
	s.state = nil
	return seq, state
}

// run saves until the driver ends, or a save fails. After a failure nothing is known of the disk, so nothing more is
// written, and what waits for it is never sent.
func (s *saver) run(d *Driver) {
	for {
		seq, state := s.next()
		if state == nil {
			return
		}
		if err := d.file.save(state); err != nil {
			d.queue.noMoreSaves()
			go d.o.Failed(err) // not waited for, because it may call Close, which waits for this goroutine
			return
		}
		d.persisted(seq)
	}
}
