package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cairn/engine/layout"
)

// Revert opens the store again in the middle of its life: what is not durable in Pebble goes, as after a crash of the
// machine, and the owner executes from the log what is to be kept of it. So a replica that got further than its new
// primary comes back to where the two part, without another full sync.

var (
	// ErrReverted ends a walk or a snapshot over data that was taken back.
	ErrReverted = errors.New("the data that was being read was taken back")
	// ErrBusy means that walks or snapshots did not end in time: the store stays as it is.
	ErrBusy = errors.New("clients still read from the store")
)

// walksLook is how often Revert looks whether all walks have ended.
const walksLook = time.Millisecond

// walks counts who reads from Pebble without holding a slot, and tells them to end.
type walks struct {
	open  atomic.Int64
	ended atomic.Bool
}

// Revert takes back everything that is not durable in Pebble and gives the log offset where the store stands then. It
// is as if it had just been opened: the owner cuts the log, executes what follows (Replaying), and attaches the log
// again. Nobody may commit anything else until then; readers see the older data.
//
// Errors. ErrBusy, ErrReplacing: nothing has changed. Any other is final, since the store is closed: Options.Fatal is
// told too.
func (s *Store) Revert() (durable int64, err error) {
	if !s.replacing.CompareAndSwap(false, true) { // neither may the other find the store closed
		return 0, ErrReplacing
	}
	defer s.replacing.Store(false)
	_, replaying := s.attached().(*replayLog)
	if err := s.halt(); err != nil {
		return 0, err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.waitFlushed(); err != nil {
		return 0, err
	}
	t := s.NewTxn()
	t.BeginAll(true, Forever)
	defer t.End()
	if !s.endWalks() {
		s.begin()
		if !replaying {
			s.beginBackground()
		}
		return 0, ErrBusy
	}
	defer s.walks.ended.Store(false)
	s.place.Lock()
	defer s.place.Unlock()
	if err := s.reopen(); err != nil {
		err = fmt.Errorf("take back what is not durable: %w", err)
		s.fail(err)
		return 0, err
	}
	if s.effects != nil {
		t.dropAll = true // for watchers anything may have changed
		s.effects.Committed(t)
		t.dropAll = false
	}
	s.begin()
	s.room.L.Lock()
	s.room.Broadcast()
	s.room.L.Unlock()
	return s.durable.Load(), nil
}

// endWalks tells all walks to end and waits for it. All slots are held, so that none begins.
func (s *Store) endWalks() bool {
	s.walks.ended.Store(true)
	for until := time.Now().Add(s.opts.RevertPatience); s.walks.open.Load() > 0; time.Sleep(walksLook) {
		if time.Now().After(until) {
			s.walks.ended.Store(false)
			return false
		}
	}
	return true
}

// reopen closes Pebble without a flush and opens it again.
func (s *Store) reopen() error {
	if err := errors.Join(s.closeDB(), s.releaseCaches()); err != nil {
		return err
	}
	s.floor.mu.Lock()
	s.floor.cur, s.floor.crc = Floor{}, manifestSum{}
	floor, err := s.floor.load(s.opts.FS, s.opts.Dir)
	s.floor.cur.BootID = s.opts.BootID
	s.floor.mu.Unlock()
	if err != nil {
		return err
	}
	if s.db, err = s.openPebble(); err != nil {
		return err
	}
	generation, staged := s.nextGen.Load(), s.stagedGen
	s.cut.lock()
	defer s.cut.unlock()
	var replay Log = &replayLog{}
	s.logs.Store(&replay)
	s.forgetAll()
	opened := Opened{Floor: floor}
	if err := s.readState(&opened); err != nil {
		return err
	}
	// Numbers given out since are not given again.
	s.stagedGen = max(s.stagedGen, staged)
	s.openGen = max(s.openGen, generation)
	s.nextGen.Store(s.openGen)
	s.stands(layout.State{Applied: opened.Applied, History: opened.History})
	s.sinceFlush, s.lastFlush = 0, time.Now()
	return nil
}

// begin starts what runs for as long as the store is open.
func (s *Store) begin() {
	s.stop, s.applierDone = make(chan struct{}), make(chan struct{})
	s.life, s.endLife = context.WithCancel(context.Background())
	go s.applyLoop() // ends with halt
}
