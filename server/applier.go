package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"cairn/engine"
	"cairn/replication"
	"cairn/server/command"
)

// applier is this node's data as the link to its primary sees it: replication.Applier. Entries go through the same
// executor as in recovery; beyond that they are heard of: events, watchers, subscribers.
type applier struct {
	s     *Server
	x     *executor
	ahead *streamAhead
	// dropped is true while nothing is here because the disk had no room for the primary's data beside the old.
	dropped atomic.Bool
}

func newApplier(s *Server) *applier {
	return &applier{s: s, x: newExecutor(s, s.store), ahead: newStreamAhead(s.table, s.store)}
}

// close ends the applier's goroutines, after its link has ended.
func (a *applier) close() { a.ahead.close() }

// Position is part of replication.Applier, as are the methods below.
func (a *applier) Position() (id string, offset int64) {
	end := a.s.wal.End()
	if end == 0 {
		return "", 0
	}
	h := a.s.wal.History()
	return string(h.ID[:]), end
}

// Ahead fetches what the entries are about to change.
func (a *applier) Ahead(entries []replication.Entry) { a.ahead.entries(entries) }

// Apply appends an entry and executes it.
func (a *applier) Apply(ctx context.Context, e replication.Entry) error {
	grows, err := a.known(e)
	if err != nil {
		return err
	}
	if grows {
		if err := a.awaitRoom(ctx); err != nil {
			return err
		}
	}
	if err := a.heedSlots(e.Commands); err != nil {
		return err
	}
	if len(e.Raw) > longArgFrom {
		a.x.ctx.Passed = a.s.passedLongArg
		defer func() { // as endLongArgs does
			a.x.ctx.Args, a.x.ctx.Passed = nil, nil
			a.x.txn.Forget()
			a.s.passedLongArg(e.Raw) // values were read when the log had passed them
		}()
	}
	for {
		err := a.x.execute(e.Commands, e.Raw)
		if err == nil {
			break
		}
		if errors.Is(err, engine.ErrRerouted) {
			if !a.s.store.Routing().Replica {
				return errors.New("this node is no replica any more")
			}
			continue
		}
		if reply, ok := answered(err); ok {
			return &replication.DivergedError{Reason: fmt.Sprintf("%v answered %q", firstWords(e), string(reply))}
		}
		return err
	}
	a.publish(e)
	a.s.events.deliver(a.s)
	return nil
}

// answered says whether an error of the executor is what a client would have been answered.
func answered(err error) (command.Reply, bool) {
	var r command.Reply
	ok := errors.As(err, &r)
	return r, ok
}

func firstWords(e replication.Entry) string {
	if len(e.Commands) == 0 {
		return "an empty transaction"
	}
	return fmt.Sprintf("an entry that begins with %.64q", e.Commands[0][0])
}

// known refuses an entry with a command that this node does not have, before anything of it is done. grows says
// whether it may need room on the disk.
func (a *applier) known(e replication.Entry) (grows bool, err error) {
	for _, args := range e.Commands {
		cmd, ok := a.s.table.Lookup(args)
		if !ok {
			return false, &replication.UnsupportedError{What: "command " + commandName(cmd, args)}
		}
		if !cmd.ArityOK(len(args)) {
			return false, &replication.UnsupportedError{What: fmt.Sprintf("command %s with %d arguments", commandName(nil, args), len(args)-1)}
		}
		grows = grows || cmd.Is(command.DenyOOM)
	}
	return grows, nil
}

func commandName(container *command.Command, args [][]byte) string {
	name := fmt.Sprintf("%.64q", args[0])
	if container != nil && len(args) > 1 {
		name = fmt.Sprintf("%.64q", string(args[0])+" "+string(args[1]))
	}
	return strings.ToUpper(strings.Trim(name, `"`))
}

// roomPoll is how often a closed space gate is looked at.
const roomPoll = 100 * time.Millisecond

// awaitRoom waits while the space gate is closed: the stream waits with it, in the primary's log.
func (a *applier) awaitRoom(ctx context.Context) error {
	for warned := false; a.s.store.Gate() != nil; {
		if !warned {
			a.s.log.Warning("the stream of the primary waits: the disk is nearly full, see disk-reserve")
			warned = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(roomPoll):
		}
	}
	return nil
}

// publish delivers what the entry's PUBLISH commands say.
func (a *applier) publish(e replication.Entry) {
	for _, args := range e.Commands {
		if len(args) != 3 {
			continue
		}
		switch {
		case strings.EqualFold(string(args[0]), "publish"):
			a.s.hub.Publish(args[1], args[2], nil)
		case strings.EqualFold(string(args[0]), "spublish"):
			a.s.hub.PublishShard(args[1], args[2], nil)
		}
	}
}

// Settle waits for the log: what is acknowledged to the primary a kill of the process does not take away.
func (a *applier) Settle() (synced int64, err error) {
	end := a.s.wal.End()
	if err := a.s.wal.WaitDurable(end); err != nil {
		return 0, err
	}
	if a.s.bus != nil {
		a.s.bus.Reached(end)
	}
	return a.s.wal.Synced(), nil
}

// Adopt makes id the name of what follows; the name so far stays known for what is here.
func (a *applier) Adopt(id string) error {
	h := follow(a.s.wal.History(), a.s.wal.End())
	copy(h.ID[:], id)
	if err := a.s.changeHistory(h); err != nil {
		return err
	}
	a.s.dropReplicas("the primary's history has another name")
	return nil
}
