package engine

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// Which values live apart from their tables, in files of values that merges pass over, is asked for every flush and merge:
//
//   - A flush keeps values in its table. They are merged soon, with those of sixteen and more other flushes, and a merge takes
//     them in the order of keys: out of tables it reads from front to back, out of files of values one by one, each with a
//     look into the file's index and at a block of its own. Overwriting data beyond memory evenly that was a fifth of all
//     processor time, and more the more flushes waited, so that merges that were behind fell back further.
//   - A merge of flushes with each other keeps them there.
//   - A merge into the first level below writes files of values, in the order of keys.
//   - Merges further down pass values over, until a table refers to more than depthMost files that lie over each other.

// depthMost bounds how many files of values lie over each other for one table, and so what a walk over its values reads at once.
const depthMost = 8

// job is what a flush or a merge does with values.
type job uint8

const (
	passOver  job = iota // leave them where they are
	keepThem             // in the tables
	takeApart            // write files of values
)

// jobs are the flushes and merges under way. Pebble asks for the policy without saying what for, but on the goroutine on
// which it told of the beginning.
type jobs struct {
	mu sync.Mutex
	on map[uint64]job
}

func (j *jobs) begin(what job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.on == nil {
		j.on = map[uint64]job{}
	}
	j.on[goroutine()] = what
}

func (j *jobs) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.on, goroutine())
}

// current is the job of the goroutine that asks; passOver if it has none.
func (j *jobs) current() job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.on[goroutine()]
}

// goroutine is the number of the goroutine that asks, which stands at the beginning of its trace: "goroutine 17 [".
func goroutine() uint64 {
	var buf [64]byte
	head := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(head, []byte(" "))
	n, _ := strconv.ParseUint(string(number), 10, 64) // 0, which no goroutine has, if traces ever look otherwise
	return n
}

// jobOf says what a merge does with values.
func jobOf(info *pebble.CompactionInfo) job {
	if len(info.Input) == 0 || info.Input[0].Level != 0 {
		return passOver
	}
	if info.Output.Level == 0 {
		return keepThem
	}
	return takeApart
}

// valuePolicy says what the flush or merge on this goroutine does with values, and when files of values are rewritten for the
// space of those that are gone.
func (s *Store) valuePolicy() pebble.ValueSeparationPolicy {
	p := pebble.ValueSeparationPolicy{
		Enabled: true, MinimumSize: layout.InlineMax, MaxBlobReferenceDepth: depthMost,
		RewriteMinimumAge: 10 * time.Second, TargetGarbageRatio: 0.3,
	}
	damaged := s.valuesDamaged.Load()
	switch what := s.jobs.current(); {
	case what == keepThem:
		p.Enabled = false
	case what == takeApart && !damaged:
		p.MaxBlobReferenceDepth = -1 // whatever the tables that go in refer to is more
	}
	if damaged {
		p.TargetGarbageRatio = 1 // never
	}
	return p
}
