package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// Rows gives all rows of keys and values as they are stored, in order: what Replacement.PutRow takes. Rows that wait to be
// dropped, and the lists of them, are left out. Both slices are valid within the call.
func (sn *Snapshot) Rows(f func(key, val []byte) error) error {
	it, err := sn.below.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SpaceSlot}, UpperBound: span.End})
	if err != nil {
		return fmt.Errorf("walk over a snapshot: %w", err)
	}
	w := rowWalk{sn: sn, it: it}
	err = w.each(f)
	if closed := it.Close(); err == nil {
		err = closed
	}
	return err
}

// rowWalk is a walk over the rows of a snapshot.
type rowWalk struct {
	sn *Snapshot
	it *pebble.Iterator

	gens    [layout.PrefixLen + 8]byte // prefix and generation that the row before had
	slot    int                        // whose dropped generations are known; -1: none's
	dropped []uint64
}

func (w *rowWalk) each(f func(key, val []byte) error) error {
	w.slot = -1
	for ok := w.it.First(); ok; {
		if w.sn.s.walks.ended.Load() {
			return ErrReverted
		}
		key := w.it.Key()
		skip, err := w.skip(key)
		if err != nil {
			return err
		}
		if skip != nil {
			ok = w.it.SeekGE(skip)
			continue
		}
		val, err := w.it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("read row %.64x: %w", key, err)
		}
		if err := f(key, val); err != nil {
			return err
		}
		ok = w.it.Next()
	}
	if err := w.it.Error(); err != nil {
		return fmt.Errorf("walk over a snapshot: %w", err)
	}
	return nil
}

// skip says where to go on when a row is not to be given; nil: it is.
func (w *rowWalk) skip(key []byte) ([]byte, error) {
	slot, err := layout.SlotOf(key)
	if err != nil {
		return nil, err
	}
	if key[0] == layout.SpaceSlot && key[3] == layout.KindDrop {
		_, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindDrop)
		return hi, nil
	}
	gen, ok := generationOf(key)
	if !ok || bytes.Equal(w.gens[:], key[:len(w.gens)]) {
		return nil, nil
	}
	if w.slot != int(slot) {
		if err := w.findDropped(slot); err != nil {
			return nil, err
		}
	}
	if _, found := slices.BinarySearch(w.dropped, gen); found {
		next := bytes.Clone(key[:layout.PrefixLen])
		return binary.BigEndian.AppendUint64(next, gen+1), nil
	}
	copy(w.gens[:], key)
	return nil, nil
}

// findDropped reads which generations of a slot no record names any more, or none yet.
func (w *rowWalk) findDropped(slot uint16) error {
	w.dropped, w.slot = w.dropped[:0], int(slot)
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindDrop)
	it, err := w.sn.below.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return fmt.Errorf("walk over dropped values: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if key := it.Key(); len(key) == layout.PrefixLen+8 {
			w.dropped = append(w.dropped, binary.BigEndian.Uint64(key[layout.PrefixLen:]))
		}
	}
	return it.Close() // also what the walk met
}

// kindFieldDeadline is the index of the deadlines of a hash's fields: as elements, its rows begin with a generation.
const kindFieldDeadline = 0x05

// generationOf gives the generation that a row belongs to, of rows that belong to one.
func generationOf(key []byte) (gen uint64, ok bool) {
	if len(key) < layout.PrefixLen+8 {
		return 0, false
	}
	switch {
	case key[0] == layout.SpaceSlot && (key[3] == layout.KindElement || key[3] == kindFieldDeadline),
		key[0] == layout.SpaceBulk && key[3] == layout.KindChunk:
		return binary.BigEndian.Uint64(key[layout.PrefixLen:]), true
	}
	return 0, false
}
