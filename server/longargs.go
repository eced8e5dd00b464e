package server

import (
	"errors"
	"math"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/spill"
	"cairn/server/command"
)

// Long arguments: the payload of a RESTORE is as long as a key's whole value, and who moves slots does not ask how much
// memory is left here. Beyond longArgFrom it goes to a file in the data folder as it arrives, and the file is mapped when it
// is whole. The handler sees a slice; it, and the log, which writes the same bytes, say what they have passed, so that
// only a few megabytes of it are in memory at any time. The mapping ends when the command has run: by then the log has
// taken the entry (engine.Txn.Commit), and whoever kept something of the arguments has a copy.
//
// Not in MULTI, where commands are copied and wait, and not before login.
//
// What such arguments take of the disk is bounded, half-sent ones included; one that goes beyond, or meets a nearly full
// disk, is read to its end and thrown away, and the command is answered with an error: whoever moves a key keeps it.

const (
	longArgFrom = 1 << 20 // bytes
	// longArgOver is how much longer than proto-max-bulk-len one may be: a string of just that length is moved with a few
	// bytes before and after it.
	longArgOver = 64
	// longArgsMost is how many of the longest arguments may be there at once.
	longArgsMost = 4
)

// openLongArgs makes the data folder the place of long arguments.
func (s *Server) openLongArgs(folder string) error {
	if s.fs != nil {
		return nil // there is no such folder
	}
	f, err := spill.Open(folder, spill.Options{Limit: s.longArgsLimit, Full: s.longArgsFull})
	s.longArgs.Store(f)
	return err
}

func (s *Server) longArgsLimit() int64 {
	longest := s.cfg.V.ProtoMaxBulkLen.Load()
	return min(longest, math.MaxInt64/longArgsMost) * longArgsMost
}

// longArgsFull asks the space gate.
func (s *Server) longArgsFull() error {
	if !s.opened.Load() {
		return nil
	}
	return s.store.Gate()
}

// textLost is the reply to a command of which an argument could not be kept.
func textLost(err error) string {
	var limit *spill.LimitError
	if errors.As(err, &limit) {
		return "ERR " + limit.Error() + ": send it again when others are through"
	}
	return textGate(err)
}

// textGate is the reply to a command that needs more disk than there is.
func textGate(err error) string {
	return "MISCONF " + err.Error() + ": writes are refused until space is free again; deletions go on. See disk-reserve"
}

// refuseWrite is the reply to a command that found no room to write in.
func refuseWrite(err error) error {
	if errors.Is(err, engine.ErrDiskFull) {
		return command.Reply(textGate(err))
	}
	return command.Reply("MISCONF " + err.Error())
}

// keepLongArg says where the next argument goes, which follows args; nil: into memory.
func (c *client) keepLongArg(args [][]byte, _ int) resp.Keeper {
	folder := c.s.longArgs.Load()
	if folder == nil || c.multi.active || !c.s.loggedIn(c) {
		return nil
	}
	if cmd, _ := c.s.table.Lookup(args); cmd == nil || cmd.LongArg != len(args) {
		return nil
	}
	b := folder.New()
	c.long = append(c.long, b)
	c.ctx.Passed = folder.Passed
	return b
}

// passedLongArg is told by the log what it has copied.
func (s *Server) passedLongArg(part []byte) {
	if folder := s.longArgs.Load(); folder != nil {
		folder.Passed(part)
	}
}

// watchLongArg makes passedLongArg know of memory in which a primary's stream keeps a long entry.
func (s *Server) watchLongArg(data []byte) (unwatch func()) {
	if folder := s.longArgs.Load(); folder != nil {
		return folder.Watch(data)
	}
	return func() {}
}

// endLongArgs ends the life of long arguments, which are among args; nil: they were never seen. Nothing may know them
// afterwards, not even in memory that is waiting to be used again: a collector could take the address for one of its own.
func (c *client) endLongArgs(args [][]byte) {
	for i, a := range args {
		if len(a) > longArgFrom {
			args[i] = nil
		}
	}
	c.ctx.Args, c.ctx.Passed = nil, nil
	if c.txn != nil {
		c.txn.Forget()
	}
	for _, b := range c.long {
		if err := b.Close(); err != nil {
			c.s.log.Warning("the file of a long argument could not be closed", "err", err)
		}
	}
	clear(c.long)
	c.long, c.longLost = c.long[:0], nil
}
