package server

import (
	"errors"
	"syscall"

	"cairn/engine"
	"cairn/server/command"
	"cairn/wal"
)

// A long argument of a write is laid into the log ahead (wal.Log.Lay): by the connection that received it, after it was
// admitted and before any lock is taken. The entry then takes it as it is. Otherwise whoever writes the log next would
// write all of it, and everybody's reply would wait for that, for seconds on a busy disk.
//
// It costs a few files and renames, and ends a segment early, which pays off from layFrom on: what is shorter is written
// in a few hundredths of a second. A command that then changes nothing has written for nothing.
//
// Not in MULTI: queued commands wait for EXEC, which may never come, or not in this connection's lifetime. What arrives from
// a primary is no argument yet when it is logged.
const layFrom = 8 << 20 // bytes

// layable says whether any argument is long enough.
func (s *Server) layable(args [][]byte) bool {
	for _, a := range args {
		if len(a) >= s.layFrom {
			return true
		}
	}
	return false
}

// layAhead lays the long arguments of a command. The error is the reply where the disk has no room for a command that needs
// some; whatever else fails costs the others' time only.
func (s *Server) layAhead(c *client, cmd *command.Command, args [][]byte) error {
	full := s.store.Gate
	if !cmd.Is(command.DenyOOM) {
		full = nil // it may be what frees room
	}
	for _, a := range args {
		if len(a) < s.layFrom {
			continue
		}
		laid, err := s.wal.Lay(a, full)
		var failed *wal.FailedError
		switch {
		case err == nil:
			c.laid = append(c.laid, laid)
		case errors.Is(err, engine.ErrDiskFull) || errors.Is(err, syscall.ENOSPC) && full != nil:
			return command.Reply(textGate(err))
		case errors.As(err, &failed):
			return nil // the command will hear of it
		default:
			s.log.Warning("a long argument could not be written ahead", "bytes", len(a), "err", err)
			return nil
		}
	}
	return nil
}

// endLaid removes what no entry took.
func (c *client) endLaid() {
	for _, laid := range c.laid {
		laid.Close()
	}
	clear(c.laid)
	c.laid = c.laid[:0]
}
