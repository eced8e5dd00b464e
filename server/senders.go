package server

import (
	"sync/atomic"

	"cairn/internal/slot"
	"cairn/server/command"
)

// Who brings keys. A source that has waited in vain for the answer to a key gives that connection up, goes on serving the key, and
// sends it again over another one. What it sent first may still be here, unread or waiting for its turn, and executed after the
// later copy it would put the older value in its place, or bring a key back that was deleted since.
//
// The source closes its connection before it lets go of the key, and all that it keeps for the next call with it. So what
// has hung up is not executed; and because the news of that may be late, what comes over a connection takes nothing's place in
// a slot that one made after it has brought keys to.

// lookAgainMs is how old the last look at a connection may be. It is looked at for all keys that were read from it at once; looking
// for each took a tenth of the time of a move of small keys. A source waits much longer before it gives up.
const lookAgainMs = 2

// senders knows the newest connection that has brought keys to each slot, by its number. An entry is read and written with the
// slot's lock held.
type senders struct {
	newest atomic.Pointer[[slot.Count]int64] // nil: nothing was ever brought
}

func (a *senders) table() *[slot.Count]int64 {
	if t := a.newest.Load(); t != nil {
		return t
	}
	a.newest.CompareAndSwap(nil, new([slot.Count]int64)) // another one may have been faster
	return a.newest.Load()
}

// Sender is part of command.MigrateHost.
func (s *Server) Sender(x *command.Ctx, sl uint16) (from command.Sender) {
	c := clientOf(x)
	if c == nil || x.Replaying {
		return from
	}
	now := s.clock()
	if now-c.looked > lookAgainMs || now < c.looked {
		if c.killed.Load() || closedByPeer(c.conn) {
			from.Gone = true
			return from
		}
		c.looked = now
	}
	last := &s.senders.table()[sl]
	from.Older = c.id < *last
	*last = max(*last, c.id)
	_, from.Original = s.returns.has(sl, now)
	return from
}
