package server

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/replication/rdb"
)

// cutPointFS calls cut before everything that changes what a power cut would leave, on store and log alike.
type cutPointFS struct {
	vfs.FS
	mu  sync.Mutex
	cut func() // nil: not now
}

func (f *cutPointFS) set(cut func()) {
	f.mu.Lock()
	f.cut = cut
	f.mu.Unlock()
}

func (f *cutPointFS) before() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut != nil {
		f.cut()
	}
}

func (f *cutPointFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return cutPointFile{file, f}, nil
}

func (f *cutPointFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.before()
	return f.wrap(f.FS.Create(name, c))
}

func (f *cutPointFS) ReuseForWrite(a, b string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.before()
	return f.wrap(f.FS.ReuseForWrite(a, b, c))
}

func (f *cutPointFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return f.wrap(f.FS.OpenReadWrite(name, c, o...))
}

func (f *cutPointFS) OpenDir(name string) (vfs.File, error) { return f.wrap(f.FS.OpenDir(name)) }
func (f *cutPointFS) Link(a, b string) error                { f.before(); return f.FS.Link(a, b) }
func (f *cutPointFS) Rename(a, b string) error              { f.before(); return f.FS.Rename(a, b) }
func (f *cutPointFS) Remove(a string) error                 { f.before(); return f.FS.Remove(a) }

type cutPointFile struct {
	vfs.File
	fs *cutPointFS
}

func (f cutPointFile) Sync() error     { f.fs.before(); return f.File.Sync() }
func (f cutPointFile) SyncData() error { f.fs.before(); return f.File.SyncData() }

func (f cutPointFile) WriteAt(b []byte, at int64) (int, error) {
	f.fs.before()
	return f.File.WriteAt(b, at)
}

// primaryData is what a primary sends: n keys, and a hash in rows.
func primaryData(t *testing.T, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := rdb.NewWriter(&out, 0)
	err := error(nil)
	for i := range n {
		err = errors.Join(err, w.Key(rdb.Key{Name: fmt.Appendf(nil, "k%d", i)}),
			w.Value(rdb.AppendStringValue(nil, fmt.Appendf(nil, "new%d", i))))
	}
	err = errors.Join(err, w.Key(rdb.Key{Name: []byte("hash")}), w.BeginHash(1000))
	for i := range 1000 {
		err = errors.Join(err, w.Pair(fmt.Appendf(nil, "f%d", i), []byte("v")))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A power cut at any moment of a full sync leaves the old data with its log or the new data with the new one, under
// the history that belongs to it, whether the primary's offset is higher or lower than the old one; and the node goes
// on from there.
func TestPowerLossInFullSync(t *testing.T) {
	t.Parallel()
	const old, fresh = 300, 350
	primary := strings.Repeat("ab", 20)
	asRDB, asRows := primaryData(t, fresh), rowsData(t, fresh)
	for seed := range uint64(6) {
		data, some := asRDB, 6
		if seed >= 4 {
			data, some = asRows, 1 // far fewer writes
		}
		mem := vfs.NewCrashableMem()
		disk := &cutPointFS{FS: mem}
		s, err := openOn(t, disk, "always", "boot-0")
		if err != nil {
			t.Fatal(err)
		}
		x := newSession(s)
		for i := range old {
			if reply := x.do("SET", fmt.Sprint("k", i), fmt.Sprint("old", i)); reply != "+OK\r\n" {
				t.Fatal(reply)
			}
			if i == old/2 {
				x.do("SAVE")
			}
		}
		end, own := s.wal.End(), s.wal.History()
		id, offset := primary, end/2+end*int64(seed%2)
		if seed >= 2 {
			id = string(own.ID[:]) // the same stream, too far ahead: its history has the same id
			offset = end * int64(1+seed%2*2)
		}
		rnd := rand.New(rand.NewPCG(seed, 9))
		var clones []*vfs.MemFS
		disk.set(func() {
			if rnd.IntN(some) == 0 {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(5) * 25, RNG: rnd}))
			}
		})
		a := newApplier(s)
		err = a.Load(bytes.NewReader(data), id, offset)
		disk.set(nil)
		if err != nil {
			t.Fatal(err)
		}
		clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
		a.close()
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		seen := map[bool]int{}
		for i, clone := range clones {
			isNew := checkFullSyncCut(t, clone, i, fullSyncEnds{old: old, fresh: fresh, end: end, offset: offset, own: string(own.ID[:]), id: id})
			seen[isNew]++
			if t.Failed() {
				t.Fatalf("seed %d, cut %d of %d", seed, i, len(clones))
			}
		}
		if seen[false] == 0 || seen[true] == 0 {
			t.Errorf("seed %d: cuts left old data %d times, new data %d times", seed, seen[false], seen[true])
		}
	}
}

// fullSyncEnds is what the data may be after a cut.
type fullSyncEnds struct {
	old, fresh  int
	end, offset int64
	own, id     string
}

func checkFullSyncCut(t *testing.T, fs *vfs.MemFS, n int, want fullSyncEnds) (isNew bool) {
	t.Helper()
	for life := range 2 {
		s, err := openOn(t, fs, "always", fmt.Sprint("boot-", 1+life))
		if err != nil {
			t.Errorf("life %d: %v", life, err)
			return false
		}
		x := newSession(s)
		isNew = bulk(x.do("HGET", "hash", "f999")) == "v"
		tag, keys, end, id := "old", want.old, want.end, want.own
		if isNew {
			tag, keys, end, id = "new", want.fresh, want.offset, want.id
		}
		if h := s.wal.History(); string(h.ID[:]) != id || life == 0 && s.wal.End() != end {
			t.Errorf("%s data with history %s at %d, want %s at %d", tag, h.ID, s.wal.End(), id, end)
		}
		for i := range max(want.old, want.fresh) {
			got := bulk(x.do("GET", fmt.Sprint("k", i)))
			if i < keys && got != fmt.Sprint(tag, i) || i >= keys && got != "" {
				t.Errorf("%s data: k%d is %q", tag, i, got)
				break
			}
		}
		count := keys + life
		if isNew {
			count++
		}
		if got := x.do("DBSIZE"); got != fmt.Sprintf(":%d\r\n", count) {
			t.Errorf("%s data of %d keys: DBSIZE %q", tag, count, got)
		}
		if life == 1 {
			if got := bulk(x.do("GET", "after")); got != fmt.Sprint(n) {
				t.Errorf("what was written after the cut is %q", got)
			}
		} else if got := x.do("SET", "after", fmt.Sprint(n)); got != "+OK\r\n" {
			t.Errorf("a write after the cut: %q", got)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
	return isNew
}
