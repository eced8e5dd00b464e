package server

import (
	"sync"

	"cairn/engine"
	"cairn/replication"
	"cairn/server/command"
)

// streamAhead fetches the records of keys that a primary's stream is about to change, as readAhead does for recovery.
// The stream's buffer is used again and again, so names are copied.
type streamAhead struct {
	table *command.Table
	work  chan [][]byte
	done  sync.WaitGroup
	pos   []int
}

const (
	aheadGroup = 32 // keys that a worker takes at once
	aheadLeast = 8  // fewer are fetched as they are executed
)

func newStreamAhead(table *command.Table, store *engine.Store) *streamAhead {
	a := &streamAhead{table: table, work: make(chan [][]byte, aheadKeys/aheadGroup)}
	a.done.Add(aheadWorkers)
	for range aheadWorkers {
		go func() { // ends when work is closed
			defer a.done.Done()
			var scratch []byte
			for keys := range a.work {
				for _, k := range keys {
					scratch = store.Warm(k, scratch)
				}
			}
		}()
	}
	return a
}

// entries hands the keys of entries to the workers. It waits for them when they are far behind: the executor would
// wait longer for the same keys, one after the other.
func (a *streamAhead) entries(entries []replication.Entry) {
	if len(entries) < aheadLeast {
		return
	}
	var group [][]byte
	var names []byte
	for _, e := range entries {
		for _, args := range e.Commands {
			cmd, ok := a.table.Lookup(args)
			if cmd == nil || !ok || !cmd.Is(command.Write) {
				continue
			}
			a.pos, _ = cmd.KeyPositions(a.pos[:0], args)
			for _, p := range a.pos {
				at := len(names)
				names = append(names, args[p]...)
				group = append(group, names[at:len(names):len(names)])
				if len(group) == aheadGroup {
					a.work <- group
					group, names = make([][]byte, 0, aheadGroup), make([]byte, 0, cap(names))
				}
			}
		}
	}
	if len(group) > 0 {
		a.work <- group
	}
}

func (a *streamAhead) close() {
	close(a.work)
	a.done.Wait()
}
