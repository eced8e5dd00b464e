package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// When everything was deleted, by one key after the other or by slots, the files go, though nobody writes any more.
func TestSpaceReturns(t *testing.T) {
	for name, empty := range map[string]func(t *testing.T, s *Store, txn *Txn, keys []string){
		"deletes": func(t *testing.T, s *Store, txn *Txn, keys []string) {
			// All at once: a collection in the middle would leave less than what is worth another one, and these few rows
			// hold the files of values that they share with others until Pebble rewrites these, when they are old enough and it
			// has nothing better to do.
			txn.BeginAll(true, 1000)
			for _, key := range keys {
				k, err := txn.Key([]byte(key))
				if err != nil {
					t.Fatal(err)
				}
				txn.Delete(k)
			}
			txn.LogStrings("DEL")
			if _, err := txn.Commit(); err != nil {
				t.Fatal(err)
			}
		},
		"drop of everything": func(t *testing.T, s *Store, txn *Txn, keys []string) {
			txn.BeginAll(true, 1000)
			txn.DropAll()
			txn.LogStrings("FLUSHALL")
			if _, err := txn.Commit(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20, GarbageInterval: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Attach(&memLog{}); err != nil {
				t.Fatal(err)
			}
			defer closeTest(t, s)
			r := rand.New(rand.NewPCG(1, 2))
			var keys []string
			txn := s.NewTxn()
			for i := range 30_000 {
				key := fmt.Sprint("key", i)
				keys = append(keys, key)
				value := make([]byte, 300+r.IntN(800))
				for j := range value {
					value[j] = byte(r.Uint32())
				}
				txn.Begin([]uint16{slot.Of([]byte(key))}, true, 1000)
				k, err := txn.Key([]byte(key))
				if err != nil {
					t.Fatal(err)
				}
				k.Rec = layout.Record{Type: layout.String}
				if len(value) <= layout.InlineMax {
					k.Rec.Body = value
				} else {
					k.Rec.Form, k.Rec.Count = layout.ValueRow, uint64(len(value))
					txn.SetValue(k, value)
				}
				txn.Put(k)
				if _, err := txn.Commit(); err != nil {
					t.Fatal(err)
				}
				if i%1000 == 0 {
					if err := s.Reserve(0); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			full := s.Metrics().DiskBytes
			if full < 15<<20 {
				t.Fatalf("%d bytes on disk, too few for a test", full)
			}
			empty(t, s, txn, keys)
			t.Cleanup(func() {
				if t.Failed() {
					wanted, total := s.garbagePages()
					t.Logf("%d bytes on disk, %d before; garbage %d, pages %v", s.Metrics().DiskBytes, full, total, wanted)
				}
			})
			// A collection that came in the middle of it leaves what is too little for another one.
			testkit.Eventually(t, 20*time.Second, func() bool { return s.Metrics().DiskBytes < full/5+garbageMin }, "space to come back")
		})
	}
}
