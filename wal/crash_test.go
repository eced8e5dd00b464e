package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// After a crash of the machine at any point, with any part of the unsynced pages and names kept, the
// log opens, holds a prefix of whole entries, and everything that was promised as synced.
func TestCrashKeepsWhatWasSynced(t *testing.T) {
	crashes := 1500
	if testing.Short() {
		crashes = 200
	}
	for seed := range crashes {
		if err := crashRound(t, uint64(seed)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func crashRound(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := newFS(t, vfs.NewCrashableMem())
	policy := []Policy{Always, EverySec, No}[rng.IntN(3)]
	m := &model{}
	from := fresh('a')
	var promised, applied int64
	ids := []segmentOfHistory{{0, 'a'}}
	for life := range 1 + rng.IntN(3) {
		o := testOptions(fs)
		o.SegmentBytes, o.Policy, o.KeepBytes = minSegmentBytes, policy, 10_000
		l, rep, err := Open(o, from)
		if err != nil {
			return fmt.Errorf("life %d: open: %w", life, err)
		}
		if rep.End < promised {
			return fmt.Errorf("life %d: holds up to %d, %d was synced", life, rep.End, promised)
		}
		if err := m.check(l); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		m.cut(rep.End)
		for range rng.IntN(60) {
			if rng.IntN(20) == 0 {
				appendLong(t, l, m, rng)
				continue
			}
			end := m.append(t, l, entry(rng, 1+rng.IntN(600)))
			if rng.IntN(4) == 0 {
				continue
			}
			must(t, l.WaitDurable(end))
			if rng.IntN(10) == 0 {
				l.Tick()
			}
			if rng.IntN(100) == 0 {
				a := l.History()
				ids = append(ids, segmentOfHistory{l.End(), a.ID[0] + 1})
				must(t, l.SetHistory(history(a.ID[0]+1, &a, l.End())))
			}
		}
		// An entry whose end is not synced was not promised, though its beginning may be.
		for _, end := range m.ends {
			if end <= l.Synced() {
				promised = max(promised, end)
			}
		}
		if rng.IntN(2) == 0 {
			applied = promised
			must(t, l.Trim(applied)) // and some more into recycled files
			for range rng.IntN(30) {
				must(t, l.WaitDurable(m.append(t, l, entry(rng, 1+rng.IntN(600)))))
			}
		}
		cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 25, 50, 75, 100}[rng.IntN(5)], RNG: rng}
		fs = fs.CrashClone(cfg)
		abandon(l)
		from = OpenPoint{Applied: applied, Floor: -1}
		for _, h := range ids {
			if h.start <= applied {
				from.History = history(h.letter, nil, 0)
			}
		}
		if promised > 0 && rng.IntN(2) == 0 {
			from.Floor = promised
		}
	}
	return nil
}

// appendLong lends the log an entry, or lays it ahead, and takes half of them back; the others are as the crash finds them.
func appendLong(t *testing.T, l *Log, m *model, rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		m.appendLaid(t, l, rng, entry(rng, 40_000))
		return
	}
	x := m.appendLent(t, l, rng, entry(rng, 10_000))
	if rng.IntN(2) == 0 {
		x.takeBack(l)
	}
}

// segmentOfHistory is where a history begins.
type segmentOfHistory struct {
	start  int64
	letter byte
}

// cut forgets what lies behind offset.
func (m *model) cut(offset int64) {
	m.bytes = m.bytes[:offset-m.base]
	for len(m.ends) > 0 && m.ends[len(m.ends)-1] > offset {
		m.ends = m.ends[:len(m.ends)-1]
	}
}

// After a sync that fails nothing is acknowledged, the file is not synced again, the owner is told once,
// and what was acknowledged before is there.
func TestFailedSyncIsFinal(t *testing.T) {
	for nth := int32(0); nth < 60; nth++ {
		mem := newFS(t, vfs.NewCrashableMem())
		fault := &nthSync{nth: nth}
		o := testOptions(errorfs.Wrap(mem, fault))
		o.Policy, o.SegmentBytes = Always, minSegmentBytes
		var told atomic.Int32
		o.OnFailure = func(error) { told.Add(1) }
		l, _, err := Open(o, fresh('a'))
		if err != nil {
			continue // the failure met Open itself
		}
		m := &model{}
		rng := rand.New(rand.NewPCG(uint64(nth), 4))
		var acked int64
		for range 100 {
			end := m.append(t, l, entry(rng, 700))
			before := l.Failed()
			err := l.WaitDurable(end)
			if before != nil && err == nil || err != nil && l.Failed() == nil {
				t.Fatalf("sync %d: wait %v, failure %v, before %v", nth, err, l.Failed(), before)
			}
			if err == nil {
				acked = end
			}
		}
		if l.Failed() != nil {
			var f *FailedError
			if err := l.Reserve(1); !errors.As(err, &f) || !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("sync %d: reserve: %v", nth, err)
			}
			if told.Load() != 1 || fault.after != 0 {
				t.Fatalf("sync %d: told %d times, %d syncs after the failure", nth, told.Load(), fault.after)
			}
			if err := l.Close(); !errors.As(err, &f) {
				t.Fatalf("sync %d: close: %v", nth, err)
			}
		} else {
			must(t, l.Close())
		}
		o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		o.OnFailure = nil
		l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: acked})
		if rep.End < acked {
			t.Fatalf("sync %d: holds %d, acknowledged %d", nth, rep.End, acked)
		}
		must(t, m.check(l))
		must(t, l.Close())
	}
}

// nthSync fails the nth sync of any file, in whichever goroutine.
type nthSync struct {
	nth   int32
	mu    sync.Mutex
	n     int32
	path  string // that failed
	after int    // syncs of the failed segment since
}

func (f *nthSync) String() string { return "nth sync" }

func (f *nthSync) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if op.Path == f.path && strings.HasSuffix(f.path, segmentSuffix) {
		f.after++
	}
	if f.n++; f.n-1 != f.nth {
		return nil
	}
	f.path = op.Path
	return errorfs.ErrInjected
}

// A failed write is as final.
func TestFailedWriteIsFinal(t *testing.T) {
	mem := newFS(t, vfs.NewMem())
	writes := 0
	o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileWriteAt {
			return nil
		}
		if writes++; writes == 5 {
			return errorfs.ErrInjected
		}
		return nil
	})))
	l, _ := mustOpen(t, o, fresh('a'))
	acked := 0
	for i := range 10 {
		err := l.Wait(l.Append([]byte("entry")), LevelKernel)
		if err == nil {
			acked++
		}
		if (err == nil) != (i < 3) { // the header was the first write
			t.Fatalf("write %d: %v", i, err)
		}
	}
	r := &Reader{l: l}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("reader: %v", err)
	}
	if err := l.SetHistory(l.History()); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("set history: %v", err)
	}
	if err := l.Close(); !errors.Is(err, errorfs.ErrInjected) || acked != 3 {
		t.Errorf("close: %v, acknowledged %d", err, acked)
	}
}
