package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Trim leaves what the store, the replicas and pins need, and recycles files; recycled files never show
// their old blocks, and readers of trimmed offsets are told.
func TestTrimAndRecycle(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	o.SegmentBytes, o.KeepBytes = minSegmentBytes, 20_000
	l, _ := mustOpen(t, o, fresh('a'))
	m := &model{}
	rng := rand.New(rand.NewPCG(21, 21))
	old, err := l.NewReader(0)
	must(t, err)
	if _, err := old.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		must(t, l.WaitDurable(m.append(t, l, entry(rng, 1+rng.IntN(200)))))
		if i%10 == 9 {
			must(t, l.SyncAll())
			must(t, l.Trim(m.end()-10_000))
			first := l.First()
			if first > m.end()-20_000 && first > 0 || m.end()-first > 60_000 {
				t.Fatalf("first %d, end %d", first, m.end())
			}
		}
		if i%100 == 99 {
			must(t, m.check(l))
		}
	}
	var trimmed *TrimmedError
	if _, err := readAllOf(old); !errors.As(err, &trimmed) || trimmed.First != l.First() {
		t.Errorf("reader under trimming: %v", err)
	}
	if _, err := l.NewReader(l.First() - 1); !errors.As(err, &trimmed) {
		t.Errorf("new reader of a trimmed offset: %v", err)
	}
	if _, err := l.Pin(l.First() - 1); !errors.As(err, &trimmed) {
		t.Errorf("pin of a trimmed offset: %v", err)
	}
	applied := m.ends[len(m.ends)-20]
	abandon(l)
	l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Applied: applied, Floor: -1})
	if rep.End != m.end() || rep.TailLost || m.end()-rep.First < 20_000 {
		t.Errorf("%+v, want end %d", rep, m.end())
	}
	must(t, m.check(l))
	must(t, l.Close())
}

func readAllOf(r *Reader) ([]byte, error) {
	var out bytes.Buffer
	p := make([]byte, 1000)
	for {
		n, err := r.Read(p)
		out.Write(p[:n])
		if err != nil || n == 0 {
			return out.Bytes(), err
		}
	}
}

// Pins keep the log up to their limit; beyond it the lowest end first.
func TestPins(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	o.SegmentBytes, o.KeepBytes, o.PinLimit = minSegmentBytes, 1, 50_000
	l, _ := mustOpen(t, o, fresh('a'))
	add := func(n int) {
		for range n {
			l.Append(make([]byte, 1000))
			must(t, l.SyncAll())
		}
	}
	low, err := l.Pin(0)
	must(t, err)
	add(30)
	high, err := l.Pin(30_000)
	must(t, err)
	must(t, l.Trim(l.End()))
	if l.First() != 0 {
		t.Fatalf("first %d under a pin of 0", l.First())
	}
	low.Move(15_000)
	must(t, l.Trim(l.End()))
	if f := l.First(); f == 0 || f > 15_000 {
		t.Fatalf("first %d under a pin of 15000", f)
	}
	add(40) // the end is at 70000: the lower pin holds 55000
	must(t, l.Trim(l.End()))
	select {
	case <-low.Lost():
	default:
		t.Error("a pin of 55000 bytes lives with a limit of 50000")
	}
	select {
	case <-high.Lost():
		t.Error("a pin of 40000 bytes was ended with a limit of 50000")
	default:
	}
	if f := l.First(); f <= 15_000 || f > 30_000 {
		t.Fatalf("first %d under a pin of 30000", f)
	}
	low.Release()
	high.Release()
	high.Release()
	must(t, l.Trim(l.End()))
	if f := l.First(); f <= 30_000 {
		t.Fatalf("first %d without pins", f)
	}
	must(t, l.Close())
}

// Eight appenders with group waits and four readers that follow them, with a trimmer beside: every
// reader sees the same bytes, and no wait returns before its level.
func TestConcurrency(t *testing.T) {
	for _, policy := range []Policy{Always, EverySec} {
		o := testOptions(newFS(t, vfs.NewMem()))
		o.SegmentBytes, o.Policy, o.KeepBytes = 64<<10, policy, 1<<30
		l, _ := mustOpen(t, o, fresh('a'))
		var writers, readers sync.WaitGroup
		stop := make(chan struct{})
		streams := make([][]byte, 4)
		for i := range streams {
			readers.Go(func() {
				var err error
				if streams[i], err = follow(l, stop); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		for w := range 8 {
			writers.Go(func() {
				if err := appendMany(l, uint64(w)); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		writers.Wait()
		must(t, l.SyncAll())
		close(stop)
		readers.Wait()
		want, err := readFrom(l, 0)
		must(t, err)
		for i, s := range streams {
			if !bytes.Equal(s, want) {
				t.Errorf("policy %d: reader %d saw %d bytes, not the log's %d", policy, i, len(s), len(want))
			}
		}
		must(t, l.Close())
	}
}

// follow reads the log from its beginning until stop is closed and nothing is left.
func follow(l *Log, stop chan struct{}) (stream []byte, err error) {
	r, err := l.NewReader(0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := make([]byte, 4096)
	for {
		waited := r.Wait(stop)
		if waited != nil && !errors.Is(waited, ErrCanceled) {
			return stream, waited
		}
		n, err := r.Read(p)
		stream = append(stream, p[:n]...)
		if err != nil || n == 0 && waited != nil {
			return stream, err
		}
	}
}

// appendMany appends 300 entries and waits for every fifth.
func appendMany(l *Log, w uint64) error {
	rng := rand.New(rand.NewPCG(w, 31))
	for i := range 300 {
		e := entry(rng, 1+rng.IntN(300))
		if err := l.Reserve(len(e)); err != nil {
			return err
		}
		end := l.Append(e)
		if i%5 != 0 {
			continue
		}
		if err := l.WaitDurable(end); err != nil {
			return err
		}
		if l.Written() < end || l.Policy() == Always && l.Synced() < end {
			return fmt.Errorf("wait for %d returned at written %d, synced %d", end, l.Written(), l.Synced())
		}
		if w == 0 && i%50 == 0 {
			l.Tick()
			if err := l.Trim(0); err != nil {
				return err
			}
		}
	}
	return nil
}

// With Always a reader sees nothing that is not synced.
func TestReaderSeesSyncedOnly(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	o.Policy = Always
	l, _ := mustOpen(t, o, fresh('a'))
	must(t, l.Wait(l.Append([]byte("entry")), LevelKernel))
	if b, err := readFrom(l, 0); err != nil || len(b) != 0 {
		t.Errorf("read %q, %v before the sync", b, err)
	}
	must(t, l.SyncAll())
	if b, err := readFrom(l, 0); err != nil || string(b) != "entry" {
		t.Errorf("read %q, %v after the sync", b, err)
	}
	must(t, l.Close())
}
