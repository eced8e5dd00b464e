package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn/engine"
	"cairn/server/command"
)

// multiState is what a connection has gathered since MULTI.
type multiState struct {
	active bool
	failed bool // a command was refused: EXEC answers EXECABORT
	locks  bool // EXEC runs, and holds slots
	queue  []queued
	bytes  int64 // of their arguments
	watch  []watched

	queueBytes int64 // about what queue takes beside them

	watchBytes int64 // about what watch takes
}

// queuedOverhead is about what a queued command costs beside its arguments, queuedArgument what each of them does beside
// what argBytes counts.
const (
	queuedOverhead = 80
	queuedArgument = 16
)

type queued struct {
	cmd  *command.Command
	args [][]byte
}

func (m *multiState) flagError() {
	if m.active {
		m.failed = true
	}
}

func (m *multiState) reset() {
	m.active, m.failed, m.locks, m.queue, m.bytes, m.queueBytes = false, false, false, nil, 0, 0
}

// runsInsideMulti names what is executed at once although a transaction is being gathered.
func runsInsideMulti(cmd *command.Command) bool {
	switch cmd.Name {
	case "exec", "discard", "multi", "watch", "quit", "reset":
		return cmd.Parent() == nil
	}
	return false
}

// writesWith says whether a command writes; EXEC does if one of those that it is to run does.
func (c *client) writesWith(cmd *command.Command) bool {
	if cmd.Name != "exec" || cmd.Parent() != nil {
		return cmd.Is(command.Write)
	}
	return slices.ContainsFunc(c.multi.queue, func(q queued) bool { return q.cmd.Is(command.Write) })
}

// queue keeps a command for EXEC. What is wrong with it is said now, as far as it can be known.
func (s *Server) queue(c *client, cmd *command.Command, args [][]byte) {
	m := &c.multi
	m.bytes += int64(argBytes(args))
	if limit := s.cfg.V.ClientQueryBuffer.Load(); m.bytes > limit {
		c.w.Error("ERR transaction too big: its commands exceed client-query-buffer-limit")
		m.failed, m.queue, m.queueBytes = true, nil, 0
		return
	}
	if text := s.redirectArgs(c, s.store.Routing(), cmd, args); text != "" {
		s.reject(c, cmd, text)
		return
	}
	if m.failed || c.dirtyCAS.Load() {
		c.w.Simple("QUEUED") // EXEC will run none of them, and what it answers does not depend on this one
		return
	}
	own := make([][]byte, len(args))
	whole := make([]byte, 0, argBytes(args))
	for i, a := range args {
		at := len(whole)
		whole = append(whole, a...)
		own[i] = whole[at:len(whole):len(whole)]
	}
	m.queue = append(m.queue, queued{cmd, own})
	m.queueBytes += queuedOverhead + int64(len(args))*queuedArgument
	c.queued.Store(int32(len(m.queue)))
	c.queuedBytes.Store(m.bytes)
	c.w.Simple("QUEUED")
}

// Multi begins a transaction.
func (s *Server) Multi(x *command.Ctx) error {
	c := clientOf(x)
	if c.multi.active {
		return command.Reply("ERR MULTI calls can not be nested")
	}
	c.multi.active = true
	c.queued.Store(0)
	x.W.OK()
	return nil
}

// Discard gives a transaction up.
func (s *Server) Discard(x *command.Ctx) error {
	c := clientOf(x)
	if !c.multi.active {
		return command.Reply("ERR DISCARD without MULTI")
	}
	s.endMulti(c)
	x.W.OK()
	return nil
}

func (s *Server) endMulti(c *client) {
	c.multi.reset()
	c.queued.Store(-1)
	c.queuedBytes.Store(0)
	s.unwatch(c)
}

// Exec runs the gathered commands as one transaction on all their slots.
func (s *Server) Exec(x *command.Ctx) error {
	c := clientOf(x)
	if !c.multi.active {
		return command.Reply("ERR EXEC without MULTI")
	}
	defer s.endMulti(c)
	if c.multi.failed {
		return command.Reply("EXECABORT Transaction discarded because of previous errors.")
	}
	plan, err := s.planExec(c)
	if err != nil {
		return err
	}
	c.multi.locks = plan.all || len(plan.slots) > 0
	if plan.stage {
		defer s.endStaged(c)
	}
	for {
		s.pause.wait(c, plan.write)
		if plan.write {
			if err := s.store.Reserve(int(c.multi.bytes)); err != nil {
				return refuseWrite(err)
			}
		}
		if plan.stage && s.isHere(c, plan) {
			if err := s.stageQueued(c); err != nil {
				return execAborted(err)
			}
		}
		if s.attemptExec(c, x, plan) {
			return nil
		}
		if plan.stage {
			s.closeStaged(c)
		}
	}
}

// isHere says whether the transaction is served here, as far as that can be said before it runs.
func (s *Server) isHere(c *client, p execPlan) bool {
	if !s.ClusterEnabled() {
		return true
	}
	if p.all {
		c.txn.BeginAll(false, s.clock())
	} else {
		c.txn.Begin(p.slots, false, s.clock())
	}
	defer c.txn.End()
	return s.redirectExec(c, c.txn.Routing()) == ""
}

// stageQueued stages what the gathered commands bring.
func (s *Server) stageQueued(c *client) error {
	c.ctx.Together = c.multi.bytes
	defer func() { c.ctx.Together = 0 }()
	for _, q := range c.multi.queue {
		if !q.cmd.MayStage(q.args) {
			continue
		}
		c.prepare(s, q.cmd, q.args, s.clock())
		if err := c.ctx.Stage(); err != nil {
			return inCommand(q.cmd, err)
		}
	}
	return nil
}

// execPlan is the lock set of a transaction, known before anything of it runs.
type execPlan struct {
	slots []uint16
	all   bool
	write bool
	stage bool // a command may have something to stage
}

func (s *Server) planExec(c *client) (p execPlan, err error) {
	for _, q := range c.multi.queue {
		if q.cmd.Is(command.AllSlots) || q.cmd.Is(command.NoKeysTxn) {
			p.all = true
		}
		p.write = p.write || q.cmd.Is(command.Write)
		p.stage = p.stage || q.cmd.MayStage(q.args)
		if q.cmd.Is(command.DenyOOM) {
			if err := s.store.Gate(); err != nil {
				return p, command.Reply("EXECABORT Transaction discarded because of: " + err.Error())
			}
		}
		p.slots, _ = q.cmd.AppendSlots(p.slots, q.args)
	}
	for _, w := range c.multi.watch {
		p.slots = append(p.slots, w.slot)
	}
	p.slots = command.SortSlots(p.slots)
	return p, nil
}

// attemptExec runs the transaction once. false: the route changed, or writes are paused; try again.
func (s *Server) attemptExec(c *client, x *command.Ctx, p execPlan) bool {
	at, streams := len(c.w.Buf), x.Streams()
	nowMs := s.clock()
	if p.all {
		c.txn.BeginAll(p.write, nowMs)
	} else {
		c.txn.Begin(p.slots, p.write, nowMs)
	}
	r := c.txn.Routing()
	if p.write && r.WritesPaused {
		c.txn.End()
		return !s.awaitWrites(c)
	}
	if over := s.leaving.holdsQueued(c.multi.queue); over != nil {
		c.txn.End()
		return !s.awaitLeft(c, over)
	}
	text := s.redirectExec(c, r)
	if text == "" {
		if text = s.refuseLocked(r, p.write); text != "" {
			text = "EXECABORT Transaction discarded because of: " + text
		}
	}
	if text != "" {
		c.txn.End()
		s.turnAway(c, text)
		return true
	}
	if c.dirtyCAS.Load() || s.watchExpired(c) {
		c.waitFor(c.txn.End())
		x.W.NullArray()
		return true
	}
	if ok, err := x.StagedHolds(); err != nil || !ok {
		c.txn.End()
		if err != nil {
			c.fail(execAborted(err))
		}
		return err != nil
	}
	if err := s.execAll(c, x, nowMs); err != nil {
		c.waitFor(c.txn.End())
		c.w.Buf = c.w.Buf[:at]
		x.DropStreams(streams)
		c.access = nil
		c.fail(execAborted(err))
		return true
	}
	end, err := c.txn.Commit()
	if err == engine.ErrRerouted { //nolint:errorlint // Commit returns it bare
		c.w.Buf = c.w.Buf[:at]
		x.DropStreams(streams)
		return false
	}
	c.waitFor(end)
	for _, q := range c.multi.queue {
		c.noteArrival(r, q.cmd, q.args, end)
	}
	if p.write {
		c.wrote(end)
		c.ctx.Expired = c.ctx.Expired[:0] // the commit deleted them
	}
	if len(c.access) > 0 {
		c.applyAccess()
	}
	s.events.deliver(s)
	return true
}

// execAborted is the reply when nothing of a transaction was done because the store failed.
func execAborted(err error) command.Reply {
	return command.Reply("EXECABORT Transaction discarded because of: IOERR " + err.Error())
}

// inCommand says which of a transaction's commands failed.
func inCommand(cmd *command.Command, err error) error {
	return fmt.Errorf("%s: %w", strings.ToUpper(cmd.FullName()), err)
}

// execAll runs the commands one after the other; an error that one answers does not stop the next. A write that could
// not be finished for a failed read does: what it has done so far cannot be told from what the others did. The
// transaction is to be given up then.
func (s *Server) execAll(c *client, x *command.Ctx, nowMs int64) error {
	x.W.Array(len(c.multi.queue))
	x.InMulti = true
	failed := x.Failed // what fails in here is no failure of EXEC
	defer func() { x.InMulti, x.Failed = false, failed }()
	for _, q := range c.multi.queue {
		c.prepare(s, q.cmd, q.args, nowMs)
		began := time.Now()
		err := x.Execute()
		if err != nil {
			q.cmd.Stats().Failed.Add(1)
			if _, answer := command.Recover(err); !answer && q.cmd.Is(command.Write) {
				return inCommand(q.cmd, err)
			}
			c.fail(err)
		}
		took := time.Since(began)
		q.cmd.Stats().Calls.Add(1)
		q.cmd.Stats().Usec.Add(took.Microseconds())
		s.note(c, q.cmd, q.args, took)
	}
	return nil
}
