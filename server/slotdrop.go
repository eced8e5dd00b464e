package server

import (
	"bytes"
	"errors"
	"sync"

	"cairn/cluster"
	"cairn/engine"
)

// Keys of slots that another node has won. They go in the background, in DELs of at most dropBatch keys an entry, so that
// replicas lose them too; a slot that is regained meanwhile keeps what is left of it.

// dropBatch is how many keys one entry deletes.
const dropBatch = 512

// slotDrops are the slots whose keys are to go.
type slotDrops struct {
	mu      sync.Mutex
	slots   []uint16
	running bool
}

// dropSlots begins to let go of the keys in slots.
func (s *Server) dropSlots(slots []uint16) {
	d := &s.drops
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots = append(d.slots, slots...)
	if !d.running {
		d.running = true
		s.startTask(s.runDrops)
	}
}

// next takes a slot out of the list; false, and the worker ends, when there is none.
func (d *slotDrops) next() (uint16, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.slots) == 0 {
		d.running = false
		return 0, false
	}
	sl := d.slots[0]
	d.slots = d.slots[1:]
	return sl, true
}

func (s *Server) runDrops() {
	txn := s.store.NewTxn()
	for {
		sl, ok := s.drops.next()
		if !ok {
			return
		}
		for more := true; more && !s.draining.Load(); {
			var err error
			if more, err = s.dropSome(txn, sl); err != nil {
				s.log.Warning("keys of a slot that another node has cannot be dropped", "slot", sl, "err", err)
				break
			}
		}
		if s.draining.Load() {
			return
		}
	}
}

// dropSome deletes some keys of a slot that is not this node's.
func (s *Server) dropSome(txn *engine.Txn, sl uint16) (more bool, err error) {
	if err := s.store.Reserve(0); err != nil {
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
	names, err := someKeys(txn, sl)
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
	return err == nil, err
}

// someKeys names the first keys of a slot. A walk may end early, at keys that are deleted and not in Pebble yet.
func someKeys(txn *engine.Txn, sl uint16) (names [][]byte, err error) {
	for from, more := uint64(0), true; more && len(names) == 0; {
		walk, err := txn.Records(sl, from, dropBatch)
		if err != nil {
			return nil, err
		}
		for ; walk.Valid() && len(names) < dropBatch; walk.Next() {
			names = append(names, bytes.Clone(walk.Key()))
		}
		from, more = walk.More()
		if err := walk.Close(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// flushAll lets go of all data, as FLUSHALL does.
func (s *Server) flushAll() error {
	txn := s.store.NewTxn()
	for {
		if err := s.store.Reserve(0); err != nil {
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
