package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// putPieced gives k a field more, whose value is in pieces that the transaction holds.
func putPieced(txn *Txn, k *Key, field string, pieces int) (number uint64) {
	number = txn.NewNumber()
	for i := range pieces {
		txn.PutPiece(k, number, uint32(i), make([]byte, layout.PieceBytes))
	}
	namePieces(txn, k, field, number, pieces)
	return number
}

func namePieces(txn *Txn, k *Key, field string, number uint64, pieces int) {
	length := uint64(pieces) * layout.PieceBytes
	txn.PutElement(k, layout.AppendHashElement(nil, []byte(field)), layout.AppendHashPieces(nil, number, length, 0))
	k.Rec.Count++
	k.Rec.Bytes += uint64(len(field)) + length
	txn.Put(k)
}

func newHash(txn *Txn, k *Key) {
	k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: txn.NewGeneration()}
}

// stagePieces stages a value in pieces for the hash at key, and leaves it at that.
func stagePieces(t *testing.T, s *Store, key string, gen uint64, pieces int) *Staged {
	t.Helper()
	g, err := s.StagePieces(slot.Of([]byte(key)), gen)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		if err := g.PutPiece(g.Number(), uint32(i), make([]byte, layout.PieceBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	return g
}

// rowsGone waits until the store has just so many rows.
func rowsGone(t *testing.T, s *Store, want int, what string) {
	t.Helper()
	n := 0
	testkit.Eventually(t, 10*time.Second, func() bool {
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		n = countRows(t, s)
		return n == want
	}, "%s: %d rows are to be left", what, want)
}

// A value in pieces comes and goes with its field, and all of them with their hash; what was staged for a hash that is in
// use and never adopted goes alone, also after a crash.
func TestPieces(t *testing.T) {
	fs := vfs.NewMem()
	log := &memLog{}
	open := func() *Store {
		s, _, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 64 << 20, DropRowsMax: 100})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(log); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	var gen, first uint64
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		newHash(txn, k)
		gen = k.Rec.Gen
		first = putPieced(txn, k, "a", 7)
		putPieced(txn, k, "b", 9)
	})
	rowsGone(t, s, 1+2+7+9, "a hash of two fields")
	stagePieces(t, s, "h", gen, 200) // neither adopted nor closed, as when the process dies
	unused := stagePieces(t, s, "h", gen, 20)
	if err := unused.Close(); err != nil {
		t.Fatal(err)
	}
	g := stagePieces(t, s, "h", gen, 150)
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		if err := txn.Adopt(g); err != nil {
			t.Fatal(err)
		}
		namePieces(txn, k, "c", g.Number(), 150)
		txn.DropPieces(k, first, 7) // it is named no more
		number := putPieced(txn, k, "a", 3)
		if it, err := txn.Pieces(k, nil); err != nil || !seesPieces(it, number, 3) {
			t.Errorf("pieces of the same transaction are not seen, %v", err)
		}
	})
	rowsGone(t, s, 1+3+3+9+150+1+200, "what was staged and not adopted is still listed")
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	s = open()
	rowsGone(t, s, 1+3+3+9+150, "a value that was staged when the process died")
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		it, err := txn.Pieces(k, nil)
		if err != nil || !seesPieces(it, g.Number(), 150) {
			t.Errorf("the adopted value is not there, %v", err)
		}
		if n := txn.NewNumber(); n <= g.Number() {
			t.Errorf("number %d is given out again, %d was", n, g.Number())
		}
	})
	inTxn(t, s, "h", func(txn *Txn, k *Key) { txn.Delete(k) })
	rowsGone(t, s, 0, "the hash is deleted")
	closeTest(t, s)
}

// seesPieces says whether a walk has all pieces of a value, and closes it.
func seesPieces(it *Iter, number uint64, pieces int) bool {
	n := 0
	for it.Seek(layout.AppendPiece(nil, number, 0)); it.Valid(); it.Next() {
		if got, piece, err := layout.PieceParts(it.Key()); err != nil || got != number || piece != uint32(n) {
			break
		}
		n++
	}
	return it.Close() == nil && n == pieces
}

// A staged value is not adopted for a hash that was replaced: it goes with what the hash was. A transaction that
// adopts one and then deletes the hash leaves nothing either.
func TestPiecesOfAnotherHash(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	var gen uint64
	hash := func(txn *Txn, k *Key) {
		newHash(txn, k)
		gen = k.Rec.Gen
		putPieced(txn, k, "a", 7)
	}
	inTxn(t, s, "h", hash)
	g := stagePieces(t, s, "h", gen, 50)
	inTxn(t, s, "h", hash)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	rowsGone(t, s, 1+1+7, "the hash is another one")
	g = stagePieces(t, s, "h", gen, 50)
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		if err := txn.Adopt(g); err != nil {
			t.Fatal(err)
		}
		namePieces(txn, k, "b", g.Number(), 50)
		txn.DropPieces(k, g.Number(), 50)
		txn.Delete(k)
	})
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	rowsGone(t, s, 0, "the hash is deleted")
	inTxn(t, s, "h", func(txn *Txn, k *Key) { // a hash that comes and goes in one transaction
		hash(txn, k)
		txn.DropPieces(k, putPieced(txn, k, "b", 6), 6)
		txn.Delete(k)
	})
	rowsGone(t, s, 0, "the hash was never there")
}

// The rows that are sent to another node are those that are named, and that node gives none of their numbers out again.
func TestPiecesInRows(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	var gen, gone, kept uint64
	for range 100 {
		s.NewNumber()
	}
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		newHash(txn, k)
		gen = k.Rec.Gen
		gone = putPieced(txn, k, "a", 7)
		kept = putPieced(txn, k, "b", 9)
	})
	g := stagePieces(t, s, "h", gen, 12)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	// Listed, and not gone yet.
	sl := slot.Of([]byte("h"))
	listed := layout.Drop{Pieces: true, Count: 7}
	if err := s.db.Set(layout.AppendPieceDropKey(nil, sl, gen, gone), listed.Append(nil), pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	sn, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	to := openTest(t)
	defer closeTest(t, to)
	into, err := to.NewReplacement()
	if err == nil {
		err = into.Expect(sn.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	err = sn.Rows(func(key, val []byte) error {
		if rows++; bytes.HasPrefix(key, layout.AppendDropKey(nil, sl, gen)) {
			return fmt.Errorf("row %x lists what waits to be dropped", key)
		}
		return into.PutRow(key, val)
	})
	if err == nil {
		err = into.Commit(nil, 0, func() error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := 1 + 2 + 9; rows != want {
		t.Errorf("%d rows are sent, want %d: neither the value that is gone nor the one that is staged", rows, want)
	}
	if n := to.NewNumber(); n <= kept {
		t.Errorf("number %d is given out again, the rows have %d", n, kept)
	}
	if err := sn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// A walk over fields and one over their pieces have one life: what either brings keeps both.
func TestPiecesLiveWithTheirWalk(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	inTxn(t, s, "h", func(txn *Txn, k *Key) {
		newHash(txn, k)
		putPieced(txn, k, "a", 7)
	})
	txn := s.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte("h"))}, false, 1000)
	k, err := txn.Key([]byte("h"))
	if err != nil {
		t.Fatal(err)
	}
	fields, err := txn.Elements(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := txn.Pieces(k, fields)
	if err != nil {
		t.Fatal(err)
	}
	txn.End()
	fields.life.opened = fields.life.opened.Add(-2 * s.opts.IteratorLifetime)
	pieces.life.brought = int64(s.opts.IteratorLifetime.Seconds()) * 2 * slowestWalk
	for range 2 * ageEvery {
		fields.Seek(nil)
	}
	if !fields.Valid() {
		t.Errorf("the walk over fields has ended: %v", fields.Err())
	}
	fields.life.brought = 0
	for range 2 * ageEvery {
		pieces.Seek(nil)
	}
	if pieces.Valid() {
		t.Error("a walk that stands still lives on")
	}
	_ = pieces.Close() // it tells so again
	if err := fields.Close(); err != nil {
		t.Fatal(err)
	}
}
