package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// Snapshot is all data as it was at one offset of the log, for as long as its owner wants: a full sync to a slow
// replica takes an hour. It is taken by whoever applies, right after a group, so that it is exactly what Pebble has
// and nothing of memory's.
//
// Below it is a snapshot of Pebble's that soon consists of files only (EventuallyFileOnlySnapshot): it keeps the files
// of its moment until it is closed, at most as much as the data was, and nothing else. A plain snapshot would make
// every compaction of that hour carry the old versions of all rows along, in new files, and the store would have to
// compact again to be rid of them. The files also outlive a Replacement, which a plain snapshot would not.
//
// A Snapshot may be used by several goroutines, each of its walks by one. All walks are closed before it is.
type Snapshot struct {
	s        *Store
	below    *pebble.EventuallyFileOnlySnapshot
	state    layout.State
	counters []layout.Counters
	closed   atomic.Bool
}

// Snapshot takes one of this moment: everything committed before the call is in it.
func (s *Store) Snapshot() (*Snapshot, error) {
	sn := &Snapshot{s: s, counters: make([]layout.Counters, len(s.slots))}
	life, err := sn.take()
	if err != nil {
		return nil, errors.Join(err, sn.Close())
	}
	// From memtables to files: nobody waits for this but the caller. Without a delay Pebble would wait for a flush
	// that somebody else orders.
	if err := sn.below.WaitForFileOnlySnapshot(life, time.Millisecond); err != nil {
		return nil, errors.Join(fmt.Errorf("flush for a snapshot: %w", err), sn.Close())
	}
	return sn, nil
}

func (sn *Snapshot) take() (life context.Context, err error) {
	s := sn.s
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.ended(); err != nil {
		return nil, err
	}
	if err := s.applyHeld(); err != nil {
		s.fail(err)
		return nil, err
	}
	s.walks.open.Add(1)
	sn.below = s.db.NewEventuallyFileOnlySnapshot([]pebble.KeyRange{span})
	if err := sn.readNodeRows(); err != nil {
		return nil, fmt.Errorf("read node rows of a snapshot: %w", err)
	}
	if s.flushing.Load() {
		return s.life, nil
	}
	return s.life, s.startFlush(s.applied.Load()) // the same flush moves the durable offset
}

func (sn *Snapshot) readNodeRows() error {
	raw, ok, err := sn.get(layout.StateKey())
	if err != nil {
		return err
	}
	if ok {
		if err := sn.state.Decode(raw); err != nil {
			return err
		}
	}
	for p := range layout.Pages {
		raw, ok, err := sn.get(layout.AppendPageKey(nil, p))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		var page [layout.PageSlots]layout.Counters
		if err := layout.DecodePage(&page, raw); err != nil {
			return err
		}
		copy(sn.counters[p*layout.PageSlots:], page[:])
	}
	return nil
}

func (sn *Snapshot) get(row []byte) ([]byte, bool, error) {
	v, closer, err := sn.below.Get(row)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	v = bytes.Clone(v)
	return v, true, closer.Close()
}

// Offset is the log offset that the data belongs to: everything up to it is there and nothing after.
func (sn *Snapshot) Offset() int64 { return sn.state.Applied }

// History is the log's history at Offset, as given to SetHistory.
func (sn *Snapshot) History() []byte { return sn.state.History }

// Counters gives what is known of a slot.
func (sn *Snapshot) Counters(slot uint16) layout.Counters { return sn.counters[slot] }

// Keys counts the keys of all slots.
func (sn *Snapshot) Keys() (n int64) {
	for i := range sn.counters {
		n += sn.counters[i].Keys
	}
	return n
}

// Bytes counts the payload of all slots.
func (sn *Snapshot) Bytes() (n int64) {
	for i := range sn.counters {
		n += sn.counters[i].Bytes
	}
	return n
}

// Close gives the files back. It may be called again.
func (sn *Snapshot) Close() error {
	if sn.below == nil || sn.closed.Swap(true) {
		return nil
	}
	err := sn.below.Close()
	sn.s.walks.open.Add(-1)
	return err
}

// SnapshotWalk walks the keys of a range of slots, slot by slot, each in the order of its records:
//
//	for w.Next() { w.Key(), w.Record(), then Value or Elements }
//	err := w.Close()
//
// Whatever is given out is valid until the next call. Expired keys are there too.
type SnapshotWalk struct {
	sn      *Snapshot
	records *pebble.Iterator
	values  *pebble.Iterator // value rows, elements, chunks
	pieces  *pebble.Iterator // of long values of fields; nil until there is one
	slot    uint16
	last    uint16
	hi      []byte // end of the records of slot
	began   bool
	key     []byte
	rec     layout.Record
	scratch []byte
	err     error
}

// Walk begins a walk over the slots first to last, both included.
func (sn *Snapshot) Walk(first, last uint16) (*SnapshotWalk, error) {
	w := &SnapshotWalk{sn: sn, slot: first, last: last}
	lo, hi := layout.SlotRange(layout.SpaceSlot, first, last)
	var err error
	if w.records, err = sn.below.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi}); err != nil {
		return nil, fmt.Errorf("walk over a snapshot: %w", err)
	}
	if w.values, err = sn.below.NewIter(nil); err != nil {
		return nil, errors.Join(fmt.Errorf("walk over a snapshot: %w", err), w.records.Close())
	}
	return w, nil
}

// Next goes to the next key, the first one at the beginning, and says whether there is one.
func (w *SnapshotWalk) Next() bool {
	if w.err != nil {
		return false
	}
	if w.sn.s.walks.ended.Load() {
		w.err = ErrReverted
		return false
	}
	valid := false
	if w.began {
		valid = w.records.Next()
	} else {
		w.began = true
		valid = w.enter(w.slot)
	}
	for ; valid; valid = w.enter(w.slot) {
		if bytes.Compare(w.records.Key(), w.hi) < 0 {
			return w.take()
		}
		// Behind the records of the slot are its other rows: on to the next slot that has keys.
		if !w.nextSlot() {
			return false
		}
	}
	w.err = w.records.Error()
	return false
}

// enter goes to the records of a slot.
func (w *SnapshotWalk) enter(slot uint16) bool {
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindRecord)
	w.slot, w.hi = slot, hi
	return w.records.SeekGE(lo)
}

// nextSlot finds the next slot with keys.
func (w *SnapshotWalk) nextSlot() bool {
	for w.slot < w.last {
		w.slot++
		if w.sn.counters[w.slot].Keys != 0 {
			return true
		}
	}
	return false
}

func (w *SnapshotWalk) take() bool {
	_, key, err := layout.RecordKeyParts(w.records.Key())
	if err == nil {
		w.key = key
		var raw []byte
		if raw, err = w.records.ValueAndErr(); err == nil {
			err = w.rec.Decode(raw)
		}
	}
	if err != nil {
		w.err = fmt.Errorf("read a record of slot %d: %w", w.slot, err)
		return false
	}
	return true
}

// Slot is that of the key.
func (w *SnapshotWalk) Slot() uint16 { return w.slot }

// Key is the key's name.
func (w *SnapshotWalk) Key() []byte { return w.key }

// Record is the key's record.
func (w *SnapshotWalk) Record() *layout.Record { return &w.rec }

// Value gives the bytes of a string that is not in chunks.
func (w *SnapshotWalk) Value() ([]byte, error) {
	if w.rec.Form == layout.Inline {
		return w.rec.Body, nil
	}
	w.scratch = layout.AppendValueKey(w.scratch[:0], w.slot, w.key)
	var val []byte
	err := error(nil)
	if w.values.SeekGE(w.scratch) && bytes.Equal(w.values.Key(), w.scratch) {
		val, err = w.values.ValueAndErr()
	} else if err = w.values.Error(); err == nil {
		err = errors.New("it has no value row")
	}
	if err == nil && uint64(len(val)) != w.rec.Count {
		err = fmt.Errorf("value row has %d bytes, its record says %d", len(val), w.rec.Count)
	}
	if err != nil {
		return nil, fmt.Errorf("read key %.64q: %w", w.key, err)
	}
	return val, nil
}

// Elements calls f for each element row of the key, or chunk of a string, in order.
func (w *SnapshotWalk) Elements(f func(element, val []byte) error) error {
	lo, hi := layout.GenerationRange(w.slot, w.rec.Gen, w.rec.Chunks())
	for ok := w.values.SeekGE(lo); ok && bytes.Compare(w.values.Key(), hi) < 0; ok = w.values.Next() {
		if w.sn.s.walks.ended.Load() {
			return ErrReverted
		}
		val, err := w.values.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read key %.64q: %w", w.key, err)
		}
		if err := f(w.values.Key()[len(lo):], val); err != nil {
			return err
		}
	}
	if err := w.values.Error(); err != nil {
		return fmt.Errorf("read key %.64q: %w", w.key, err)
	}
	return nil
}

// Pieces calls f for each piece of a value of the key, a hash, in order. It may be called within Elements.
func (w *SnapshotWalk) Pieces(number uint64, f func(piece uint32, val []byte) error) (err error) {
	if w.pieces == nil {
		if w.pieces, err = w.sn.below.NewIter(nil); err != nil {
			return fmt.Errorf("walk over a snapshot: %w", err)
		}
	}
	lo, hi := layout.PieceRange(w.slot, w.rec.Gen, number)
	for ok := w.pieces.SeekGE(lo); ok && bytes.Compare(w.pieces.Key(), hi) < 0; ok = w.pieces.Next() {
		if w.sn.s.walks.ended.Load() {
			return ErrReverted
		}
		val, err := w.pieces.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read key %.64q: %w", w.key, err)
		}
		_, piece, err := layout.PieceParts(w.pieces.Key()[layout.PrefixLen+8:])
		if err == nil {
			err = f(piece, val)
		}
		if err != nil {
			return err
		}
	}
	if err := w.pieces.Error(); err != nil {
		return fmt.Errorf("read key %.64q: %w", w.key, err)
	}
	return nil
}

// Close ends the walk and gives the first error met.
func (w *SnapshotWalk) Close() error {
	err := w.err
	for _, it := range []*pebble.Iterator{w.records, w.values, w.pieces} {
		if it == nil {
			continue
		}
		if closed := it.Close(); err == nil {
			err = closed
		}
	}
	return err
}
