package bus

import (
	"sync"
	"time"

	"cairn/cluster"
)

// saver writes the state on a goroutine of its own. Of the saves that wait only the last is written: it holds all that the
// ones before it do.
//
// A save is several syncs, and a tool that moves slots brings one for each. Those that nobody waits for begin savePause
// after the last one began, so that one does for the slots of that time, and the disk is there for the log.
type saver struct {
	mu      sync.Mutex
	changed sync.Cond
	seq     uint64
	state   *cluster.State // nil: nothing waits
	hurry   bool           // it is not to wait for more
	resting bool           // the last one began less than savePause ago
	closed  bool
}

const savePause = 50 * time.Millisecond

func (s *saver) init() { s.changed.L = &s.mu }

func (s *saver) want(save cluster.Save) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq, s.state, s.hurry = save.Seq, save.State, s.hurry || !save.Soon
	s.changed.Signal()
}

func (s *saver) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Signal()
}

func (s *saver) rested() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = false
	s.changed.Signal()
}

func (s *saver) next() (seq uint64, state *cluster.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (s.state == nil || s.resting && !s.hurry) {
		s.changed.Wait()
	}
	seq, state = s.seq, s.state
	s.state, s.hurry = nil, false
	if state != nil && !s.resting {
		s.resting = true
		time.AfterFunc(savePause, s.rested)
	}
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
