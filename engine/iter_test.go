package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// A walk that outlives its transaction can be repositioned, and sees what was there when it was made.
func TestIterSeek(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	const key = "k"
	inTxn(t, s, key, func(txn *Txn, k *Key) { putLarge(txn, k, layout.HashType, 100) })
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	change := func(val string, from, to int) {
		inTxn(t, s, key, func(txn *Txn, k *Key) {
			for i := from; i < to; i++ {
				txn.PutElement(k, fmt.Appendf(nil, "%04d", i), []byte(val))
			}
			txn.Put(k)
		})
	}
	change("pending", 50, 120)
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte(key))}, false, 1000)
	k, err := txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	it, err := txn.Elements(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	txn.End()
	change("later", 0, 200)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{110, 3, 49, 50, 0, 119, 120} {
		it.Seek(fmt.Appendf(nil, "%04d", i))
		if i == 120 {
			if it.Valid() {
				t.Errorf("element %d is there, and was not when the walk was made", i)
			}
			continue
		}
		want := "value"
		if i >= 50 {
			want = "pending"
		}
		if !it.Valid() || string(it.Key()) != fmt.Sprintf("%04d", i) || string(it.Value()) != want {
			t.Errorf("seek to %d: stands on a row: %v, want value %q", i, it.Valid(), want)
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}

// A walk ends with an error once its time is over, wherever it stands.
func TestIterTooOld(t *testing.T) {
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20, IteratorLifetime: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	defer closeTest(t, s)
	inTxn(t, s, "k", func(txn *Txn, k *Key) {
		putLarge(txn, k, layout.HashType, 2*ageEvery)
		it, err := txn.Elements(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for ; it.Valid(); it.Next() {
			rows++
		}
		it.Seek(nil)
		if it.Valid() {
			t.Error("a walk that is too old goes on after a seek")
		}
		if err := it.Close(); rows != ageEvery || !errors.Is(err, ErrIterTooOld) {
			t.Errorf("walk of %d rows ended after %d with %v, want %d and %v", 2*ageEvery, rows, err, ageEvery, ErrIterTooOld)
		}
	})
}

// A walk that brings much lives longer than one that stands still, and none for ever.
func TestIterLivesOnWhatItBrings(t *testing.T) {
	const limit = time.Minute
	s, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 64 << 20, IteratorLifetime: limit})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	defer closeTest(t, s)
	for _, c := range []struct {
		age     time.Duration
		brought int64 // bytes
		lives   bool
	}{
		{0, 0, true},
		{limit / 2, 0, true},
		{2 * limit, 0, false},
		{2 * limit, 30 * slowestWalk, false},
		{2 * limit, 90 * slowestWalk, true},
		{longestWalk*limit - time.Second, 1 << 50, true},
		{longestWalk*limit + time.Second, 1 << 50, false},
		{longestWalk*limit + time.Second, 1 << 62, false},
	} {
		inTxn(t, s, "k", func(txn *Txn, k *Key) {
			putLarge(txn, k, layout.HashType, 2*ageEvery)
			it, err := txn.Elements(k, nil)
			if err != nil {
				t.Fatal(err)
			}
			it.life.opened, it.life.brought = it.life.opened.Add(-c.age), c.brought
			for it.Valid() {
				it.Value()
				it.Next()
			}
			if err := it.Close(); errors.Is(err, ErrIterTooOld) == c.lives {
				t.Errorf("walk of age %v that brought %d bytes ended with %v; is to live: %v", c.age, c.brought, err, c.lives)
			}
		})
	}
}
