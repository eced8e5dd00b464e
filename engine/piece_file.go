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
	w *bufio.Writer
}

// pieceBytes is as large as a write has to be for the call not to count, and small beside what others wait for it.
const pieceBytes = 64 << 10

func inPieces(file vfs.File, size int) *pieceFile {
	return &pieceFile{file, bufio.NewWriterSize(file, size)}
}

// Write is vfs.File's.
func (f *pieceFile) Write(b []byte) (int, error) { return f.w.Write(b) }

// Sync is vfs.File's.
func (f *pieceFile) Sync() error {
	if err := f.w.Flush(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData is vfs.File's.
func (f *pieceFile) SyncData() error {
	if err := f.w.Flush(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// Stat is vfs.File's.
func (f *pieceFile) Stat() (vfs.FileInfo, error) {
	if err := f.w.Flush(); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

// Close is vfs.File's.
func (f *pieceFile) Close() error { return errors.Join(f.w.Flush(), f.File.Close()) }
