package engine

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// drops are generations that no record names any more, and long values of fields that no row names, waiting for their
// rows to go. Each is also a row in the store, so that a restart finds it again.
type drops struct {
	mu      sync.Mutex
	waiting []drop
}

type drop struct {
	slot   uint16
	gen    uint64
	number uint64 // of a field's pieces, if field
	field  bool   // not the whole generation
	epoch  uint64 // all rows are in Pebble once this epoch is
	layout.Drop
}

// row is the row that lists it.
func (w *drop) row() []byte {
	if w.field {
		return layout.AppendPieceDropKey(nil, w.slot, w.gen, w.number)
	}
	return layout.AppendDropKey(nil, w.slot, w.gen)
}

// ranges gives the bounds of the rows that go.
func (w *drop) ranges() (all [][2][]byte) {
	if w.field {
		lo, hi := layout.PieceRange(w.slot, w.gen, w.number)
		return append(all, [2][]byte{lo, hi})
	}
	lo, hi := layout.GenerationRange(w.slot, w.gen, w.Chunks)
	all = append(all, [2][]byte{lo, hi})
	if w.Pieces {
		lo, hi = layout.GenerationRange(w.slot, w.gen, true)
		all = append(all, [2][]byte{lo, hi})
	}
	return all
}

// add queues what nothing names any more once the epoch under way is applied.
func (d *drops) add(w drop) { d.addAt(^uint64(0), w) }

func (d *drops) addAt(epoch uint64, w drop) {
	w.epoch = epoch
	d.mu.Lock()
	d.waiting = append(d.waiting, w)
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
	for _, r := range w.ranges() {
		if err := s.dropRange(b, w, r[0], r[1]); err != nil {
			return err
		}
	}
	return b.Delete(w.row(), nil)
}

func (s *Store) dropRange(b *pebble.Batch, w drop, lo, hi []byte) error {
	if w.Count > s.opts.DropRowsMax {
		if w.Pieces && lo[0] == layout.SpaceBulk && s.noRows(lo, hi) {
			return nil // few hashes have any
		}
		return b.DeleteRange(lo, hi, nil)
	}
	err := s.deleteEach(b, lo, hi)
	if err == nil {
		return nil
	}
	// Rows that do not read back can still be dropped together.
	s.opts.Logf("rows to drop unreadable", "slot", w.slot, "generation", w.gen, "err", err)
	return b.DeleteRange(lo, hi, nil)
}

// noRows says whether [lo, hi) is surely empty.
func (s *Store) noRows(lo, hi []byte) bool {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return false
	}
	empty := !it.First() && it.Error() == nil
	return it.Close() == nil && empty
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
	gen, number, field, bad := layout.DropKeyParts(it.Key())
	if err = errors.Join(err, bad); err != nil {
		s.opts.Logf("drop row unreadable", "slot", slot, "row", it.Key(), "err", err)
		return
	}
	if max(gen, number) < s.openGen { // what is listed in this life is being staged, or queued already
		s.drops.addAt(0, drop{slot: slot, gen: gen, number: number, field: field, Drop: info})
	}
}
