package engine

import (
	"testing"

	"cairn/engine/cache"
	"cairn/engine/layout"
)

// squeeze brings everything into Pebble and leaves the record cache with little more than briefs.
func (s *valueStore) squeeze() {
	s.t.Helper()
	if err := s.Flush(); err != nil {
		s.t.Fatal(err)
	}
	limit := s.cache.Limit()
	s.cache.SetLimit(200 << 10)
	s.cache.SetLimit(limit)
}

func (s *valueStore) known(i int) (row cache.State, brief bool) {
	name := s.name(i)
	h := layout.Hash(name)
	row = s.cache.Has(kindRecord, s.slot[0], h, name)
	_, brief = s.cache.Brief(s.slot[0], h, name, false)
	return row, brief
}

// Records of strings in rows of their own are known after they have left the cache, and with all they say; others are read.
func TestBriefStandsForRecord(t *testing.T) {
	const keys = 300
	s := openValueStore(t)
	want := make([]layout.Record, keys)
	s.put(keys, func(i int, k *Key) {
		switch i % 5 {
		case 1:
			k.Rec.Deadline = 1 << 50
		case 2:
			k.Rec.Arrived = true
		case 3:
			k.Rec.Enc = 2
		}
		want[i] = k.Rec
	})
	s.txn.Begin(s.slot, true, Forever) // into memory again, to be evicted in the end
	for i := range keys {
		k := s.look(s.txn.Key(s.name(i)))
		s.txn.Put(k)
		k.Rec.Arrived = want[i].Arrived
	}
	s.txn.LogStrings("X")
	if _, err := s.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	s.squeeze()
	briefs := 0
	for i := range keys {
		row, brief := s.known(i)
		if brief {
			briefs++
		}
		if brief && (i%5 == 1 || i%5 == 2 || i%5 == 3) {
			t.Fatalf("key %d has a brief, and says more than fits into one: %+v", i, want[i])
		}
		if row == cache.Miss && !brief && (i%5 == 0 || i%5 == 4) && s.Metrics().Briefs < keys/5 {
			t.Fatalf("key %d is gone from memory, row and brief", i)
		}
	}
	if briefs < keys/5 {
		t.Fatalf("%d briefs of %d keys that could have one", briefs, keys*2/5)
	}
	hits := s.Metrics().BriefHits
	s.txn.Begin(s.slot, false, Forever)
	for i := range keys {
		k := s.look(s.txn.KeyNoTouch(s.name(i)))
		got, w := k.Rec, want[i]
		if got.Type != w.Type || got.Form != w.Form || got.Count != w.Count || got.Deadline != w.Deadline || got.Enc != w.Enc || got.Arrived != w.Arrived {
			t.Fatalf("key %d: %+v, want %+v", i, got, w)
		}
	}
	s.txn.End()
	if got := s.Metrics().BriefHits - hits; got < keys/5 {
		t.Errorf("%d records came from briefs, %d briefs are there", got, briefs)
	}
}

// What is known by its brief is overwritten, deleted and dropped as anything else, and sizes and counts stay exact.
func TestBriefKeepsCountsExact(t *testing.T) {
	const keys = 300
	s := openValueStore(t)
	s.put(keys, nil)
	for round := range 4 {
		s.txn.Begin(s.slot, true, Forever)
		var size, count int64
		for i := range keys {
			k := s.look(s.txn.Key(s.name(i)))
			if (i+round)%7 == 0 {
				s.txn.Delete(k)
				continue
			}
			v := s.value(i + round)
			k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(v))}
			s.txn.SetValue(k, v)
			s.txn.Put(k)
			size += int64(len(k.Name) + len(v))
			count++
		}
		s.txn.LogStrings("X")
		if _, err := s.txn.Commit(); err != nil {
			t.Fatal(err)
		}
		s.squeeze()
		if got := s.SlotCounters(s.slot[0]); got.Bytes != size || got.Keys != count {
			t.Fatalf("round %d: %d keys of %d bytes, want %d of %d", round, got.Keys, got.Bytes, count, size)
		}
		s.txn.Begin(s.slot, false, Forever)
		for i := range keys {
			if k := s.look(s.txn.Key(s.name(i))); k.Exists() == ((i+round)%7 == 0) {
				t.Fatalf("round %d: key %d exists: %v", round, i, k.Exists())
			}
		}
		s.txn.End()
	}
	if s.Metrics().BriefHits == 0 {
		t.Error("no record was known by its brief")
	}
	s.txn.Begin(s.slot, true, Forever)
	s.txn.DropSlot(s.slot[0])
	s.txn.LogStrings("X")
	if _, err := s.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if _, brief := s.known(i); brief {
			t.Fatalf("key %d of a dropped slot has a brief", i)
		}
	}
}
