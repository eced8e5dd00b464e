package server

import (
	"math"

	"cairn/internal/slot"
	"cairn/server/command"
)

// accessChange is what RESTORE says of a key's use, put to work once the key is there.
type accessChange struct {
	key           []byte
	idleSec, freq int64 // negative: leave it
}

// ReplyAfter is part of command.KeyspaceHost.
func (s *Server) ReplyAfter(x *command.Ctx, end int64) {
	if c := clientOf(x); c != nil {
		c.waitFor(end)
	}
}

// AccessInfo is part of command.KeyspaceHost.
func (s *Server) AccessInfo(slot uint16, key []byte) (idleSec, freq int64) {
	idle, count, _ := s.store.Access(slot, key)
	return int64(idle), int64(count)
}

// SetAccessInfo is part of command.KeyspaceHost.
func (s *Server) SetAccessInfo(x *command.Ctx, key []byte, idleSec, freq int64) {
	if c := clientOf(x); c != nil {
		c.access = append(c.access, accessChange{key, idleSec, freq})
	}
}

// applyAccess follows a commit.
func (c *client) applyAccess() {
	for _, a := range c.access {
		sl := slot.Of(a.key)
		idle, freq, _ := c.s.store.Access(sl, a.key)
		if a.idleSec >= 0 {
			idle = uint32(min(a.idleSec, math.MaxUint32))
		}
		if a.freq >= 0 {
			freq = uint8(min(a.freq, math.MaxUint8))
		}
		c.s.store.SetAccess(sl, a.key, idle, freq)
	}
	c.access = nil
}
