package spill

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, o Options) *Folder {
	t.Helper()
	if o.Limit == nil {
		o.Limit = func() int64 { return 1 << 40 }
	}
	f, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Folder) empty(t *testing.T) {
	t.Helper()
	if f.Used() != 0 || len(f.maps) != 0 || f.mapped.Load() != 0 {
		t.Errorf("%d bytes in use, %d strings mapped", f.Used(), len(f.maps))
	}
	if names, err := os.ReadDir(f.path); err != nil || len(names) > 0 {
		t.Errorf("left in the folder: %v, %v", names, err)
	}
}

// What comes in pieces is whole, also after its pages were let go in any order.
func TestPiecesBecomeWhole(t *testing.T) {
	f := open(t, Options{})
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{0, 1, 4095, 4096, 4097, step, 5*step + 17} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(rnd.Uint32())
		}
		b := f.New()
		for rest := want; len(rest) > 0; {
			k := min(len(rest), 1+rnd.IntN(100_000))
			b.Take(rest[:k])
			rest = rest[k:]
		}
		if f.Used() < int64(n) {
			t.Errorf("%d bytes count as %d", n, f.Used())
		}
		got, err := b.Whole()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for rest := got; len(rest) > 0; {
				k := min(len(rest), 1+rnd.IntN(200_000))
				f.Passed(rest[:k])
				rest = rest[k:]
			}
			f.Passed(want) // of somebody else
			if n > 10 {
				f.Passed(got[rnd.IntN(n):])
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes came back differently", n)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	f.empty(t)
}

func TestLimitCountsWhatIsHalfThere(t *testing.T) {
	f := open(t, Options{Limit: func() int64 { return 4 * step }})
	piece := make([]byte, step)
	half, other := f.New(), f.New()
	half.Take(piece)
	half.Take(piece)
	for range 3 {
		other.Take(piece) // the third is one too many, and is thrown away with the others
	}
	var over *LimitError
	if _, err := other.Whole(); !errors.As(err, &over) || over.Limit != 4*step || over.Held != 5*step {
		t.Errorf("got %v", err)
	}
	if f.Used() != 2*step {
		t.Errorf("%d bytes in use", f.Used())
	}
	if got, err := half.Whole(); err != nil || len(got) != 2*step {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := errors.Join(half.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	f.empty(t)
}

func TestFullDisk(t *testing.T) {
	full := error(nil)
	f := open(t, Options{Full: func() error { return full }})
	piece := make([]byte, step)
	b := f.New()
	b.Take(piece)
	full = errors.New("nearly full")
	b.Take(piece)
	b.Take(piece)
	if got, err := b.Whole(); err != full || got != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	f.empty(t)
}

// A write that fails loses the string, and says where.
func TestFailedWrite(t *testing.T) {
	f := open(t, Options{})
	b := f.New()
	b.Take([]byte("good"))
	if err := b.file.Close(); err != nil {
		t.Fatal(err)
	}
	b.Take([]byte("bad"))
	if _, err := b.Whole(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	f.empty(t)
}

func TestFolderThatIsGone(t *testing.T) {
	f := open(t, Options{})
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	b := f.New()
	b.Take([]byte("x"))
	if _, err := b.Whole(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil || f.Used() != 0 {
		t.Errorf("got %v, %d bytes in use", err, f.Used())
	}
}

// A kill between the making of a file and the end of its name leaves the file.
func TestOpenRemovesWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	left, other := filepath.Join(dir, "long-argument-123"), filepath.Join(dir, "pid")
	for _, name := range []string{left, other} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// What somebody else has mapped from a file leaves memory when it was passed, and is the same bytes when it is looked at
// again, also where it was written through the mapping.
func TestWatchedMapping(t *testing.T) {
	const size = 8 * step
	f := open(t, Options{})
	file, err := os.Create(filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unwatch := f.Watch(data)
	for i := 0; i < size; i += 4096 {
		data[i] = byte(i >> 12)
		f.Passed(data[i : i+4096])
	}
	pages := make([]byte, 8*(size>>12))        // of eight bytes each; the highest bit says that the page is in memory
	maps, err := os.Open("/proc/self/pagemap") // not everywhere
	if err == nil {
		at := int64(uintptr(unsafe.Pointer(&data[0]))) >> 12 * 8
		if _, err := maps.ReadAt(pages, at); err != nil {
			t.Fatal(err)
		}
		maps.Close()
		here := 0
		for i := 7; i < len(pages); i += 8 {
			here += int(pages[i] >> 7)
		}
		if here > 2*step>>12 {
			t.Errorf("%d of %d pages are in memory", here, size>>12)
		}
	}
	for i := 0; i < size; i += 4096 {
		if data[i] != byte(i>>12) {
			t.Fatalf("byte %d is %d", i, data[i])
		}
	}
	unwatch()
	f.Passed(data) // of somebody else now
	if err := unix.Munmap(data); err != nil {
		t.Error(err)
	}
	f.empty(t)
}
