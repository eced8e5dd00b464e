package engine

import (
	"bytes"
	"fmt"
	"testing"

	"cairn/engine/cache"
	"cairn/engine/layout"
)

// TestRecordStands: a record is written again exactly when it says something else than before.
func TestRecordStands(t *testing.T) {
	same := func(x *Txn, k *Key) {}
	for name, tc := range map[string]struct {
		before, change func(x *Txn, k *Key)
		written        bool
	}{
		"another value": {same, same, false},
		"shorter":       {same, func(x *Txn, k *Key) { k.Rec.Count--; x.SetValue(k, k.value[1:]) }, true},
		"deadline":      {same, func(x *Txn, k *Key) { k.Rec.Deadline = 1 << 50 }, true},
		"no deadline":   {func(x *Txn, k *Key) { k.Rec.Deadline = 1 << 50 }, same, true},
		"same deadline": {func(x *Txn, k *Key) { k.Rec.Deadline = 1 << 50 }, func(x *Txn, k *Key) { k.Rec.Deadline = 1 << 50 }, false},
		"encoding":      {same, func(x *Txn, k *Key) { k.Rec.Enc = 2 }, true},
		"arrived":       {func(x *Txn, k *Key) { k.Rec.Arrived = true }, same, true},
		"with a body":   {same, func(x *Txn, k *Key) { k.Rec.Body = []byte("b") }, true},
		"same body":     {func(x *Txn, k *Key) { k.Rec.Body = []byte("b") }, func(x *Txn, k *Key) { k.Rec.Body = []byte("b") }, true},
		"inline":        {same, func(x *Txn, k *Key) { k.Rec = layout.Record{Type: layout.String, Body: []byte("b")}; k.setVal = false }, true},
		"made anew": {same, func(x *Txn, k *Key) {
			rec, val := k.Rec, bytes.Clone(k.value)
			x.Delete(k)
			k.Rec = rec
			x.SetValue(k, val)
		}, false},
		"gone": {same, func(x *Txn, k *Key) { x.Delete(k) }, true},
	} {
		for _, inMemory := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", inMemory), func(t *testing.T) {
				s := openValueStore(t)
				s.put(1, func(_ int, k *Key) { tc.before(s.txn, k) })
				s.txn.Begin(s.slot, true, 1000)
				if inMemory {
					s.look(s.txn.Key(s.name(0)))
					s.txn.End()
					s.txn.Begin(s.slot, true, 1000)
				}
				k := s.look(s.txn.Key(s.name(0)))
				k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: k.Rec.Count}
				s.txn.SetValue(k, bytes.Repeat([]byte("n"), int(k.Rec.Count)))
				s.txn.Put(k)
				tc.change(s.txn, k)
				want, val := k.Rec, bytes.Clone(k.value)
				want.Body = bytes.Clone(want.Body)
				s.txn.LogStrings("X")
				if _, err := s.txn.Commit(); err != nil {
					t.Fatal(err)
				}
				if got := len(s.cache.DirtyRecords(s.slot[0])) > 0; got != tc.written {
					t.Errorf("written: %v, want %v", got, tc.written)
				}
				if h := layout.Hash(s.name(0)); want.Type != 0 && s.cache.Has(kindRecord, s.slot[0], h, s.name(0)) != cache.Hit {
					t.Error("the record is not in memory, where its use counts")
				}
				s.forget()
				s.txn.Begin(s.slot, false, 1000)
				defer s.txn.End()
				k = s.look(s.txn.Key(s.name(0)))
				if fmt.Sprintf("%+v", k.Rec) != fmt.Sprintf("%+v", want) {
					t.Errorf("record %+v, want %+v", k.Rec, want)
				}
				if want.Form != layout.ValueRow {
					return
				}
				if v, err := s.txn.Value(k); err != nil || !bytes.Equal(v, val) {
					t.Errorf("%d bytes, %v", len(v), err)
				}
			})
		}
	}
}
