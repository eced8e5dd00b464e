package server

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cairn/replication"
	"cairn/server/command"
)

// FAILOVER: the primary of a pair hands its role to a replica, and no write is lost that a client was answered.
//
//	none -> waiting   writes are held back; a replica is looked for that has executed all there is
//	waiting -> moving the node becomes that replica's replica, and says PSYNC ... FAILOVER to it
//	moving -> none    it answered as a primary: writes go on, and are refused here as on any replica
//
// TIMEOUT ends the waiting: the node goes on as primary, or with FORCE moves all the same. ABORT, and a replica that
// declines, make it a primary again. Texts are Redis 7.2's.

// failoverState is how far a failover is.
type failoverState int32

const (
	failoverNone failoverState = iota
	failoverWaiting
	failoverMoving
)

// String gives INFO's words.
func (st failoverState) String() string {
	return [...]string{"no-failover", "waiting-for-sync", "failover-in-progress"}[st]
}

// failover is what FAILOVER has begun.
type failover struct {
	state atomic.Int32 // changed under mu; the link reads it, for which a change of role waits under mu
	mu    sync.Mutex
	failoverArgs
	over chan struct{} // closed at the end of this one
}

// failoverArgs are what the command said.
type failoverArgs struct {
	host  string // "": any replica
	port  int
	force bool
	until time.Time // zero: however long it takes
}

func (f *failover) now() failoverState { return failoverState(f.state.Load()) }

// target names whom the role goes to, for people. mu is held.
func (f *failover) target() string {
	if f.host == "" {
		return "any replica"
	}
	return f.host + ":" + strconv.Itoa(f.port)
}

// Failover is FAILOVER.
func (s *Server) Failover(x *command.Ctx) error {
	if s.cfg.V.ClusterEnabled.Load() {
		return command.Reply("ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.")
	}
	if x.InMulti {
		// The pause would wait for slots that the transaction holds.
		return command.Reply("ERR FAILOVER is not possible inside a transaction")
	}
	if len(x.Args) == 2 && x.Is(1, "abort") {
		if !s.abortFailover("Failover manually aborted") {
			return command.Reply("ERR No failover in progress.")
		}
		x.W.OK()
		return nil
	}
	next, err := readFailover(x)
	if err != nil {
		return err
	}
	f := &s.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now() != failoverNone {
		return command.Reply("ERR FAILOVER already in progress.")
	}
	if err := s.failoverRefused(&next); err != nil {
		return err
	}
	f.failoverArgs, f.over = next, make(chan struct{})
	f.state.Store(int32(failoverWaiting))
	s.log.Notice("FAILOVER requested to " + f.target() + ".")
	s.primary.AskAcks(s.wal.End())
	s.pauseWrites(pauseFailover, true)
	s.releaseTail()
	over := f.over
	s.startTask(func() { s.waitForSync(over) })
	x.W.OK()
	return nil
}

// readFailover reads FAILOVER's options.
func readFailover(x *command.Ctx) (f failoverArgs, err error) {
	timeout, to := int64(0), false
	for i := 1; i < len(x.Args); i++ {
		switch left := len(x.Args) - 1 - i; {
		case x.Is(i, "timeout") && left >= 1 && timeout == 0:
			i++
			if timeout, err = x.Int(i); err != nil {
				return f, err
			}
			if timeout <= 0 {
				return f, command.Reply("ERR FAILOVER timeout must be greater than 0")
			}
			timeout = min(timeout, int64(1<<62)/int64(time.Millisecond))
			f.until = time.Now().Add(time.Duration(timeout) * time.Millisecond)
		case x.Is(i, "to") && left >= 2 && !to:
			port, err := x.Int(i + 2)
			if err != nil {
				return f, err
			}
			f.host, f.port, to = string(x.Args[i+1]), int(port), true
			i += 2
		case x.Is(i, "force") && !f.force:
			f.force = true
		default:
			return f, command.ErrSyntax
		}
	}
	return f, nil
}

// failoverRefused says why a failover cannot begin.
func (s *Server) failoverRefused(f *failoverArgs) error {
	switch {
	case s.isReplica():
		return command.Reply("ERR FAILOVER is not valid when server is a replica.")
	case s.primary.Len() == 0:
		return command.Reply("ERR FAILOVER requires connected replicas.")
	case f.force && (f.until.IsZero() || f.host == ""):
		return command.Reply("ERR FAILOVER with force option requires both a timeout and target HOST and IP.")
	case f.host == "":
		return nil
	}
	for _, st := range s.primary.Statuses() {
		if !strings.EqualFold(st.IP, f.host) || st.Port != f.port {
			continue
		}
		if st.State != replication.SyncOnline {
			return command.Reply("ERR FAILOVER target replica is not online.")
		}
		return nil
	}
	return command.Reply("ERR FAILOVER target HOST and PORT is not a replica.")
}

// waitForSync waits for a replica that has everything, and moves the role.
func (s *Server) waitForSync(over chan struct{}) {
	f := &s.failover
	for {
		moved := s.primary.Changed()
		f.mu.Lock()
		if f.over != over {
			f.mu.Unlock()
			return
		}
		late := !f.until.IsZero() && !time.Now().Before(f.until)
		if found := s.syncedReplica(f); found || late && f.force {
			s.move(f, found)
			f.mu.Unlock()
			return
		}
		until := f.until
		f.mu.Unlock()
		if late {
			s.abortFailover("Replica never caught up before timeout")
			return
		}
		wait := time.Second
		if !until.IsZero() {
			wait = min(wait, max(time.Until(until), time.Millisecond))
		}
		timer := time.NewTimer(wait)
		select {
		case <-moved:
		case <-timer.C:
		case <-over:
		case <-s.stop:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// syncedReplica finds the replica that has everything, and names it in f. mu is held.
func (s *Server) syncedReplica(f *failover) bool {
	end := s.wal.End()
	for _, st := range s.primary.Statuses() {
		if st.State != replication.SyncOnline || st.Acked != end || st.Port == 0 {
			continue
		}
		if f.host == "" || strings.EqualFold(st.IP, f.host) && st.Port == f.port {
			f.host, f.port = st.IP, st.Port
			return true
		}
	}
	return false
}

// move makes the node a replica of the one that is to have the role. mu is held.
func (s *Server) move(f *failover, synced bool) {
	f.state.Store(int32(failoverMoving))
	if synced {
		s.log.Notice(fmt.Sprintf("Failover target %s is synced, failing over.", f.target()))
	} else {
		s.log.Notice(fmt.Sprintf("FAILOVER to %s time out exceeded, failing over.", f.target()))
	}
	if err := s.cfg.Store("replicaof", f.host, strconv.Itoa(f.port)); err != nil {
		s.log.Warning("the address of the new primary is not kept", "primary", net.JoinHostPort(f.host, strconv.Itoa(f.port)), "err", err)
	}
	s.follow(f.host, f.port)
}

// failoverAnswered hears what the replica said to PSYNC ... FAILOVER. The link's goroutine calls it, and may not wait.
func (s *Server) failoverAnswered(accepted bool) {
	s.startTask(func() { // a change of the role waits for the link
		if accepted {
			s.endFailover()
		} else {
			s.abortFailover("Failover target rejected psync request")
		}
	})
}

// endFailover is the good end.
func (s *Server) endFailover() {
	f := &s.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now() == failoverMoving {
		s.clearFailover(f)
	}
}

// clearFailover makes it none. mu is held.
func (s *Server) clearFailover(f *failover) {
	close(f.over)
	f.failoverArgs, f.over = failoverArgs{}, nil
	f.state.Store(int32(failoverNone))
	s.pauseWrites(pauseFailover, false)
}

// abortFailover ends a failover, with this node as the primary; false: there is none.
func (s *Server) abortFailover(why string) bool {
	f := &s.failover
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now() == failoverNone {
		return false
	}
	s.log.Notice(fmt.Sprintf("FAILOVER to %s aborted: %s", f.target(), why))
	if f.now() == failoverMoving {
		if err := s.promote(); err != nil {
			s.fail(fmt.Errorf("be a primary again after a failover: %w", err))
		}
		if err := s.cfg.Store("replicaof", "no", "one"); err != nil {
			s.log.Warning("the role is not kept", "err", err)
		}
	}
	s.clearFailover(f)
	return true
}
