// Package spill keeps long byte strings that come in pieces in files instead of memory, and shows them as slices.
//
// Shape. A Folder is where the files are. New begins a Bytes; Take adds to it; Whole ends it and maps the file, read-only:
// what it returns is a slice like any other, whose pages the system brings from the file when they are looked at. Whoever
// reads it from front to back tells Passed what it is done with, and those pages leave the process again. Close ends the
// mapping: nobody may look at the slice afterwards.
//
//	New ──▶ Take ... Take ──▶ Whole ──▶ readers, Passed ... ──▶ Close
//
// A file has no name from its first byte on, so nothing is left of it when the process ends; only a kill in the middle of
// New leaves an empty one, which the next Open removes.
//
// Units. Bytes everywhere. All strings of a Folder together take at most Options.Limit of disk; what has not arrived takes
// nothing.
//
// Errors. Take never fails: the rest of a string that cannot be kept is thrown away as it comes, and Whole says why. A
// disk that cannot read its own file back ends the process with a fault when such a page is looked at, as with every
// mapped file.
//
// Not here: which strings are kept, and what they are.
package spill

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	filePattern = "long-argument-*"

	step = 1 << 20 // room is reserved, and pages are let go, in steps of it
	// around is a multiple of what the system maps around a page that is looked at: pages are let go up to a border of it,
	// since those in front of the next one would come back.
	around = 256 << 10
)

// Options of a Folder.
type Options struct {
	// Limit is how many bytes all strings may take together. It is asked again for each step.
	Limit func() int64
	// Full says why nothing may be written now, nil when it may; asked for each step. May be nil.
	Full func() error
}

// LimitError says that the strings of a folder take too much together.
type LimitError struct {
	Held, Limit int64 // bytes
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("long arguments that are being received take %d bytes of disk, limit %d", e.Held, e.Limit)
}

// Folder is safe for concurrent use.
type Folder struct {
	path string
	o    Options
	used atomic.Int64

	mapped atomic.Int32 // len(maps), for who only passes by
	mu     sync.Mutex
	maps   []*Bytes
}

// Open makes path, which exists, a Folder.
func Open(path string, o Options) (*Folder, error) {
	left, err := filepath.Glob(filepath.Join(path, filePattern))
	if err != nil {
		return nil, fmt.Errorf("look for files left in %s: %w", path, err)
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("remove what a killed process left: %w", err)
		}
	}
	return &Folder{path: path, o: o}, nil
}

// Used is how many bytes of disk the strings take, those under way included.
func (f *Folder) Used() int64 { return f.used.Load() }

// Bytes is one string. Take, Whole and Close are one goroutine's.
type Bytes struct {
	f    *Folder
	file *os.File
	size int   // bytes taken
	room int64 // of them and to come, counted in used
	err  error // why it is not kept
	data []byte
	let  int // pages in front of it are let go
}

// New begins a string.
func (f *Folder) New() *Bytes {
	b := &Bytes{f: f}
	file, err := os.CreateTemp(f.path, filePattern)
	if err == nil {
		b.file = file
		err = os.Remove(file.Name())
	}
	if err != nil {
		b.lose(fmt.Errorf("make a file for a long argument: %w", err))
	}
	return b
}

// Take adds bytes to the end of the string.
func (b *Bytes) Take(p []byte) {
	if b.err == nil && int64(b.size+len(p)) > b.room {
		b.reserve(max(int64(b.size+len(p))-b.room, step))
	}
	if b.err != nil {
		return
	}
	n, err := b.file.Write(p)
	b.size += n
	if err != nil {
		b.lose(fmt.Errorf("write a long argument to disk: byte %d: %w", b.size, err))
	}
}

// reserve counts n bytes more.
func (b *Bytes) reserve(n int64) {
	if full := b.f.o.Full; full != nil {
		if err := full(); err != nil {
			b.lose(err)
			return
		}
	}
	held, limit := b.f.used.Add(n), b.f.o.Limit()
	b.room += n
	if held > limit {
		b.lose(&LimitError{held, limit})
	}
}

// lose gives up the string and its room.
func (b *Bytes) lose(err error) {
	b.err = err
	_ = b.closeFile() // what is in it is of no use
}

func (b *Bytes) closeFile() error {
	b.f.used.Add(-b.room)
	b.room = 0
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	b.file = nil
	return err
}

// Whole gives the string, valid until Close. Nothing may be added any more.
func (b *Bytes) Whole() ([]byte, error) {
	if b.err != nil || b.size == 0 {
		return nil, b.err
	}
	data, err := unix.Mmap(int(b.file.Fd()), 0, b.size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		b.lose(fmt.Errorf("map a long argument of %d bytes: %w", b.size, err))
		return nil, b.err
	}
	b.data = data
	b.f.add(b)
	return data, nil
}

// Watch makes Passed know of a string that somebody else has mapped from a file of theirs, shared. Nobody may look at it
// from unwatch on, which comes before the mapping ends.
func (f *Folder) Watch(data []byte) (unwatch func()) {
	b := &Bytes{f: f, data: data}
	f.add(b)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.drop(b)
	}
}

func (f *Folder) add(b *Bytes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.maps = append(f.maps, b)
	f.mapped.Store(int32(len(f.maps)))
}

// drop forgets a mapping. The folder's mu is held.
func (f *Folder) drop(b *Bytes) {
	f.maps = slices.DeleteFunc(f.maps, func(other *Bytes) bool { return other == b })
	f.mapped.Store(int32(len(f.maps)))
}

// Passed says that nobody will look at part soon, which may be of a string that Whole gave or Watch knows, or of anything
// else. Looking at it again is no mistake; it brings the pages back.
func (f *Folder) Passed(part []byte) {
	if f.mapped.Load() == 0 || len(part) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	for _, b := range f.maps {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(b.data)))
		if at >= from && at-from < uintptr(len(b.data)) {
			b.passed(int(at-from), int(at-from)+len(part))
			return
		}
	}
}

// passed lets the pages in front of hi go, once it is a step more. The folder's mu is held.
func (b *Bytes) passed(lo, hi int) {
	if lo < b.let { // another walk, from further in front
		b.let = lo
	}
	if hi-b.let < step {
		return
	}
	hi -= int(uintptr(unsafe.Pointer(&b.data[0]))+uintptr(hi)) % around
	lo = max(0, b.let-step) &^ (around - 1)
	if hi <= lo {
		return
	}
	// That it fails costs memory for a while and nothing else.
	_ = unix.Madvise(b.data[lo:hi], unix.MADV_DONTNEED)
	b.let = hi
}

// Close ends the string, at any time: its memory, its file and its room.
func (b *Bytes) Close() error {
	err := b.closeFile()
	if b.data == nil {
		return err
	}
	f := b.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(b)
	if unmapErr := unix.Munmap(b.data); err == nil {
		err = unmapErr
	}
	b.data = nil
	return err
}
