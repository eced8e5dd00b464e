package command

import (
	"errors"
	"slices"

	"cairn/engine"
	"cairn/internal/slot"
)

// Execute runs the command in the open transaction and logs it. After an error the reply is as it was and the
// command changed nothing that will be committed, or the whole transaction is given up by the caller.
func (c *Ctx) Execute() error {
	before, at, streams := c.Txn.Dirty(), len(c.W.Buf), len(c.streams)
	err := c.Cmd.Run(c)
	if err != nil {
		c.W.Buf = c.W.Buf[:at]
		c.DropStreams(streams)
		return err
	}
	if c.Txn.Open() {
		c.Finish(before)
	}
	return nil
}

// AppendSlots appends the slots of all keys that args name, unsorted.
func (c *Command) AppendSlots(dst []uint16, args [][]byte) (slots []uint16, ok bool) {
	if i := c.FirstKey(); i > 0 {
		return append(dst, slot.Of(args[i])), true
	}
	var buf [16]int
	pos, ok := c.KeyPositions(buf[:0], args)
	for _, p := range pos {
		dst = append(dst, slot.Of(args[p]))
	}
	return dst, ok
}

// SortSlots makes slots ready for engine.Txn.Begin.
func SortSlots(slots []uint16) []uint16 {
	if len(slots) < 2 {
		return slots
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// ReplyError appends the reply for a handler's error. What is no Reply is a failed read.
func (c *Ctx) ReplyError(err error) {
	var r Reply
	c.Failed++
	switch {
	case errors.As(err, &r):
		c.W.Error(string(r))
	case errors.Is(err, engine.ErrRerouted):
		c.W.Error("TRYAGAIN the topology changed while the command ran")
	default:
		c.W.Error("IOERR " + err.Error())
	}
}
