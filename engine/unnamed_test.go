package engine

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

func openTest(t *testing.T) *Store {
	t.Helper()
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func closeTest(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// inTxn runs f in a transaction on the slot of key at time 1000.
func inTxn(t *testing.T, s *Store, key string, f func(txn *Txn, k *Key)) {
	t.Helper()
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte(key))}, true, 1000)
	k, err := txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	f(txn, k)
	txn.LogStrings("X")
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
}

// putLarge gives k a value with rows, of a string or of a hash.
func putLarge(txn *Txn, k *Key, typ layout.Type, rows int) {
	k.Rec = layout.Record{Type: typ, Form: layout.Rows, Gen: txn.NewGeneration(), Count: uint64(rows)}
	for i := range rows {
		txn.PutElement(k, fmt.Appendf(nil, "%04d", i), []byte("value"))
	}
	txn.Put(k)
}

// Values that come and go within one transaction leave no rows behind, whatever ended them.
func TestUnnamedGenerations(t *testing.T) {
	for name, f := range map[string]func(txn *Txn, k *Key){
		"replaced": func(txn *Txn, k *Key) {
			putLarge(txn, k, layout.String, 20)
			putLarge(txn, k, layout.HashType, 7)
			putLarge(txn, k, layout.String, 10)
		},
		"deleted and set again": func(txn *Txn, k *Key) {
			putLarge(txn, k, layout.HashType, 20)
			txn.Delete(k)
			putLarge(txn, k, layout.HashType, 10)
		},
		"failed before the record": func(txn *Txn, k *Key) {
			before := k.Rec
			k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: txn.NewGeneration()}
			for i := range 20 {
				txn.PutElement(k, fmt.Appendf(nil, "%04d", i), []byte("value"))
			}
			k.Rec = before
			putLarge(txn, k, layout.String, 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t)
			defer closeTest(t, s)
			for range 3 { // the second time over a value that is there
				inTxn(t, s, "k", f)
				for range 3 {
					if err := s.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				if n := countRows(t, s); n != 11 {
					t.Fatalf("%d rows, want a record and its 10 elements", n)
				}
			}
			inTxn(t, s, "k", func(txn *Txn, k *Key) {
				putLarge(txn, k, layout.String, 20)
				txn.Delete(k)
			})
			for range 3 {
				if err := s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if n := countRows(t, s); n != 0 {
				t.Fatalf("%d rows of a key that was deleted", n)
			}
		})
	}
}

// A staged value that was adopted and then replaced within the transaction is dropped as if never adopted.
func TestUnnamedStaged(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	g := stageRows(t, s, "k", 100)
	inTxn(t, s, "k", func(txn *Txn, k *Key) {
		if err := txn.Adopt(g); err != nil {
			t.Fatal(err)
		}
		k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: g.Gen(), Count: 101}
		txn.PutElement(k, []byte("more"), []byte("value"))
		txn.Put(k)
		putLarge(txn, k, layout.HashType, 10)
	})
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := countRows(t, s); n != 11 {
		t.Fatalf("%d rows, want a record and its 10 elements", n)
	}
}

// A deadline that lies in the past from the first hides the key from what follows in the same transaction, as
// it does from other transactions; where nothing expires, it does not.
func TestPastDeadlineWithinTxn(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	txn := s.NewTxn()
	name := []byte("k")
	for _, c := range []struct {
		now  int64
		want bool
	}{{1000, false}, {Forever, true}} {
		txn.Begin([]uint16{slot.Of(name)}, true, c.now)
		k, err := txn.Key(name)
		if err != nil {
			t.Fatal(err)
		}
		k.Rec = layout.Record{Type: layout.String, Body: []byte("v"), Deadline: 1}
		txn.Put(k)
		txn.LogStrings("SET", name, []byte("v"), []byte("PXAT"), []byte("1"))
		again, err := txn.Key(name)
		if err != nil {
			t.Fatal(err)
		}
		if again.Exists() != c.want {
			t.Errorf("at %d the key exists: %v, want %v", c.now, again.Exists(), c.want)
		}
		if _, err := txn.Commit(); err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		if c.want {
			want = 1
		}
		if got := s.Keys(); got != want {
			t.Errorf("at %d: %d keys counted, want %d", c.now, got, want)
		}
	}
}
