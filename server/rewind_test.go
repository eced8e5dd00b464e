package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/replication"
)

// forkNode has n writes behind what its tables hold; ends are the log's ends after each.
func forkNode(t *testing.T, fs vfs.FS, n int) (s *Server, x *session, ends []int64) {
	t.Helper()
	s, err := openOn(t, fs, "always", "boot-0")
	if err != nil {
		t.Fatal(err)
	}
	x = newSession(s)
	for i := range 50 {
		x.do("SET", fmt.Sprint("base", i), strings.Repeat("v", i*40))
	}
	x.do("SAVE")
	for i := range n {
		if i%3 == 0 {
			x.do("HSET", "h", fmt.Sprint("f", i), "v")
		} else {
			x.do("SET", "n", fmt.Sprint(i))
		}
		ends = append(ends, s.wal.End())
	}
	return s, x, ends
}

// forkState is what the first i+1 writes leave, as text.
func forkState(x *session, i int) (got, want string) {
	n := i
	if i%3 == 0 {
		n = i - 1
	}
	got = fmt.Sprintf("%s %s %s", bulk(x.do("GET", "n")), strings.TrimSpace(x.do("HLEN", "h")), strings.TrimSpace(x.do("DBSIZE")))
	return got, fmt.Sprintf("%d :%d :%d", n, i/3+1, 52)
}

func TestRewind(t *testing.T) {
	s, x, ends := forkNode(t, vfs.NewMem(), 30)
	a := newApplier(s)
	defer func() {
		a.close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, bad := range []int64{ends[20] - 1, ends[29] + 1, 0} {
		if err := a.Rewind(bad); !errors.Is(err, replication.ErrCannotRewind) {
			t.Errorf("to %d: %v", bad, err)
		}
	}
	if got, want := forkState(x, 29); got != want {
		t.Errorf("after refusals %q, want %q", got, want)
	}
	for _, to := range []int{19, 19, 10} {
		if err := a.Rewind(ends[to]); err != nil {
			t.Fatal(err)
		}
		if got, want := forkState(x, to); got != want || s.wal.End() != ends[to] {
			t.Errorf("at %d: %q, want %q; the log ends at %d, want %d", to, got, want, s.wal.End(), ends[to])
		}
	}
	x.do("SET", "n", "goes on")
	x.do("SAVE")
	if err := a.Rewind(ends[10]); !errors.Is(err, replication.ErrCannotRewind) {
		t.Errorf("behind what the tables hold: %v", err)
	}
	if got := bulk(x.do("GET", "n")); got != "goes on" {
		t.Errorf("n is %q", got)
	}
}

// A power cut at any moment of going back leaves the node at its old end or at the fork, with all that belongs there.
func TestPowerLossInRewind(t *testing.T) {
	const writes, fork = 200, 120
	for seed := range uint64(3) {
		mem := vfs.NewCrashableMem()
		disk := &cutPointFS{FS: mem}
		s, _, ends := forkNode(t, disk, writes)
		rnd := rand.New(rand.NewPCG(seed, 19))
		var clones []*vfs.MemFS
		disk.set(func() {
			if rnd.IntN(2) == 0 {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(5) * 25, RNG: rnd}))
			}
		})
		a := newApplier(s)
		err := a.Rewind(ends[fork])
		disk.set(nil)
		if err != nil {
			t.Fatal(err)
		}
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
		a.close()
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		for i, clone := range clones {
			c, err := openOn(t, clone, "always", "boot-1")
			if err != nil {
				t.Fatalf("seed %d, cut %d of %d: %v", seed, i, len(clones), err)
			}
			at := writes - 1
			if c.wal.End() != ends[at] {
				at = fork
			}
			if got, want := forkState(newSession(c), at); got != want || c.wal.End() != ends[at] || i == len(clones)-1 && at != fork {
				t.Errorf("seed %d, cut %d of %d: %q, want %q; the log ends at %d, want %d", seed, i, len(clones), got, want, c.wal.End(), ends[at])
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Clients of a node that goes back read what was there before the fork or after it, never something older.
func TestReadsWhileRewinding(t *testing.T) {
	t.Parallel()
	n := startServer(t)
	c := n.dial(t)
	for i := range 500 {
		c.Do("SET", "n", fmt.Sprint(i))
	}
	at := n.wal.End()
	for i := range 500 {
		c.Do("SET", "n", fmt.Sprint(500+i))
	}
	n.publishRole(true)
	a := newApplier(n.Server)
	defer a.close()
	ended := make(chan error, 1)
	go func() { ended <- a.Rewind(at) }() // ends with the rewind
	r := n.dial(t)
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Do("GET", "n").Raw; got != "$3\r\n499\r\n" {
				t.Errorf("afterwards %q", got)
			}
			return
		case <-time.After(0):
		}
		if got := r.Do("GET", "n").Raw; got != "$3\r\n999\r\n" && got != "$3\r\n499\r\n" && !strings.HasPrefix(got, "-LOADING") {
			t.Fatalf("meanwhile %q", got)
		}
	}
}

// The cluster may change in every moment of going back: that is nothing to what was committed.
func TestRewindWhileTheClusterChanges(t *testing.T) {
	s, _, ends := forkNode(t, vfs.NewMem(), 400)
	a := newApplier(s)
	defer func() {
		a.close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				s.changeRouting(func(*engine.Routing) {})
			}
		}
	}()
	err := a.Rewind(ends[380])
	close(stop)
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	if got, want := forkState(newSession(s), 380); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
