package server

import (
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"cairn/internal/resp"
)

const (
	readLeast      = 512             // room for a read; the framer makes more when it is filled
	restAfter      = 2 * time.Second // without a command
	writeFrom      = 64 << 10        // replies are sent once this much has gathered
	loginRead      = 4 << 10         // read at once of a client that has not logged in: tiny commands cost several times their bytes
	loginWriteFrom = 16 << 10        // the same for a client that has not logged in
	keepBuffer     = 64 << 10        // a larger reply buffer is let go when empty
	longCommand    = 128 << 10       // a larger buffer to read into held a long command
)

func sortClients(all []*client) {
	slices.SortFunc(all, func(a, b *client) int { return int(a.id - b.id) })
}

// serve runs the connection until it ends.
func (c *client) serve() {
	defer c.s.clients.remove(c)
	defer c.release()
	for !c.closing {
		if !c.read() || !c.runBuffered() {
			return
		}
		c.letGo()
		if c.s.memory.crowded() && c.framer.Buffered() == 0 {
			c.rest()
		}
		if !c.account() {
			return
		}
		c.tellPending()
		if c.framer.Buffered() == 0 {
			c.s.memory.turn.end(c)
		}
	}
}

// letGo forgets a long command that has been run: its arguments would stay until the next one comes.
func (c *client) letGo() {
	if c.txn == nil || c.framer.MemoryBytes() <= longCommand && !c.txn.Large() {
		return
	}
	c.ctx.Args = nil
	c.txn.Forget()
}

// rest gives back what a connection that waits does not need. The next command finds it anew, which is why it
// is not done after every batch.
func (c *client) rest() {
	c.resting, c.armed = true, time.Time{}
	c.framer.Trim()
	if len(c.w.Buf) == 0 {
		c.w.Buf = nil
	}
	c.account()
	if c.txn != nil && !c.txn.Open() {
		c.s.txns.Put(c.txn)
		c.txn, c.ctx.Txn = nil, nil
	}
}

// read waits for bytes. false: the connection has ended.
func (c *client) read() bool {
	c.armTimeout()
	if !c.resting && c.wakened.Load() { // the deadline that told so may just have been replaced
		c.rest()
		return true
	}
	n, err := 0, c.awaitBytes()
	if err == nil {
		if !c.awaitTurn() || !c.expect(int64(c.framer.Room(readLeast))) {
			return false
		}
		buf := c.framer.Space(readLeast)
		if !c.authed.Load() {
			buf = buf[:min(len(buf), loginRead)]
		}
		if !c.account() {
			return false
		}
		if c.s.memory.turn.owner.Load() == c {
			c.reading.Store(time.Now().UnixMilli())
		}
		n, err = c.conn.Read(buf)
		set(&c.reading, 0)
	}
	if n > 0 {
		c.looked = 0
		if c.wakened.Load() {
			c.wakened.Store(false)
		}
		c.framer.Advance(n)
		if c.resting {
			c.resting, c.armed = false, time.Time{}
		}
		c.s.stats.inBytes.Add(int64(n))
		c.tellPending()
		c.stamp = time.Now()
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.idleTooLong() {
		c.rest()
		return true
	}
	return err == nil
}

// awaitBytes waits for something to read while the connection rests, so that ten thousand of them hold no buffers, and
// before it waits in line for room. A busy connection does without: what it costs is a call of the system.
func (c *client) awaitBytes() error {
	if c.raw == nil || !c.resting && !c.needsTurn() {
		return nil
	}
	return c.raw.Read(readable)
}

// readable says whether a read of the socket would not wait.
func readable(fd uintptr) bool {
	var b [1]byte
	for {
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR { //nolint:errorlint // a bare errno
			return err != unix.EAGAIN //nolint:errorlint // as above
		}
	}
}

// runBuffered runs every complete command that has arrived and sends the replies.
func (c *client) runBuffered() bool {
	defer c.ahead.forget()
	for !c.closing {
		c.ahead.look(c)
		args, _, ok, err := c.framer.Next()
		if err != nil {
			c.protocolError(err)
			break
		}
		if !ok {
			break
		}
		c.longLost = c.framer.Lost()
		c.s.dispatch(c, args)
		if len(c.long) > 0 {
			c.endLongArgs(args)
		}
		if c.killed.Load() || c.after != nil && !c.runAfter() {
			return false
		}
		if c.keeps()-c.kept.Load() >= keptStep && !c.account() {
			return false
		}
		if len(c.w.Buf) >= c.gather() || c.ctx.Streams() > 0 || c.push.holding {
			if !c.flush() {
				return false
			}
		}
	}
	if c.moreArrives() {
		return true
	}
	return c.flush()
}

// gather is how much of replies is gathered before they are sent, bytes.
func (c *client) gather() int {
	if c.authed.Load() && !c.s.memory.crowded() {
		return writeFrom
	}
	return loginWriteFrom
}

func (c *client) protocolError(err error) {
	var p *resp.ProtocolError
	if errors.As(err, &p) {
		c.w.Error("ERR " + p.Text)
	}
	c.closing = true
}

// flush sends the gathered replies, once the log has what they rest on.
func (c *client) flush() bool {
	c.wakeSubscribers()
	if c.waitEnd > 0 {
		if err := c.s.wal.WaitDurable(c.waitEnd); err != nil {
			return false // nothing may be acknowledged any more
		}
		c.waitEnd = 0
	}
	if c.arrived > 0 && !c.awaitArrived() {
		return false
	}
	if len(c.w.Buf) == 0 && c.ctx.Streams() == 0 {
		c.push.release()
		return true
	}
	if cap(c.w.Buf) > keepBuffer && !c.account() {
		return false
	}
	ok := c.send()
	c.push.release()
	c.w.Buf = c.w.Buf[:0]
	if cap(c.w.Buf) > keepBuffer || cap(c.w.Buf) > loginWriteFrom && c.s.memory.crowded() {
		c.w.Buf = nil
	}
	return ok
}

// send writes the replies with their streamed parts in place.
func (c *client) send() bool {
	streams := c.ctx.TakeStreams()
	if len(streams) == 0 {
		return c.write(c.w.Buf)
	}
	c.streaming = true
	defer func() { c.streaming = false }()
	if c.push.active() {
		c.push.pauseMessages() // none may stand within a reply
	}
	whole := c.w.Buf
	at, ok := 0, true
	part := &c.part
	part.Proto = c.w.Proto
	defer func() { part.Buf = nil }()
	for _, s := range streams {
		ok = ok && c.write(whole[at:s.At])
		at = s.At
		if ok {
			err := s.Run(part, func() error {
				if !c.account() || !c.write(part.Buf) {
					return net.ErrClosed
				}
				part.Buf = part.Buf[:0]
				return nil
			})
			ok = err == nil && c.write(part.Buf)
			part.Buf = part.Buf[:0]
		}
		if err := s.Close(); err != nil {
			ok = false // the reply is cut short; the client must not take it for whole
			c.s.log.Warning("client closed: a reply could not be read to its end", "id", c.id, "addr", c.addr, "err", err)
		}
	}
	return ok && c.write(whole[at:])
}

// write hands bytes to the socket, or to the queue of a client that others write to as well.
func (c *client) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	c.s.stats.outBytes.Add(int64(len(b)))
	if c.push.active() {
		if taken, ok := c.push.replies(c, b); taken {
			return ok
		}
	}
	c.limitWrite()
	_, err := c.conn.Write(b)
	return err == nil
}

// loginWriteTime is how long a client that has not logged in may take to read what it was sent. Until then no
// more than one batch of replies, about loginWriteFrom bytes, is kept for it.
const loginWriteTime = 10 * time.Second

// streamStall is how long one piece of a streamed reply may take to send. The view of the data behind it ends at its
// age, but notices that only when it is asked for the next piece.
const streamStall = time.Minute

// limitWrite bounds the next write to the socket for a client that has not logged in, or whose reply is streamed.
func (c *client) limitWrite() {
	var deadline time.Time
	switch {
	case !c.authed.Load():
		deadline = time.Now().Add(loginWriteTime)
	case c.streaming:
		deadline = time.Now().Add(streamStall)
	}
	if deadline.IsZero() && !c.writeLimited {
		return
	}
	c.writeLimited = !deadline.IsZero()
	_ = c.conn.SetWriteDeadline(deadline) // fails on a closed socket, which the write will tell
}

// release gives back what the connection held elsewhere.
func (c *client) release() {
	c.wakeSubscribers()
	c.s.unwatch(c)
	c.s.forgetSubscriptions(c)
	c.push.close(c)
	c.ctx.DropStreams(0)
	c.endLongArgs(nil)
	_ = c.conn.Close() // closed already when killed
	c.s.memory.turn.end(c)
	c.forget()
}
