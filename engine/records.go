package engine

import (
	"bytes"
	"slices"
	"sort"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/engine/pending"
)

// Records walks the key records of one slot in hash order: what SCAN, KEYS and GETKEYSINSLOT see.
type Records struct {
	it   *Iter
	now  int64
	err  error
	next uint64
	more bool

	key []byte
	h48 uint64
	rec layout.Record
	ok  bool
}

// Records opens a walk over the key records of slot, from the 48-bit hash on. Expired keys are skipped when
// the transaction has a time. The walk stays as it was at this moment and may outlive the transaction.
//
// Records that Pebble does not have yet are copied when the walk opens. limit, if not 0, is about how many of them:
// the walk then ends where the copied ones end, which More tells, and what follows is another walk, opened from
// there, with whatever has happened meanwhile. So a walk of a few keys costs the same in a slot with a hundred
// thousand pending ones. SCAN and its like, whose cursor is a place in this order, lose nothing by it: a key that
// was there all the time is in one of the walks, since its place does not change.
func (t *Txn) Records(slot uint16, fromH48 uint64, limit int) (*Records, error) {
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindRecord)
	from := layout.AppendRecordFrom(nil, slot, fromH48)
	r := &Records{now: t.now}
	own := t.ownRecords(slot)
	var dirty []pending.Row
	if !t.isDropped(slot) {
		dirty, r.next, r.more = t.s.dirtyRecords(slot, fromH48, limit)
	}
	if r.more {
		hi = layout.AppendRecordFrom(nil, slot, r.next)
		own = own[:sort.Search(len(own), func(i int) bool { return bytes.Compare(own[i].Key, hi) >= 0 })]
	}
	it, err := t.walk(slot, lo, hi, from, &sliceSource{rows: own}, &sliceSource{rows: dirty})
	if err != nil {
		return nil, err
	}
	r.it = it
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

// dirtyRecords gives the slot's records that Pebble does not have yet, sorted, from a place on. Comes before the
// walk over Pebble opens, which has what is applied meanwhile.
func (s *Store) dirtyRecords(slot uint16, from uint64, limit int) (rows []pending.Row, next uint64, more bool) {
	dirty, next, more := s.cache.ScanDirty(&cache.RowBuf{}, slot, from, limit)
	rows = make([]pending.Row, len(dirty))
	for i, d := range dirty {
		rows[i] = pending.Row{Key: layout.AppendRecordKey(nil, slot, d.Hash, d.Key), Val: d.Val, Deleted: d.Deleted}
	}
	return rows, next, more
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

// KeepOpen is explained at Iter.
func (r *Records) KeepOpen() { r.it.KeepOpen() }

// More says where the next walk has to begin when this one has ended, false when there is nothing behind it.
func (r *Records) More() (fromH48 uint64, more bool) { return r.next, r.more }

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
