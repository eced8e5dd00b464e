package wal

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A chain over three histories is followed from any of them, and read from its beginning.
func TestChainOverThreeHistories(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	l, _ := mustOpen(t, o, fresh('a'))
	m := &model{}
	rng := rand.New(rand.NewPCG(11, 11))
	starts := map[byte]int64{'a': 0}
	for _, next := range []byte{'b', 'c', 0} {
		for range 100 {
			m.append(t, l, entry(rng, 500))
		}
		if next == 0 {
			break
		}
		old := l.History()
		starts[next] = m.end()
		must(t, l.SetHistory(history(next, &old, l.End())))
		if l.History().ID[0] != next || l.History().ID2 != old.ID || l.Synced() != m.end() {
			t.Fatalf("history after the change: %+v, synced %d", l.History(), l.Synced())
		}
	}
	must(t, l.Close())
	for letter, start := range starts {
		l, rep := mustOpen(t, o, OpenPoint{History: history(letter, nil, 0), Applied: start, Floor: m.end()})
		if rep.History.ID[0] != 'c' || rep.First != 0 || rep.End != m.end() || rep.TailLost {
			t.Fatalf("from history %c: %+v", letter, rep)
		}
		must(t, m.check(l))
		must(t, l.Close())
	}
	// A history that does not continue the present one is no history of this log.
	l, _ = mustOpen(t, o, OpenPoint{History: history('c', nil, 0), Applied: m.end(), Floor: -1})
	a := history('a', nil, 0)
	for _, h := range []History{history('x', nil, 0), history('x', &a, m.end()), func() History { c := l.History(); return history('x', &c, m.end()-1) }()} {
		var bad *HistoryError
		if err := l.SetHistory(h); !errors.As(err, &bad) {
			t.Errorf("SetHistory(%c, second offset %d): %v", h.ID[0], h.Offset2, err)
		}
	}
	must(t, m.check(l))
	must(t, l.Close())
}

// A cut at any entry holds after restarts, gives the history of the last byte kept, and readers from
// before it are told.
func TestCutTo(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 12))
		fs := newFS(t, vfs.NewMem())
		o := testOptions(fs)
		l, _ := mustOpen(t, o, fresh('a'))
		m := &model{}
		var fork int64
		for i := range 200 {
			m.append(t, l, entry(rng, 1+rng.IntN(600)))
			if i == 120 {
				fork = m.end()
				a := l.History()
				must(t, l.SetHistory(history('b', &a, fork)))
			}
		}
		r, err := l.NewReader(0)
		must(t, err)
		for range 3 {
			to := m.ends[rng.IntN(len(m.ends))]
			wasEnd := to == m.end()
			must(t, l.CutTo(to))
			m.cut(to)
			if l.End() != to || l.Synced() != to {
				t.Fatalf("seed %d: end %d, synced %d after the cut to %d", seed, l.End(), l.Synced(), to)
			}
			if want := map[bool]byte{true: 'a', false: 'b'}[to <= fork]; !wasEnd && l.History().ID[0] != want {
				t.Fatalf("seed %d: history %c after the cut to %d, the fork is at %d", seed, l.History().ID[0], to, fork)
			}
			if _, err := r.Read(make([]byte, 10)); !wasEnd && !errors.Is(err, ErrChanged) {
				t.Fatalf("seed %d: reader from before the cut: %v", seed, err)
			}
			must(t, m.check(l))
			for range rng.IntN(20) {
				must(t, l.WaitDurable(m.append(t, l, entry(rng, 1+rng.IntN(600)))))
			}
			must(t, m.check(l))
			if rng.IntN(2) == 0 {
				must(t, l.Close())
			} else {
				abandon(l)
			}
			var rep *OpenReport
			l, rep = mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: -1})
			if rep.End != m.end() && rep.End != l.Written() || rep.TailLost {
				t.Fatalf("seed %d: %+v, the model ends at %d", seed, rep, m.end())
			}
			m.cut(rep.End)
			must(t, m.check(l))
		}
		if err := l.CutTo(l.End() + 1); err == nil {
			t.Error("cut beyond the end")
		}
		must(t, l.Close())
	}
}

// A crash at each step of a change of history, a cut or a reset leaves the log before it or the log
// after it. Steps are counted by the file operations that change something.
func TestHistoryChangesAtEachCrashPoint(t *testing.T) {
	for _, op := range []string{"set", "cut", "reset"} {
		points := 0
		for stop := int32(0); ; stop++ {
			mem := newFS(t, vfs.NewCrashableMem())
			var mu sync.Mutex // the next segment is prepared beside
			armed := false
			var snaps []*vfs.MemFS
			n := int32(0)
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if armed && o.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					if n == stop {
						for _, keep := range []int{0, 50, 100} {
							snaps = append(snaps, mem.CrashClone(vfs.CrashCloneCfg{
								UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(uint64(stop), uint64(keep))),
							}))
						}
					}
					n++
				}
				return nil
			}))
			l, _ := mustOpen(t, testOptions(fs), fresh('a'))
			m := &model{}
			rng := rand.New(rand.NewPCG(13, 13))
			for range 60 {
				m.append(t, l, entry(rng, 300))
			}
			must(t, l.SyncAll())
			to := m.ends[30]
			arm := func(on bool) { mu.Lock(); armed = on; mu.Unlock() }
			arm(true)
			a := l.History()
			switch op {
			case "set":
				must(t, l.SetHistory(history('b', &a, l.End())))
			case "cut":
				must(t, l.CutTo(to))
			case "reset":
				must(t, l.Reset(history('z', nil, 0), 5000))
			}
			arm(false)
			snaps = append(snaps, mem.CrashClone(vfs.CrashCloneCfg{}))
			abandon(l)
			for i, snap := range snaps {
				done := i == len(snaps)-1
				checkAfterCrash(t, op, snap, m, to, done)
			}
			mu.Lock()
			over := n <= stop
			mu.Unlock()
			if over {
				break
			}
			points++
		}
		if points < 5 {
			t.Errorf("%s: only %d crash points", op, points)
		}
	}
}

func checkAfterCrash(t *testing.T, op string, snap *vfs.MemFS, m *model, to int64, done bool) {
	t.Helper()
	o := testOptions(snap)
	if op == "reset" {
		// The store still names the old history, or already the new one.
		if done {
			after := snap.CrashClone(vfs.CrashCloneCfg{})
			l, rep := mustOpen(t, testOptions(after), OpenPoint{History: history('z', nil, 0), Applied: 5000, Floor: -1})
			if rep.First != 5000 || rep.End != 5000 {
				t.Fatalf("reset: %+v", rep)
			}
			must(t, l.Trim(5000))
			must(t, l.Close())
		}
		l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: m.end()})
		if rep.End != m.end() {
			t.Fatalf("reset: the old chain %+v, want its end %d", rep, m.end())
		}
		must(t, m.check(l))
		must(t, l.Close())
		return
	}
	l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: -1})
	must(t, m.check(l))
	switch {
	case op == "set" && (rep.End != m.end() || done && rep.History.ID[0] != 'b'):
		t.Fatalf("set: %+v, want the end %d", rep, m.end())
	case op == "cut" && rep.End != to && (done || rep.End != m.end()):
		t.Fatalf("cut: %+v, want the end %d or before it %d", rep, to, m.end())
	}
	must(t, l.Close())
}

// After Reset the old chain's files stay until Trim.
func TestReset(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	l, _ := mustOpen(t, o, fresh('a'))
	must(t, l.WaitDurable(l.Append(make([]byte, 900))))
	pin, err := l.Pin(0)
	must(t, err)
	r, err := l.NewReader(0)
	must(t, err)
	must(t, l.Reset(history('z', nil, 0), 70))
	select {
	case <-pin.Lost():
	default:
		t.Error("the pin of the old chain lives on")
	}
	if err := r.Wait(nil); !errors.Is(err, ErrChanged) {
		t.Errorf("reader: %v", err)
	}
	m := &model{base: 70}
	m.append(t, l, []byte("after"))
	must(t, l.SyncAll())
	must(t, m.check(l))
	names, err := fs.List(testDir)
	must(t, err)
	must(t, l.Trim(75))
	left, err := fs.List(testDir)
	must(t, err)
	if len(names) != 2 || len(left) != 1 {
		t.Errorf("files %v, after Trim %v", names, left)
	}
	must(t, l.Close())
	l, rep := mustOpen(t, o, OpenPoint{History: history('z', nil, 0), Applied: 70, Floor: 75})
	if rep.End != 75 {
		t.Errorf("%+v", rep)
	}
	must(t, l.Close())
}
