package server

import (
	"hash/maphash"
	"sync"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/server/command"
)

// readAhead fetches the records of keys that the log is about to change, several at a time: execution is
// strictly in order and would wait for the disk once for each key.
type readAhead struct {
	table *command.Table
	work  chan [][]byte
	done  sync.WaitGroup
	pos   []int
	args  [][]byte

	// Keys seen of late, at a place of their hash: the same few counters, a million times, are fetched once.
	seed maphash.Seed
	seen [aheadSeen]uint64
}

const (
	aheadWorkers = 8
	aheadKeys    = 4096
	aheadSeen    = 1024
)

func newReadAhead(table *command.Table, store *engine.Store) *readAhead {
	a := &readAhead{table: table, work: make(chan [][]byte, aheadKeys/aheadGroup), seed: maphash.MakeSeed()}
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

// commands looks at the whole commands in buf, which nobody changes any more. What does not parse is for the
// executor to complain about.
func (a *readAhead) commands(buf []byte) {
	clear(a.seen[:]) // what was fetched then may have had to go since
	group := make([][]byte, 0, aheadGroup)
	for len(buf) > 0 {
		args, n, err := resp.NextCommand(buf, a.args[:0])
		if err != nil || n == 0 {
			break
		}
		buf, a.args = buf[n:], args
		cmd, ok := a.table.Lookup(args)
		if cmd == nil || !ok || !cmd.Is(command.Write) {
			continue
		}
		a.pos, _ = cmd.KeyPositions(a.pos[:0], args)
		for _, p := range a.pos {
			if a.sawJustNow(args[p]) {
				continue
			}
			if group = append(group, args[p]); len(group) == aheadGroup {
				a.work <- group
				group = make([][]byte, 0, aheadGroup)
			}
		}
	}
	if len(group) > 0 {
		a.work <- group
	}
}

// sawJustNow says whether a key, or one of the same hash, was handed out already.
func (a *readAhead) sawJustNow(key []byte) bool {
	h := maphash.Bytes(a.seed, key)
	at := &a.seen[h%aheadSeen]
	if *at == h {
		return true
	}
	*at = h
	return false
}

func (a *readAhead) close() {
	close(a.work)
	a.done.Wait()
}
