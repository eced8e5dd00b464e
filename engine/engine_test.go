package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

type memLog = testkit.MemLog

func set(t *testing.T, txn *Txn, key, val string) {
	t.Helper()
	k := []byte(key)
	txn.Begin([]uint16{slot.Of(k)}, true, 1000)
	h, err := txn.Key(k)
	if err != nil {
		t.Fatal(err)
	}
	h.Rec = layout.Record{Type: layout.String, Body: []byte(val)}
	txn.Put(h)
	txn.LogStrings("SET", k, []byte(val))
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, txn *Txn, key string) string {
	t.Helper()
	k := []byte(key)
	txn.Begin([]uint16{slot.Of(k)}, false, 1000)
	defer txn.End()
	h, err := txn.Key(k)
	if err != nil {
		t.Fatal(err)
	}
	if !h.Exists() {
		return "-"
	}
	return string(h.Rec.Body)
}

func TestSetGetReopen(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store {
		s, _, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(&memLog{}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	txn := s.NewTxn()
	for i := range 1000 {
		set(t, txn, fmt.Sprint("k", i), fmt.Sprint("v", i))
		if i == 500 {
			if err := s.Apply(); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func() {
		for i := range 1000 {
			if got := get(t, txn, fmt.Sprint("k", i)); got != fmt.Sprint("v", i) {
				t.Fatalf("k%d: %s", i, got)
			}
		}
		if s.Keys() != 1000 {
			t.Fatalf("%d keys, want 1000", s.Keys())
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	txn = s.NewTxn()
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A cut between the opening of a store and the first entry executed again must not move the applied offset: a
// change of history makes one happen.
func TestCutBeforeReplay(t *testing.T) {
	fs := vfs.NewMem()
	open := func() (*Store, int64) {
		s, opened, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return s, opened.Applied
	}
	s, _ := open()
	log := &memLog{}
	if err := s.Attach(log); err != nil {
		t.Fatal(err)
	}
	set(t, s.NewTxn(), "k", "v")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, applied := open()
		if applied != log.End() {
			t.Fatalf("opened at offset %d, want %d", applied, log.End())
		}
		s.SetHistory([]byte("another"))
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := s.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
}

// Long arguments reach the log as they lie; the entry is the same as if they had been copied into it.
func TestLongArguments(t *testing.T) {
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	log := &memLog{}
	if err := s.Attach(log); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), longArgument)
	many := [][]byte{[]byte("MSET")} // several pieces, with arguments of all kinds at their borders
	for i, n := range []int{1, pieceArgument - 1, pieceArgument, 9000, longArgument - 1, longArgument} {
		for range 4 * entryPiece / max(n, 1000) {
			many = append(many, bytes.Repeat([]byte{byte('a' + i)}, n))
		}
	}
	txn := s.NewTxn()
	for _, commands := range [][][][]byte{
		{many},
		{many, {[]byte("SET"), []byte("k"), long}, many, {[]byte("GET"), []byte("k")}},
		{{[]byte("GET"), []byte("k")}},
		{{[]byte("SET"), []byte("k"), long}},
		{{[]byte("SET"), long, []byte("v")}, {[]byte("GET"), []byte("k")}, {[]byte("APPEND"), []byte("k"), long}},
	} {
		var want []byte
		for _, args := range commands {
			want = append(want, fmt.Sprintf("*%d\r\n", len(args))...)
			for _, a := range args {
				want = appendBulk(want, a)
			}
		}
		if len(commands) > 1 {
			want = append(append([]byte(multiHead), want...), multiTail...)
		}
		before := int(log.End())
		txn.Begin(nil, true, 1000)
		for _, args := range commands {
			txn.Log(args...)
		}
		if _, err := txn.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := log.Bytes()[before:]; !bytes.Equal(got, want) {
			t.Fatalf("%d commands: the log has %d bytes, want %d: %.60q", len(commands), len(got), len(want), got)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
