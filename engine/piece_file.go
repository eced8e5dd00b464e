package engine

import (
	"bufio"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pieceFile is a file that is written from front to back, in larger pieces than it is given. Pebble writes tables in
// pieces of 4 KiB, and the calls for them took more processor time than putting the blocks together. What has not been
// synced may be in memory only, and a write that fails may be told by a later one or by the sync.
type pieceFile struct {
	vfs.File
	w    *bufio.Writer
	told bool // an error was: nobody takes the file for whole any more, and it must close
}

// pieceBytes is as large as a write has to be for the call not to count, and small beside what others wait for it.
const pieceBytes = 64 << 10

func inPieces(file vfs.File, size int) *pieceFile {
	return &pieceFile{File: file, w: bufio.NewWriterSize(file, size)}
}

// Write is vfs.File's.
func (f *pieceFile) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	f.told = f.told || err != nil
	return n, err
}

// flush writes what has gathered. A buffer that has failed fails for ever; told once, that is enough: Pebble syncs a file
// before it closes it, even one that it gives up, and would leave it open.
func (f *pieceFile) flush() error {
	if f.told {
		return nil
	}
	err := f.w.Flush()
	f.told = err != nil
	return err
}

// Sync is vfs.File's.
func (f *pieceFile) Sync() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData is vfs.File's.
func (f *pieceFile) SyncData() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// Stat is vfs.File's.
func (f *pieceFile) Stat() (vfs.FileInfo, error) {
	if err := f.flush(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

// Close is vfs.File's.
func (f *pieceFile) Close() error { return errors.Join(f.flush(), f.File.Close()) }
