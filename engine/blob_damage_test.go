package engine

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// A damaged file of separated values costs the keys whose values are in the damaged block; it is counted, and
// no rewrite that would meet it is begun any more. Damage in the footer costs all values of the file.
func TestDamagedValueFile(t *testing.T) {
	mem, log := vfs.NewMem(), &memLog{}
	s := openForValues(t, mem, log)
	key := func(i byte) []byte { return []byte{'{', 'v', '}', i} }
	for range 2 { // a merge of one table would only move it
		for i := range byte(40) {
			putValue(t, s, key(i), bytes.Repeat([]byte{i}, 5000))
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mergeAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	paths := blobFiles(t, mem)
	if len(paths) == 0 {
		t.Fatal("no file of separated values")
	}
	path := paths[0]
	whole, err := mem.UnsafeGetFileDataBuffer(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{3, len(whole) - 1, len(whole) - blobFooterLen, len(whole) - blobFooterLen + blobFormatAt} {
		whole[at] ^= 4
		s := openForValues(t, mem, log)
		var damaged *BlobError
		failed := 0
		for i := range byte(40) {
			v, err := value(s, key(i))
			switch {
			case errors.As(err, &damaged):
				failed++
			case err != nil || !bytes.Equal(v, bytes.Repeat([]byte{i}, 5000)):
				t.Errorf("byte %d: value %d has %d bytes, %v", at, i, len(v), err)
			}
		}
		if failed == 0 || s.Corruptions() == 0 || s.valuePolicy().TargetGarbageRatio < 1 {
			t.Errorf("byte %d: %d reads fail, damage counted %d, policy %+v", at, failed, s.Corruptions(), s.valuePolicy())
		}
		whole[at] ^= 4
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func openForValues(t *testing.T, fs vfs.FS, log *memLog) *Store {
	t.Helper()
	s, _, err := Open(Options{FS: fs, Dir: "store", MemoryBudget: 64 << 20})
	if err == nil {
		err = s.Attach(log)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blobFiles gives the paths of the files of separated values.
func blobFiles(t *testing.T, fs vfs.FS) (paths []string) {
	t.Helper()
	names, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, blobSuffix) {
			paths = append(paths, fs.PathJoin("store", n))
		}
	}
	return paths
}

func putValue(t *testing.T, s *Store, name, val []byte) {
	t.Helper()
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of(name)}, true, Forever)
	k, err := txn.Key(name)
	if err != nil {
		t.Fatal(err)
	}
	k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(val))}
	txn.SetValue(k, val)
	txn.Put(k)
	txn.LogStrings("SET", name, val)
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
}

func value(s *Store, name []byte) ([]byte, error) {
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of(name)}, false, Forever)
	defer txn.End()
	k, err := txn.Key(name)
	if err != nil {
		return nil, err
	}
	return txn.Value(k)
}
