package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// valueStore is a store whose keys are all in Pebble and none in memory.
type valueStore struct {
	*Store
	t    *testing.T
	txn  *Txn
	slot []uint16
}

func openValueStore(t *testing.T) *valueStore {
	t.Helper()
	st, _, err := Open(Options{FS: vfs.NewMem(), Dir: "s", MemoryBudget: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Attach(&memLog{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &valueStore{st, t, st.NewTxn(), []uint16{slot.Of([]byte("{s}"))}}
}

func (s *valueStore) value(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 600+i) }

func (s *valueStore) name(i int) []byte { return fmt.Appendf(nil, "{s}%d", i) }

// put commits n values of different lengths, the records as change leaves them, and empties the memory.
func (s *valueStore) put(n int, change func(i int, k *Key)) {
	s.t.Helper()
	s.txn.Begin(s.slot, true, Forever)
	for i := range n {
		k := s.look(s.txn.Key(s.name(i)))
		k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(s.value(i)))}
		s.txn.SetValue(k, s.value(i))
		s.txn.Put(k)
		if change != nil {
			change(i, k)
		}
	}
	s.txn.LogStrings("X")
	if _, err := s.txn.Commit(); err != nil {
		s.t.Fatal(err)
	}
	s.forget()
}

func (s *valueStore) forget() {
	s.t.Helper()
	if err := s.Flush(); err != nil {
		s.t.Fatal(err)
	}
	limit := s.cache.Limit()
	s.cache.SetLimit(0)
	s.cache.SetLimit(limit)
}

func (s *valueStore) look(k *Key, err error) *Key {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

// recordRead says whether the record of a key was read: it is in memory then.
func (s *valueStore) recordRead(i int) bool {
	name := s.name(i)
	return s.cache.Has(kindRecord, s.slot[0], layout.Hash(name), name) != cache.Miss
}

// get is what GET does, in a transaction of its own.
func (s *valueStore) get(i int) {
	s.t.Helper()
	s.txn.Begin(s.slot, false, 1000)
	defer s.txn.End()
	k := s.look(s.txn.KeyForValue(s.name(i), true))
	v, err := s.txn.Value(k)
	if err != nil || !k.Exists() || !bytes.Equal(v, s.value(i)) || k.Rec.Count != uint64(len(v)) {
		s.t.Errorf("value %d: %d bytes, %v, record %+v", i, len(v), err, k.Rec)
	}
}

// Once a slot is known to hold strings with a row of their own, that row is all that is read of one.
func TestOneRowIsReadForAValue(t *testing.T) {
	s := openValueStore(t)
	s.put(10, nil)
	for i := range 10 {
		s.get(i)
		if s.recordRead(i) != (i == 0) {
			t.Errorf("key %d: record read: %v", i, s.recordRead(i))
		}
	}
	// The second time the value is in memory, and the record comes beside it.
	s.get(5)
	if !s.recordRead(5) {
		t.Error("the record of a value in use was not read")
	}
}

// Where a key has a deadline, records are read: the value does not tell whose time has passed.
func TestDeadlineIsNotOverlooked(t *testing.T) {
	s := openValueStore(t)
	s.put(10, nil)
	s.get(0)
	s.put(10, func(i int, k *Key) {
		if i == 7 {
			k.Rec.Deadline = 900
		}
	})
	for i := range 7 {
		s.get(i)
		if !s.recordRead(i) {
			t.Errorf("key %d: record not read", i)
		}
	}
	s.txn.Begin(s.slot, false, 1000)
	defer s.txn.End()
	if k := s.look(s.txn.KeyForValue(s.name(7), true)); k.Exists() || !k.Expired() {
		t.Errorf("a key whose time has passed has record %+v", k.Rec)
	}
}

// Whoever wants more of a key than its value gets its record, in the same transaction as well.
func TestRecordAfterValue(t *testing.T) {
	s := openValueStore(t)
	s.put(3, func(_ int, k *Key) { k.Rec.Arrived, k.Rec.Enc = true, 7 })
	s.get(0)
	s.txn.Begin(s.slot, true, 1000)
	k := s.look(s.txn.KeyForValue(s.name(1), false))
	if k.Rec.Arrived || s.recordRead(1) {
		t.Error("the record was read for the value")
	}
	again := s.look(s.txn.Key(s.name(1)))
	if again != k || !k.Rec.Arrived || k.Rec.Enc != 7 || k.Rec.Count != uint64(len(s.value(1))) {
		t.Errorf("record %+v", k.Rec)
	}
	if v, err := s.txn.Value(k); err != nil || !bytes.Equal(v, s.value(1)) {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	s.txn.Delete(k)
	s.txn.LogStrings("X")
	if _, err := s.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if c := s.SlotCounters(s.slot[0]); c.Keys != 2 || c.Bytes != int64(2*len(s.name(0))+len(s.value(0))+len(s.value(2))) {
		t.Errorf("counters %+v", c)
	}
}

// A deleted key whose deletion is in memory only is not found by the value row that Pebble still has, and a new value wins.
func TestMemoryWinsOverValueRow(t *testing.T) {
	s := openValueStore(t)
	s.put(4, nil)
	s.get(0)
	s.txn.Begin(s.slot, true, 1000)
	s.txn.Delete(s.look(s.txn.Key(s.name(1))))
	k := s.look(s.txn.Key(s.name(2)))
	k.Rec = layout.Record{Type: layout.String, Body: []byte("short")}
	s.txn.Put(k)
	s.txn.LogStrings("X")
	if _, err := s.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	s.txn.Begin(s.slot, true, 1000)
	defer s.txn.End()
	if k := s.look(s.txn.KeyForValue(s.name(1), true)); k.Exists() {
		t.Errorf("a deleted key has record %+v", k.Rec)
	}
	k = s.look(s.txn.KeyForValue(s.name(2), true))
	if v, err := s.txn.Value(k); err != nil || string(v) != "short" {
		t.Errorf("%.20q, %v", v, err)
	}
	s.txn.DropSlot(s.slot[0])
	if k := s.look(s.txn.KeyForValue(s.name(3), true)); k.Exists() {
		t.Errorf("a key of a dropped slot has record %+v", k.Rec)
	}
}

// Looks in vain teach that the slot holds something else, and a record that names a value row the contrary.
func TestGuessesLearn(t *testing.T) {
	s := openValueStore(t)
	s.put(2*guessCredit+2, func(i int, k *Key) {
		if i%2 == 1 {
			k.Rec, k.setVal = layout.Record{Type: layout.String, Body: []byte("short")}, false
		}
	})
	guess := &s.slots[s.slot[0]].values
	s.get(0)
	for i := range guessCredit {
		if !guess.likely() {
			t.Fatalf("after %d looks in vain values are not asked for", i)
		}
		s.txn.Begin(s.slot, false, 1000)
		k := s.look(s.txn.KeyForValue(s.name(2*i+1), true))
		if v, err := s.txn.Value(k); err != nil || string(v) != "short" {
			t.Errorf("%.20q, %v", v, err)
		}
		s.txn.End()
	}
	if guess.likely() {
		t.Errorf("after %d looks in vain values are still asked for", guessCredit)
	}
	s.get(2)
	if !s.recordRead(2) || !guess.likely() {
		t.Errorf("record read: %v, values are asked for: %v", s.recordRead(2), guess.likely())
	}
}

// Many values at once are read without their records, too.
func TestLookAheadForValue(t *testing.T) {
	s := openValueStore(t)
	const keys = 2 * fewNames
	s.put(keys, nil)
	s.get(0)
	names := make([][]byte, 0, keys+1)
	for i := range keys {
		names = append(names, s.name(i*37%keys))
	}
	names = append(names, []byte("{s}none"))
	s.txn.Begin(s.slot, false, 1000)
	defer s.txn.End()
	if err := s.txn.LookAheadForValue(names, true); err != nil {
		t.Fatal(err)
	}
	for at, name := range names {
		k := s.look(s.txn.KeyForValue(name, true))
		if i := at * 37 % keys; at < keys {
			if v, err := s.txn.Value(k); err != nil || !bytes.Equal(v, s.value(i)) || i != 0 && s.recordRead(i) {
				t.Errorf("value %d: %d bytes, %v, record read: %v", i, len(v), err, s.recordRead(i))
			}
		} else if k.Exists() {
			t.Error("a key that nobody made exists")
		}
	}
}
