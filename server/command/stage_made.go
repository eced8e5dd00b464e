package command

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// Large values that a command makes of what keys hold: a copy, the result of BITOP, a string or a hash with a large
// part changed. They are made without a lock, of a view of the keys, and adopted when the keys are still the same under
// the lock. If not, they are made again; in the end, and where an EXEC has changed a key itself, under the lock: then
// too they go to the store piece by piece and are never in memory, but others of the slot have to wait.

// origin is a key as it was when something was made of it.
type origin struct {
	name  []byte
	rec   layout.Record
	view  *engine.View // of a value with rows
	value []byte       // of any other: a copy of its bytes

	sameGen bool // nothing was read: the rows have to be under the same generation, whatever they are
}

// openOrigins looks at the keys at names, without a lock when it returns, and opens them if want says so: nil if not.
func (c *Ctx) openOrigins(names [][]byte, want func(keys []*engine.Key) bool) (from []origin, err error) {
	var buf [8]uint16
	slots := buf[:0]
	for _, name := range names {
		slots = append(slots, slot.Of(name))
	}
	now := c.NowMs
	if c.Replaying {
		now = engine.Forever
	}
	c.Txn.Begin(SortSlots(slots), false, now)
	defer c.Txn.End()
	keys := make([]*engine.Key, len(names))
	for i, name := range names {
		if keys[i], err = c.Txn.KeyNoTouch(name); err != nil {
			return nil, err
		}
	}
	if !want(keys) {
		return nil, nil
	}
	for _, k := range keys {
		o, err := c.openOrigin(k)
		if err != nil {
			return nil, errors.Join(err, closeOrigins(from))
		}
		from = append(from, o)
	}
	return from, nil
}

func (c *Ctx) openOrigin(k *engine.Key) (o origin, err error) {
	o = origin{name: k.Name, rec: k.Rec}
	o.rec.Body = nil
	if k.Rec.Form == layout.Rows {
		o.view, err = c.Txn.View(k)
		return o, err
	}
	v, err := c.smallValue(k)
	o.value = bytes.Clone(v)
	return o, err
}

// smallValue gives the bytes of a value that has no rows, as they are stored; nil when there is none.
func (c *Ctx) smallValue(k *engine.Key) ([]byte, error) {
	if k.Rec.Form == layout.Inline {
		return k.Rec.Body, nil
	}
	return c.Txn.Value(k)
}

// closeOrigins lets go of the rows. What is needed to see whether the keys have changed stays.
func closeOrigins(from []origin) error {
	var err error
	for i := range from {
		if from[i].view != nil {
			err = errors.Join(err, from[i].view.Close())
		}
	}
	return err
}

// reader walks a string from front to back.
func (o *origin) reader() stringReader {
	r := stringReader{whole: o.value, name: o.name}
	if o.view != nil {
		r.it = o.view.Iter
	}
	return r
}

// unchanged says whether keys hold what they held. The transaction has their slots.
func (c *Ctx) unchanged(from []origin) (bool, error) {
	for i := range from {
		if same, err := c.sameOrigin(&from[i]); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (c *Ctx) sameOrigin(o *origin) (bool, error) {
	k, err := c.Txn.KeyNoTouch(o.name)
	if err != nil {
		return false, err
	}
	if o.sameGen {
		return k.Rec.Form == layout.Rows && k.Rec.Gen == o.rec.Gen, nil
	}
	if o.view != nil {
		return c.Txn.Same(k, o.view), nil
	}
	if k.Rec.Type != o.rec.Type || k.Rec.Form != o.rec.Form {
		return false, nil
	}
	v, err := c.smallValue(k)
	return bytes.Equal(v, o.value), err
}

// stageMade stages what build makes of from for dst, and takes from over. build gives the record, but for its Gen.
func (c *Ctx) stageMade(dst []byte, chunks bool, from []origin, build func(s *staged, put rowPut) error) error {
	g, err := c.Host.Store().Stage(slot.Of(dst), chunks)
	if err != nil {
		return errors.Join(fmt.Errorf("stage the value of key %.64q: %w", dst, err), closeOrigins(from))
	}
	s := staged{of: &c.Args[0], from: from, rows: g}
	err = build(&s, g)
	if closed := closeOrigins(from); err == nil {
		err = closed
	}
	s.rec.Gen = g.Gen()
	return c.addStaged(s, err)
}

// mayStage says whether values are still made before the lock.
func (c *Ctx) mayStage() bool { return c.stagings < stageTries }

// adoptMade gives the value that was made for this command of the keys as they are, nil when there is none. Its rows
// become the transaction's.
func (c *Ctx) adoptMade() (*staged, error) {
	i := slices.IndexFunc(c.staged, func(s staged) bool { return !s.used && s.of == &c.Args[0] })
	if i < 0 {
		return nil, nil
	}
	s := &c.staged[i]
	if same, err := c.unchanged(s.from); err != nil || !same {
		return nil, err
	}
	if c.Txn.Adopt(s.rows) != nil {
		return nil, nil // the transaction itself has emptied the slot
	}
	s.used = true
	return s, nil
}

// rowPut takes the rows of a value, each in one or more parts, and pieces of long fields, each value's under a new
// number. Bytes are copied.
type rowPut interface {
	Put(element []byte, value ...[]byte) error
	PutPiece(number uint64, piece uint32, part []byte) error
	NewNumber() uint64
}

// made gives the value that the command makes for dst: the one that was staged, or what build makes now.
func (c *Ctx) made(dst *engine.Key, chunks bool, build func(s *staged, put rowPut) error) (*staged, error) {
	if s, err := c.adoptMade(); s != nil || err != nil {
		return s, err
	}
	g, err := c.Txn.Stage(dst.Slot, chunks)
	if errors.Is(err, engine.ErrDropped) {
		return c.madeInMemory(dst, chunks, build)
	}
	if err != nil {
		return nil, fmt.Errorf("stage the value of key %.64q: %w", dst.Name, err)
	}
	s := staged{rows: g, used: true}
	err = build(&s, g)
	if err == nil {
		err = g.Finish()
	}
	if err == nil {
		err = c.Txn.Adopt(g)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	s.rec.Gen = g.Gen()
	c.staged = append(c.staged, s)
	return &s, nil
}

// madeInMemory is for a slot that was emptied a moment ago: what went to the store now would go with the rest.
func (c *Ctx) madeInMemory(dst *engine.Key, chunks bool, build func(s *staged, put rowPut) error) (*staged, error) {
	to := engine.Key{Name: dst.Name, Slot: dst.Slot, Hash: dst.Hash}
	to.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: c.Txn.NewGeneration()}
	if chunks {
		to.Rec.Type = layout.String
	}
	var s staged
	err := build(&s, &txnRows{c.Txn, &to})
	s.rec.Gen = to.Rec.Gen
	return &s, err
}

// txnRows puts rows under the generation of k, in memory.
type txnRows struct {
	t *engine.Txn
	k *engine.Key
}

func (r *txnRows) Put(element []byte, value ...[]byte) error {
	r.t.PutElement(r.k, element, bytes.Join(value, nil))
	return nil
}

func (r *txnRows) PutPiece(number uint64, piece uint32, part []byte) error {
	r.t.PutPiece(r.k, number, piece, part)
	return nil
}

func (r *txnRows) NewNumber() uint64 { return r.t.NewNumber() }

// rowCost is about what a row takes in memory beside its bytes.
const rowCost = 128

// rowsBytes is about what all rows of a value would take in memory.
func rowsBytes(r *layout.Record) uint64 {
	switch {
	case r.Form != layout.Rows:
		return 0
	case r.Chunks():
		return r.Bytes
	}
	return r.Bytes + r.Count*rowCost
}

// A large change of a large value may be made in place, which takes the memory of the change, or by writing the value
// anew, which takes the time of the whole.
const (
	rewriteFrom = 4 << 20 // bytes of a change
	rewriteMost = 8       // the whole is no larger than so many changes
)

// rewrites says whether a value is written anew when n bytes of it change.
func rewrites(r *layout.Record, n int) bool {
	whole := rowsBytes(r)
	return n >= engine.StageFrom && whole < engine.StageFrom || n >= rewriteFrom && whole/rewriteMost <= uint64(n)
}

// stageCopy copies the large value at the first key for the second. stageMoved does so only when the two are in
// different slots, where a rename cannot just leave the rows where they are.
func stageCopy(c *Ctx) error {
	if len(c.Args) < 3 || string(c.Args[1]) == string(c.Args[2]) || !c.mayStage() {
		return nil
	}
	from, err := c.openOrigins(c.Args[1:2], func(keys []*engine.Key) bool { return copyIsStaged(&keys[0].Rec) })
	if from == nil || err != nil {
		return err
	}
	v := from[0].view
	return c.stageMade(c.Args[2], v.Rec.Chunks(), from, func(s *staged, put rowPut) error {
		s.rec = v.Rec
		return copyRows(c.Args[1], v, put)
	})
}

func stageMoved(c *Ctx) error {
	if len(c.Args) < 3 || slot.Of(c.Args[1]) == slot.Of(c.Args[2]) {
		return nil
	}
	return stageCopy(c)
}

func copyIsStaged(r *layout.Record) bool { return rowsBytes(r) >= engine.StageFrom }

// copyRows puts all rows of v, which shows the value of key name, and closes it.
func copyRows(name []byte, v *engine.View, put rowPut) error {
	for ; v.Valid(); v.Next() {
		value := v.Value()
		if !v.Valid() {
			break // it could not be read
		}
		err := error(nil)
		if v.Rec.Type == layout.HashType {
			var field layout.HashValue
			if field, err = layout.DecodeHashValue(value); err == nil {
				err = copyField(put, v.Key(), value, &field, viewPieces(v))
			}
		} else {
			err = put.Put(v.Key(), value)
		}
		if err != nil {
			return errors.Join(err, v.Close())
		}
	}
	if err := v.Close(); err != nil {
		return fmt.Errorf("read rows of key %.64q: %w", name, err)
	}
	return nil
}
