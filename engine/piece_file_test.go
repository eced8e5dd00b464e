package engine

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Tables are written in few large pieces, and what was synced or asked for the size is in the file as a whole.
func TestTablesAreWrittenInPieces(t *testing.T) {
	const blocks, size = 100, 4 << 10
	fs := vfs.NewMem()
	below, err := fs.Create("t", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	count := &countedFile{File: below}
	file := inPieces(count, pieceBytes)
	var want []byte
	read := func() []byte {
		t.Helper()
		f, err := fs.Open("t")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make([]byte, len(want)+1)
		n, _ := f.ReadAt(got, 0)
		return got[:n]
	}
	for n := range blocks {
		block := bytes.Repeat([]byte{byte(n)}, size)
		want = append(want, block...)
		if _, err := file.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if most := blocks * size / pieceBytes; count.writes > most {
		t.Errorf("%d writes, want %d at most", count.writes, most)
	}
	for what, sync := range map[string]func() error{
		"Sync": file.Sync, "SyncData": file.SyncData, "Stat": func() error { _, err := file.Stat(); return err },
	} {
		want = append(want, what...)
		if _, err := file.Write([]byte(what)); err != nil {
			t.Fatal(err)
		}
		if err := sync(); err != nil {
			t.Fatal(err)
		}
		if got := read(); !bytes.Equal(got, want) {
			t.Errorf("after %s the file has %d bytes, want the %d that were written", what, len(got), len(want))
		}
	}
	want = append(want, "end"...)
	if _, err := file.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(); !bytes.Equal(got, want) {
		t.Errorf("closed, the file has %d bytes, want %d", len(got), len(want))
	}
}

// A write that fails is told at the latest by the sync: a table with a hole must not be taken for whole.
func TestPieceThatFailsIsTold(t *testing.T) {
	broken := errors.New("broken")
	for what, sync := range map[string]func(f *pieceFile) error{
		"Sync": (*pieceFile).Sync, "SyncData": (*pieceFile).SyncData, "Close": (*pieceFile).Close,
	} {
		below, err := vfs.NewMem().Create("t", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		file := inPieces(&countedFile{File: below, err: broken}, pieceBytes)
		if _, err := file.Write([]byte("few")); err != nil {
			t.Fatalf("write into the buffer: %v", err)
		}
		if err := sync(file); !errors.Is(err, broken) {
			t.Errorf("%s after a write that failed: %v, want %v", what, err, broken)
		}
	}
}

type countedFile struct {
	vfs.File
	writes int
	err    error
}

func (f *countedFile) Write(b []byte) (int, error) {
	f.writes++
	if f.err != nil {
		return 0, f.err
	}
	return f.File.Write(b)
}

// A table that met a full disk is closed: else each try to write it again would keep its space.
func TestPieceThatFailedIsClosed(t *testing.T) {
	for _, whole := range []bool{false, true} { // the error comes with a write, or with the sync
		below := &brokenFile{}
		file := vfs.NewSyncingFile(inPieces(below, pieceBytes), vfs.SyncingFileOptions{BytesPerSync: 1 << 20})
		w := objstorageprovider.NewFileWritable(file)
		size := pieceBytes / 2
		if whole {
			size = 4 * pieceBytes
		}
		err := w.Write(make([]byte, size))
		if err == nil {
			err = w.Finish()
		} else {
			w.Abort()
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if !below.closed {
			t.Errorf("%d bytes: the file stays open", size)
		}
	}
}

// brokenFile has no room.
type brokenFile struct {
	vfs.File
	closed bool
}

func (f *brokenFile) Write([]byte) (int, error)    { return 0, syscall.ENOSPC }
func (f *brokenFile) Sync() error                  { return nil }
func (f *brokenFile) SyncData() error              { return nil }
func (f *brokenFile) SyncTo(int64) (bool, error)   { return false, nil }
func (f *brokenFile) Prefetch(int64, int64) error  { return nil }
func (f *brokenFile) Preallocate(_, _ int64) error { return nil }
func (f *brokenFile) Fd() uintptr                  { return vfs.InvalidFd }
func (f *brokenFile) Close() error                 { f.closed = true; return nil }
