package wal

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Entries of every size come back byte for byte, before and after a restart, also those longer than a
// block, a chunk and a segment.
func TestAppendAndReopen(t *testing.T) {
	for _, policy := range []Policy{EverySec, Always, No} {
		fs := newFS(t, vfs.NewMem())
		o := testOptions(fs)
		o.Policy = policy
		l, rep := mustOpen(t, o, fresh('a'))
		if rep.End != 0 || rep.TailLost {
			t.Fatalf("fresh log: %+v", rep)
		}
		rng := rand.New(rand.NewPCG(1, uint64(policy)))
		m := &model{}
		for i := range 400 {
			n := 1 + rng.IntN(300)
			switch {
			case i%50 == 0:
				n = 20_000 // longer than a block
			case i == 75 || i == 99:
				n = 90_000 // longer than a segment
			}
			e := entry(rng, n)
			end := m.append(t, l, e)
			if i%3 == 0 {
				must(t, l.WaitDurable(end))
			}
		}
		must(t, l.SyncAll())
		must(t, m.check(l))
		if s := l.Stats(); s.Segments < 5 || s.Synced != m.end() {
			t.Fatalf("stats: %+v", s)
		}
		must(t, l.Close())

		for range 3 {
			l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Applied: m.ends[200], Floor: m.end()})
			if rep.TailLost || rep.End != m.end() || rep.First != 0 {
				t.Fatalf("policy %d: report %+v, want end %d", policy, rep, m.end())
			}
			must(t, m.check(l))
			end := m.append(t, l, entry(rng, 77))
			must(t, l.WaitDurable(end))
			must(t, l.Close())
		}
	}
}

// AppendParts is Append of the pieces together.
func TestAppendParts(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	m := &model{}
	rng := rand.New(rand.NewPCG(2, 2))
	for _, sizes := range [][]int{{3, 4}, {0, 5, 0}, {4000, 4000}, {20_000, 1, 20_000}} {
		var parts [][]byte
		var whole []byte
		for _, n := range sizes {
			p := entry(rng, n)
			parts, whole = append(parts, p), append(whole, p...)
		}
		m.add(whole)
		if end, _ := l.AppendParts(parts...); end != m.end() {
			t.Fatalf("AppendParts returned %d, want %d", end, m.end())
		}
	}
	must(t, l.SyncAll())
	must(t, m.check(l))
	must(t, l.Close())
}

// A kill without Close loses nothing that the kernel had; restarts without writes add no files.
func TestKillAndRestart(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	m := &model{}
	rng := rand.New(rand.NewPCG(3, 3))
	from := fresh('a')
	for range 20 {
		l, rep := mustOpen(t, o, from)
		if rep.TailLost || rep.End != m.end() {
			t.Fatalf("report %+v, want end %d", rep, m.end())
		}
		must(t, m.check(l))
		for range 5 {
			end := m.append(t, l, entry(rng, 100))
			must(t, l.Wait(end, LevelKernel))
		}
		abandon(l)
		from = OpenPoint{History: history('a', nil, 0), Applied: m.ends[len(m.ends)/2], Floor: -1}
	}
	before, err := fs.List(testDir)
	must(t, err)
	for range 5 {
		l, _ := mustOpen(t, o, from)
		abandon(l)
	}
	after, err := fs.List(testDir)
	must(t, err)
	if len(after) > len(before)+1 {
		t.Fatalf("%d files after restarts without writes, %d before", len(after), len(before))
	}
}

// abandon ends a log's goroutines and nothing else, as a kill would.
func abandon(l *Log) {
	l.mu.Lock()
	l.closed = true
	l.wakeReaders()
	l.mu.Unlock()
	close(l.quit)
	l.done.Wait()
}

// The store's point must lie in the log.
func TestStartPoint(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	from := fresh('a')
	from.Applied = 1000
	l, _ := mustOpen(t, o, from)
	end := l.Append(make([]byte, 500))
	must(t, l.WaitDurable(end))
	must(t, l.Close())
	for _, c := range []struct {
		letter  byte
		applied int64
		ok      bool
	}{{'a', 1000, true}, {'a', 1500, true}, {'a', 999, false}, {'a', 1501, false}, {'b', 1200, false}} {
		l, _, err := Open(o, OpenPoint{History: history(c.letter, nil, 0), Applied: c.applied, Floor: -1})
		var start *StartError
		if c.ok != (err == nil) || !c.ok && !errors.As(err, &start) {
			t.Errorf("history %c, applied %d: error %v", c.letter, c.applied, err)
		}
		if l != nil {
			must(t, l.Close())
		}
	}
	// A floor beyond the end is proof of loss.
	_, _, err := Open(o, OpenPoint{History: history('a', nil, 0), Applied: 1200, Floor: 1501})
	var damage *DamageError
	if !errors.As(err, &damage) || damage.Offset != 1500 || damage.Proven != 1501 {
		t.Errorf("floor 1501: %v", err)
	}
	// A new store starts a chain of its own; the old files go with the first Trim.
	l, rep := mustOpen(t, o, fresh('b'))
	if rep.First != 0 || rep.End != 0 {
		t.Errorf("fresh: %+v", rep)
	}
	must(t, l.Trim(0))
	names, err := fs.List(testDir)
	must(t, err)
	if len(names) != 1 {
		t.Errorf("files after trim: %v", names)
	}
	must(t, l.Close())
}

// Waiting for bytes nobody appended is a mistake and must not hang.
func TestWaitAhead(t *testing.T) {
	l, _ := mustOpen(t, testOptions(newFS(t, vfs.NewMem())), fresh('a'))
	end := l.Append([]byte("x"))
	for _, level := range []Level{LevelKernel, LevelSynced} {
		if err := l.Wait(end+1, level); !errors.Is(err, ErrAhead) {
			t.Errorf("level %d: %v", level, err)
		}
		must(t, l.Wait(end, level))
	}
	if _, err := l.NewReader(end + 1); !errors.Is(err, ErrAhead) {
		t.Errorf("reader: %v", err)
	}
	must(t, l.Close())
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

// Tick syncs with EverySec only, and hands over what nobody waits for.
func TestTick(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		synced int64
	}{{EverySec, 3}, {No, 0}, {Always, 0}} {
		o := testOptions(newFS(t, vfs.NewMem()))
		o.Policy = c.policy
		l, _ := mustOpen(t, o, fresh('a'))
		l.Append([]byte("abc"))
		l.Tick()
		if l.Written() != 3 || l.Synced() != c.synced {
			t.Errorf("policy %d: written %d, synced %d, want 3 and %d", c.policy, l.Written(), l.Synced(), c.synced)
		}
		must(t, l.Close())
		if l.Synced() != 3 {
			t.Errorf("policy %d: synced %d after Close", c.policy, l.Synced())
		}
	}
}

// With EverySec, Reserve waits for a sync once the last one is over two seconds old, and an idle time
// does not count.
func TestReserveWaitsForOldSync(t *testing.T) {
	now := int64(0)
	o := testOptions(newFS(t, vfs.NewMem()))
	o.Now = func() int64 { return now }
	l, _ := mustOpen(t, o, fresh('a'))
	now = 10_000
	l.Tick()
	must(t, l.WaitDurable(l.Append([]byte("abc"))))
	must(t, l.Reserve(1))
	if l.Synced() != 0 {
		t.Fatalf("synced %d right after the write", l.Synced())
	}
	now += reserveSyncAgeMs
	must(t, l.Reserve(1))
	if l.Synced() != 0 {
		t.Fatalf("synced %d at the age of two seconds", l.Synced())
	}
	now++
	must(t, l.Reserve(1))
	if l.Synced() != 3 {
		t.Fatalf("synced %d beyond two seconds, want 3", l.Synced())
	}
	must(t, l.Close())
}

// Reserve empties a full buffer.
func TestReserveWaitsForBuffer(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	o.BufferLimit = 1000
	l, _ := mustOpen(t, o, fresh('a'))
	must(t, l.Reserve(5000)) // more than the limit, into an empty buffer
	l.Append(make([]byte, 900))
	must(t, l.Reserve(100))
	if l.Written() != 0 {
		t.Fatalf("written %d below the limit", l.Written())
	}
	must(t, l.Reserve(101))
	if l.Written() != 900 {
		t.Fatalf("written %d, want 900", l.Written())
	}
	must(t, l.Close())
}

func TestOptionsValidate(t *testing.T) {
	_, _, err := Open(Options{FS: vfs.NewMem(), SegmentBytes: 100, Policy: 9, BufferLimit: -1}, fresh('a'))
	want := "log directory: empty, want a path\n" +
		"log segment size: 100 bytes is below the minimum of 16384 bytes\n" +
		"log policy: 9 is not between 0 and 2\n" +
		"log buffer limit: -1 bytes is below 0"
	if err == nil || err.Error() != want {
		t.Fatalf("got %v", err)
	}
}
