package engine

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/coldread"
)

// Tables and files of values that are opened for lookups are read without holding others up; what is walked is not, nor is
// any other file, nor one that the system does not know.
func TestWhichFilesAreReadCold(t *testing.T) {
	onDisk := &orderedFS{FS: vfs.Default, cold: &coldread.Queue{}}
	inMemory := &orderedFS{FS: vfs.NewMem()}
	for _, c := range []struct {
		fs   *orderedFS
		name string
		opts []vfs.OpenOption
		want bool
	}{
		{onDisk, "000001.sst", []vfs.OpenOption{vfs.RandomReadsOption}, true},
		{onDisk, "000001.sst", []vfs.OpenOption{vfs.SequentialReadsOption}, false},
		{onDisk, "000001.sst", nil, false},
		{onDisk, "MANIFEST-000001", []vfs.OpenOption{vfs.RandomReadsOption}, false},
		{inMemory, "000001.sst", []vfs.OpenOption{vfs.RandomReadsOption}, false},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		if c.fs == inMemory {
			path = c.name
		}
		made, err := c.fs.FS.Create(path, "test")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := made.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := made.Close(); err != nil {
			t.Fatal(err)
		}
		file, err := c.fs.Open(path, c.opts...)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if n, err := file.ReadAt(got, 1); n != 4 || err != nil || string(got) != "ello" {
			t.Errorf("%s: %d bytes, %q, %v", path, n, got, err)
		}
		if _, cold := file.(*coldFile); cold != c.want {
			t.Errorf("%s on disk %v, options %v: read cold: %v", c.name, c.fs == onDisk, c.opts, cold)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if c.want {
			if _, err := file.ReadAt(got, 1); err == nil {
				t.Error("a closed file was read")
			}
		}
	}
}
