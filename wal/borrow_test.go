package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// lent is an entry that the log was given in parts.
type lent struct {
	parts [][]byte
	end   int64
}

// lend appends an entry in a few parts, of which some are empty.
func lend(l *Log, rng *rand.Rand, e []byte) (lent, bool) {
	own, parts := bytes.Clone(e), [][]byte{}
	for len(own) > 0 {
		n := min(len(own), rng.IntN(2+len(e)/2))
		parts, own = append(parts, own[:n:n]), own[n:]
	}
	end, borrows := l.AppendParts(parts...)
	return lent{parts, end}, borrows
}

// takeBack waits as a caller has to, and uses the memory for something else.
func (x lent) takeBack(l *Log) {
	l.AwaitTaken(x.end)
	for _, p := range x.parts {
		clear(p)
	}
}

// appendLent is append for an entry in parts; the caller takes it back.
func (m *model) appendLent(t testing.TB, l *Log, rng *rand.Rand, e []byte) lent {
	t.Helper()
	m.add(e)
	x, _ := lend(l, rng, e)
	if x.end != m.end() {
		t.Fatalf("AppendParts returned %d, want %d", x.end, m.end())
	}
	return x
}

// Many append entries of all sizes at once and use the memory of borrowed ones again as soon as they may. The stream is
// what they appended, in the order of the offsets they were given, also read while it is written.
func TestBorrowedEntriesKeepTheirPlace(t *testing.T) {
	for _, policy := range []Policy{EverySec, Always, No} {
		o := testOptions(newFS(t, vfs.NewMem()))
		o.Policy = policy
		l, _ := mustOpen(t, o, fresh('a'))
		var mu sync.Mutex
		var all []placed
		var writers sync.WaitGroup
		for g := range 4 {
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), uint64(policy)))
				for range 60 {
					got := appendSome(t, l, rng)
					mu.Lock()
					all = append(all, got)
					mu.Unlock()
				}
			})
		}
		stop, seen := make(chan struct{}), make(chan []byte)
		go watch(t, l, stop, seen)
		writers.Wait()
		must(t, l.SyncAll())
		close(stop)
		slices.SortFunc(all, func(a, b placed) int { return int(a.end - b.end) })
		m := &model{}
		for _, p := range all {
			if m.add(p.bytes); m.end() != p.end {
				t.Fatalf("an entry of %d bytes ends at %d, want %d", len(p.bytes), p.end, m.end())
			}
		}
		if got := <-seen; !bytes.Equal(got, m.bytes) {
			t.Errorf("policy %d: a reader saw other bytes than were appended", policy)
		}
		must(t, m.check(l))
		must(t, l.Close())
		l, _ = mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: m.end()})
		must(t, m.check(l))
		must(t, l.Close())
	}
}

// placed is an entry and where it ends.
type placed struct {
	bytes []byte
	end   int64
}

// appendSome appends one entry in one of the ways there are.
func appendSome(t *testing.T, l *Log, rng *rand.Rand) placed {
	e := entry(rng, []int{1 + rng.IntN(300), 20_000, 100_000}[rng.IntN(3)])
	if rng.IntN(3) == 0 {
		end := l.Append(e)
		if rng.IntN(2) == 0 {
			must(t, l.WaitDurable(end))
		}
		return placed{e, end}
	}
	if rng.IntN(2) == 0 && len(e) > 10_000 {
		x := lay(t, l, rng, e)
		x.takeBack(l)
		return placed{e, x.end}
	}
	x, borrows := lend(l, rng, e)
	if borrows != (len(e) >= l.buf.borrowFrom) {
		t.Errorf("entry of %d bytes: borrowed %v", len(e), borrows)
	}
	x.takeBack(l)
	return placed{e, x.end}
}

// watch reads the log as it grows and, told to stop, to its end.
func watch(t *testing.T, l *Log, stop chan struct{}, seen chan []byte) {
	var out []byte
	defer func() { seen <- out }()
	r, err := l.NewReader(0)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	p := make([]byte, 7000)
	for {
		n, err := r.Read(p)
		if err != nil {
			t.Error(err)
			return
		}
		out = append(out, p[:n]...)
		if n > 0 {
			continue
		}
		if err := r.Wait(stop); errors.Is(err, ErrCanceled) && r.Offset() == l.End() {
			return
		} else if err != nil && !errors.Is(err, ErrCanceled) {
			t.Error(err)
			return
		}
	}
}

// Who waits for what was appended before a huge entry does not wait for that.
func TestNobodyWaitsForABorrowedEntryBehind(t *testing.T) {
	l, _ := mustOpen(t, testOptions(newFS(t, vfs.NewMem())), fresh('a'))
	small := l.Append([]byte("small"))
	end, borrows := l.AppendParts(make([]byte, 90_000), make([]byte, 90_000))
	last := l.Append([]byte("last"))
	must(t, l.Wait(small, LevelKernel))
	if !borrows || l.Written() != small {
		t.Fatalf("borrowed %v, written %d, want %d", borrows, l.Written(), small)
	}
	l.AwaitTaken(end)
	if l.Written() != end {
		t.Fatalf("written %d, want %d", l.Written(), end)
	}
	must(t, l.Wait(last, LevelSynced))
	must(t, l.Close())
}

// stretchEnds is what ends a stretch of the log: a change of history, a cut and a new beginning.
func stretchEnds() map[string]func(l *Log, m *model) error {
	return map[string]func(l *Log, m *model) error{
		"history": func(l *Log, m *model) error { a := l.History(); return l.SetHistory(history('b', &a, m.end())) },
		"cut":     func(l *Log, m *model) error { end := m.ends[0]; m.cut(end); return l.CutTo(end) },
		"reset": func(l *Log, m *model) error {
			*m = model{base: 500}
			return errors.Join(l.Reset(history('c', nil, 0), 500), l.Trim(500))
		},
	}
}

// What ends a stretch of the log writes out first what it has borrowed.
func TestBorrowedBeforeACut(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	acts := stretchEnds()
	acts["tick"] = func(l *Log, _ *model) error { l.Tick(); return nil }
	for name, act := range acts {
		l, _ := mustOpen(t, testOptions(newFS(t, vfs.NewMem())), fresh('a'))
		m := &model{}
		m.append(t, l, entry(rng, 70))
		x := m.appendLent(t, l, rng, entry(rng, 120_000))
		must(t, act(l, m))
		x.takeBack(l)
		y := m.appendLent(t, l, rng, entry(rng, 60_000))
		y.takeBack(l)
		if err := m.check(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		z := m.appendLent(t, l, rng, entry(rng, 60_000))
		must(t, l.Close())
		z.takeBack(l)
	}
}

// A log that fails in the midst of a borrowed entry, by its own write or by a sync of somebody else, gives the memory back,
// and nothing that was put there afterwards reaches the file.
func TestFailureGivesBorrowedBack(t *testing.T) {
	failed := 0
	for round := range 60 {
		mem := newFS(t, vfs.NewMem())
		fault := &nthFault{nth: 3 + round/2, syncs: round%2 == 0}
		o := testOptions(errorfs.Wrap(mem, fault))
		o.Policy = Always
		l, _, err := Open(o, fresh('a'))
		if err != nil {
			continue // the failure met Open itself
		}
		rng := rand.New(rand.NewPCG(uint64(round), 9))
		m, syncer := &model{}, sync.WaitGroup{}
		for l.Failed() == nil && len(m.ends) < 40 {
			small := m.append(t, l, entry(rng, 50))
			x := m.appendLent(t, l, rng, entry(rng, 150_000))
			syncer.Go(func() { _ = l.Wait(small, LevelSynced) })
			x.takeBack(l)
		}
		syncer.Wait()
		if l.Failed() != nil { // else the fault met the file of a segment to come, which costs speed only
			failed++
		}
		m.appendLent(t, l, rng, entry(rng, 150_000)).takeBack(l)
		_ = l.Close()
		o.FS = mem
		l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: -1})
		if err := m.check(l); err != nil {
			t.Errorf("round %d: %v, of %+v", round, err, rep)
		}
		must(t, l.Close())
	}
	if failed < 30 {
		t.Errorf("the log failed in %d rounds only", failed)
	}
}

// While somebody still writes a borrowed entry of a log that a sync has failed meanwhile, its memory is not given back.
func TestBorrowedIsKeptWhileItIsWritten(t *testing.T) {
	hold := &heldDisk{syncBegan: make(chan bool), syncEnds: make(chan bool), writeBegan: make(chan bool), writeEnds: make(chan bool)}
	l, _ := mustOpen(t, testOptions(errorfs.Wrap(newFS(t, vfs.NewMem()), hold)), fresh('a'))
	small := l.Append([]byte("small"))
	must(t, l.Wait(small, LevelKernel))
	hold.armed.Store(true)
	var others sync.WaitGroup
	others.Go(func() { _ = l.Wait(small, LevelSynced) })
	<-hold.syncBegan
	end, _ := l.AppendParts(make([]byte, 100_000))
	others.Go(func() { _ = l.Wait(end, LevelKernel) })
	<-hold.writeBegan
	hold.syncEnds <- true
	for l.Failed() == nil {
		runtime.Gosched()
	}
	back := make(chan bool)
	go func() { l.AwaitTaken(end); close(back) }()
	for waits := false; !waits; runtime.Gosched() {
		select {
		case <-back:
			t.Fatal("the memory was given back while the entry was being written")
		default:
		}
		l.mu.Lock()
		waits = l.writing.next != nil
		l.mu.Unlock()
	}
	hold.writeEnds <- true
	<-back
	others.Wait()
	if hold.writes.Load() != 1 || l.Written() == end {
		t.Errorf("%d writes of the entry after the failure, written %d of %d", hold.writes.Load()-1, l.Written(), end)
	}
	_ = l.Close()
}

// heldDisk, once armed, holds the first sync, which it then fails, and the first write.
type heldDisk struct {
	armed                                      atomic.Bool
	syncs, writes                              atomic.Int32
	syncBegan, syncEnds, writeBegan, writeEnds chan bool
}

func (f *heldDisk) String() string { return "held disk" }

func (f *heldDisk) MaybeError(op errorfs.Op) error {
	switch {
	case !f.armed.Load():
	case op.Kind == errorfs.OpFileWriteAt:
		if f.writes.Add(1) == 1 {
			f.writeBegan <- true
			<-f.writeEnds
		}
	case op.Kind == errorfs.OpFileSyncData && f.syncs.Add(1) == 1:
		f.syncBegan <- true
		<-f.syncEnds
		return errorfs.ErrInjected
	}
	return nil
}

// nthFault fails the nth sync or the nth write at a place, and no other.
type nthFault struct {
	nth   int
	syncs bool
	mu    sync.Mutex
	n     int
}

func (f *nthFault) String() string { return fmt.Sprintf("fault %d, syncs %v", f.nth, f.syncs) }

func (f *nthFault) MaybeError(op errorfs.Op) error {
	if f.syncs != (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) || !f.syncs && op.Kind != errorfs.OpFileWriteAt {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n != f.nth {
		return nil
	}
	return errorfs.ErrInjected
}

// The lender hears of all bytes of a borrowed entry, in order, as they are copied.
func TestLenderHearsWhatIsPassed(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	var mu sync.Mutex
	var passed []byte
	o.Passed = func(part []byte) {
		mu.Lock()
		defer mu.Unlock()
		passed = append(passed, part...)
	}
	l, _ := mustOpen(t, o, fresh('a'))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		passed = passed[:0]
		e := entry(rng, 100_000+rng.IntN(100_000))
		x, borrows := lend(l, rng, e)
		if !borrows {
			t.Fatalf("entry of %d bytes was not borrowed", len(e))
		}
		x.takeBack(l)
		if mu.Lock(); !bytes.Equal(passed, e) {
			t.Errorf("%d bytes were passed of %d, or others", len(passed), len(e))
		}
		mu.Unlock()
	}
	must(t, l.Close())
}
