package engine

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// drops are generations that no record names any more, waiting for their rows to go. Each is also a row in
// the store, so that a restart finds it again.
type drops struct {
	mu      sync.Mutex
	waiting []drop
}

type drop struct {
	slot  uint16
	gen   uint64
	epoch uint64 // all rows of the generation are in Pebble once this epoch is
	layout.Drop
}

// add queues a generation whose last record goes with the epoch under way.
func (d *drops) add(slot uint16, gen uint64, info layout.Drop) { d.addAt(^uint64(0), slot, gen, info) }

func (d *drops) addAt(epoch uint64, slot uint16, gen uint64, info layout.Drop) {
	d.mu.Lock()
	d.waiting = append(d.waiting, drop{slot, gen, epoch, info})
	d.mu.Unlock()
}

// waits says whether any are left.
func (d *drops) waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}

// dropsPerRun bounds the work between two groups.
const dropsPerRun = 256

// take gives some drops whose rows are all in Pebble.
func (d *drops) take(applied uint64) (ready []drop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := d.waiting[:0]
	for _, w := range d.waiting {
		if w.epoch <= applied && len(ready) < dropsPerRun {
			ready = append(ready, w)
		} else {
			kept = append(kept, w)
		}
	}
	d.waiting = kept
	return ready
}

// seal marks what was queued up to now as belonging to the epoch that was just cut. Called by the cut.
func (d *drops) seal(epoch uint64) {
	d.mu.Lock()
	for i := range d.waiting {
		if d.waiting[i].epoch == ^uint64(0) {
			d.waiting[i].epoch = epoch
		}
	}
	d.mu.Unlock()
}

// run gives the space of some dropped values back: row by row when they are few, since many small range
// tombstones slow every read, else by one range tombstone.
func (d *drops) run(s *Store) error {
	for _, w := range d.take(s.appliedEpoch) {
		b := s.db.NewBatch()
		err := s.batchDrop(b, w)
		if err == nil {
			err = s.db.Apply(b, pebble.NoSync)
		}
		b.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) batchDrop(b *pebble.Batch, w drop) error {
	lo, hi := layout.GenerationRange(w.slot, w.gen, w.Chunks)
	if w.Count > s.opts.DropRowsMax {
		if err := b.DeleteRange(lo, hi, nil); err != nil {
			return err
		}
		return b.Delete(layout.AppendDropKey(nil, w.slot, w.gen), nil)
	}
	if err := s.deleteEach(b, lo, hi); err != nil {
		// Rows that do not read back can still be dropped together.
		s.opts.Logf("rows to drop unreadable", "slot", w.slot, "generation", w.gen, "err", err)
		b.Reset()
		if err := b.DeleteRange(lo, hi, nil); err != nil {
			return err
		}
	}
	return b.Delete(layout.AppendDropKey(nil, w.slot, w.gen), nil)
}

// deleteEach deletes the rows of [lo, hi) one by one.
func (s *Store) deleteEach(b *pebble.Batch, lo, hi []byte) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return err
	}
	for it.First(); it.Valid() && err == nil; it.Next() {
		err = b.Delete(it.Key(), nil)
	}
	return errors.Join(err, it.Close())
}

// findDrops queues what a life before this one left to drop.
func (s *Store) findDrops() error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{layout.SpaceSlot}, UpperBound: []byte{layout.SpaceSlot + 1},
	})
	if err != nil {
		return err
	}
	for slot := 0; slot < len(s.slots); slot++ {
		select {
		case <-s.stop:
			return it.Close()
		default:
		}
		lo, hi := layout.KindRange(layout.SpaceSlot, uint16(slot), layout.KindDrop)
		for ok := it.SeekGE(lo); ok && string(it.Key()) < string(hi); ok = it.Next() {
			s.queueFound(uint16(slot), it)
		}
	}
	return it.Close()
}

func (s *Store) queueFound(slot uint16, it *pebble.Iterator) {
	info, err := layout.DecodeDrop(it.Value())
	key := it.Key()
	if err != nil || len(key) != layout.PrefixLen+8 {
		s.opts.Logf("drop row unreadable", "slot", slot, "row", key, "err", err)
		return
	}
	gen := uint64(0)
	for _, c := range key[layout.PrefixLen:] {
		gen = gen<<8 | uint64(c)
	}
	if gen < s.openGen { // what is listed in this life is being staged, or queued already
		s.drops.addAt(0, slot, gen, info)
	}
}
