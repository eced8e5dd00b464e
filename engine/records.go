package engine

import (
	"bytes"
	"slices"

	"cairn/engine/layout"
	"cairn/engine/pending"
)

// Records walks the key records of one slot in hash order: what SCAN, KEYS and GETKEYSINSLOT see.
type Records struct {
	it  *Iter
	now int64
	err error

	key []byte
	h48 uint64
	rec layout.Record
	ok  bool
}

// Records opens a walk over the key records of slot, from the 48-bit hash on. Expired keys are skipped when
// the transaction has a time. The walk stays as it was at this moment and may outlive the transaction.
func (t *Txn) Records(slot uint16, fromH48 uint64) (*Records, error) {
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindRecord)
	from := layout.AppendRecordFrom(nil, slot, fromH48)
	points := []source{&sliceSource{rows: t.ownRecords(slot)}}
	if !t.isDropped(slot) {
		points = append(points, &sliceSource{rows: t.s.dirtyRecords(slot)})
	}
	it, err := t.walk(slot, lo, hi, from, points...)
	if err != nil {
		return nil, err
	}
	r := &Records{it: it, now: t.now}
	r.settle()
	return r, nil
}

// ownRecords gives the transaction's own changes to records of slot, sorted.
func (t *Txn) ownRecords(slot uint16) []pending.Row {
	var rows []pending.Row
	for _, k := range t.keys[:t.used] {
		if !k.dirty || k.Slot != slot {
			continue
		}
		row := pending.Row{Key: layout.AppendRecordKey(nil, slot, k.Hash, k.Name), Deleted: !k.Exists()}
		if k.Exists() {
			row.Val = k.Rec.Append(nil)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b pending.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

// dirtyRecords gives the slot's records that Pebble does not have yet, sorted.
func (s *Store) dirtyRecords(slot uint16) []pending.Row {
	dirty := s.cache.DirtyRecords(slot)
	rows := make([]pending.Row, len(dirty))
	for i, d := range dirty {
		rows[i] = pending.Row{Key: layout.AppendRecordKey(nil, slot, d.Hash, d.Key), Val: d.Val, Deleted: d.Deleted}
	}
	return rows
}

func (r *Records) settle() {
	for r.ok = false; r.it.Valid(); r.it.Next() {
		h48, key, err := layout.RecordKeyParts(r.it.cur.Key)
		if err == nil {
			err = r.rec.Decode(r.it.Value())
		}
		if err == nil {
			err = r.it.err
		}
		if err != nil {
			r.err = err
			return
		}
		if r.now != Forever && r.rec.Deadline != 0 && r.rec.Deadline < r.now {
			continue
		}
		r.h48, r.key, r.ok = h48, key, true
		return
	}
}

// Valid says whether the walk stands on a key.
func (r *Records) Valid() bool { return r.ok && r.err == nil }

// Key is the key's name, valid until Next.
func (r *Records) Key() []byte { return r.key }

// Hash48 is the key's place in the walk.
func (r *Records) Hash48() uint64 { return r.h48 }

// Record is the key's record, valid until Next.
func (r *Records) Record() *layout.Record { return &r.rec }

// Next goes to the next key.
func (r *Records) Next() {
	r.it.Next()
	r.settle()
}

// Close ends the walk and gives the first error met.
func (r *Records) Close() error {
	if err := r.it.Close(); r.err == nil {
		r.err = err
	}
	r.ok = false
	return r.err
}
