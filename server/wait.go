package server

import (
	"math"
	"time"

	"cairn/internal/resp"
	"cairn/server/command"
	"cairn/wal"
)

// Commands that wait: WAIT, WAITAOF, and what ends a wait. A command that waits leaves a function in client.after. It
// runs on the connection's goroutine once the replies before it have been sent, so that nobody waits for those
// too, and appends the reply. Texts are Redis 7.2's.

const (
	errWaitReplica command.Reply = "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is " +
		"configured to be writable (which is not the default) writes to replicas are just local and are not propagated."
	errWaitLogReplica command.Reply = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are " +
		"just local and are not propagated."

	textUnblocked   = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
	textRoleChanged = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
)

// runAfter runs what the last command left to do. false: the connection has ended.
func (c *client) runAfter() bool {
	f := c.after
	c.after = nil
	if !c.flush() {
		return false
	}
	c.s.memory.turn.end(c)
	at := len(c.w.Buf)
	f()
	if c.reply == replyOff || c.reply == replySkip {
		c.w.Buf = c.w.Buf[:at]
	}
	return !c.killed.Load()
}

// timeoutOf reads a timeout in milliseconds; 0: for ever.
func timeoutOf(word []byte) (time.Duration, error) {
	ms, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.Reply("ERR timeout is not an integer or out of range")
	case ms < 0:
		return 0, command.Reply("ERR timeout is negative")
	case ms > int64(1<<63-1)/int64(time.Millisecond):
		return 0, command.Reply("ERR timeout is out of range")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// wrote notes that a command of the client was appended to the log up to end.
func (c *client) wrote(end int64) { c.lastWrite = max(c.lastWrite, end) }

// Wait is WAIT: how many replicas have executed the client's writes.
func (s *Server) Wait(x *command.Ctx) error {
	if s.store.Routing().Replica {
		return errWaitReplica
	}
	want, err := x.Int(1)
	if err != nil {
		return err
	}
	timeout, err := timeoutOf(x.Args[2])
	if err != nil {
		return err
	}
	c := clientOf(x)
	target := c.lastWrite
	if n := s.primary.Acked(target); int64(n) >= want || x.InMulti {
		x.W.Int(int64(n))
		return nil
	}
	c.after = func() {
		s.primary.AskAcks(target)
		text := c.await(timeout, func() bool { return int64(s.primary.Acked(target)) >= want })
		if text != "" {
			c.w.Error(text)
			return
		}
		c.w.Int(int64(s.primary.Acked(target)))
	}
	return nil
}

// WaitLog is WAITAOF: whether the client's writes are on stable storage here, and on how many replicas. The log is this
// node's append-only file, whatever appendonly says.
func (s *Server) WaitLog(x *command.Ctx) error {
	local, ok := resp.ParseInt(x.Args[1])
	if !ok {
		return command.ErrNotInteger
	}
	if local < 0 || local > 1 {
		return command.Reply("ERR value is out of range, value must between 0 and 1")
	}
	remote, ok := resp.ParseInt(x.Args[2])
	if !ok || remote < 0 {
		return command.Reply("ERR value is out of range, must be positive")
	}
	timeout, err := timeoutOf(x.Args[3])
	if err != nil {
		return err
	}
	if s.store.Routing().Replica {
		return errWaitLogReplica
	}
	c := clientOf(x)
	target := c.lastWrite
	done := func() bool {
		return (local == 0 || s.wal.Synced() >= target) && int64(s.primary.AckedSynced(target)) >= remote
	}
	if done() || x.InMulti {
		s.replyWaitLog(x.W, target)
		return nil
	}
	c.after = func() {
		if local == 1 && s.wal.Wait(target, wal.LevelSynced) != nil {
			c.kill() // the log has failed, or begun anew: nothing may be said about this write
			return
		}
		if remote > 0 {
			s.primary.AskAcks(target)
		}
		if text := c.await(timeout, done); text != "" {
			c.w.Error(text)
			return
		}
		s.replyWaitLog(&c.w, target)
	}
	return nil
}

func (s *Server) replyWaitLog(w *resp.Writer, target int64) {
	w.Array(2)
	if s.wal.Synced() >= target {
		w.Int(1)
	} else {
		w.Int(0)
	}
	w.Int(int64(s.primary.AckedSynced(target)))
}

// goneEvery is how often a waiting client's connection is looked at.
const goneEvery = 100 * time.Millisecond

// await holds the client back until done says so, for at most limit (0: for ever), or until its connection or the node
// ends. A text is what the client is to be told by whoever ended the wait.
func (c *client) await(limit time.Duration, done func() bool) (text string) {
	ended := make(chan string, 1)
	c.unblock.Store(&ended)
	c.s.stats.blocked.Add(1)
	c.waiting.Store(true)
	defer func() {
		c.waiting.Store(false)
		c.s.stats.blocked.Add(-1)
		c.unblock.Store(nil)
	}()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	look := time.NewTicker(goneEvery)
	defer look.Stop()
	for {
		moved := c.s.primary.Changed()
		if done() {
			return ""
		}
		select {
		case <-moved:
		case text := <-ended:
			c.closing = c.closing || text == textRoleChanged // as in Redis: what else it had in mind is for a primary
			return text
		case <-late:
			return ""
		case <-look.C:
			if c.killed.Load() || hungUp(c.conn) {
				c.closing = true
				return ""
			}
		case <-c.s.stop:
			c.closing = true
			return ""
		}
	}
}

// awaitReplica waits until a replica has executed the log up to end, for at most limit, or until gone says that nobody
// cares any more. true: one has, or there is none online. Everything up to end is in the log already.
func (s *Server) awaitReplica(end int64, limit time.Duration, gone func() bool) bool {
	done := func() bool { return s.primary.Acked(end) > 0 || s.primary.Acked(math.MinInt64) == 0 }
	if done() {
		return true
	}
	s.primary.AskAcks(end)
	late := time.NewTimer(limit)
	defer late.Stop()
	look := time.NewTicker(goneEvery)
	defer look.Stop()
	for {
		moved := s.primary.Changed()
		if done() {
			return true
		}
		select {
		case <-moved:
		case <-late.C:
			return false
		case <-look.C:
			if gone != nil && gone() {
				return false
			}
		case <-s.stop:
			return false
		}
	}
}

// endWait ends a connection's wait; an empty text is the end of its time. false: it does not wait.
func (c *client) endWait(text string) bool {
	ended := c.unblock.Load()
	if ended == nil {
		return false
	}
	select {
	case *ended <- text:
		return true
	default:
		return false // somebody has ended it already
	}
}

// unblockWaiters ends the waits of all clients because the node became a replica.
func (s *Server) unblockWaiters() {
	for _, c := range s.clients.snapshot() {
		c.endWait(textRoleChanged)
	}
}

// ClientUnblock ends the wait of a blocked connection.
func (s *Server) ClientUnblock(x *command.Ctx) error {
	text := ""
	switch {
	case len(x.Args) > 4:
		return x.ErrSubcommand()
	case len(x.Args) == 4 && x.Is(3, "error"):
		text = textUnblocked
	case len(x.Args) == 4 && !x.Is(3, "timeout"):
		return command.Reply("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
	}
	id, err := x.Int(2)
	if err != nil {
		return err
	}
	if c := s.clients.byNumber(id); c != nil && c.endWait(text) {
		x.W.Int(1)
	} else {
		x.W.Int(0)
	}
	return nil
}

// pauseLook is how often a write that waits for the end of a pause looks whether it has come unannounced.
const pauseLook = 20 * time.Millisecond

// awaitWrites holds a client's write back while nothing may enter the log. false: its connection or the node ends, and
// the write is not executed.
func (s *Server) awaitWrites(c *client) bool {
	s.stats.blocked.Add(1)
	c.waiting.Store(true)
	c.wakeSubscribers()
	defer func() {
		s.stats.blocked.Add(-1)
		c.waiting.Store(false)
	}()
	goOn := s.awaitPauseEnd(func() bool { return c.killed.Load() || s.draining.Load() })
	c.closing = c.closing || !goOn
	return goOn
}

// awaitPauseEnd waits while nothing may enter the log. false: the caller has given up meanwhile.
func (s *Server) awaitPauseEnd(givenUp func() bool) bool {
	look := time.NewTicker(pauseLook)
	defer look.Stop()
	for s.store.Routing().WritesPaused {
		s.pause.mu.Lock()
		ended := s.pause.ended
		s.pause.mu.Unlock()
		select {
		case <-ended:
		case <-look.C:
		case <-s.stop:
		}
		if givenUp() {
			return false
		}
	}
	return true
}
