package engine

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A store whose disk has no room closes all the same, whether nothing is being flushed, a flush is failing already, or the
// applier waits for the memtables that cannot be flushed. What was durable before is there afterwards, the rest is the log's.
func TestCloseWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(t *testing.T, s *Store, txn *Txn)
	}{
		{"nothing under way", func(t *testing.T, s *Store, txn *Txn) { set(t, txn, "b", "2") }},
		{"a flush fails", func(t *testing.T, s *Store, txn *Txn) {
			set(t, txn, "b", "2")
			s.applying.Lock()
			defer s.applying.Unlock()
			if err := s.applyHeld(); err != nil {
				t.Fatal(err)
			}
			if err := s.startFlush(s.Applied()); err != nil {
				t.Fatal(err)
			}
		}},
		{"the applier waits for memtables", func(t *testing.T, s *Store, txn *Txn) {
			value := strings.Repeat("v", 1<<20)
			for n := 0; s.Pending() < s.opts.pendingBytes()*3/4; n++ { // until nothing is applied any more
				set(t, txn, "many", value)
				if n > 4096 {
					t.Fatal("everything is applied although nothing can be flushed")
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			var full atomic.Bool
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind == errorfs.OpFileWrite && isBulk(op.Path) {
					return syscall.ENOSPC
				}
				return nil
			}))
			s, _, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Attach(&memLog{}); err != nil {
				t.Fatal(err)
			}
			txn := s.NewTxn()
			set(t, txn, "a", "1")
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			durable := s.Durable()
			full.Store(true)
			c.fill(t, s, txn)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			after, opened, err := Open(Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}), Dir: "s", MemoryBudget: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			if opened.Applied != durable {
				t.Errorf("opened at offset %d, want %d, which was durable before", opened.Applied, durable)
			}
			if err := after.Attach(&memLog{}); err != nil {
				t.Fatal(err)
			}
			if got := get(t, after.NewTxn(), "a"); got != "1" {
				t.Errorf("a is %q", got)
			}
			if err := after.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
