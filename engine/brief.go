package engine

import (
	"fmt"
	"math"

	"cairn/engine/layout"
	"cairn/internal/invariant"
)

// What the record cache keeps of a record that it has no room for, if the record says little: that there is a string of
// so many bytes in a row of its own, which lives on. Such are the records of data far beyond memory: what is smaller has
// its value in the record, so that there is more to read than the record anyway, and what is larger is few.

// briefOf is what stands for an encoded record, for cache.SetBriefs: the string's length.
func briefOf(record []byte) (brief uint16, ok bool) {
	var rec layout.Record
	switch err := rec.Decode(record); {
	case err != nil || rec.Type != layout.String || rec.Form != layout.ValueRow || rec.Deadline != 0 || rec.Arrived:
		return 0, false
	case rec.Enc != 0 || rec.Count > math.MaxUint16 || len(rec.Body) > 0:
		return 0, false
	}
	return uint16(rec.Count), true
}

// briefRecord is the record that a brief stands for.
func briefRecord(brief uint16) layout.Record {
	return layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(brief)}
}

// loadBrief fills k.Rec from the brief of its record, which is not in memory. A read that counts as an access brings the
// record's row back, since accesses are counted there; a write will.
func (t *Txn) loadBrief(k *Key, how access) (ok bool) {
	brief, ok := t.s.cache.Brief(k.Slot, k.Hash, k.Name, !how.value)
	if !ok {
		return false
	}
	k.Rec = briefRecord(brief)
	if invariant.Enabled {
		t.checkRecord(k)
	}
	if how.touch && !t.write {
		at := len(t.arena)
		t.arena = k.Rec.Append(t.arena)
		t.s.cache.Fill(kindRecord, k.Slot, k.Hash, k.Name, t.arena[at:])
		t.arena = t.arena[:at]
	}
	return true
}

// checkRecord looks at the record that k is believed to have without a look, in builds that check what they believe.
func (t *Txn) checkRecord(k *Key) {
	row := layout.AppendRecordKey(nil, k.Slot, k.Hash, k.Name)
	raw, ok, err := t.s.get(row, nil)
	if err != nil {
		return // who needs the record is told
	}
	var rec layout.Record
	err = rec.Decode(raw)
	same := err == nil && rec.Type == k.Rec.Type && rec.Form == k.Rec.Form && rec.Count == k.Rec.Count && rec.Deadline == 0
	invariant.Check(ok && same, "key %.64q has a value row of %d bytes, and a record: %v, %s", k.Name, k.Rec.Count, ok, fmt.Sprintf("%+v", rec))
}
