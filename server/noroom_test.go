package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/testkit"
	"cairn/replication"
)

// A replica whose disk is nearly full, or has no room for two sets of data.

// roomFS says of the disk what it is told to.
type roomFS struct {
	vfs.FS
	full func() bool
}

func (f roomFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	u := vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: 1 << 39}
	if f.full() {
		u.AvailBytes = 0
	}
	u.UsedBytes = u.TotalBytes - u.AvailBytes
	return u, nil
}

// A replica whose gate closes stops at the next entry that needs room, says so, is nobody's candidate, and goes on by
// itself. Its primary goes on all the time, and keeps the link.
func TestGateOfAReplica(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	p := startServer(t)
	n := newServer(t)
	n.fs = roomFS{vfs.Default, full.Load}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c, r := p.dial(t), n.dial(t)
	c.Do("SET", "gone", "x")
	follows(t, r, p.Port)
	inStep(t, c, r)
	if up, age := n.role.link.Load().clusterView(); !up || age < 0 {
		t.Errorf("in step: up %v, age %v", up, age)
	}
	full.Store(true)
	testkit.Eventually(t, 10*time.Second, func() bool { return n.store.Gate() != nil }, "the gate closes")
	at := n.wal.End()
	c.Do("DEL", "gone") // needs no room
	testkit.Eventually(t, 10*time.Second, func() bool { return r.Do("EXISTS", "gone").Raw == ":0\r\n" }, "a deletion is executed")
	const more = 32
	for i := range more {
		if got := c.Do("SET", fmt.Sprint("k", i), strings.Repeat("v", 1<<20)).Raw; got != "+OK\r\n" {
			t.Fatalf("the primary answers %q", got)
		}
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return strings.Contains(n.log.String(), "the stream of the primary waits") }, "it is said")
	if got := n.wal.End(); got > at+1000 {
		t.Errorf("%d bytes of the stream were taken with the gate closed", got-at)
	}
	if in := n.role.link.Load().Status().BytesIn; in > more/2<<20 {
		t.Errorf("%d bytes were read of a stream that waits", in)
	}
	if up, age := n.role.link.Load().clusterView(); up || age >= 0 {
		t.Errorf("with the gate closed: up %v, age %v", up, age)
	}
	if got := infoField(t, c, "replication", "slave0"); !strings.Contains(got, "state=online") {
		t.Errorf("the primary shows %q", got)
	}
	full.Store(false)
	sameContent(t, c, r)
	if got := infoField(t, c, "stats", "sync_full"); got != "1" {
		t.Errorf("%s full syncs", got)
	}
}

// A disk without room for two sets loses the old one first; until the new one is there the node is nobody's candidate.
func TestNoRoomForTwoSets(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	n := newServer(t)
	var tight atomic.Bool
	n.fs = roomFS{vfs.Default, func() bool {
		return tight.Load() && n.opened.Load() && n.store.Keys() > 0
	}}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c, r := p.dial(t), n.dial(t)
	for i := range 6000 { // more than are looked at without asking for room
		c.Do("SET", fmt.Sprint("k", i), "new")
	}
	r.Do("SET", "own", "old")
	follows(t, r, p.Port)
	inStep(t, c, r)
	r.Do("REPLICAOF", "NO", "ONE")
	r.Do("SET", "own", "old")
	r.Do("SAVE") // the tables hold what is behind the fork: only a full sync helps
	tight.Store(true)
	follows(t, r, p.Port)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(n.log.String(), "the old data is dropped first")
	}, "the old data is dropped")
	testkit.Eventually(t, 20*time.Second, func() bool { return infoField(t, r, "replication", "master_link_status") == "up" }, "up again")
	tight.Store(false)
	sameContent(t, c, r)
	if got := r.Do("EXISTS", "own").Raw; got != ":0\r\n" {
		t.Errorf("own is still there: %q", got)
	}
}

// A power cut while the old data is dropped leaves it whole with its log, or an empty node that asks for everything and
// is nobody's candidate.
func TestPowerLossWithoutRoom(t *testing.T) {
	const old, fresh = 300, 6000
	id := strings.Repeat("ab", 20)
	data := primaryData(t, fresh)
	for seed := range uint64(2) {
		mem := vfs.NewCrashableMem()
		disk := &cutPointFS{FS: mem}
		var full atomic.Bool
		s, err := openOn(t, roomFS{disk, full.Load}, "always", "boot-0")
		if err != nil {
			t.Fatal(err)
		}
		x := newSession(s)
		for i := range old {
			x.do("SET", fmt.Sprint("k", i), fmt.Sprint("old", i))
		}
		end := s.wal.End()
		a := newApplier(s)
		rnd := rand.New(rand.NewPCG(seed, 23))
		var clones []*vfs.MemFS
		disk.set(func() {
			if rnd.IntN(3) == 0 {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(5) * 25, RNG: rnd}))
			}
		})
		full.Store(true)
		s.store.LookAtDisk()
		err = a.Load(bytes.NewReader(data), id, 10)
		disk.set(nil)
		if !errors.Is(err, replication.ErrAgain) || !a.dropped.Load() {
			t.Fatalf("load without room: %v, dropped: %v", err, a.dropped.Load())
		}
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
		// Another client: what the first one has seen is not in the log any more, so its connection ends.
		if got := newSession(s).do("DBSIZE"); got != ":0\r\n" {
			t.Errorf("DBSIZE %q after the old data was dropped", got)
		}
		full.Store(false)
		s.store.LookAtDisk()
		if err := a.Load(bytes.NewReader(data), id, 10); err != nil || a.dropped.Load() {
			t.Errorf("load with room: %v, dropped: %v", err, a.dropped.Load())
		}
		a.close()
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		seen := map[bool]int{}
		for i, clone := range clones {
			seen[checkDropCut(t, clone, old, end)]++
			if t.Failed() {
				t.Fatalf("seed %d, cut %d of %d", seed, i, len(clones))
			}
		}
		if seen[false] == 0 || seen[true] == 0 {
			t.Errorf("seed %d: cuts left old data %d times, none %d times", seed, seen[false], seen[true])
		}
	}
}

func checkDropCut(t *testing.T, fs vfs.FS, old int, end int64) (empty bool) {
	t.Helper()
	s, err := openOn(t, fs, "always", "boot-1")
	if err != nil {
		t.Error(err)
		return false
	}
	x := newSession(s)
	a := newApplier(s)
	size := x.do("DBSIZE")
	id, at := a.Position()
	switch size {
	case ":0\r\n":
		empty = true
		if id != "" || at != 0 {
			t.Errorf("an empty node stands at %d of %q", at, id)
		}
	case fmt.Sprintf(":%d\r\n", old):
		if at != end || bulk(x.do("GET", "k7")) != "old7" {
			t.Errorf("the old data stands at %d, want %d", at, end)
		}
	default:
		t.Errorf("DBSIZE %q", size)
	}
	// Its link, which has not been up in this life, makes no candidate of it.
	l := &primaryLink{Replica: replication.NewReplica(replication.Options{}), apply: a}
	if up, age := l.clusterView(); up || age >= 0 {
		t.Errorf("up %v, age %v", up, age)
	}
	a.close()
	if err := s.close(); err != nil {
		t.Error(err)
	}
	return empty
}

// brimFS has no room for a table from the moment it is told, and says so of the disk when it is told that, too: somebody fills
// a disk faster than anybody looks at it.
type brimFS struct {
	roomFS
	brim *atomic.Bool
}

func (f brimFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.brim.Load() && (strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")) {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	return f.FS.Create(name, category)
}

// A write that waits for the applier when a full disk is noticed is refused like those behind it, and nobody's reply is late.
func TestDiskFilledBetweenLooks(t *testing.T) {
	t.Parallel()
	var brim, seen atomic.Bool
	n := newServer(t)
	n.fs = brimFS{roomFS{vfs.Default, seen.Load}, &brim}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c, d := n.dial(t), n.dial(t)
	value := strings.Repeat("v", 64<<10)
	c.Do("SET", "k", value)
	brim.Store(true)
	var taken atomic.Int64
	refusal := make(chan string, 1)
	go func() { // ends with the first refusal, or with the connection
		for {
			got := c.Do("SET", fmt.Sprint("k", taken.Load()), value).Raw
			if got != "+OK\r\n" {
				refusal <- got
				return
			}
			taken.Add(1)
		}
	}()
	var before int64
	testkit.Eventually(t, time.Minute, func() bool {
		now := taken.Load()
		stands := now == before && strings.Contains(n.log.String(), "background work of the store failed")
		before = now
		return stands
	}, "the applier waits for a table, and the writer for the applier")
	seen.Store(true)
	const want = "-MISCONF disk is nearly full: writes are refused until space is free again; deletions go on. See disk-reserve\r\n"
	if got := <-refusal; got != want {
		t.Errorf("the write that waited: %q, want %q", got, want)
	}
	if got := d.Do("SET", "other", value).Raw; got != want {
		t.Errorf("a write behind it: %q, want %q", got, want)
	}
	if got := d.Do("GET", "k").Raw; !strings.HasSuffix(got, value+"\r\n") {
		t.Errorf("a read: %d bytes", len(got))
	}
	brim.Store(false)
	seen.Store(false)
	testkit.Eventually(t, time.Minute, func() bool { return d.Do("SET", "other", value).Raw == "+OK\r\n" }, "writes are taken again")
	for i := range taken.Load() {
		if got := d.Do("GET", fmt.Sprint("k", i)).Raw; !strings.HasSuffix(got, value+"\r\n") {
			t.Fatalf("k%d of %d: %d bytes", i, taken.Load(), len(got))
		}
	}
}
