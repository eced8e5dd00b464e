package engine

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// A store that is reverted has what was durable and nothing after, wherever the rest was: pending, or in a memtable.
// It goes on as after an opening.
func TestRevert(t *testing.T) {
	fs, log, effects := vfs.NewMem(), &cutLog{}, &markEffects{}
	s, _ := openWithLog(t, replaceOptions(fs), log)
	s.SetEffects(effects)
	commitSet(t, s, log, "old", 300, 1000)
	txn := s.NewTxn()
	for i := range 100 {
		set(t, txn, fmt.Sprint("k", i), "applied")
	}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		set(t, txn, fmt.Sprint("k", i), "pending")
	}
	staged, err := s.Stage(slot.Of([]byte("k1")), true)
	if err != nil {
		t.Fatal(err)
	}
	gen := s.nextGen.Load()
	if err := staged.Put([]byte{0, 0, 0, 0}, []byte("v")); err != nil {
		t.Fatal(err)
	}
	durable, err := s.Revert()
	if err != nil || durable != 1000 || s.Applied() != 1000 || s.Durable() != 1000 {
		t.Fatalf("reverted to %d, applied %d, durable %d, %v", durable, s.Applied(), s.Durable(), err)
	}
	if err := staged.Finish(); err != nil || !staged.Stale() {
		t.Errorf("a value that was being staged: %v, stale %v", err, staged.Stale())
	}
	if err := staged.Close(); err != nil {
		t.Fatal(err)
	}
	if now := s.nextGen.Load(); now < gen {
		t.Errorf("generations go on at %d, %d was reached", now, gen)
	}
	if effects.all.Load() != 2 {
		t.Errorf("watchers heard %d times that everything has changed, want 2", effects.all.Load())
	}
	checkSet(t, s, "old", 300)
	// What the owner executes from its log, and then its clients' commands.
	s.Replaying(1500)
	set(t, txn, "k5", "replayed")
	log.end.Store(1500)
	if err := s.Attach(log); err != nil {
		t.Fatal(err)
	}
	set(t, txn, "k6", "new")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, opened := openWithLog(t, replaceOptions(fs), log)
	txn = s.NewTxn()
	if got := get(t, txn, "k5") + get(t, txn, "k6") + get(t, txn, "k7"); got != "replayednewold7" || opened.Applied <= 1500 {
		t.Errorf("after a restart at %d: %s", opened.Applied, got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Walks that are open when a store is reverted end with an error at their next step; a store with one that does not
// end stays as it is.
func TestRevertUnderReaders(t *testing.T) {
	log := &cutLog{}
	s, _ := openWithLog(t, replaceOptions(vfs.NewMem()), log)
	commitSet(t, s, log, "old", 300, 1000)
	open := func() *Iter {
		name := []byte("k2")
		txn := s.NewTxn()
		txn.Begin([]uint16{slot.Of(name)}, false, 1000)
		defer txn.End()
		k, err := txn.Key(name)
		if err != nil {
			t.Fatal(err)
		}
		it, err := txn.Elements(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
	it := open()
	var walker sync.WaitGroup
	var ended error
	walker.Go(func() {
		for it.Valid() {
			if _, err := layout.DecodeHashValue(it.Value()); err != nil {
				t.Error(err)
			}
			it.Seek(nil)
		}
		ended = it.Close()
	})
	if _, err := s.Revert(); err != nil {
		t.Fatal(err)
	}
	walker.Wait()
	if !errors.Is(ended, ErrReverted) {
		t.Errorf("walk ended with %v", ended)
	}
	log.end.Store(s.Applied())
	if err := s.Attach(log); err != nil {
		t.Fatal(err)
	}
	sn, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	set(t, s.NewTxn(), "k3", "here to stay")
	s.opts.RevertPatience = 10 * time.Millisecond
	if _, err := s.Revert(); !errors.Is(err, ErrBusy) {
		t.Errorf("with a snapshot open: %v", err)
	}
	checkSnapshot(t, sn, "old", 300)
	if err := sn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s.NewTxn(), "k3"); got != "here to stay" {
		t.Errorf("after a revert that was refused: %s", got)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// readWhole reads a key of some set, whichever is there, and finds all of its value.
func readWhole(t *testing.T, s *Store, txn *Txn, name string) {
	txn.Begin([]uint16{slot.Of([]byte(name))}, false, 1000)
	k, err := txn.Key([]byte(name))
	if err != nil {
		t.Error(err)
	}
	if !k.Exists() || k.Rec.Form != layout.Rows {
		if v, err := txn.Value(k); k.Exists() && (err != nil || len(v) == 0 || v[0] < 'a' || v[0] > 'e') {
			t.Errorf("%s is %.20q, %v", name, v, err)
		}
		txn.End()
		return
	}
	it, err := txn.Elements(k, nil)
	txn.End()
	if err != nil {
		t.Error(err)
		return
	}
	rows := 0
	for ; it.Valid(); it.Next() {
		rows++
	}
	if err := it.Close(); err != nil && !errors.Is(err, ErrReverted) || err == nil && rows != 3 {
		t.Errorf("%s: %d rows, %v", name, rows, err)
	}
}

// Clients read and write while sets take each other's place, snapshots are taken and data is taken back: nothing that
// they see is half of anything, and the counts are right at the end.
func TestSwapsUnderLoad(t *testing.T) {
	log := &cutLog{}
	o := replaceOptions(vfs.NewMem())
	o.CutInterval = time.Millisecond
	s, _ := openWithLog(t, o, log)
	commitSet(t, s, log, "a", 300, 10)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var writing sync.RWMutex // nobody writes between Revert and Attach
	for c := range 4 {
		clients.Go(func() {
			txn := s.NewTxn()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprint("k", (i*7+c)%300)
				if i%3 != 0 {
					readWhole(t, s, txn, name)
					continue
				}
				writing.RLock()
				set(t, txn, "w"+name, "written")
				writing.RUnlock()
			}
		})
	}
	for i, tag := range []string{"b", "c", "d", "e"} {
		commitSet(t, s, log, tag, 300, int64(1000*(4-i)))
		sn, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if sn.Keys() < 300 {
			t.Errorf("snapshot has %d keys", sn.Keys())
		}
		if err := sn.Close(); err != nil {
			t.Fatal(err)
		}
		writing.Lock()
		if _, err := s.Revert(); err != nil {
			t.Fatal(err)
		}
		log.end.Store(s.Applied())
		if err := s.Attach(log); err != nil {
			t.Fatal(err)
		}
		writing.Unlock()
	}
	close(stop)
	clients.Wait()
	commitSet(t, s, log, "last", 300, 50)
	checkSet(t, s, "last", 300)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
