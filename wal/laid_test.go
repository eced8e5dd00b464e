package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"cairn/wal/record"
)

// lay appends an entry of which a part or two were laid ahead, in front of a few bytes at least. Afterwards the memory of
// what was laid is used for something else.
func lay(t testing.TB, l *Log, rng *rand.Rand, e []byte) lent {
	t.Helper()
	own, parts, laid := bytes.Clone(e), [][]byte{}, []*Laid{}
	head, tail := rng.IntN(1+len(e)/4), 1+rng.IntN(1+len(e)/8)
	parts = append(parts, own[:head:head])
	own = own[head:]
	for len(own) > tail {
		n := min(len(own)-tail, 1+rng.IntN(len(e)))
		parts = append(parts, own[:n:n])
		own = own[n:]
		if rng.IntN(4) > 0 {
			d, err := l.Lay(parts[len(parts)-1], nil)
			if l.Failed() != nil {
				continue
			}
			must(t, err)
			laid = append(laid, d)
		}
	}
	parts = append(parts, own)
	end, borrows := l.AppendParts(parts...)
	for _, d := range laid {
		if d.part != nil {
			t.Error("an entry did not take what was laid of it")
		}
		d.Close()
	}
	if !borrows {
		for _, p := range parts {
			clear(p)
		}
	}
	return lent{parts, end}
}

func (m *model) appendLaid(t testing.TB, l *Log, rng *rand.Rand, e []byte) lent {
	t.Helper()
	m.add(e)
	x := lay(t, l, rng, e)
	if x.end != m.end() {
		t.Fatalf("AppendParts returned %d, want %d", x.end, m.end())
	}
	return x
}

// laidLeft counts files that were laid and are no segments.
func laidLeft(t testing.TB, fs vfs.FS) (n int) {
	t.Helper()
	names, err := fs.List(testDir)
	must(t, err)
	for _, name := range names {
		if isLaidName(name) {
			n++
		}
	}
	return n
}

// countingFS counts the bytes that are written, and those of them to places, which only the log's writer does.
type countingFS struct {
	vfs.FS
	written atomic.Int64
	places  atomic.Int64 // writes to places
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (c *countingFS) OpenReadWrite(name string, cat vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.OpenReadWrite(name, cat, opts...)
	return countingFile{f, c}, err
}

func (f countingFile) Write(p []byte) (int, error) {
	f.fs.written.Add(int64(len(p)))
	return f.File.Write(p)
}

func (f countingFile) WriteAt(p []byte, at int64) (int, error) {
	f.fs.places.Add(1)
	f.fs.written.Add(int64(len(p)))
	return f.File.WriteAt(p, at)
}

// Whoever writes behind an entry that was laid ahead writes hardly any of it, and does not count it as waiting.
func TestLaidIsNotWrittenAgain(t *testing.T) {
	for _, policy := range []Policy{Always, EverySec, No} {
		fs := &countingFS{FS: newFS(t, vfs.NewMem())}
		o := testOptions(fs)
		o.SegmentBytes, o.Policy, o.BufferLimit = 4<<20, policy, 64<<10
		l, _ := mustOpen(t, o, fresh('a'))
		m := &model{}
		rng := rand.New(rand.NewPCG(1, uint64(policy)))
		m.append(t, l, []byte("before"))
		must(t, l.SyncAll())
		long := entry(rng, 9<<20)
		m.add(slices.Concat([]byte("head"), long, []byte("tail")))
		part := bytes.Clone(long)
		d, err := l.Lay(part, nil)
		must(t, err)
		before := fs.written.Load()
		end, borrows := l.AppendParts([]byte("head"), part, []byte("tail"))
		if end != m.end() || borrows {
			t.Fatalf("ends at %d, want %d; borrows %v", end, m.end(), borrows)
		}
		must(t, l.Reserve(1000))
		if l.Written() != int64(len("before")) {
			t.Error("Reserve waited for what was laid")
		}
		clear(part)
		must(t, l.WaitDurable(m.append(t, l, []byte("after"))))
		if wrote := fs.written.Load() - before; wrote > 9<<20/100 {
			t.Errorf("policy %d: %d bytes were written for an entry of %d that was laid ahead", policy, wrote, len(long))
		}
		d.Close()
		must(t, m.check(l))
		if st := l.Stats(); st.Laid != int64(len(long)) || l.ahead.Load() != 0 {
			t.Errorf("%d bytes laid, want %d; %d ahead, want 0", st.Laid, len(long), l.ahead.Load())
		}
		must(t, l.Close())
		l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: m.end()})
		if rep.TailLost {
			t.Errorf("report %+v", rep)
		}
		must(t, m.check(l))
		must(t, l.Close())
	}
}

// What was laid and is not the part, or would have to end the entry, is not used, and its files go.
func TestLaidButNotAppended(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	rng := rand.New(rand.NewPCG(3, 3))
	m := &model{}
	part := entry(rng, 100_000)
	for name, parts := range map[string][][]byte{
		"equal bytes":   {[]byte("head"), bytes.Clone(part), []byte("tail")},
		"shorter":       {[]byte("head"), part[:len(part)-1], []byte("tail")},
		"further on":    {[]byte("head"), part[1:], []byte("tail")},
		"end of entry":  {[]byte("head"), part},
		"all of it":     {part},
		"before nobody": {part, nil, {}},
	} {
		d, err := l.Lay(part, nil)
		must(t, err)
		if laidLeft(t, fs) == 0 {
			t.Fatal("nothing was laid")
		}
		m.add(bytes.Join(parts, nil))
		end, borrows := l.AppendParts(parts...)
		if !borrows || end != m.end() {
			t.Errorf("%s: borrows %v, ends at %d, want %d", name, borrows, end, m.end())
		}
		l.AwaitTaken(end)
		d.Close()
		d.Close()
		if n := laidLeft(t, fs); n > 0 {
			t.Errorf("%s: %d files are left", name, n)
		}
	}
	// An entry with the same part twice takes it once.
	d, err := l.Lay(part, nil)
	must(t, err)
	m.add(bytes.Join([][]byte{part, part, []byte("tail")}, nil))
	end, _ := l.AppendParts(part, part, []byte("tail"))
	l.AwaitTaken(end)
	d.Close()
	must(t, m.check(l))
	if st := l.Stats(); st.Laid != int64(len(part)) {
		t.Errorf("%d bytes laid, want %d", st.Laid, len(part))
	}
	if _, err := l.Lay(nil, nil); err == nil {
		t.Error("no bytes were laid")
	}
	must(t, l.Close())
}

// Leftovers of a process that was killed go at the next start.
func TestLaidLeftovers(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	m := &model{}
	must(t, l.SyncAll())
	m.append(t, l, []byte("entry"))
	must(t, l.SyncAll())
	_, err := l.Lay(make([]byte, 70_000), nil)
	must(t, err)
	if n := laidLeft(t, fs); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
	abandon(l)
	l, rep := mustOpen(t, testOptions(fs), OpenPoint{History: history('a', nil, 0), Floor: -1})
	if n := laidLeft(t, fs); n != 0 || rep.TailLost {
		t.Errorf("%d files are left, %+v", n, rep)
	}
	must(t, m.check(l))
	must(t, l.Close())
}

// An error of Lay is none of the log's: nothing is left, and the entry can be appended without.
func TestLayFails(t *testing.T) {
	full := errors.New("full")
	for nth := range 12 {
		mem := newFS(t, vfs.NewMem())
		n := 0
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !strings.Contains(op.Path, laidPrefix) || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove {
				return nil
			}
			if n++; n == nth+1 {
				return errorfs.ErrInjected
			}
			return nil
		})))
		l, _ := mustOpen(t, o, fresh('a'))
		m := &model{}
		rng := rand.New(rand.NewPCG(5, uint64(nth)))
		part := entry(rng, 90_000)
		if d, err := l.Lay(part, nil); !errors.Is(err, errorfs.ErrInjected) || d != nil {
			t.Fatalf("operation %d: %v", nth, err)
		}
		if d, err := l.Lay(part, func() error { return full }); !errors.Is(err, full) || d != nil {
			t.Fatal(err)
		}
		if left := laidLeft(t, mem); left > 0 || l.Failed() != nil {
			t.Errorf("operation %d: %d files are left, the log failed: %v", nth, left, l.Failed())
		}
		m.add(slices.Concat(part, []byte("tail")))
		end, borrows := l.AppendParts(part, []byte("tail"))
		l.AwaitTaken(end)
		if !borrows {
			t.Error("not borrowed")
		}
		must(t, m.check(l))
		must(t, l.Close())
	}
}

// A log that fails at any write to a place, sync or rename while laid entries come and go holds whole entries only,
// and no open file is left behind.
func TestFailureAroundLaid(t *testing.T) {
	failed := 0
	for round := range 90 {
		mem := newFS(t, vfs.NewMem())
		fault := &laidFault{nth: 1 + round/3, kind: []errorfs.OpKind{errorfs.OpRename, errorfs.OpFileWriteAt, errorfs.OpFileSyncData}[round%3]}
		o := testOptions(errorfs.Wrap(mem, fault))
		o.Policy = []Policy{Always, EverySec}[round%2]
		l, _ := mustOpen(t, o, fresh('a'))
		fault.armed.Store(true)
		rng := rand.New(rand.NewPCG(uint64(round), 9))
		m, acked := &model{}, int64(0)
		for len(m.ends) < 40 && l.Failed() == nil {
			m.append(t, l, entry(rng, 50))
			x := m.appendLaid(t, l, rng, entry(rng, 80_000))
			if l.WaitDurable(x.end) == nil {
				acked = x.end
			}
		}
		if l.Failed() != nil {
			failed++
		}
		m.appendLaid(t, l, rng, entry(rng, 80_000)).takeBack(l)
		_ = l.Close()
		o.FS = mem
		l, rep := mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Floor: -1})
		if err := m.check(l); err != nil || rep.End < acked {
			t.Errorf("round %d: %v, acknowledged %d, of %+v", round, err, acked, rep)
		}
		if n := laidLeft(t, mem); n > 0 {
			t.Errorf("round %d: %d files are left", round, n)
		}
		must(t, l.Close())
	}
	if failed < 60 {
		t.Errorf("the log failed in %d rounds only", failed)
	}
}

// laidFault, armed, fails the nth operation of a kind, but for those of Lay.
type laidFault struct {
	nth   int
	kind  errorfs.OpKind
	armed atomic.Bool
	mu    sync.Mutex
	n     int
}

func (f *laidFault) String() string { return fmt.Sprintf("fault %d", f.nth) }

func (f *laidFault) MaybeError(op errorfs.Op) error {
	if !f.armed.Load() || op.Kind != f.kind || op.Kind == errorfs.OpFileSyncData && strings.Contains(op.Path, laidPrefix) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n != f.nth {
		return nil
	}
	return errorfs.ErrInjected
}

// powerCut is what a stop of the machine, or of the process alone, would have left before an operation.
type powerCut struct {
	fs    *vfs.MemFS
	what  string
	least int64 // promised by then
}

// cutter makes a copy of the files before each operation that changes them.
type cutter struct {
	mem  *vfs.MemFS
	log  atomic.Pointer[Log]
	rng  *rand.Rand
	kill bool // the process alone: all that was written is there

	mu   sync.Mutex
	cuts []powerCut
}

func (c *cutter) String() string { return "cutter" }

func (c *cutter) MaybeError(op errorfs.Op) error {
	l := c.log.Load()
	if l == nil || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := powerCut{what: fmt.Sprintf("before %v of %s", op.Kind, op.Path), least: l.Synced()}
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[c.rng.IntN(3)], RNG: c.rng}
	if c.kill {
		cut.least, cfg.UnsyncedDataPercent = l.Written(), 100
	}
	cut.fs = c.mem.CrashClone(cfg)
	c.cuts = append(c.cuts, cut)
	return nil
}

// A stop of the machine or the process between any two operations on files leaves whole entries, among them all that was
// promised, in a log that goes on.
func TestStopAtEachOperationAroundLaid(t *testing.T) {
	for round := range 6 {
		c := &cutter{mem: newFS(t, vfs.NewCrashableMem()), rng: rand.New(rand.NewPCG(uint64(round), 1)), kill: round%2 == 0}
		o := testOptions(errorfs.Wrap(c.mem, c))
		o.SegmentBytes, o.Policy = 16<<10, []Policy{Always, EverySec, No}[round/2]
		l, _ := mustOpen(t, o, fresh('a'))
		c.log.Store(l)
		m, rng := &model{}, rand.New(rand.NewPCG(uint64(round), 2))
		for range 6 {
			m.append(t, l, entry(rng, 1+rng.IntN(400)))
			x := m.appendLaid(t, l, rng, entry(rng, 30_000))
			if rng.IntN(2) == 0 {
				must(t, l.WaitDurable(x.end))
			}
			if rng.IntN(3) == 0 {
				must(t, l.SyncAll())
			}
		}
		must(t, l.SyncAll())
		c.log.Store(nil)
		abandon(l)
		if len(c.cuts) < 150 {
			t.Fatalf("%d operations only", len(c.cuts))
		}
		for _, cut := range c.cuts {
			if err := checkCut(t, m, cut, o); err != nil {
				t.Fatalf("round %d, %s: %v", round, cut.what, err)
			}
		}
	}
}

// checkCut opens what a stop left, twice, with some entries in between.
func checkCut(t *testing.T, whole *model, cut powerCut, o Options) error {
	o.FS = cut.fs
	l, rep, err := Open(o, OpenPoint{History: history('a', nil, 0), Floor: -1})
	if err != nil {
		return err
	}
	for _, end := range whole.ends {
		if end <= cut.least && rep.End < end {
			return fmt.Errorf("ends at %d, an entry to %d was promised", rep.End, end)
		}
	}
	if err := whole.check(l); err != nil {
		return err
	}
	if n := laidLeft(t, cut.fs); n > 0 {
		return fmt.Errorf("%d laid files are left", n)
	}
	m := &model{bytes: slices.Clone(whole.bytes), ends: slices.Clone(whole.ends)}
	m.cut(rep.End)
	rng := rand.New(rand.NewPCG(3, 3))
	m.append(t, l, []byte("more"))
	must(t, l.WaitDurable(m.appendLaid(t, l, rng, entry(rng, 20_000)).end))
	abandon(l)
	l, rep, err = Open(o, OpenPoint{History: history('a', nil, 0), Floor: -1})
	if err != nil {
		return err
	}
	if rep.End != m.end() || rep.TailLost {
		return fmt.Errorf("opened again: %+v, want the end %d", rep, m.end())
	}
	err = m.check(l)
	abandon(l)
	return err
}

// A mark in the middle of an entry that is written in several rounds would end it there.
func TestNoMarkInsideAnEntry(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	o.SegmentBytes = 1 << 20
	l, _ := mustOpen(t, o, fresh('a'))
	m := &model{}
	must(t, l.SyncAll())
	before := m.append(t, l, []byte("before"))
	must(t, l.SyncAll())
	head, part := make([]byte, 2*l.buf.borrowFrom), make([]byte, 50_000)
	d, err := l.Lay(part, nil)
	must(t, err)
	l.AppendParts(head, part, []byte("tail"))
	must(t, l.Wait(before+1, LevelKernel))
	if l.Written() != before+int64(len(head)) {
		t.Fatalf("written %d: the entry went in one round", l.Written())
	}
	must(t, l.syncFiles())
	must(t, l.mark(0))
	abandon(l)
	files := copyFiles(t, fs)
	d.Close()
	l, rep := mustOpen(t, testOptions(writeFiles(t, files)), OpenPoint{History: history('a', nil, 0), Floor: -1})
	if rep.End != before {
		t.Errorf("the log ends at %d, in the middle of an entry; the one before ends at %d", rep.End, before)
	}
	must(t, l.Close())
}

// The log is cut at places in and around a laid entry, once by ending the file there and once by zeros. What was not
// promised goes as a whole.
func TestTornTailInLaid(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	m, rng := &model{}, rand.New(rand.NewPCG(6, 6))
	acked := m.append(t, l, entry(rng, 3000))
	must(t, l.SyncAll())
	m.append(t, l, entry(rng, 300))
	m.appendLaid(t, l, rng, entry(rng, 90_000))
	m.append(t, l, entry(rng, 300))
	must(t, l.Wait(m.end(), LevelKernel))
	abandon(l)
	files := copyFiles(t, fs)
	segs := l.segments
	cuts, laid := 0, 0
	for _, s := range segs {
		if s.hdr.Laid {
			laid++
		}
		for at := int64(0); at < s.pos+2*record.BlockLen; at += 1 + rng.Int64N(400) {
			left := map[string][]byte{}
			for name, b := range files {
				left[name] = b
			}
			whole := files[s.name]
			at := min(at, int64(len(whole)))
			left[s.name] = whole[:at:at]
			if at%2 == 0 {
				left[s.name] = append(left[s.name], make([]byte, int64(len(whole))-at)...)
			}
			l, rep, err := Open(testOptions(writeFiles(t, left)), OpenPoint{History: history('a', nil, 0), Floor: acked})
			var damage *DamageError
			var start *StartError
			if errors.As(err, &damage) || errors.As(err, &start) {
				if s.hdr.Start >= acked && at >= record.DataAt {
					t.Fatalf("%s cut at byte %d: %v, synced %d", s.name, at, err, acked)
				}
				continue
			}
			must(t, err)
			if err := m.check(l); err != nil || rep.End < acked {
				t.Fatalf("%s cut at byte %d: %v, %+v", s.name, at, err, rep)
			}
			cuts++
			abandon(l)
		}
	}
	if cuts < 200 || laid < 2 {
		t.Errorf("%d cuts, %d laid segments: the test no longer tests both", cuts, laid)
	}
}

// Laid segments are trimmed, and used again, like any other; and many long entries one after the other take hardly more of
// the disk than their bytes.
func TestLaidIsTrimmed(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	o.SegmentBytes, o.KeepBytes = 256<<10, 1
	l, _ := mustOpen(t, o, fresh('a'))
	m, rng := &model{}, rand.New(rand.NewPCG(6, 6))
	for range 20 {
		m.append(t, l, entry(rng, 100))
		e := entry(rng, 100_000)
		part := e[100:99_900:99_900]
		d, err := l.Lay(part, nil)
		must(t, err)
		m.add(e)
		l.AppendParts(e[:100], part, e[99_900:])
		d.Close()
		must(t, l.SyncAll())
	}
	must(t, m.check(l))
	used := int64(0)
	names, err := fs.List(testDir)
	must(t, err)
	for _, name := range names {
		n, err := fileSize(fs, fs.PathJoin(testDir, name))
		must(t, err)
		used += n
	}
	st := l.Stats()
	if limit := m.end() + m.end()/3 + 3*o.SegmentBytes; used > limit || st.DiskBytes > limit {
		t.Errorf("%d bytes of files, said to be %d, for a stream of %d", used, st.DiskBytes, m.end())
	}
	m.appendLaid(t, l, rng, entry(rng, 600_000)).takeBack(l) // a full one, to be used again
	must(t, l.SyncAll())
	must(t, l.Trim(m.end()))
	if st := l.Stats(); st.Segments > 1 {
		t.Errorf("%d segments are left", st.Segments)
	}
	for range 5 {
		must(t, l.WaitDurable(m.append(t, l, entry(rng, 60_000))))
		must(t, l.WaitDurable(m.appendLaid(t, l, rng, entry(rng, 60_000)).end))
	}
	must(t, m.check(l))
	from := l.First()
	must(t, l.Close())
	l, _ = mustOpen(t, o, OpenPoint{History: history('a', nil, 0), Applied: from, Floor: m.end()})
	must(t, m.check(l))
	must(t, l.Close())
}

// A change of history, a cut and a new beginning while something is laid and not appended.
func TestLaidAcrossHistories(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for name, act := range stretchEnds() {
		fs := newFS(t, vfs.NewMem())
		l, _ := mustOpen(t, testOptions(fs), fresh('a'))
		m := &model{}
		m.append(t, l, entry(rng, 70))
		m.appendLaid(t, l, rng, entry(rng, 120_000)).takeBack(l)
		part := entry(rng, 50_000)
		d, err := l.Lay(part, nil)
		must(t, err)
		must(t, act(l, m))
		m.add(slices.Concat([]byte("head"), part, []byte("tail")))
		end, borrows := l.AppendParts([]byte("head"), part, []byte("tail"))
		clear(part)
		if borrows || end != m.end() {
			t.Errorf("%s: borrows %v, ends at %d, want %d", name, borrows, end, m.end())
		}
		d.Close()
		if err := errors.Join(l.SyncAll(), m.check(l)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h := l.Reigns()[0].History
		must(t, l.Close())
		l, rep := mustOpen(t, testOptions(fs), OpenPoint{History: h, Applied: m.base, Floor: m.end()})
		if err := m.check(l); err != nil || rep.TailLost {
			t.Errorf("%s: opened again: %v, %+v", name, err, rep)
		}
		must(t, l.Close())
	}
}
