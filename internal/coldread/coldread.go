// Package coldread reads from files without holding up goroutines that have nothing to do with it.
//
// Shape. A goroutine that waits for the disk in a system call keeps its place to run (one of GOMAXPROCS) until the runtime's
// monitor takes it away, 20 microseconds to 10 milliseconds later. With fifty clients that ask for data beyond memory, all
// places are kept by such reads most of the time: the disk gets a few requests at a time where it could serve many, and the
// processors idle. A File first reads what the page cache has, which waits for nothing and so enters no scheduler, and which has
// the system fetch what is missing. Of those that have to wait for it only a few do so in a system call, whose threads give
// their places away before; the others wait as goroutines do, for one of the few to bring them their bytes (queue.go).
//
//	in the page cache   preadv2(RWF_NOWAIT)                     as cheap as a system call gets
//	on the disk         the same, then for a few                give the place away, pread, ask for one
//	                    for all others                          park, until a leader has done preadv2(RWF_NOWAIT) again
//
// It is for reads at random places. Whoever reads a file from front to back has the system read ahead for him, which a
// read that waits for nothing never starts.
//
// Units. Positions and lengths are bytes.
//
// Errors. Those of os.File.ReadAt: io.EOF behind the end, *fs.PathError with the system's reason, os.ErrClosed after Close.
//
// Where the system cannot say what its page cache has (not Linux, or a file system or a sandbox without it), reads are the
// file's own.
//
// Not here: which files are read this way.
package coldread

import "io"

// Source is an open file, as the operating system knows it. Its descriptor stays the same until it is closed.
type Source interface {
	io.ReaderAt
	// Fd is the descriptor; a number that is none as an int, below 0, says that there is no such file in the system.
	Fd() uintptr
}
