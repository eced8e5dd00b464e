package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// copyRows makes the data of one store that of another, as rows in order.
func copyRows(t *testing.T, from, to *Store, log *cutLog, offset int64) (rows int) {
	t.Helper()
	sn, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close() //nolint:errcheck // of a snapshot that was read only
	r, err := to.NewReplacement()
	if err == nil {
		err = r.Expect(sn.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	err = sn.Rows(func(key, val []byte) error {
		rows++
		return r.PutRow(key, val)
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Keys() != sn.Keys() {
		t.Fatalf("%d keys were copied, the snapshot has %d", r.Keys(), sn.Keys())
	}
	if err := r.Commit([]byte("history copied"), offset, log.resetTo(offset)); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Rows of one store are another's data: keys, values, counters; what waits to be dropped stays behind, and no generation
// is given out that came along.
func TestCopyRows(t *testing.T) {
	const n = 3000
	log := &cutLog{}
	from, _ := openWithLog(t, replaceOptions(vfs.NewMem()), log)
	commitSet(t, from, log, "set", n, 10)
	// Values of rows that are dropped while nothing gives their space back.
	txn := from.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte("gone"))}, true, 1000)
	k, err := txn.Key([]byte("gone"))
	if err != nil {
		t.Fatal(err)
	}
	sl := slot.Of([]byte("gone"))
	txn.End()
	gen := from.nextGen.Add(1) - 1
	b := from.db.NewBatch()
	for i := range 50 {
		err = errors.Join(err, b.Set(layout.AppendElementKey(nil, sl, gen, fmt.Appendf(nil, "f%d", i)), []byte("dead"), nil),
			b.Set(layout.AppendChunkKey(nil, sl, gen+1, uint32(i)), []byte("dead"), nil))
	}
	err = errors.Join(err, b.Set(layout.AppendDropKey(nil, sl, gen), layout.Drop{Count: 50}.Append(nil), nil),
		b.Set(layout.AppendDropKey(nil, sl, gen+1), layout.Drop{Chunks: true, Count: 50}.Append(nil), nil),
		from.db.Apply(b, pebble.NoSync))
	if err != nil || k.Exists() {
		t.Fatal(err)
	}

	fs, other := vfs.NewMem(), &cutLog{}
	to, _ := openWithLog(t, replaceOptions(fs), other)
	commitSet(t, to, other, "old", 500, 5)
	rows := copyRows(t, from, to, other, 99)
	checkSet(t, to, "set", n)
	// A record each, deadlines, value rows, three elements each; and the rows of no other kind.
	if want := n + n/10 + n/10 + 3*(n/10); rows != want {
		t.Errorf("%d rows were copied, want %d", rows, want)
	}
	if from.nextGen.Load() > to.nextGen.Load()+2 { // the two that were dropped did not come along
		t.Errorf("next generation %d, behind a copy of generations below %d", to.nextGen.Load(), from.nextGen.Load())
	}
	for sl := range uint16(16384) {
		if a, b := from.SlotCounters(sl), to.SlotCounters(sl); a != b {
			t.Fatalf("slot %d: counters %+v, want %+v", sl, b, a)
		}
	}
	for _, s := range []*Store{from, to} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	to, opened := openWithLog(t, replaceOptions(fs), other)
	if opened.Applied != 99 || string(opened.History) != "history copied" {
		t.Errorf("opened at %d, %q", opened.Applied, opened.History)
	}
	checkSet(t, to, "set", n)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

// Rows that no snapshot gives are refused, and leave the old set in place.
func TestBadRows(t *testing.T) {
	log := &cutLog{}
	s, _ := openWithLog(t, replaceOptions(vfs.NewMem()), log)
	commitSet(t, s, log, "old", 100, 5)
	rec := (&layout.Record{Type: layout.String, Body: []byte("v")}).Append(nil)
	first := layout.AppendRecordKey(nil, 100, layout.Hash([]byte("a")), []byte("a"))
	for name, row := range map[string][2][]byte{
		"the same again":    {first, rec},
		"before":            {layout.AppendRecordKey(nil, 99, 0, []byte("z")), rec},
		"of the node":       {layout.StateKey(), nil},
		"of no space":       {bytes.Repeat([]byte{9}, 20), nil},
		"of no slot":        {layout.AppendRecordKey(nil, 17000, 0, []byte("z")), rec},
		"a drop":            {layout.AppendDropKey(nil, 100, 7), nil},
		"short":             {first[:2], nil},
		"no record":         {layout.AppendRecordKey(nil, 101, 0, []byte("z")), []byte{255}},
		"a last generation": {layout.AppendElementKey(nil, 101, 1<<64-1, nil), nil},
	} {
		r, err := s.NewReplacement()
		if err == nil {
			err = r.Expect(1000)
		}
		if err == nil {
			err = r.PutRow(first, rec)
		}
		if err != nil {
			t.Fatal(err)
		}
		var wrong *RowError
		if err := r.PutRow(row[0], row[1]); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.PutRecord(1, []byte("a"), &layout.Record{}); err == nil {
			t.Errorf("%s: a record was taken in another way than the rows", name)
		}
		if err := r.Abort(); err != nil {
			t.Fatal(err)
		}
	}
	checkSet(t, s, "old", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
