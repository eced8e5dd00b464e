package command

import (
	"errors"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// Staging: a value of engine.StageFrom bytes or more is written to the store piece by piece before its command takes
// a lock, so that neither the slot's lock, nor the pending rows, nor one batch ever hold it whole. The command then
// adopts what was staged. Who runs commands does
//
//	Stage (each command) -> Begin -> StagedHolds (else begin anew) -> Execute ... Commit -> CloseStaged
//
// Staging never answers anything: where it meets an argument that makes no sense, a key that is missing, a value that
// is too small, it leaves the matter to the handler, which does without. What was staged and then not used (SETNX of
// a key that is there) is dropped in the background.

// staged is one value that waits for its command.
type staged struct {
	arg  []byte // the argument that it is the value of; nil for the copy of a key
	src  []byte // the key that it is a copy of
	dst  []byte
	rec  layout.Record
	rows *engine.Staged
	view *engine.View // what was copied
	used bool
}

// stageTries is how often a copy is made of a source that keeps changing, before it is made under the lock.
const stageTries = 3

// Stage stages what the command brings. The transaction is not open.
func (c *Ctx) Stage() error {
	if c.Cmd.Stage == nil {
		return nil
	}
	return c.Cmd.Stage(c)
}

// StagedHolds says, once the locks are there, whether what was staged can still be used; else it is let go and has to
// be staged again.
func (c *Ctx) StagedHolds() (bool, error) {
	if len(c.staged) == 0 {
		return true, nil
	}
	for i := range c.staged {
		s := &c.staged[i]
		s.used = false
		same, err := true, error(nil)
		if s.view != nil {
			same, err = c.sameSource(s)
		}
		if err != nil || !same || s.rows.Stale() {
			c.stagings++
			return false, errors.Join(err, c.closeStaged())
		}
	}
	return true, nil
}

// sameSource says whether the source of a copy is as it was.
func (c *Ctx) sameSource(s *staged) (bool, error) {
	k, err := c.Txn.KeyNoTouch(s.src)
	if err != nil {
		return false, err
	}
	return c.Txn.Same(k, s.view), nil
}

// CloseStaged lets go of what was staged, used or not.
func (c *Ctx) CloseStaged() error {
	c.stagings = 0
	return c.closeStaged()
}

func (c *Ctx) closeStaged() error {
	var err error
	for _, s := range c.staged {
		err = errors.Join(err, s.rows.Close())
	}
	clear(c.staged)
	c.staged = c.staged[:0]
	return err
}

// hasStaged says whether the value of an argument is staged: then it was found sound.
func (c *Ctx) hasStaged(arg []byte) bool {
	for i := range c.staged {
		if s := &c.staged[i]; s.isArg(arg) {
			return true
		}
	}
	return false
}

// isArg compares places in memory: an argument is the same slice when it is staged and when its command runs.
func (s *staged) isArg(arg []byte) bool {
	return s.view == nil && len(arg) > 0 && len(s.arg) == len(arg) && &s.arg[0] == &arg[0]
}

// adopt makes the staged value of an argument that of k, without a deadline; false when there is none that can be used.
func (c *Ctx) adopt(k *engine.Key, arg []byte) bool {
	for i := range c.staged {
		if s := &c.staged[i]; !s.used && s.isArg(arg) {
			return c.take(k, s)
		}
	}
	return false
}

// adoptCopy makes the staged copy of src the value of dst.
func (c *Ctx) adoptCopy(src, dst *engine.Key) bool {
	for i := range c.staged {
		s := &c.staged[i]
		if s.view != nil && !s.used && string(s.src) == string(src.Name) && string(s.dst) == string(dst.Name) && c.Txn.Same(src, s.view) {
			return c.take(dst, s)
		}
	}
	return false
}

func (c *Ctx) take(k *engine.Key, s *staged) bool {
	if c.Txn.Adopt(s.rows) != nil {
		return false // the transaction itself has emptied the slot
	}
	s.used = true
	k.Rec = s.rec
	return true
}

// stageString stages a long string for key.
func (c *Ctx) stageString(key, value []byte) error {
	if len(value) < engine.StageFrom {
		return nil
	}
	g, err := c.Host.Store().Stage(slot.Of(key), true)
	if err != nil {
		return fmt.Errorf("stage the string at key %.64q: %w", key, err)
	}
	s := staged{arg: value, rows: g, rec: layout.Record{
		Type: layout.String, Enc: EncRaw, Form: layout.Rows, Gen: g.Gen(), Count: uint64(len(value)),
	}}
	for n := int64(0); len(value) > 0 && err == nil; n++ {
		part := value[:min(len(value), layout.ChunkBytes)]
		value = value[len(part):]
		if stored := trimZeroes(part); len(stored) > 0 {
			element := chunkElement(n)
			err = g.Put(element[:], stored)
			s.rec.Bytes += uint64(len(stored))
		}
	}
	return c.addStaged(s, err)
}

// addStaged ends the staging of one value.
func (c *Ctx) addStaged(s staged, err error) error {
	if err == nil {
		err = s.rows.Finish()
	}
	if err != nil {
		return errors.Join(err, s.rows.Close())
	}
	c.staged = append(c.staged, s)
	return nil
}

// stageArg stages argument i of commands that set one string to it.
func stageArg(i int) Handler {
	return func(c *Ctx) error {
		if i >= len(c.Args) {
			return nil
		}
		return c.stageString(c.Args[1], c.Args[i])
	}
}

// stagePairs stages the values of MSET.
func stagePairs(c *Ctx) error {
	for i := 2; i < len(c.Args); i += 2 {
		if err := c.stageString(c.Args[i-1], c.Args[i]); err != nil {
			return err
		}
	}
	return nil
}

// stageCopy copies the large value at the first key for the second, from a view that holds no lock. stageMoved does so
// only when the two are in different slots, where a rename cannot just leave the rows where they are.
func stageCopy(c *Ctx) error {
	if len(c.Args) < 3 || string(c.Args[1]) == string(c.Args[2]) {
		return nil
	}
	if c.stagings >= stageTries {
		return nil
	}
	v, err := c.viewLarge(c.Args[1])
	if v == nil || err != nil {
		return err
	}
	g, err := c.Host.Store().Stage(slot.Of(c.Args[2]), v.Rec.Chunks())
	if err != nil {
		return errors.Join(err, v.Close())
	}
	for ; v.Valid() && err == nil; v.Next() {
		err = g.Put(v.Key(), v.Value())
	}
	err = errors.Join(err, v.Close())
	s := staged{src: c.Args[1], dst: c.Args[2], rows: g, rec: v.Rec, view: v}
	s.rec.Gen = g.Gen()
	return c.addStaged(s, err)
}

func stageMoved(c *Ctx) error {
	if len(c.Args) < 3 || slot.Of(c.Args[1]) == slot.Of(c.Args[2]) {
		return nil
	}
	return stageCopy(c)
}

// viewLarge opens a view of the value at name, nil when it is not large.
func (c *Ctx) viewLarge(name []byte) (v *engine.View, err error) {
	one := [1]uint16{slot.Of(name)}
	now := c.NowMs
	if c.Replaying {
		now = engine.Forever
	}
	c.Txn.Begin(one[:], false, now)
	defer c.Txn.End()
	k, err := c.Txn.KeyNoTouch(name)
	if err != nil || k.Rec.Form != layout.Rows || k.Rec.Bytes < engine.StageFrom {
		return nil, err
	}
	return c.Txn.View(k)
}
