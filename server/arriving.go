package server

import (
	"time"

	"golang.org/x/sys/unix"

	"cairn/engine"
	"cairn/server/command"
)

// The arriving side of a move. Who moves a key deletes it once the target has said +OK. So that a failover of the target
// in that moment loses nothing, +OK is said only when one of the target's replicas has the key as well: the replies of a
// batch wait for that, once for all of it. Where there is no replica, nobody is waited for.
//
// If the wait fails the connection is closed without the replies. The source has kept the keys then and sends them again,
// which command.restore takes for what it is.

// arrivalRate is how many bytes a second a replica takes at the least, from the socket to its log and store, for the wait
// not to be given up: half a gigabyte may take longer than a node timeout, and would come again and again.
const arrivalRate = 2 << 20

// noteArrival notes what RESTORE-ASKING with args has brought to a primary of a cluster; end is the log offset behind it.
func (c *client) noteArrival(r *engine.Routing, cmd *command.Command, args [][]byte, end int64) {
	if cmd.Is(command.Asking) && r.Cluster && !r.Replica {
		c.arrived = max(c.arrived, end)
		c.arrivedBytes += int64(argBytes(args))
	}
}

// awaitArrived waits until a replica has what has arrived. false: the replies may not be sent.
func (c *client) awaitArrived() bool {
	s := c.s
	end, limit := c.arrived, time.Duration(s.cfg.V.ClusterNodeTimeout.Load())*time.Millisecond
	limit += time.Duration(c.arrivedBytes) * time.Second / arrivalRate
	c.arrived, c.arrivedBytes = 0, 0
	ok := s.awaitReplica(end, limit, func() bool { return c.killed.Load() || hungUp(c.conn) })
	if ok && s.store.Routing().Replica {
		ok = false // what this node said as a primary may not be what its new primary has
	}
	if !ok && !c.killed.Load() {
		s.log.Warning("connection closed: no replica has acknowledged keys that have arrived", "addr", c.addr, "limit", limit)
	}
	return ok
}

// moreArrives says whether the replies of a batch that brought keys may wait for the next one: it is here already, and one
// wait then does for both.
func (c *client) moreArrives() bool {
	if c.arrived == 0 || c.raw == nil || len(c.w.Buf) >= c.gather() || c.ctx.Streams() > 0 || c.push.holding || c.closing {
		return false
	}
	more := false
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		more = err == nil && n > 0
	})
	return more && err == nil
}
