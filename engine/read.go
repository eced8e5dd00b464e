package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/engine/pending"
	"cairn/internal/invariant"
)

// The overlay of every read: the transaction's own rows, record cache (points and elements), pending rows of this epoch,
// rows being applied, the slot's filter and the briefs (key records only), Pebble.
//
// A row never moves between the two pending sets; it only goes from a frozen one to Pebble, after Pebble has
// it. So with the slot's lock held, which keeps writers out, the sets may be looked at in any order as long as
// Pebble comes last.

// Kinds of point rows in the cache.
const (
	kindRecord = cache.KindRecord
	kindValue  = cache.KindValue
)

// kindElement is the kind of elements in the cache. They are only ever clean there, and as the last commit left them:
// what Pebble does not have yet waits in the pending sets. So one that is found is the answer.
const kindElement = cache.KindElement

// access is how a key is looked up.
type access struct {
	touch bool // it counts as an access
	value bool // for its value only
}

// loadRecord fills k.Rec from below the transaction.
func (t *Txn) loadRecord(k *Key, how access) error {
	if t.isDropped(k.Slot) {
		return nil
	}
	raw, state := t.cached(kindRecord, k, how.touch)
	if state == cache.Miss {
		if t.s.droppedBelow(k.Slot) || t.denied(k) {
			return nil
		}
		if how.value {
			if ok, err := t.loadByValue(k); ok || err != nil {
				return err
			}
		}
		if t.loadBrief(k, how) {
			return nil
		}
		var err error
		if raw, state, err = t.stored(kindRecord, k); err != nil {
			return err
		}
	}
	if state != cache.Hit {
		return nil
	}
	if err := k.Rec.Decode(raw); err != nil {
		return fmt.Errorf("read record of key %.64q: %w", k.Name, err)
	}
	if how.value && k.Rec.Form == layout.ValueRow {
		t.s.slots[k.Slot].values.was(true)
	}
	return nil
}

func (t *Txn) isDropped(slot uint16) bool {
	if t.dropAll {
		return true
	}
	for _, d := range t.dropped {
		if d == slot {
			return true
		}
	}
	return false
}

// cached looks for one of k's point rows in the cache, and brings it into the arena. touch: it counts as an access.
func (t *Txn) cached(kind uint8, k *Key, touch bool) ([]byte, cache.State) {
	at := len(t.arena)
	var val []byte
	var state cache.State
	if touch {
		val, state = t.s.cache.Get(kind, k.Slot, k.Hash, k.Name, t.arena)
	} else {
		val, state = t.s.cache.GetNoTouch(kind, k.Slot, k.Hash, k.Name, t.arena)
	}
	if state != cache.Hit {
		return nil, state
	}
	t.arena = val
	return val[at:len(val):len(val)], state
}

// denied says that k has no record in Pebble.
func (t *Txn) denied(k *Key) bool {
	if !t.s.surelyAbsent(k.Slot, k.Hash) {
		return false
	}
	if invariant.Enabled {
		t.scan = layout.AppendRecordKey(t.scan[:0], k.Slot, k.Hash, k.Name)
		t.s.checkAbsent(t.scan)
	}
	return true
}

// stored reads one of k's point rows from Pebble into the arena; the cache does not have it. The state is Hit or Absent.
func (t *Txn) stored(kind uint8, k *Key) ([]byte, cache.State, error) {
	s := t.s
	at := len(t.arena)
	if kind == kindRecord {
		t.scan = layout.AppendRecordKey(t.scan[:0], k.Slot, k.Hash, k.Name)
	} else {
		t.scan = layout.AppendValueKey(t.scan[:0], k.Slot, k.Name)
	}
	val, ok, err := s.get(t.scan, t.arena)
	if err != nil {
		return nil, cache.Absent, fmt.Errorf("read key %.64q: %w", k.Name, err)
	}
	if !ok {
		if kind == kindRecord {
			s.foundAbsent(k.Slot)
			s.cache.FillAbsent(kind, k.Slot, k.Hash, k.Name)
		}
		return nil, cache.Absent, nil
	}
	t.arena = val
	raw := val[at:len(val):len(val)]
	if kind == kindRecord || s.keeps(k.Hash) {
		s.cache.Fill(kind, k.Slot, k.Hash, k.Name, raw)
	}
	return raw, cache.Hit, nil
}

// get reads a row of Pebble, appended to dst.
func (s *Store) get(row, dst []byte) ([]byte, bool, error) {
	v, closer, err := s.db.Get(row)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err == nil {
		dst = append(dst, v...)
		err = closer.Close() // this is where a value of its own file that could not be read is told
	}
	return dst, err == nil, err
}

// droppedBelow says whether what Pebble has of slot is waiting to be dropped.
func (s *Store) droppedBelow(slot uint16) bool {
	return s.pend[0].Slot(slot).Dropped() || s.pend[1].Slot(slot).Dropped()
}

// layers gives the pending rows of slot, newer first.
func (s *Store) layers(slot uint16) (newer, older *pending.Slot) {
	cur := s.cache.Epoch() & 1
	return s.pend[cur].Slot(slot), s.pend[1-cur].Slot(slot)
}

// Value gives the bytes of a string that is not in chunks: its record's body, or its value row.
func (t *Txn) Value(k *Key) ([]byte, error) {
	if k.Rec.Form == layout.Inline {
		return k.Rec.Body, nil
	}
	if k.setVal || k.byValue {
		return k.value, nil
	}
	raw, state := t.cached(kindValue, k, true)
	if state == cache.Miss && !t.s.droppedBelow(k.Slot) {
		var err error
		if raw, state, err = t.stored(kindValue, k); err != nil {
			return nil, err
		}
	}
	if state != cache.Hit || uint64(len(raw)) != k.Rec.Count {
		return nil, fmt.Errorf("read key %.64q: value row has %d bytes, its record says %d", k.Name, len(raw), k.Rec.Count)
	}
	return raw, nil
}

// rowKey builds the row key of an element of k, or of a chunk, in the transaction's scratch.
func (t *Txn) rowKey(dst []byte, k *Key, element []byte) []byte {
	if k.Rec.Chunks() {
		lo, _ := layout.GenerationRange(k.Slot, k.Rec.Gen, true)
		return append(append(dst, lo...), element...)
	}
	return layout.AppendElementKey(dst, k.Slot, k.Rec.Gen, element)
}

// Element reads one element row of k, whose record has Form Rows; element is the row key's last part (four
// bytes, big endian, for a chunk). The bytes are valid until the next Begin.
func (t *Txn) Element(k *Key, element []byte) (val []byte, ok bool, err error) {
	t.scan = t.rowKey(t.scan[:0], k, element)
	row := t.scan
	if tree := t.elems[k.Slot]; tree != nil {
		if r, found := tree.Get(pending.Row{Key: row}); found {
			return r.Val, !r.Deleted, nil
		}
	}
	if k.Rec.Chunks() {
		return t.elementBelow(k.Slot, row)
	}
	s, at, name := t.s, len(t.arena), elementName(row)
	h := layout.Hash(name)
	switch v, state := s.cache.Get(kindElement, k.Slot, h, name, t.arena); state {
	case cache.Hit:
		t.arena = v
		return v[at:len(v):len(v)], true, nil
	case cache.Absent:
		return nil, false, nil
	}
	val, ok, err = t.elementBelow(k.Slot, row)
	if ok && (len(val) <= layout.InlineMax || s.keeps(h)) {
		s.cache.Fill(kindElement, k.Slot, h, name, val)
	}
	return val, ok, err
}

// elementName is the part of an element's row key by which the cache knows it. Generations are the node's own and never
// used twice, so it names no other element.
func elementName(row []byte) []byte { return row[layout.PrefixLen:] }

// keepElement brings the cache in step with a row that is committed, and takes a new element in as long as there is
// room that nobody needs.
func (s *Store) keepElement(slot uint16, r pending.Row) {
	if !layout.IsElement(r.Key) {
		return
	}
	name := elementName(r.Key)
	h := layout.Hash(name)
	if s.cache.Refresh(kindElement, slot, h, name, r.Val, r.Deleted) || r.Deleted || len(r.Val) > layout.InlineMax || !s.roomy() {
		return
	}
	s.cache.Fill(kindElement, slot, h, name, r.Val)
}

// elementBelow reads an element's row, or a chunk's, from the pending sets or Pebble.
func (t *Txn) elementBelow(slot uint16, row []byte) (val []byte, ok bool, err error) {
	newer, older := t.s.layers(slot)
	if v, exists, known := newer.Get(row); known {
		return v, exists, nil
	}
	if v, exists, known := older.Get(row); known {
		return v, exists, nil
	}
	at := len(t.arena)
	v, ok, err := t.s.get(row, t.arena)
	if err != nil || !ok {
		return nil, false, err
	}
	t.arena = v
	return v[at:len(v):len(v)], true, nil
}

// PutElement sets one element row of k. Bytes are copied. The caller keeps k.Rec's counts and calls Put.
func (t *Txn) PutElement(k *Key, element, val []byte) {
	t.putRow(k.Slot, t.rowKey(nil, k, element), append([]byte(nil), val...), false)
}

// DeleteElement removes one element row of k. The caller keeps k.Rec's counts and calls Put.
func (t *Txn) DeleteElement(k *Key, element []byte) {
	t.putRow(k.Slot, t.rowKey(nil, k, element), nil, true)
}

// putRow adds an ordered row to the transaction; both slices become its own.
func (t *Txn) putRow(slot uint16, row, val []byte, deleted bool) {
	if t.elems == nil {
		t.elems = make(map[uint16]*pending.Tree)
	}
	tree := t.elems[slot]
	if tree == nil {
		tree = pending.NewTree()
		t.elems[slot] = tree
	}
	tree.Set(pending.Row{Key: row, Val: val, Deleted: deleted})
}
