package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// cutLog is a log that only counts, and can begin anew.
type cutLog struct{ end, trimmed atomic.Int64 }

func (l *cutLog) Append(e []byte) int64 { return l.end.Add(int64(len(e))) }
func (l *cutLog) AppendParts(parts ...[]byte) (int64, bool) {
	for _, p := range parts {
		l.end.Add(int64(len(p)))
	}
	return l.end.Load(), false
}
func (l *cutLog) AwaitTaken(int64)         {}
func (l *cutLog) Reserve(int) error        { return nil }
func (l *cutLog) End() int64               { return l.end.Load() }
func (l *cutLog) SyncAll() error           { return nil }
func (l *cutLog) Trim(durable int64) error { l.trimmed.Store(durable); return nil }

func (l *cutLog) resetTo(offset int64) func() error {
	return func() error { l.end.Store(offset); return nil }
}

func replaceOptions(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "s", MemoryBudget: 16 << 20, Fatal: func(error) {}}
}

func openWithLog(t *testing.T, o Options, log *cutLog) (*Store, *Opened) {
	t.Helper()
	s, opened, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	log.end.Store(opened.Applied)
	if err := s.Attach(log); err != nil {
		t.Fatal(err)
	}
	return s, opened
}

// putSet gives r n keys: most of them small, some with a deadline, a value row, rows.
func putSet(r *Replacement, tag string, n int) error {
	for i := range n {
		name := []byte(fmt.Sprint("k", i))
		sl := slot.Of(name)
		val := []byte(fmt.Sprint(tag, i))
		rec := layout.Record{Type: layout.String, Body: val}
		var err error
		switch i % 10 {
		case 0:
			rec.Deadline = int64(1<<40 + i)
		case 1:
			val = bytes.Repeat(val, 200)
			rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(val))}
			err = r.PutValue(sl, name, val)
		case 2:
			rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Enc: layout.HashHashtable, Gen: r.NewGeneration(), Count: 3, Bytes: uint64(3 * (1 + len(val)))}
			for _, f := range []string{"a", "b", "c"} {
				err = errors.Join(err, r.PutElement(sl, rec.Gen, false, layout.AppendHashElement(nil, []byte(f)), layout.AppendHashValue(nil, val, 0)))
			}
		}
		if err = errors.Join(err, r.PutRecord(sl, name, &rec)); err != nil {
			return err
		}
	}
	return nil
}

// checkSet holds all of the store against what putSet gave.
func checkSet(t *testing.T, s *Store, tag string, n int) {
	t.Helper()
	txn := s.NewTxn()
	bad := func(i int, format string, args ...any) {
		t.Helper()
		t.Fatalf("set %q of %d keys, k%d: %s", tag, n, i, fmt.Sprintf(format, args...))
	}
	if s.Keys() != int64(n) {
		t.Fatalf("set %q: %d keys, want %d", tag, s.Keys(), n)
	}
	for i := range n + 10 {
		name := []byte(fmt.Sprint("k", i))
		txn.Begin([]uint16{slot.Of(name)}, false, 1000)
		k, err := txn.Key(name)
		if err != nil {
			t.Fatal(err)
		}
		if k.Exists() != (i < n) {
			bad(i, "exists: %v", k.Exists())
		}
		want := fmt.Sprint(tag, i)
		switch {
		case i >= n:
		case i%10 == 2:
			it, err := txn.Elements(k, nil)
			if err != nil {
				t.Fatal(err)
			}
			rows := 0
			for ; it.Valid(); it.Next() {
				if v, err := layout.DecodeHashValue(it.Value()); err != nil || string(v.Value) != want {
					bad(i, "element %q, %v", v.Value, err)
				}
				rows++
			}
			if err := it.Close(); err != nil || rows != 3 {
				bad(i, "%d elements, %v", rows, err)
			}
		default:
			if i%10 == 1 {
				want = strings.Repeat(want, 200)
			}
			if v, err := txn.Value(k); err != nil || string(v) != want {
				bad(i, "value %.40q, %v, want %.40q", v, err, want)
			}
			if want := int64(1<<40 + i); i%10 == 0 && k.Rec.Deadline != want {
				bad(i, "deadline %d, want %d", k.Rec.Deadline, want)
			}
		}
		txn.End()
	}
	checkCounts(t, s, tag, n)
}

// checkCounts holds the counters of all slots against what a walk finds.
func checkCounts(t *testing.T, s *Store, tag string, n int) {
	t.Helper()
	txn := s.NewTxn()
	bytes, keys, records := int64(0), int64(0), int64(0)
	for sl := range uint16(16384) {
		c := s.SlotCounters(sl)
		bytes, keys = bytes+c.Bytes, keys+c.Keys
		if c.Keys == 0 {
			continue
		}
		txn.Begin([]uint16{sl}, false, 1000)
		r, err := txn.Records(sl, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var deadlines layout.Counters
		for ; r.Valid(); r.Next() {
			records++
			deadlines.Deadlines += b2i(r.Record().Deadline != 0)
			deadlines.DeadlineSum += layout.DeadlineWeight(r.Record().Deadline)
		}
		if deadlines.Deadlines != c.Deadlines || deadlines.DeadlineSum != c.DeadlineSum {
			t.Errorf("set %q, slot %d: deadlines %+v, counted %+v", tag, sl, deadlines, c)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		txn.End()
	}
	if records != keys || n > 0 && bytes == 0 {
		t.Fatalf("set %q: %d records, %d keys and %d bytes counted", tag, records, keys, bytes)
	}
}

func commitSet(t *testing.T, s *Store, log *cutLog, tag string, n int, offset int64) {
	t.Helper()
	r, err := s.NewReplacement()
	if err != nil {
		t.Fatal(err)
	}
	if err := putSet(r, tag, n); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit([]byte("history "+tag), offset, log.resetTo(offset)); err != nil {
		t.Fatal(err)
	}
}

type markEffects struct{ all atomic.Int64 }

func (e *markEffects) Committed(t *Txn) { e.all.Add(b2i(t.DroppedAll())) }

// A set takes the place of another, whether its offset is higher or lower, with rows pending, and a restart finds it.
func TestReplacement(t *testing.T) {
	fs, log, effects := vfs.NewMem(), &cutLog{}, &markEffects{}
	s, opened := openWithLog(t, replaceOptions(fs), log)
	if !opened.Fresh {
		t.Fatal("store is not fresh")
	}
	s.SetEffects(effects)
	txn := s.NewTxn()
	for i := range 500 {
		set(t, txn, fmt.Sprint("k", i), "old")
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		set(t, txn, fmt.Sprint("k", i), "old, pending")
	}
	commitSet(t, s, log, "first", 2000, 77)
	checkSet(t, s, "first", 2000)
	if s.Applied() != 77 || s.Durable() != 77 || log.End() != 77 || s.Pending() != 0 {
		t.Errorf("stands at %d, durable %d, log at %d, %d bytes pending", s.Applied(), s.Durable(), log.End(), s.Pending())
	}
	if effects.all.Load() != 1 {
		t.Errorf("watchers heard %d times that everything has changed", effects.all.Load())
	}
	set(t, txn, "k3", "after")
	if got := get(t, txn, "k3"); got != "after" {
		t.Errorf("a write after the swap reads as %q", got)
	}
	commitSet(t, s, log, "second", 100, 1<<40)
	checkSet(t, s, "second", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, opened = openWithLog(t, replaceOptions(fs), log)
	if opened.Applied != 1<<40 || string(opened.History) != "history second" {
		t.Errorf("opened at %d with history %q", opened.Applied, opened.History)
	}
	checkSet(t, s, "second", 100)
	if err := s.DropAll([]byte("own"), 0, log.resetTo(0)); err != nil {
		t.Fatal(err)
	}
	checkSet(t, s, "", 0)
	set(t, s.NewTxn(), "k1", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, opened = openWithLog(t, replaceOptions(fs), log)
	if s.Keys() != 1 || string(opened.History) != "own" {
		t.Errorf("%d keys under history %q", s.Keys(), opened.History)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if names, _ := fs.List("s/" + replacementDir); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

// What fails before the swap leaves the old set, and the next one may be built.
func TestReplacementRefused(t *testing.T) {
	fs, log := vfs.NewMem(), &cutLog{}
	s, _ := openWithLog(t, replaceOptions(fs), log)
	commitSet(t, s, log, "old", 300, 10)
	for _, twice := range []string{"key", "element"} {
		r, err := s.NewReplacement()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.NewReplacement(); !errors.Is(err, ErrReplacing) {
			t.Errorf("a second one beside it: %v", err)
		}
		if err := putSet(r, "new", 300); err != nil {
			t.Fatal(err)
		}
		if twice == "key" {
			err = r.PutRecord(slot.Of([]byte("k7")), []byte("k7"), &layout.Record{Type: layout.String})
		} else {
			for range 2 {
				err = errors.Join(err, r.PutElement(5, 1<<30, false, []byte("12345678f"), nil))
			}
		}
		if err == nil {
			err = r.Commit(nil, 20, func() error { t.Error("log was reset"); return nil })
		}
		var dup *DuplicateRowError
		if !errors.As(err, &dup) || twice == "key" && !strings.Contains(err.Error(), `"k7"`) {
			t.Errorf("%s twice: %v", twice, err)
		}
		checkSet(t, s, "old", 300)
	}
	r, err := s.NewReplacement()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(putSet(r, "new", 10), r.Abort(), r.Abort()); err != nil {
		t.Fatal(err)
	}
	checkSet(t, s, "old", 300)
	commitSet(t, s, log, "new", 400, 20)
	checkSet(t, s, "new", 400)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A walk that is open when the set changes goes on over the old one; a snapshot too.
func TestReplacementUnderReaders(t *testing.T) {
	log := &cutLog{}
	s, _ := openWithLog(t, replaceOptions(vfs.NewMem()), log)
	commitSet(t, s, log, "old", 300, 10)
	name := []byte("k2")
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of(name)}, false, 1000)
	k, err := txn.Key(name)
	if err != nil {
		t.Fatal(err)
	}
	it, err := txn.Elements(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	txn.End()
	sn, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	commitSet(t, s, log, "new", 20, 20)
	for rows := 0; rows < 3; rows++ {
		if v, err := layout.DecodeHashValue(it.Value()); !it.Valid() || err != nil || string(v.Value) != "old2" {
			t.Fatalf("element %d: %q, %v", rows, v.Value, err)
		}
		it.Next()
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, sn, "old", 300)
	if err := sn.Close(); err != nil {
		t.Fatal(err)
	}
	checkSet(t, s, "new", 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// At every moment of a swap a power cut leaves the old set or the new one, whole, with the history and the offset that
// belong to it.
func TestReplacementPowerCut(t *testing.T) {
	for seed := range uint64(4) {
		fs := vfs.NewCrashableMem()
		log := &cutLog{}
		s, _ := openWithLog(t, replaceOptions(fs), log)
		commitSet(t, s, log, "old", 400, 1000)
		rnd := rand.New(rand.NewPCG(seed, 1))
		var clones []*vfs.MemFS
		cutting := &cuttingFS{FS: fs, cut: func() {
			if rnd.IntN(4) == 0 || len(clones) < 3 {
				clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd}))
			}
		}}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, _ = openWithLog(t, replaceOptions(cutting), log)
		r, err := s.NewReplacement()
		if err != nil {
			t.Fatal(err)
		}
		if err := putSet(r, "new", 500); err != nil {
			t.Fatal(err)
		}
		offset := int64(500 + 1000*(seed%2)) // below and above the old one's
		cutting.on.Store(true)
		err = r.Commit([]byte("history new"), offset, log.resetTo(offset))
		cutting.on.Store(false)
		cutting.settled()
		if err != nil {
			t.Fatal(err)
		}
		clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{}))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for i, clone := range clones {
			s, opened := openWithLog(t, replaceOptions(clone), &cutLog{})
			tag, n, at := "new", 500, offset
			if string(opened.History) == "history old" {
				tag, n, at = "old", 400, 1000
			}
			if string(opened.History) != "history "+tag || opened.Applied != at {
				t.Fatalf("seed %d, cut %d: history %q at %d", seed, i, opened.History, opened.Applied)
			}
			seen[tag]++
			checkSet(t, s, tag, n)
			if names, _ := clone.List("s/" + replacementDir); len(names) > 0 {
				t.Errorf("left behind: %q", names)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if seen["old"] == 0 || seen["new"] == 0 {
			t.Errorf("seed %d: cuts left %v", seed, seen)
		}
	}
}

// cuttingFS calls cut before everything that changes what a power cut would leave.
type cuttingFS struct {
	vfs.FS
	cut func()
	on  atomic.Bool
	mu  sync.Mutex
}

// settled waits for a file that is being removed in the background.
func (f *cuttingFS) settled() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on.Store(false)
}

func (f *cuttingFS) before() {
	if f.on.Load() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cut()
	}
}

func (f *cuttingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.before()
	file, err := f.FS.Create(name, c)
	return cuttingFile{file, f}, err
}

func (f *cuttingFS) Link(a, b string) error   { f.before(); return f.FS.Link(a, b) }
func (f *cuttingFS) Rename(a, b string) error { f.before(); return f.FS.Rename(a, b) }
func (f *cuttingFS) Remove(a string) error    { f.before(); return f.FS.Remove(a) }
func (f *cuttingFS) OpenDir(a string) (vfs.File, error) {
	file, err := f.FS.OpenDir(a)
	return cuttingFile{file, f}, err
}

func (f *cuttingFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, errors.New("no disk")
}

type cuttingFile struct {
	vfs.File
	fs *cuttingFS
}

func (f cuttingFile) Sync() error { f.fs.before(); return f.File.Sync() }

// Rows in any order come back in order, whatever the memory; rows larger than it too.
func TestSorter(t *testing.T) {
	for _, limit := range []int{4 << 10, 64 << 10, 64 << 20} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("d", 0o755); err != nil {
			t.Fatal(err)
		}
		s := newSorter(fs, "d", limit)
		rnd := rand.New(rand.NewPCG(uint64(limit), 2))
		want := make([]string, 20000)
		for i := range want {
			want[i] = fmt.Sprintf("%08x%d", rnd.Uint32()>>rnd.IntN(32), i)
		}
		for i, key := range want {
			val := "v" + key
			if i%5000 == 0 {
				val += strings.Repeat("x", 100000)
			}
			if err := s.add([]byte(key), []byte(val)); err != nil {
				t.Fatal(err)
			}
		}
		sort.Strings(want)
		n := 0
		err := s.each(func(key, val []byte) error {
			if string(key) != want[n] || !strings.HasPrefix(string(val), "v"+want[n]) {
				return fmt.Errorf("row %d is %q, want %q", n, key, want[n])
			}
			n++
			return nil
		})
		if err != nil || n != len(want) {
			t.Fatalf("limit %d: %d rows, %v", limit, n, err)
		}
		if names, _ := fs.List("d"); len(names) > 0 || s.written != 0 {
			t.Errorf("limit %d: left behind %d files, %d bytes", limit, len(names), s.written)
		}
	}
}

// A bit that flips in a run is found.
func TestRunDamage(t *testing.T) {
	fs := vfs.NewMem()
	w, err := createRun(fs, "r")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := w.put([]byte(fmt.Sprintf("key%03d", i)), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.close(); err != nil {
		t.Fatal(err)
	}
	raw := runBytes(t, fs, "r")
	for at := range raw {
		bad := bytes.Clone(raw)
		bad[at] ^= 1 << (at % 8)
		if err := readRun(bad); err == nil {
			t.Fatalf("byte %d flipped and nobody noticed", at)
		}
	}
	if err := readRun(raw); err != nil {
		t.Fatal(err)
	}
}

func runBytes(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	raw, err := readFile(fs, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// memFile is bytes as a file.
type memFile struct {
	vfs.File
	r io.Reader
}

func (m memFile) Read(b []byte) (int, error) { return m.r.Read(b) }

func readRun(raw []byte) error {
	r := newRunReader("r", memFile{r: bytes.NewReader(raw)}, int64(len(raw)), runBuffer)
	var keys [][]byte
	for {
		if err := r.next(); err != nil {
			return err
		}
		if r.done {
			break
		}
		keys = append(keys, bytes.Clone(r.key))
		if _, err := r.value(nil); err != nil {
			return err
		}
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) || len(keys) > len(raw) {
		return os.ErrInvalid
	}
	return nil
}

func FuzzRun(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{3, 1, 'a', 'b', 'c', 'v', 0, 1, 2, 3, 4})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1})
	f.Fuzz(func(_ *testing.T, raw []byte) { _ = readRun(raw) })
}
