package engine

import (
	"bytes"
	"errors"
	"fmt"

	"cairn/engine/layout"
)

// A Replacement of rows that are in order already, as Snapshot.Rows gives them: they go into tables as they come, nothing
// is sorted and nothing is written twice.

// RowError says that rows given to PutRow are not what Snapshot.Rows gives.
type RowError struct {
	Row    []byte
	Reason string
}

func (e *RowError) Error() string { return fmt.Sprintf("row %.64x: %s", e.Row, e.Reason) }

// Expect begins a set of rows in order, of about so many bytes of keys and values. All rows come by PutRow then.
func (r *Replacement) Expect(data int64) error {
	if r.over || r.rows.bytes > 0 || r.ordered != nil {
		return errors.New("rows in order expected by a data set that has begun")
	}
	r.ordered = r.s.newTableWriter(r.dir, max(data, 0))
	return nil
}

// PutRow adds a row of any kind, each behind the one before. Bytes are copied. *RowError: it is not in order, or no row
// of a key or value.
func (r *Replacement) PutRow(key, val []byte) error {
	if r.over || r.ordered == nil {
		return errors.New("rows in order added to a data set that expects none")
	}
	if r.rows.bytes > 0 && bytes.Compare(key, r.row) <= 0 {
		return &RowError{bytes.Clone(key), fmt.Sprintf("it does not lie behind the row before, %.64x", r.row)}
	}
	if err := r.takeRow(key, val); err != nil {
		return err
	}
	r.row = append(r.row[:0], key...)
	r.rows.bytes += int64(len(key) + len(val))
	if r.orderedRows++; r.orderedRows%mergeEvery == 0 {
		if err := errors.Join(r.rows.space(), r.rows.ended()); err != nil {
			return err
		}
	}
	return r.ordered.put(key, val)
}

// takeRow looks at a row and counts it.
func (r *Replacement) takeRow(key, val []byte) error {
	slot, err := layout.SlotOf(key)
	if err != nil {
		return &RowError{bytes.Clone(key), err.Error()}
	}
	if int(slot) >= len(r.counters) {
		return &RowError{bytes.Clone(key), fmt.Sprintf("slot %d of %d", slot, len(r.counters))}
	}
	if key[0] == layout.SpaceSlot && key[3] == layout.KindDrop {
		return &RowError{bytes.Clone(key), "it lists what waits to be dropped"}
	}
	if gen, ok := generationOf(key); ok {
		if _, number, pieces := pieceOf(key); pieces {
			gen = max(gen, number) // both are out of one count
		}
		return r.takeGeneration(key, gen)
	}
	if key[0] != layout.SpaceSlot || key[3] != layout.KindRecord {
		return nil
	}
	k := Key{}
	if _, k.Name, err = layout.RecordKeyParts(key); err == nil {
		err = k.Rec.Decode(val)
	}
	if err != nil {
		return &RowError{bytes.Clone(key), err.Error()}
	}
	r.count(slot, &k)
	if k.Rec.Form == layout.Rows {
		return r.takeGeneration(key, k.Rec.Gen)
	}
	return nil
}

// takeGeneration keeps a generation of another node's from being given out here once the set is in use.
func (r *Replacement) takeGeneration(key []byte, gen uint64) error {
	if gen >= 1<<63 {
		return &RowError{bytes.Clone(key), fmt.Sprintf("generation %d", gen)}
	}
	r.gens = max(r.gens, gen+1)
	return nil
}

// reserveGenerations makes the store give out generations above those of the new set.
func (s *Store) reserveGenerations(above uint64) {
	for {
		next := s.nextGen.Load()
		if next >= above || s.nextGen.CompareAndSwap(next, above) {
			return
		}
	}
}
