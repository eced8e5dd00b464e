package server

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/slot"
	"cairn/server/command"
)

// Keys of slots that another node has won. They go in the background, in DELs of at most dropBatch keys an entry, so that
// replicas lose them too; a slot that is regained meanwhile keeps what is left of it. No client hears of it as a keyspace
// event, as in Redis: to the cluster the keys are still there.
//
// Which slots these are is on file (slotdrop_file.go), so that a node that was killed goes on. Other keys of foreign
// slots, which an interrupted move has left, are never dropped.

const (
	// dropBatch is how many keys one entry deletes: with 512, others waited several times as long.
	dropBatch = 64
	// dropSaves is the time between two saves of the list while slots come off it.
	dropSaves = time.Second
	// dropRest is how many times as long as it works the worker rests.
	dropRest = 3
	// dropLook is the time between two looks whether a cluster that is down is up again.
	dropLook = 100 * time.Millisecond
	// dropWait is how long the import of a slot waits until what it had here before is gone.
	dropWait = 5 * time.Second
)

// slotDrops are the slots whose keys are to go.
type slotDrops struct {
	mu      sync.Mutex
	slots   []uint16 // in this order; the first is under way while a worker runs
	stuck   []uint16 // could not be dropped; the next start tries again
	running bool
	hurry   int           // how many wait for a slot
	shorter chan struct{} // closed when slots gets shorter; nil: nobody waits

	keys atomic.Int64 // dropped since the start
	file dropFile
}

// add puts slots on the list. start: there is no worker yet, and the caller is to start one.
func (d *slotDrops) add(slots []uint16) (start bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var here slot.Bitmap
	for _, sl := range d.slots {
		here.Set(sl)
	}
	for _, sl := range slots {
		if !here.Has(sl) {
			here.Set(sl)
			d.slots = append(d.slots, sl)
		}
	}
	d.stuck = slices.DeleteFunc(d.stuck, here.Has)
	start = !d.running && len(d.slots) > 0
	d.running = d.running || start
	return start
}

// first gives the slot at the head of the list; false, and the worker ends, when there is none.
func (d *slotDrops) first() (uint16, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.slots) == 0 {
		d.running = false
		return 0, false
	}
	return d.slots[0], true
}

// done takes a slot off the list. stuck: its keys are still there.
func (d *slotDrops) done(sl uint16, stuck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots = without(d.slots, sl)
	if stuck {
		d.stuck = append(d.stuck, sl)
	}
	if d.shorter != nil {
		close(d.shorter)
		d.shorter = nil
	}
}

// regained takes slots off the list whose keys are not to go any more, and says whether there were any, here or on file.
func (d *slotDrops) regained(r *engine.Routing) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := func(sl uint16) bool { return r.Slots[sl]&(engine.SlotOwned|engine.SlotImporting) != 0 }
	n := len(d.slots) + len(d.stuck)
	d.slots, d.stuck = slices.DeleteFunc(d.slots, kept), slices.DeleteFunc(d.stuck, kept)
	return len(d.slots)+len(d.stuck) < n || d.file.holds(kept)
}

// list gives all slots whose keys are to go.
func (d *slotDrops) list() []uint16 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(slices.Clone(d.slots), d.stuck...)
}

func without(slots []uint16, sl uint16) []uint16 {
	return slices.DeleteFunc(slots, func(s uint16) bool { return s == sl })
}

// dropSlots begins to let go of the keys in slots.
func (s *Server) dropSlots(slots []uint16) {
	if s.drops.add(slots) {
		s.startTask(s.runDrops)
	}
}

// resumeDrops goes on with what a life before this one had begun to drop. It comes before the bus begins to speak.
func (s *Server) resumeDrops() {
	if s.bus == nil {
		return
	}
	slots, err := s.drops.file.load(s.fileSystem(), s.dataDir())
	if err != nil {
		s.log.Warning("keys of slots that another node has are kept: the list of these slots does not read", "err", err)
	}
	r := s.store.Routing()
	if r.Replica { // its primary's keys are not this node's to drop
		slots = nil
	}
	slots = slices.DeleteFunc(slots, func(sl uint16) bool { return r.Slots[sl]&(engine.SlotOwned|engine.SlotImporting) != 0 })
	if len(slots) == 0 {
		s.saveDrops()
		return
	}
	s.dropSlots(slots)
}

// keepRegained takes slots off the list that this node has again, or that are on their way to it. When it returns, no
// start after this one drops what is in them.
func (s *Server) keepRegained(r *engine.Routing) {
	if s.drops.regained(r) {
		s.saveDrops()
	}
}

// saveDrops puts the list on file.
func (s *Server) saveDrops() {
	if err := s.drops.file.save(s.fileSystem(), s.dataDir(), s.drops.list); err != nil {
		s.log.Warning("the list of slots whose keys are to go cannot be saved", "err", err)
	}
}

func (s *Server) runDrops() {
	txn := s.store.NewTxn()
	s.saveDrops()
	saved := time.Now()
	for {
		sl, ok := s.drops.first()
		if !ok {
			s.saveDrops()
			return
		}
		err := s.dropSlot(txn, sl)
		if s.draining.Load() {
			return // the list stays as it is, for the next start
		}
		if err != nil {
			s.log.Warning("keys of a slot that another node has cannot be dropped", "slot", sl, "err", err)
		}
		s.drops.done(sl, err != nil)
		if time.Since(saved) > dropSaves {
			s.saveDrops()
			saved = time.Now()
		}
	}
}

// dropSlot deletes the keys of a slot, a quarter of the time: the rest is left to those who are served. Who waits for it
// has all of it.
func (s *Server) dropSlot(txn *engine.Txn, sl uint16) error {
	for {
		began := time.Now()
		more, err := s.dropSome(txn, sl)
		if err != nil || !more {
			return err
		}
		rest := dropRest * time.Since(began)
		switch {
		case s.store.Routing().Down:
			rest = dropLook
		case s.drops.hurried():
			continue
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-s.stop:
		}
		timer.Stop()
		if s.draining.Load() {
			return nil
		}
	}
}

// hurried says whether somebody waits for a slot.
func (d *slotDrops) hurried() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hurry > 0
}

// awaitDrop waits until the keys that a slot had here before are gone, so that they do not mix with those that arrive.
func (s *Server) awaitDrop(sl uint16) error {
	d := &s.drops
	timeout := time.NewTimer(dropWait)
	defer timeout.Stop()
	for {
		d.mu.Lock()
		at := slices.Index(d.slots, sl)
		if at < 0 {
			d.mu.Unlock()
			return nil
		}
		if at > 1 {
			d.slots[1], d.slots[at] = d.slots[at], d.slots[1]
		}
		if d.shorter == nil {
			d.shorter = make(chan struct{})
		}
		shorter := d.shorter
		d.hurry++
		d.mu.Unlock()
		late := false
		select {
		case <-shorter:
		case <-timeout.C:
			late = true
		case <-s.stop:
			late = true
		}
		d.mu.Lock()
		d.hurry--
		d.mu.Unlock()
		if late {
			return command.Reply(fmt.Sprintf("ERR %d keys that slot %d had here before are still being deleted, try again",
				s.store.SlotCounters(sl).Keys, sl))
		}
	}
}

// dropSome deletes some keys of a slot that is not this node's.
func (s *Server) dropSome(txn *engine.Txn, sl uint16) (more bool, err error) {
	if err := s.store.AwaitRoom(0); err != nil {
		return false, err
	}
	txn.Begin([]uint16{sl}, true, engine.Forever)
	r := txn.Routing()
	if r.Replica || r.Slots[sl]&(engine.SlotOwned|engine.SlotImporting) != 0 {
		txn.End()
		return false, nil
	}
	if r.WritesPaused {
		txn.End()
		return s.awaitPauseEnd(s.draining.Load), nil
	}
	if r.Down {
		txn.End()
		return true, nil // it may have been replaced: what it logs now would part it from its successor
	}
	names, err := s.someKeys(txn, sl)
	if err != nil || len(names) == 0 {
		txn.End()
		return false, err
	}
	for _, name := range names {
		k, err := txn.KeyNoTouch(name)
		if err != nil {
			txn.End()
			return false, err
		}
		txn.Delete(k)
	}
	txn.LogStrings("DEL", names...)
	_, err = txn.Commit()
	if errors.Is(err, engine.ErrRerouted) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.drops.keys.Add(int64(len(names)))
	return true, nil
}

// flushAll lets go of all data, as FLUSHALL does.
func (s *Server) flushAll() error {
	txn := s.store.NewTxn()
	for {
		if err := s.store.AwaitRoom(0); err != nil {
			return err
		}
		txn.BeginAll(true, engine.Forever)
		txn.DropAll()
		txn.LogStrings("FLUSHALL")
		_, err := txn.Commit()
		if !errors.Is(err, engine.ErrRerouted) {
			return err
		}
	}
}

// forwardMessage carries a message to the subscribers of other nodes: in a cluster over the bus. A node that knows no other
// has nothing to do.
func (s *Server) forwardMessage(shard bool, channel, message []byte) {
	if s.bus == nil {
		return
	}
	s.bus.Do(cluster.CmdPublish{Shard: shard, Channel: bytes.Clone(channel), Payload: bytes.Clone(message)})
}
