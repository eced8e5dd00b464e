package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// scheduler lets compactions run, as many at a time as Pebble allows itself, but none before the node serves.
// Pebble's own begins one in the middle of opening a store that needs it, and opening then waits for its end: a
// restart would take as long as a compaction. And recovery has better use for disk and cores.
//
// Grants come from one goroutine, so that no lock is held when the store is asked what waits.
type scheduler struct {
	db       pebble.DBForCompaction
	released atomic.Bool
	poke     chan struct{}
	stop     chan struct{}
	done     sync.WaitGroup

	mu      sync.Mutex
	running int
}

func newScheduler() *scheduler {
	return &scheduler{poke: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Register is part of pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.db = db
	s.done.Add(1)
	go s.loop() // ends with Unregister
}

// Unregister is part of pebble.CompactionScheduler.
func (s *scheduler) Unregister() {
	close(s.stop)
	s.done.Wait()
}

// release lets compactions begin.
func (s *scheduler) release() {
	s.released.Store(true)
	s.wake()
}

func (s *scheduler) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// UpdateGetAllowedWithoutPermission is part of pebble.CompactionScheduler.
func (s *scheduler) UpdateGetAllowedWithoutPermission() { s.wake() }

// TrySchedule is part of pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !s.claim() {
		return false, nil
	}
	return true, s
}

// claim takes one of the places that are free.
func (s *scheduler) claim() bool {
	if !s.released.Load() {
		return false
	}
	allowed := s.db.GetAllowedWithoutPermission()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running >= allowed {
		return false
	}
	s.running++
	return true
}

func (s *scheduler) giveBack() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

// loop grants what waits. The tick is for changes that nobody tells.
func (s *scheduler) loop() {
	defer s.done.Done()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.poke:
		case <-tick.C:
		}
		for s.claim() {
			waiting, _ := s.db.GetWaitingCompaction()
			if !waiting || !s.db.Schedule(s) {
				s.giveBack()
				break
			}
		}
	}
}

// Started is part of pebble.CompactionGrantHandle.
func (s *scheduler) Started() {}

// MeasureCPU is part of pebble.CompactionGrantHandle.
func (s *scheduler) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats is part of pebble.CompactionGrantHandle.
func (s *scheduler) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done is part of pebble.CompactionGrantHandle.
func (s *scheduler) Done() {
	s.giveBack()
	s.wake()
}
