//go:build linux && (amd64 || arm64)

package coldread

import (
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is safe for concurrent use.
type File struct {
	q    *Queue
	src  Source
	name string
	fd   int

	plain atomic.Bool // the system cannot say what it has of this file, and need not be asked again

	// open is held shared by each read: a descriptor that is closed meanwhile could come to mean another file.
	open   sync.RWMutex
	closed bool
}

// New makes a File of src, whose name is for errors. src stays the caller's: he closes it after File.Close. Files of one disk
// have one Queue.
func New(q *Queue, src Source, name string) *File {
	f := &File{q: q, src: src, name: name, fd: int(src.Fd())}
	f.plain.Store(f.fd < 0)
	return f
}

// Close waits for reads under way; later ones fail.
func (f *File) Close() {
	f.open.Lock()
	f.closed = true
	f.open.Unlock()
}

// ReadAt is io.ReaderAt's.
func (f *File) ReadAt(p []byte, pos int64) (n int, err error) {
	if f.plain.Load() || len(p) == 0 || pos < 0 {
		return f.src.ReadAt(p, pos)
	}
	f.open.RLock()
	defer f.open.RUnlock()
	if f.closed {
		return 0, f.failed(fs.ErrClosed)
	}
	n = f.cached(p, pos)
	if n < len(p) && f.plain.Load() {
		return f.src.ReadAt(p, pos)
	}
	if n < len(p) {
		got, err := f.q.read(f, p[n:], pos+int64(n))
		return n + got, err
	}
	return n, nil
}

// wait fills p, and gives its place to run away meanwhile.
func (f *File) wait(p []byte, pos int64) (n int, err error) {
	for n < len(p) {
		got, errno := pread(f.fd, unsafe.Pointer(&p[n]), len(p)-n, pos+int64(n))
		switch {
		case errno == syscall.EINTR:
		case errno != 0:
			return n, f.failed(errno)
		case got == 0:
			return n, io.EOF
		default:
			n += got
		}
	}
	return n, nil
}

func (f *File) failed(err error) error { return &fs.PathError{Op: "read", Path: f.name, Err: err} }

// cached reads what is in the page cache from pos on, and waits for nothing. It is not a system call as far as the scheduler
// is concerned: leaving and entering it again costs more than the copying.
func (f *File) cached(p []byte, pos int64) int {
	vec := unix.Iovec{Base: &p[0]}
	vec.SetLen(len(p))
	// The offset is in two halves, of which the higher one counts where a register has 32 bits.
	n, _, errno := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(f.fd), uintptr(unsafe.Pointer(&vec)), 1, uintptr(pos), 0, unix.RWF_NOWAIT)
	switch errno {
	case 0:
		return int(n)
	case syscall.EAGAIN, syscall.EINTR: // nothing is there
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPERM, syscall.EINVAL:
		f.plain.Store(true)
	}
	return 0 // the read that waits tells what is wrong
}

// pread is the system call, during which others run in this goroutine's place. Between the two calls nothing may need the
// runtime: no more stack, no memory, no race detector.
//
//go:nosplit
//go:norace
func pread(fd int, p unsafe.Pointer, n int, pos int64) (int, syscall.Errno) {
	entersyscallblock()
	got, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(p), uintptr(n), uintptr(pos), 0, 0)
	exitsyscall()
	return int(got), errno
}

// The runtime's own, which it promises to keep as they are for who needs them (go.dev/issue/67401).

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()
