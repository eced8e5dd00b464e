package command

import (
	"cairn/engine"
	"cairn/engine/layout"
)

// The two forms of a hash behind a few functions: what a field holds, and a hash under change.

// rowBuf is room for most fields and their place, and for most values, so that they need no allocation.
const rowBuf = 128

// fieldValue gives the value of a field, which is valid as long as what the transaction returns.
func fieldValue(c *Ctx, k *engine.Key, field []byte) (value layout.HashValue, ok bool, err error) {
	if !k.Exists() {
		return value, false, nil
	}
	if k.Rec.Form == layout.Rows {
		return rowValue(c, k, field)
	}
	f, ok, err := layout.FindPackedHash(k.Rec.Body, field)
	if err != nil {
		return value, false, hashError(k, err)
	}
	return layout.HashValue{Value: f.Value, Deadline: f.Deadline, Length: uint64(len(f.Value))}, ok, nil
}

func rowValue(c *Ctx, k *engine.Key, field []byte) (value layout.HashValue, ok bool, err error) {
	var buf [rowBuf]byte
	raw, ok, err := c.Txn.Element(k, layout.AppendHashElement(buf[:0], field))
	if err != nil {
		return value, false, hashError(k, err)
	}
	if !ok {
		return value, false, nil
	}
	if value, err = layout.DecodeHashValue(raw); err != nil {
		return value, false, hashError(k, err)
	}
	return value, true, nil
}

// hashLen counts the fields of the hash at k, 0 when there is none.
func hashLen(k *engine.Key) (uint64, error) {
	if !k.Exists() || k.Rec.Form == layout.Rows {
		return k.Rec.Count, nil
	}
	p, err := layout.OpenPackedHash(k.Rec.Body)
	if err != nil {
		return 0, hashError(k, err)
	}
	return uint64(p.Left()), nil
}

// hashEdit is a hash under change: editHash, set and remove as often as wanted, put.
type hashEdit struct {
	c          *Ctx
	k          *engine.Key
	maxEntries uint64 // hash-max-listpack-entries
	maxValue   int    // hash-max-listpack-value
	body       []byte // the packed hash, ours to change; nil once there are rows
}

// editHash begins to change the hash at k, or a new one. pairs are fields and values that will be set: when
// they alone are too many or too long for a packed hash it has rows from the start.
func editHash(c *Ctx, k *engine.Key, pairs ...[]byte) (hashEdit, error) {
	s := c.Host.Settings()
	e := hashEdit{
		c: c, k: k,
		maxEntries: uint64(max(0, s.HashMaxEntries.Load())),
		maxValue:   int(s.HashMaxValue.Load()),
	}
	small, growth := uint64(len(pairs)/2) <= e.maxEntries, 0
	for i := 0; i+1 < len(pairs); i += 2 {
		small = small && len(pairs[i]) <= e.maxValue && len(pairs[i+1]) <= e.maxValue
		growth = min(growth+layout.PackedHashGrowth(pairs[i], pairs[i+1]), 2*layout.PackedHashMax)
	}
	r := &k.Rec
	switch {
	case !k.Exists():
		*r = layout.Record{Type: layout.HashType, Enc: layout.HashListpack}
		if small {
			e.body = layout.NewPackedHash(c.Txn.Room(layout.PackedHashHead + growth))
		} else {
			e.startRows()
		}
	case r.Form == layout.Inline:
		if _, err := layout.OpenPackedHash(r.Body); err != nil {
			return e, hashError(k, err)
		}
		// What was read of the record before stays as it was, so the change happens in a copy.
		e.body = append(c.Txn.Room(len(r.Body)+growth), r.Body...)
		if !small {
			if err := e.unpack(); err != nil {
				return e, err
			}
		}
	}
	if !small {
		r.Enc = layout.HashHashtable
	}
	return e, nil
}

// startRows makes the record one of a hash with rows, none of them there yet.
func (e *hashEdit) startRows() {
	r := &e.k.Rec
	r.Form, r.Gen = layout.Rows, e.c.Txn.NewGeneration()
	r.Count, r.Bytes, r.Body = 0, 0, nil
}

// unpack gives each field of the packed hash, which is never more than a few KiB, a row of its own.
func (e *hashEdit) unpack() error {
	e.startRows()
	p, err := layout.OpenPackedHash(e.body)
	if err != nil {
		return hashError(e.k, err)
	}
	for {
		f, ok, err := p.Next()
		if err != nil {
			return hashError(e.k, err)
		}
		if !ok {
			e.body = nil
			return nil
		}
		if err := e.putRow(f.Name, f.Value, f.Deadline); err != nil {
			return err
		}
		e.k.Rec.Count++
		e.k.Rec.Bytes += uint64(len(f.Name) + len(f.Value))
	}
}

func (e *hashEdit) putRow(field, value []byte, deadlineMs int64) error {
	var key, val [rowBuf]byte
	if len(value) <= layout.LongFieldOver {
		e.c.Txn.PutElement(e.k, layout.AppendHashElement(key[:0], field), layout.AppendHashValue(val[:0], value, deadlineMs))
		return nil
	}
	number, err := e.c.longValue(e.k, value)
	if err != nil {
		return err
	}
	row := layout.AppendHashPieces(val[:0], number, uint64(len(value)), deadlineMs)
	e.c.Txn.PutElement(e.k, layout.AppendHashElement(key[:0], field), row)
	return nil
}

// dropLong gives up a value that no row names any more, if it was in pieces.
func (e *hashEdit) dropLong(v *layout.HashValue) {
	if v.InPieces {
		e.c.Txn.DropPieces(e.k, v.Number, v.Pieces())
	}
}

// set sets a field and says whether it is new.
func (e *hashEdit) set(field, value []byte) (created bool, err error) {
	r := &e.k.Rec
	long := len(field) > e.maxValue || len(value) > e.maxValue
	if long {
		r.Enc = layout.HashHashtable
	}
	if e.body != nil && (long || layout.PackedHashGrowth(field, value) > layout.PackedHashMax) {
		if err := e.unpack(); err != nil {
			return false, err
		}
	}
	if e.body != nil {
		if e.body, created, err = layout.SetPackedHash(e.body, field, value); err != nil {
			return false, hashError(e.k, err)
		}
	} else if created, err = e.setRow(field, value); err != nil {
		return false, err
	}
	if created && e.len() > e.maxEntries {
		r.Enc = layout.HashHashtable
	}
	if e.body != nil && (r.Enc != layout.HashListpack || len(e.body) > layout.PackedHashMax) {
		return created, e.unpack()
	}
	return created, nil
}

func (e *hashEdit) setRow(field, value []byte) (created bool, err error) {
	old, had, err := rowValue(e.c, e.k, field)
	if err != nil {
		return false, err
	}
	if err := e.putRow(field, value, 0); err != nil {
		return false, err
	}
	r := &e.k.Rec
	if had {
		e.dropLong(&old)
		r.Bytes -= old.Length
	} else {
		r.Count++
		r.Bytes += uint64(len(field))
	}
	r.Bytes += uint64(len(value))
	return !had, nil
}

// remove removes a field and says whether it was there.
func (e *hashEdit) remove(field []byte) (deleted bool, err error) {
	if e.body != nil {
		if e.body, deleted, err = layout.DeletePackedHash(e.body, field); err != nil {
			return false, hashError(e.k, err)
		}
		return deleted, nil
	}
	old, had, err := rowValue(e.c, e.k, field)
	if err != nil || !had {
		return false, err
	}
	var buf [rowBuf]byte
	e.c.Txn.DeleteElement(e.k, layout.AppendHashElement(buf[:0], field))
	e.dropLong(&old)
	e.k.Rec.Count--
	e.k.Rec.Bytes -= uint64(len(field)) + old.Length
	return true, nil
}

// len counts the fields as they are now.
func (e *hashEdit) len() uint64 {
	if e.body == nil {
		return e.k.Rec.Count
	}
	p, err := layout.OpenPackedHash(e.body)
	if err != nil {
		return 0 // editHash has looked
	}
	return uint64(p.Left())
}

// put makes the changes part of the transaction. A hash without fields goes.
func (e *hashEdit) put() {
	if e.len() == 0 {
		e.c.Txn.Delete(e.k)
		return
	}
	if e.body != nil {
		e.k.Rec.Body = e.body
	}
	e.c.Txn.Put(e.k)
}

// setField changes one field.
func setField(c *Ctx, k *engine.Key, field, value []byte) error {
	e, err := editHash(c, k, field, value)
	if err != nil {
		return err
	}
	if _, err := e.set(field, value); err != nil {
		return err
	}
	e.put()
	return nil
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
