//go:build linux && (amd64 || arm64)

package coldread

import (
	"bytes"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// forget has the system drop the file from its page cache, as far as it can be asked to.
func forget(t *testing.T, file *os.File) {
	t.Helper()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Error(err)
	}
}

// A file system in memory: it may not be able to say what is there, and is then asked once.
func TestFileSystemInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "coldread-*")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	file, content := newFile(t, dir, 10000)
	f := New(&Queue{}, file, file.Name())
	for range 3 {
		got := make([]byte, 5000)
		if n, err := f.ReadAt(got, 777); n != len(got) || err != nil || !bytes.Equal(got, content[777:777+len(got)]) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

// Where the system cannot say what is in memory, as of a folder, it is asked once, and reads are the file's own.
func TestRefusalIsRemembered(t *testing.T) {
	file, content := newFile(t, t.TempDir(), 1000)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	src := &counted{File: file, fd: dir.Fd()}
	f := New(&Queue{}, src, file.Name())
	got := make([]byte, 100)
	for i := range 3 {
		if f.plain.Load() != (i > 0) {
			t.Errorf("before read %d: plain reads: %v", i, f.plain.Load())
		}
		if n, err := f.ReadAt(got, 5); n != 100 || err != nil || !bytes.Equal(got, content[5:105]) || src.reads != i+1 {
			t.Errorf("%d bytes, %v, %d reads of the file's own", n, err, src.reads)
		}
	}
}

type counted struct {
	*os.File
	fd    uintptr
	reads int
}

func (c *counted) Fd() uintptr { return c.fd }

func (c *counted) ReadAt(p []byte, pos int64) (int, error) {
	c.reads++
	return c.File.ReadAt(p, pos)
}

// Signals that arrive during reads do no harm.
func TestInterrupted(t *testing.T) {
	file, content := newFile(t, t.TempDir(), 1<<20)
	f := New(&Queue{}, file, file.Name())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGURG, syscall.SIGUSR1)
	defer signal.Stop(signals)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	got := make([]byte, 8192)
	for i := range 500 {
		forget(t, file)
		pos := i * 1999 % (len(content) - len(got))
		if n, err := f.ReadAt(got, int64(pos)); n != len(got) || err != nil || !bytes.Equal(got, content[pos:pos+len(got)]) {
			t.Fatalf("at %d: %d bytes, %v", pos, n, err)
		}
	}
	close(stop)
	wg.Wait()
}
