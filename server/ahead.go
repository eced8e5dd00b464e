package server

import (
	"sync"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/server/command"
)

// readAhead fetches the records of keys that the log is about to change, several at a time: execution is
// strictly in order and would wait for the disk once for each key.
type readAhead struct {
	table *command.Table
	keys  chan []byte
	done  sync.WaitGroup
	pos   []int
	args  [][]byte
}

const (
	aheadWorkers = 8
	aheadKeys    = 4096
)

func newReadAhead(table *command.Table, store *engine.Store) *readAhead {
	a := &readAhead{table: table, keys: make(chan []byte, aheadKeys)}
	a.done.Add(aheadWorkers)
	for range aheadWorkers {
		go func() { // ends when keys is closed
			defer a.done.Done()
			var scratch []byte
			for k := range a.keys {
				scratch = store.Warm(k, scratch)
			}
		}()
	}
	return a
}

// commands looks at the whole commands in buf, which nobody changes any more. What does not parse is for the
// executor to complain about.
func (a *readAhead) commands(buf []byte) {
	for len(buf) > 0 {
		args, n, err := resp.NextCommand(buf, a.args[:0])
		if err != nil || n == 0 {
			return
		}
		buf, a.args = buf[n:], args
		cmd, ok := a.table.Lookup(args)
		if cmd == nil || !ok || !cmd.Is(command.Write) {
			continue
		}
		a.pos, _ = cmd.KeyPositions(a.pos[:0], args)
		for _, p := range a.pos {
			a.keys <- args[p]
		}
	}
}

func (a *readAhead) close() {
	close(a.keys)
	a.done.Wait()
}
