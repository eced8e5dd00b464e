package server

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"cairn/engine"
	"cairn/internal/slot"
	"cairn/server/command"
)

// dispatch runs one command of a client and appends its reply.
func (s *Server) dispatch(c *client, args [][]byte) {
	if c.txn == nil && !s.loading.Load() {
		c.txn = s.takeTxn()
	}
	at, streams := len(c.w.Buf), c.ctx.Streams()
	c.reply = nextReplyMode(c.reply)
	cmd := s.admit(c, args)
	switch {
	case cmd != nil:
		s.run(c, cmd, args)
	case !c.multi.active:
		c.asking = false
	}
	if (c.reply == replyOff || c.reply == replySkip) && !c.keepReply {
		c.w.Buf = c.w.Buf[:at]
		c.ctx.DropStreams(streams)
	}
	c.keepReply = false
	if len(c.published) > 0 {
		s.streamPublished(c)
	}
	if len(c.ownMessages) > 0 {
		c.w.Buf = append(c.w.Buf, c.ownMessages...)
		c.ownMessages = nil
	}
}

func nextReplyMode(m replyMode) replyMode {
	switch m {
	case replySkip:
		return replyOn
	case replySkipNext:
		return replySkip
	}
	return m
}

// admit makes the checks that the command's row asks for. nil: a reply was given, or the command is queued.
func (s *Server) admit(c *client, args [][]byte) *command.Command {
	cmd, ok := s.table.Lookup(args)
	if cmd == nil && ofAnotherProtocol(args[0]) {
		s.log.Warning("connection closed: it sends HTTP, as a browser does that somebody makes talk to this port", "addr", c.addr)
		c.kill()
		return nil
	}
	if err := s.refuse(c, cmd, ok, args); err != "" {
		if !ok && len(args) > 1 {
			cmd = nil // that a subcommand is not known is not counted at its container
		}
		s.reject(c, cmd, err)
		return nil
	}
	if c.multi.active && !cmd.Is(command.NoMulti) && !runsInsideMulti(cmd) {
		s.queue(c, cmd, args)
		return nil
	}
	return cmd
}

// ofAnotherProtocol says whether a command's name is a word by which HTTP is known. Such a connection is closed
// without a reply: the lines that follow could be commands that somebody put into a web page.
func ofAnotherProtocol(name []byte) bool {
	return strings.EqualFold(string(name), "post") || strings.EqualFold(string(name), "host:")
}

// reject answers an error before the command began. In MULTI the transaction will not be executed.
func (s *Server) reject(c *client, cmd *command.Command, text string) {
	if cmd != nil && cmd.Name == "exec" && cmd.Parent() == nil {
		s.endMulti(c)
		text = "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
	}
	c.w.Error(text)
	s.stats.countError(text)
	if cmd != nil {
		cmd.Stats().Rejected.Add(1)
	}
	c.multi.flagError()
}

// refuse says why a command may not run now, "" when it may.
func (s *Server) refuse(c *client, cmd *command.Command, known bool, args [][]byte) string {
	if cmd == nil || !known {
		return unknownText(cmd, args)
	}
	if !cmd.ArityOK(len(args)) {
		return fmt.Sprintf("ERR wrong number of arguments for '%s' command", cmd.FullName())
	}
	if text := s.authText(c, cmd); text != "" {
		return text
	}
	if c.multi.active && cmd.Is(command.NoMulti) {
		return "ERR Command not allowed inside a transaction"
	}
	if c.multi.active && cmd.Is(command.OwnTxns) {
		return "ERR " + strings.ToUpper(cmd.FullName()) + " is not allowed in a transaction: it would hold the keys of all others until another node has answered"
	}
	if (c.txn == nil || s.loading.Load()) && (!cmd.Is(command.Loading) || opensTransaction(cmd)) {
		return s.refuseLoading(c, cmd, args)
	}
	if c.subscribed() && c.w.Proto == 2 && !allowedSubscribed(cmd) {
		return fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", cmd.FullName())
	}
	if (cmd.Is(command.Write) || c.multi.active) && s.tooFewReplicas() && c.writesWith(cmd) {
		return "NOREPLICAS Not enough good replicas to write."
	}
	if text := s.refuseAsReplica(c, cmd); text != "" {
		return text
	}
	if c.longLost != nil {
		return textLost(c.longLost)
	}
	if cmd.Is(command.DenyOOM) && !s.loading.Load() {
		if err := s.store.Gate(); err != nil {
			return textGate(err)
		}
	}
	return ""
}

// opensTransaction says whether a command cannot do without the data, though Redis allows it while loading.
func opensTransaction(cmd *command.Command) bool {
	return len(cmd.Keys) > 0 || cmd.Group == "transactions" || cmd.Is(command.AllSlots) || cmd.Is(command.NoKeysTxn)
}

func (s *Server) authText(c *client, cmd *command.Command) string {
	if cmd != nil && cmd.Is(command.NoAuth) || s.loggedIn(c) {
		return ""
	}
	return "NOAUTH Authentication required."
}

// unknownText names the command and what came with it, as far as it is worth reading.
func unknownText(container *command.Command, args [][]byte) string {
	const enough = 128
	if container != nil {
		if len(args) == 1 {
			return fmt.Sprintf("ERR wrong number of arguments for '%s' command", container.Name)
		}
		return fmt.Sprintf("ERR unknown subcommand '%.128s'. Try %s HELP.", untilNUL(args[1]), strings.ToUpper(container.Name))
	}
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= enough {
			break
		}
		fmt.Fprintf(&b, "'%.*s' ", enough-b.Len(), untilNUL(a))
	}
	return fmt.Sprintf("ERR unknown command '%.128s', with args beginning with: %s", untilNUL(args[0]), b.String())
}

// untilNUL is as much of a word as a text in C would show.
func untilNUL(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// run executes a command that was admitted.
func (s *Server) run(c *client, cmd *command.Command, args [][]byte) {
	if len(c.wakes) > 0 && !cmd.Is(command.PubSub) {
		c.wakeSubscribers() // this one may take its time
	}
	c.lastCmd.Store(cmd)
	if len(args) > manyArgs {
		defer s.enterMany(len(args))()
	}
	began, errs := c.stamp, c.ctx.Failed
	s.execute(c, cmd, args)
	if len(c.ctx.Expired) > 0 {
		s.expireMet(c)
	}
	took := time.Since(began) // one look at one clock, where time.Now looks at two
	c.stamp = began.Add(took)
	c.lastUsed.Store(c.stamp.UnixMilli())
	c.asking = c.asking && (cmd.Name == "asking" || c.multi.active) // it holds for one command, or for one transaction
	st := cmd.Stats()
	if c.turnedAway {
		c.turnedAway = false
		st.Rejected.Add(1)
		return
	}
	st.Calls.Add(1)
	st.Usec.Add(took.Microseconds())
	switch {
	case c.ctx.Failed != errs:
		st.Failed.Add(1)
	case cmd.Is(command.Asking) && !c.multi.active: // queued ones are executed later
		s.moves.arrived(args)
		if s.returns.waits.Load() {
			s.returns.extend(slot.Of(args[1]), s.clock())
		}
		if s.doubts.some.Load() {
			s.doubts.extend(slot.Of(args[1]), s.clock())
		}
	}
	s.stats.commands.Add(1)
	if x := &c.ctx; x.Hits|x.Misses != 0 {
		s.stats.hits.Add(x.Hits)
		s.stats.misses.Add(x.Misses)
		x.Hits, x.Misses = 0, 0
	}
	s.note(c, cmd, args, took)
}

// turnAway answers an error that only the locks brought to light, a redirection most often. The command counts as
// rejected, not as called, as if it had been seen before.
func (s *Server) turnAway(c *client, text string) {
	c.w.Error(text)
	s.stats.countError(text)
	c.turnedAway = true
}

// execute finds the slots, locks them, asks the route and runs the handler, again if the route changed.
func (s *Server) execute(c *client, cmd *command.Command, args [][]byte) {
	if cmd.Is(command.NoKeysTxn) || cmd.Is(command.OwnTxns) || !cmd.Is(command.AllSlots) && len(cmd.Keys) == 0 {
		s.pause.wait(c, cmd.Is(command.Write) || cmd.Is(command.MayReplicate))
		s.handle(c, cmd, args)
		return
	}
	slots, ok := c.slots[:0], true
	if i := cmd.FirstKey(); i > 0 {
		slots = append(slots, c.ahead.slotOf(args[i]))
	} else if slots, ok = cmd.AppendSlots(slots, args); !ok {
		s.handleKeyless(c, cmd, args)
		return
	}
	c.slots = command.SortSlots(slots)
	write := cmd.Is(command.Write)
	stage := cmd.MayStage(args)
	if stage {
		defer s.endStaged(c)
	}
	lay := write && s.layable(args)
	if lay {
		defer c.endLaid()
	}
	for {
		s.pause.wait(c, write || cmd.Is(command.MayReplicate))
		if write {
			if err := s.store.Reserve(argBytes(args)); err != nil {
				c.fail(refuseWrite(err))
				return
			}
		}
		if (stage || lay) && s.redirectArgs(c, s.store.Routing(), cmd, args) == "" {
			if err := s.beforeLocks(c, cmd, args, stage, lay && len(c.laid) == 0); err != nil {
				c.fail(err)
				return
			}
		}
		if s.attempt(c, cmd, args, write) {
			return
		}
		if stage {
			s.closeStaged(c)
		}
	}
}

// beforeLocks does what a command with much in its arguments can do before it takes its locks. What is staged may be
// made of what keys hold now, so it comes last.
func (s *Server) beforeLocks(c *client, cmd *command.Command, args [][]byte, stage, lay bool) error {
	if lay {
		if err := s.layAhead(c, cmd, args); err != nil {
			return err
		}
	}
	if !stage {
		return nil
	}
	c.prepare(s, cmd, args, s.clock())
	return c.ctx.Stage()
}

// closeStaged lets go of values that were staged for a command that is to be tried again; endStaged, when it is done
// with, used or not.
func (s *Server) closeStaged(c *client) { s.noteUnclosed(c.ctx.CloseStaged()) }
func (s *Server) endStaged(c *client)   { s.noteUnclosed(c.ctx.EndStaged()) }

func (s *Server) noteUnclosed(err error) {
	if err != nil {
		s.log.Warning("a staged value could not be closed", "err", err)
	}
}

// attempt runs the command under its locks. false: the route changed, or writes are paused; try again.
func (s *Server) attempt(c *client, cmd *command.Command, args [][]byte, write bool) bool {
	at, streams := len(c.w.Buf), c.ctx.Streams()
	nowMs := s.clock()
	if cmd.Is(command.AllSlots) {
		c.txn.BeginAll(write, nowMs)
	} else {
		c.txn.Begin(c.slots, write, nowMs)
	}
	r := c.txn.Routing()
	if write && r.WritesPaused {
		c.txn.End()
		return !s.awaitWrites(c)
	}
	if over := s.leaving.holds(cmd, args, write); over != nil {
		c.txn.End()
		return !s.awaitLeft(c, over)
	}
	text := s.redirect(c, r, cmd, args, c.slots)
	if text == "" {
		text = s.refuseLocked(r, write)
	}
	if text != "" {
		c.txn.End()
		s.turnAway(c, text)
		return true
	}
	c.prepare(s, cmd, args, nowMs)
	if ok, err := c.ctx.StagedHolds(); err != nil || !ok {
		c.txn.End()
		if err != nil {
			c.fail(err)
		}
		return err != nil
	}
	if err := c.ctx.Execute(); err != nil {
		c.waitFor(c.txn.End())
		c.fail(err)
		return true
	}
	end, err := c.txn.Commit()
	if err == engine.ErrRerouted { //nolint:errorlint // Commit returns it bare
		c.w.Buf = c.w.Buf[:at]
		c.ctx.DropStreams(streams)
		return false
	}
	c.waitFor(end)
	c.noteArrival(r, cmd, args, end)
	if write {
		c.wrote(end)
		c.ctx.Expired = c.ctx.Expired[:0] // the commit deleted them
	}
	if len(c.access) > 0 {
		c.applyAccess()
	}
	s.events.deliver(s)
	return true
}

// handle runs a command that has no keys of its own; it may open transactions itself.
func (s *Server) handle(c *client, cmd *command.Command, args [][]byte) {
	c.prepare(s, cmd, args, s.clock())
	if c.txn == nil {
		s.handleEarly(c, cmd)
		return
	}
	err := c.ctx.Execute()
	if c.txn.Open() {
		c.txn.End()
	}
	c.waitFor(c.txn.TakeSeen())
	if err != nil {
		c.fail(err)
	}
}

// handleEarly runs a command while there is no data yet.
func (s *Server) handleEarly(c *client, cmd *command.Command) {
	at := len(c.w.Buf)
	if err := cmd.Run(&c.ctx); err != nil {
		c.w.Buf = c.w.Buf[:at]
		c.fail(err)
	}
}

// handleKeyless runs a command whose words do not say which keys it is about: the handler will refuse them.
func (s *Server) handleKeyless(c *client, cmd *command.Command, args [][]byte) {
	c.txn.Begin(nil, false, s.clock())
	c.prepare(s, cmd, args, c.txn.Now())
	err := c.ctx.Execute()
	c.txn.End()
	if err != nil {
		c.fail(err)
	}
}

func (c *client) prepare(s *Server, cmd *command.Command, args [][]byte, nowMs int64) {
	c.ctx.Reset(cmd, args)
	c.ctx.Txn, c.ctx.Host, c.ctx.Client, c.ctx.W, c.ctx.NowMs = c.txn, s, c, &c.w, nowMs
	c.ctx.NoTouch = c.noTouch.Load()
}

// waitFor makes the replies gathered so far wait for the log to have end.
func (c *client) waitFor(end int64) { c.waitEnd = max(c.waitEnd, end) }

// fail answers an error.
func (c *client) fail(err error) {
	at := len(c.w.Buf)
	c.ctx.W = &c.w
	c.ctx.ReplyError(err)
	c.s.stats.countError(string(c.w.Buf[at+1:]))
}

func argBytes(args [][]byte) (n int) {
	for _, a := range args {
		n += len(a) + 16
	}
	return n
}
