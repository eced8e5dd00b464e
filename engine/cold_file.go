package engine

import (
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/coldread"
)

// coldFile is a file of the store that is read at random places: its ReadAt keeps nobody from running while it waits for
// the disk.
type coldFile struct {
	vfs.File
	cold *coldread.File
}

// openCold makes the file of that name one, if it was opened for random reads and is the system's own. Compactions read
// from front to back, and open files so.
func (f *orderedFS) openCold(file vfs.File, name string, opts []vfs.OpenOption) vfs.File {
	if file.Fd() == vfs.InvalidFd || !slices.Contains(opts, vfs.RandomReadsOption) {
		return file
	}
	return &coldFile{file, coldread.New(f.cold, file, name)}
}

// ReadAt is vfs.File's.
func (f *coldFile) ReadAt(p []byte, pos int64) (int, error) { return f.cold.ReadAt(p, pos) }

// Close is vfs.File's.
func (f *coldFile) Close() error {
	f.cold.Close()
	return f.File.Close()
}
