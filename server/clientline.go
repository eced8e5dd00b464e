package server

import (
	"fmt"
	"time"

	"cairn/server/command"
	"cairn/server/pubsub"
)

// A line of CLIENT LIST has the fields of Redis 7.2, in its order. What they mean here:
//
//	fd         the socket's descriptor
//	qbuf       bytes received that wait, those of the command under way included; qbuf-free: room beside them
//	argv-mem   bytes of the arguments of the command under way, which lie in the same buffer; of another connection:
//	           of a command that has not come whole
//	multi-mem  bytes of the commands queued since MULTI
//	rbs, rbp   size of the reply buffer
//	obl        bytes of replies not sent; 0 but for the reply under way
//	oll, omem  pieces and bytes in the queue of a connection that others write to
//	tot-mem    all of that and clientOverhead, names watched and listened to included; of a message that several
//	           connections have in their queues, a share. See clientMemory

// clientOverhead is about what a connection takes beside its buffers, its goroutine's stack included.
const clientOverhead = 5 << 10

// appendListed appends the line of a connection that has not been told to end.
func (c *client) appendListed(dst []byte, x *command.Ctx) []byte {
	if c.killed.Load() {
		return dst
	}
	return append(c.appendLine(dst, x), '\n')
}

// appendLine appends the line of c, without a line end. x is the command that asks, nil when none does.
func (c *client) appendLine(dst []byte, x *command.Ctx) []byte {
	c.mu.Lock()
	name, user, libName, libVer := c.name, c.user, c.libName, c.libVer
	c.mu.Unlock()
	argvMem, me := c.parsed.Load(), x != nil && clientOf(x) == c
	if me {
		argvMem = 0
		for _, a := range x.Args {
			argvMem += int64(len(a))
		}
	}
	now := time.Now()
	idle := max(0, (now.UnixMilli()-c.lastUsed.Load())/1000)
	multiMem := c.queuedBytes.Load()
	qbuf, size, out := c.unparsed.Load(), c.inBuffer.Load(), c.outBuffer.Load()
	omem := c.push.size.Load()
	events := "r"
	if omem > 0 {
		events = "rw"
	}
	dst = fmt.Appendf(dst, "id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=0",
		c.id, c.addr, c.laddr, c.fd, name, int64(now.Sub(c.created)/time.Second), idle, c.flags(me))
	dst = fmt.Appendf(dst, " sub=%d psub=%d ssub=%d multi=%d",
		c.subs.Count(pubsub.Channel), c.subs.Count(pubsub.Pattern), c.subs.Count(pubsub.Shard), c.queued.Load())
	dst = fmt.Appendf(dst, " qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=%d rbp=%d obl=0 oll=%d omem=%d tot-mem=%d",
		qbuf, max(0, size-qbuf), argvMem, multiMem, out, out, c.push.count.Load(), omem, c.size()+clientOverhead)
	return fmt.Appendf(dst, " events=%s cmd=%s user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s",
		events, c.lastName(), user, c.proto.Load(), libName, libVer)
}

// lastName is the last command's name.
func (c *client) lastName() string {
	if cmd := c.lastCmd.Load(); cmd != nil {
		return cmd.FullName()
	}
	return "NULL"
}

// flags are the letters of Redis that fit the connection. What its own goroutine alone knows is shown to itself
// only.
func (c *client) flags(own bool) string {
	var f []byte
	add := func(letter byte, on bool) {
		if on {
			f = append(f, letter)
		}
	}
	add('S', c.replica.Load() != nil)
	add('P', c.subscribed())
	add('x', c.queued.Load() >= 0)
	add('b', c.waiting.Load())
	add('d', c.dirtyCAS.Load())
	add('U', c.unix)
	add('r', own && c.readAny)
	add('e', c.noEvict.Load())
	add('T', c.noTouch.Load())
	if len(f) == 0 {
		return "N"
	}
	return string(f)
}

// byNumber finds a connection, nil when there is none with this number.
func (l *clientList) byNumber(id int64) *client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}
