package engine

import (
	"bytes"
	"cmp"
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

	last    []byte // how the row before begins: prefix, generation, number of a piece
	slot    int    // whose dropped generations and values are known; -1: none's
	dropped []uint64
	pieces  []pieceName
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
	if _, ok := generationOf(key); !ok {
		return nil, nil
	}
	begin := layout.PrefixLen + 8
	gen, number, pieces := pieceOf(key)
	if pieces {
		begin += 8
	}
	if bytes.Equal(w.last, key[:begin]) {
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
	if pieces {
		if _, found := slices.BinarySearchFunc(w.pieces, pieceName{gen, number}, pieceName.compare); found {
			_, hi := layout.PieceRange(slot, gen, number)
			return hi, nil
		}
	}
	w.last = append(w.last[:0], key[:begin]...)
	return nil, nil
}

// pieceName names the pieces of one value.
type pieceName struct{ gen, number uint64 }

func (p pieceName) compare(o pieceName) int {
	return cmp.Or(cmp.Compare(p.gen, o.gen), cmp.Compare(p.number, o.number))
}

// findDropped reads which generations of a slot no record names any more, or none yet, and which pieces no row of a
// field.
func (w *rowWalk) findDropped(slot uint16) error {
	w.dropped, w.pieces, w.slot = w.dropped[:0], w.pieces[:0], int(slot)
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindDrop)
	it, err := w.sn.below.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return fmt.Errorf("walk over dropped values: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		switch gen, number, pieces, err := layout.DropKeyParts(it.Key()); {
		case err != nil: // findDrops has told
		case pieces:
			w.pieces = append(w.pieces, pieceName{gen, number})
		default:
			w.dropped = append(w.dropped, gen)
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

// pieceOf gives the generation and number of a row that is a piece of a field's value; of any other row that
// generationOf knows the generation alone.
func pieceOf(key []byte) (gen, number uint64, pieces bool) {
	if key[0] == layout.SpaceBulk && key[3] == layout.KindChunk {
		if gen, number, pieces = layout.PieceKeyParts(key); pieces {
			return gen, number, true
		}
	}
	gen, _ = generationOf(key)
	return gen, 0, false
}
