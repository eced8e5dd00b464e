package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/server/command"
	"cairn/wal"
)

// Execution of log entries by the command table, without replies and without deadlines: recovery, and a
// primary's stream. An entry is one command, or MULTI ... EXEC, and is executed as a whole or not at all.

// replay executes what the log has from offset on and gives the number of entries.
func replay(s *Server, store *engine.Store, log *wal.Log, offset int64) (entries int, err error) {
	end := log.End()
	if offset == end {
		return 0, nil
	}
	r, err := log.NewReader(offset)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	x, reigns := newExecutor(s, store), log.Reigns()
	ahead := newReadAhead(s.table, store)
	defer ahead.close()
	in := &entryReader{r: io.LimitReader(r, end-offset), offset: offset, ahead: ahead.commands}
	for {
		e, err := in.next()
		if err == io.EOF {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("execute the log: offset %d: %w", in.offset, err)
		}
		for len(reigns) > 0 && reigns[0].From < in.offset {
			store.SetHistory(appendHistory(nil, reigns[0].History))
			reigns = reigns[1:]
		}
		store.Replaying(in.offset)
		if !s.opened.Load() { // the node starts
			s.openSlots.recall(e.commands)
		}
		err = x.execute(e.commands, nil)
		for errors.Is(err, engine.ErrRerouted) { // the cluster changed meanwhile, which means nothing to what was committed
			err = x.execute(e.commands, nil)
		}
		if err != nil {
			return entries, fmt.Errorf("execute the log: entry that ends at offset %d: %w", in.offset, err)
		}
		entries++
	}
}

// executor runs entries. It is one goroutine's.
type executor struct {
	table *command.Table
	store *engine.Store
	clock func() int64
	txn   *engine.Txn
	ctx   command.Ctx
	w     resp.Writer
	slots []uint16
	found []lookedUp // the commands of the entry
}

// lookedUp is what the table says of a command.
type lookedUp struct {
	cmd   *command.Command
	whole bool // also of its subcommand
}

func newExecutor(s *Server, store *engine.Store) *executor {
	x := &executor{table: s.table, store: store, clock: s.clock, txn: store.NewTxn()}
	x.w.Proto = 2
	x.ctx = command.Ctx{Txn: x.txn, Host: replayHost{s, store}, W: &x.w, Replaying: true}
	return x
}

// replayHost is the node while its store is not yet in place.
type replayHost struct {
	*Server
	store *engine.Store
}

// Store is the one that is being filled.
func (h replayHost) Store() *engine.Store { return h.store }

// execute runs the commands of one entry in one transaction. raw is the entry as it is to be appended to the
// log; nil in recovery, where the log has it already.
func (x *executor) execute(commands [][][]byte, raw []byte) error {
	all, any := false, false
	x.slots, x.found = x.slots[:0], x.found[:0]
	for _, args := range commands {
		cmd, whole := x.table.Lookup(args)
		x.found = append(x.found, lookedUp{cmd, whole})
		if cmd == nil || !cmd.Is(command.Write) {
			continue // SELECT, PING and their like have no rows
		}
		any = true
		all = all || cmd.Is(command.AllSlots)
		x.slots, _ = cmd.AppendSlots(x.slots, args)
	}
	if !any && raw == nil {
		return nil // in a stream its bytes count nevertheless
	}
	if err := x.store.AwaitRoom(len(raw)); err != nil {
		return err
	}
	defer x.ctx.EndStaged() //nolint:errcheck // a batch that is given up
	for holds := false; !holds; {
		if err := x.stage(commands); err != nil {
			return err
		}
		if all {
			x.txn.BeginAll(true, engine.Forever)
		} else {
			x.txn.Begin(command.SortSlots(x.slots), true, engine.Forever)
		}
		var err error
		if holds, err = x.ctx.StagedHolds(); err != nil || !holds {
			x.txn.End()
		}
		if err != nil {
			return err
		}
	}
	for i, args := range commands {
		if err := x.one(x.found[i], args); err != nil {
			x.txn.End()
			return err
		}
	}
	_, err := x.txn.CommitEntry(raw)
	return err
}

// stage stages the large values that the commands bring, before any lock, as it was done when they ran first.
func (x *executor) stage(commands [][][]byte) error {
	x.ctx.Together = 0
	if len(commands) > 1 {
		for _, args := range commands {
			x.ctx.Together += int64(argBytes(args))
		}
	}
	for i, args := range commands {
		cmd := x.found[i].cmd
		if cmd == nil || !x.found[i].whole || cmd.Stage == nil || !cmd.ArityOK(len(args)) {
			continue
		}
		x.ctx.Reset(cmd, args)
		x.ctx.NowMs = x.clock()
		if err := x.ctx.Stage(); err != nil {
			return err
		}
	}
	return nil
}

func (x *executor) one(found lookedUp, args [][]byte) error {
	cmd := found.cmd
	if cmd == nil || !found.whole || !cmd.Is(command.Write) {
		return nil
	}
	if !cmd.ArityOK(len(args)) {
		return fmt.Errorf("command %.64q has %d arguments", args[0], len(args))
	}
	x.ctx.Reset(cmd, args)
	x.w.Buf = x.w.Buf[:0]
	x.ctx.NowMs = x.clock()
	err := cmd.Run(&x.ctx)
	x.ctx.DropStreams(0)
	if err != nil {
		return fmt.Errorf("command %.64q: %w", args[0], err)
	}
	return nil
}

// entryReader cuts a stream of commands into entries.
type entryReader struct {
	r      io.Reader
	buf    []byte
	at     int   // parsed up to here
	offset int64 // of buf[at] in the stream
	eof    bool
	ahead  func(buf []byte) // sees what was read before it is cut into entries; may be nil

	args     [][]byte   // of the entry's commands, one behind the other
	commands [][][]byte // the entry's
}

// entry is valid until the next one is read.
type entry struct {
	commands [][][]byte
}

const (
	entryChunk = 256 << 10
	argsKept   = 4096 // of an entry that had more, the room is not used again
)

// next gives the next whole entry; io.EOF when the stream ends between two.
func (e *entryReader) next() (entry, error) {
	e.forget()
	start := e.at
	for {
		from := len(e.args)
		args, n, err := resp.NextCommand(e.buf[e.at:], e.args)
		if err != nil {
			return entry{}, err
		}
		if n == 0 {
			if e.eof {
				if e.at == len(e.buf) && start == e.at {
					return entry{}, io.EOF
				}
				return entry{}, io.ErrUnexpectedEOF
			}
			// Slices of an entry's earlier commands must stay: the buffer moves only between entries.
			if err := e.fill(&start); err != nil {
				return entry{}, err
			}
			continue
		}
		e.at += n
		e.offset += int64(n)
		e.args = args
		args = args[from:len(args):len(args)]
		inside := len(e.commands) > 0 // a MULTI
		if inside && isWord(args, "EXEC") {
			return entry{e.commands[1:]}, nil
		}
		e.commands = append(e.commands, args)
		if !inside && !isWord(args, "MULTI") {
			return entry{e.commands}, nil
		}
	}
}

// forget ends the entry before. What it named is let go of: a long argument keeps all that was read with it.
func (e *entryReader) forget() {
	if cap(e.args) > argsKept || cap(e.commands) > argsKept {
		e.args, e.commands = nil, nil
	}
	clear(e.args)
	clear(e.commands)
	e.args, e.commands = e.args[:0], e.commands[:0]
}

func isWord(args [][]byte, word string) bool {
	return len(args) == 1 && bytes.EqualFold(args[0], []byte(word))
}

// fill reads more, at least doubling what an unfinished entry has, and parses that entry again from its start.
func (e *entryReader) fill(start *int) error {
	e.offset -= int64(e.at - *start)
	have := len(e.buf) - *start
	next := make([]byte, have, max(2*have, entryChunk))
	copy(next, e.buf[*start:])
	n, err := io.ReadFull(e.r, next[have:cap(next)])
	e.buf = next[:have+n]
	e.at, *start = 0, 0
	e.forget()
	if e.ahead != nil {
		e.ahead(e.buf)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		e.eof = true
		return nil
	}
	return err
}
