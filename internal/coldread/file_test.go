package coldread

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// newFile makes a file of size random bytes in dir.
func newFile(t *testing.T, dir string, size int) (*os.File, []byte) {
	t.Helper()
	content := make([]byte, size)
	rnd := rand.New(rand.NewPCG(uint64(size), 1))
	for i := range content {
		content[i] = byte(rnd.Uint32())
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, content
}

// Whatever is asked for, what comes is what os.File gives.
func TestReadsAsAFileDoes(t *testing.T) {
	const size = 10000
	file, content := newFile(t, t.TempDir(), size)
	f := New(&Queue{}, file, file.Name())
	for _, pos := range []int64{-1, 0, 1, 4095, 4096, size - 1, size, size + 1, 1 << 40} {
		for _, n := range []int{0, 1, 100, 4096, size, 2 * size} {
			forget(t, file)
			got, want := make([]byte, n), make([]byte, n)
			n, err := f.ReadAt(got, pos)
			m, wantErr := file.ReadAt(want, pos)
			if n != m || !bytes.Equal(got, want) || !alike(err, wantErr) {
				t.Errorf("%d bytes at %d: %d, %v, want %d, %v", len(got), pos, n, err, m, wantErr)
			}
		}
	}
	if n, err := f.ReadAt(make([]byte, 10), size-4); n != 4 || err != io.EOF {
		t.Errorf("across the end: %d bytes, %v", n, err)
	}
	if got := make([]byte, size); true {
		if n, err := f.ReadAt(got, 0); n != size || err != nil || !bytes.Equal(got, content) {
			t.Errorf("whole file: %d bytes, %v", n, err)
		}
	}
}

func alike(a, b error) bool { return a == b || a != nil && b != nil && a.Error() == b.Error() }

// A file that was closed reads no more, whatever its descriptor means by then.
func TestClosedFileReadsNothing(t *testing.T) {
	file, _ := newFile(t, t.TempDir(), 100)
	f := New(&Queue{}, file, file.Name())
	f.Close()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	other, _ := newFile(t, t.TempDir(), 100) // has the number now
	if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("%d bytes of %s, %v", n, other.Name(), err)
	}
}

// A read that the system refuses says why, and of what.
func TestRefusedRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "written")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n, err := New(&Queue{}, file, path).ReadAt(make([]byte, 10), 0)
	var pathErr *fs.PathError
	if n != 0 || !errors.As(err, &pathErr) || pathErr.Path != path {
		t.Errorf("read of a file that is open for writing: %d bytes, %v", n, err)
	}
}

// Something that is no file of the system is read by its own means.
func TestNoDescriptor(t *testing.T) {
	f := New(&Queue{}, memory{bytes.NewReader([]byte("hello"))}, "memory")
	got := make([]byte, 3)
	if n, err := f.ReadAt(got, 1); n != 3 || err != nil || string(got) != "ell" {
		t.Errorf("%d bytes, %q, %v", n, got, err)
	}
}

type memory struct{ *bytes.Reader }

func (memory) Fd() uintptr { return ^uintptr(0) }

// Many goroutines, more than there are places to run, read what is in memory and what is not.
func TestManyReaders(t *testing.T) {
	const size, block = 4 << 20, 3000
	file, content := newFile(t, t.TempDir(), size)
	f := New(&Queue{}, file, file.Name())
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for id := range 50 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(id), 2))
			got := make([]byte, block)
			for i := range 200 {
				if i%50 == 0 {
					forget(t, file)
				}
				pos := rnd.IntN(size)
				n, err := f.ReadAt(got, int64(pos))
				if want := content[pos:min(pos+block, size)]; n != len(want) || !bytes.Equal(got[:n], want) || (err == nil) != (n == block) {
					t.Errorf("at %d: %d bytes, %v", pos, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A file may be closed while many read it: each read is whole, or fails because of that.
func TestCloseWhileReading(t *testing.T) {
	file, content := newFile(t, t.TempDir(), 1<<20)
	f := New(&Queue{}, file, file.Name())
	var started, wg sync.WaitGroup
	for id := range 16 {
		started.Add(1)
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(id), 3))
			got := make([]byte, 4096)
			for i := 0; ; i++ {
				pos := rnd.IntN(len(content) - len(got))
				_, err := f.ReadAt(got, int64(pos))
				if i == 0 {
					started.Done()
				}
				switch {
				case errors.Is(err, fs.ErrClosed):
					return
				case err != nil || !bytes.Equal(got, content[pos:pos+len(got)]):
					t.Errorf("at %d: %v", pos, err)
					return
				}
			}
		})
	}
	started.Wait()
	f.Close()
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
