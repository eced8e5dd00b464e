package engine

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// The overlay against a map: random changes in transactions while the applier cuts and writes all the time,
// every read of points, elements and walks compared, then the same after a restart.

type modelKey struct {
	form     layout.Form
	val      string // Inline and ValueRow
	elems    map[string]string
	deadline int64
}

type modelRun struct {
	t    *testing.T
	s    *Store
	txn  *Txn
	r    *rand.Rand
	want map[string]*modelKey
	now  int64

	ageless bool // no key gets a deadline: keys may be known by their values
	byValue int  // how many were
}

const modelKeys = 24

func (m *modelRun) key() string { return fmt.Sprintf("{s}%d", m.r.IntN(modelKeys)) }

func (m *modelRun) begin(write bool) { m.txn.Begin([]uint16{slot.Of([]byte("{s}"))}, write, m.now) }

func (m *modelRun) open(name string) *Key {
	k, err := m.txn.Key([]byte(name))
	if err != nil {
		m.t.Fatal(err)
	}
	return k
}

func (m *modelRun) commit() {
	m.txn.LogStrings("X")
	if _, err := m.txn.Commit(); err != nil {
		m.t.Fatal(err)
	}
}

// change commits one change, or several in one transaction.
func (m *modelRun) change() {
	m.begin(true)
	m.changeOne()
	for m.r.IntN(3) == 0 {
		m.changeOne()
		if m.r.IntN(4) == 0 {
			m.checkRecords()
		}
	}
	m.commit()
}

func (m *modelRun) changeOne() {
	name := m.key()
	if m.r.IntN(3) == 0 {
		m.checkValue(name)
	}
	k := m.open(name)
	switch m.r.IntN(10) {
	case 0:
		m.txn.Delete(k)
		delete(m.want, name)
	case 1:
		v := fmt.Sprint("inline", m.r.IntN(1000))
		k.Rec = layout.Record{Type: layout.String, Body: []byte(v)}
		m.txn.Put(k)
		m.want[name] = &modelKey{form: layout.Inline, val: v}
	case 2:
		v := string(bytes.Repeat([]byte{byte('a' + m.r.IntN(26))}, 600+m.r.IntN(400)))
		k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(v))}
		m.txn.Put(k)
		m.txn.SetValue(k, []byte(v))
		m.want[name] = &modelKey{form: layout.ValueRow, val: v}
	case 3:
		if k.Exists() && !m.ageless {
			k.Rec.Deadline = m.now + int64(m.r.IntN(2000)) + 1
			m.txn.Put(k)
			m.want[name].deadline = k.Rec.Deadline
		}
	case 4:
		if m.r.IntN(10) == 0 {
			m.txn.DropSlot(slot.Of([]byte("{s}")))
			clear(m.want)
		}
	default:
		m.changeElements(name, k)
	}
}

func (m *modelRun) changeElements(name string, k *Key) {
	w := m.want[name]
	if w == nil || w.form != layout.Rows {
		k.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: m.txn.NewGeneration()}
		w = &modelKey{form: layout.Rows, elems: map[string]string{}}
		m.want[name] = w
	}
	for range 1 + m.r.IntN(20) {
		e := fmt.Sprintf("e%02d", m.r.IntN(60))
		if m.r.IntN(4) == 0 {
			m.txn.DeleteElement(k, []byte(e))
			delete(w.elems, e)
			continue
		}
		v := fmt.Sprint(m.r.IntN(1000))
		m.txn.PutElement(k, []byte(e), []byte(v))
		w.elems[e] = v
	}
	k.Rec.Count = uint64(len(w.elems))
	m.txn.Put(k)
}

func (m *modelRun) expire() {
	for name, w := range m.want {
		if w.deadline != 0 && w.deadline < m.now {
			delete(m.want, name)
		}
	}
}

func (m *modelRun) checkKey(name string) {
	k, w := m.open(name), m.want[name]
	if k.Exists() != (w != nil) {
		m.t.Fatalf("%s exists: %v, want %v", name, k.Exists(), w != nil)
	}
	if w == nil {
		return
	}
	if k.Rec.Form != w.form || k.Rec.Deadline != w.deadline {
		m.t.Fatalf("%s: record %+v, want %+v", name, k.Rec, w)
	}
	if w.form != layout.Rows {
		v, err := m.txn.Value(k)
		if err != nil || string(v) != w.val {
			m.t.Fatalf("%s: %.40q %v, want %.40q", name, v, err, w.val)
		}
		return
	}
	e := fmt.Sprintf("e%02d", m.r.IntN(60))
	v, ok, err := m.txn.Element(k, []byte(e))
	if have, want := w.elems[e], ok; err != nil || string(v) != have || want != (have != "") {
		m.t.Fatalf("%s %s: %q %v %v, want %q", name, e, v, ok, err, have)
	}
	m.checkWalk(name, k, w)
}

// checkValue is a look at a key as GET has it. What else is known of the key afterwards is the same.
func (m *modelRun) checkValue(name string) {
	k, err := m.txn.KeyForValue([]byte(name), m.r.IntN(2) == 0)
	if err != nil {
		m.t.Fatal(err)
	}
	w := m.want[name]
	if k.Exists() != (w != nil) || w != nil && k.Rec.Form != w.form {
		m.t.Fatalf("%s for its value: record %+v, want %+v", name, k.Rec, w)
	}
	if w != nil && w.form != layout.Rows {
		if v, err := m.txn.Value(k); err != nil || string(v) != w.val {
			m.t.Fatalf("%s for its value: %.40q %v, want %.40q", name, v, err, w.val)
		}
	}
	if k.byValue {
		m.byValue++
	}
}

// evict has the cache give up what is in Pebble.
func (m *modelRun) evict() {
	limit := m.s.cache.Limit()
	m.s.cache.SetLimit(0)
	m.s.cache.SetLimit(limit)
}

func (m *modelRun) checkWalk(name string, k *Key, w *modelKey) {
	from := fmt.Sprintf("e%02d", m.r.IntN(60))
	it, err := m.txn.Elements(k, []byte(from))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range slices.Sorted(maps.Keys(w.elems)) {
		if e < from {
			continue
		}
		if !it.Valid() || string(it.Key()) != e || string(it.Value()) != w.elems[e] {
			m.t.Fatalf("%s from %s: walk stands on %v, want %s", name, from, it.Valid(), e)
		}
		it.Next()
	}
	if it.Valid() {
		m.t.Fatalf("%s from %s: walk goes on with %s", name, from, it.Key())
	}
	sorted := slices.Sorted(maps.Keys(w.elems))
	for range 3 {
		to := fmt.Sprintf("e%02d", m.r.IntN(62))
		it.Seek([]byte(to))
		i, _ := slices.BinarySearch(sorted, to)
		if it.Valid() != (i < len(sorted)) || it.Valid() && string(it.Key()) != sorted[i] {
			m.t.Fatalf("%s: seek to %s stands on a row: %v, want element %d of %d", name, to, it.Valid(), i, len(sorted))
		}
	}
	if err := it.Close(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *modelRun) checkRecords() {
	sl := slot.Of([]byte("{s}"))
	limit := m.r.IntN(5) // 0: all at once
	seen, last := 0, uint64(0)
	for from, more := uint64(0), true; more; {
		it, err := m.txn.Records(sl, from, limit)
		if err != nil {
			m.t.Fatal(err)
		}
		for ; it.Valid(); it.Next() {
			if m.want[string(it.Key())] == nil {
				m.t.Fatalf("walk of records shows %s, which does not exist", it.Key())
			}
			if it.Hash48() < last {
				m.t.Fatalf("walk of records goes back at %s", it.Key())
			}
			last = it.Hash48()
			seen++
		}
		from, more = it.More()
		if err := it.Close(); err != nil {
			m.t.Fatal(err)
		}
		if more && limit == 0 {
			m.t.Fatal("a walk without a limit has left something out")
		}
	}
	if seen != len(m.want) {
		m.t.Fatalf("walk of records shows %d keys, want %d", seen, len(m.want))
	}
}

func (m *modelRun) check() {
	m.begin(false)
	defer m.txn.End()
	if m.r.IntN(3) == 0 {
		m.evict()
	}
	for range 3 {
		m.checkValue(m.key())
	}
	for range 3 {
		m.checkKey(m.key())
	}
	m.checkRecords()
}

// sweepAll runs the expirer until nothing is due, then the counts must be exact.
func (m *modelRun) sweepAll() {
	m.expire()
	txn := m.s.NewTxn()
	m.s.DueSlots(m.now, func(sl uint16) bool {
		for more := true; more; {
			var err error
			if _, more, _, err = m.s.Expire(txn, sl, m.now, 3); err != nil {
				m.t.Fatal(err)
			}
		}
		return true
	})
	if got := m.s.Keys(); got != int64(len(m.want)) {
		m.t.Fatalf("%d keys counted, want %d", got, len(m.want))
	}
}

func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { modelSeed(t, seed, 4000) })
	}
}

func modelSeed(t *testing.T, seed uint64, ops int) {
	fs, log := vfs.NewMem(), &memLog{}
	open := func() *Store {
		s, _, err := Open(Options{
			FS: fs, Dir: "s", MemoryBudget: 16 << 20, CutBytes: 4 << 10,
			CutInterval: time.Millisecond, RecoveryLogBytes: 64 << 10, DropRowsMax: 8,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Attach(log); err != nil {
			t.Fatal(err)
		}
		return s
	}
	m := &modelRun{t: t, r: rand.New(rand.NewPCG(seed, 1)), want: map[string]*modelKey{}, now: 1000, ageless: seed%2 == 1}
	m.s = open()
	m.txn = m.s.NewTxn()
	for i := range ops {
		m.now += int64(m.r.IntN(5))
		m.expire()
		m.change()
		if i%3 == 0 {
			m.check()
		}
		if i%100 == 0 {
			m.sweepAll()
		}
		if i%1000 == 999 {
			if err := m.s.Close(); err != nil {
				t.Fatal(err)
			}
			m.s = open()
			m.txn = m.s.NewTxn()
			m.check()
		}
	}
	m.sweepAll()
	m.check()
	m.checkNoGarbage()
	if m.ageless && m.byValue == 0 {
		t.Error("no key was known by its value")
	}
	if err := m.s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkNoGarbage drops everything by ordinary deletes; then Pebble must be empty but for node rows.
func (m *modelRun) checkNoGarbage() {
	for name := range m.want {
		m.begin(true)
		m.txn.Delete(m.open(name))
		m.commit()
	}
	for range 3 {
		if err := m.s.Flush(); err != nil {
			m.t.Fatal(err)
		}
	}
	it, err := m.s.db.NewIter(nil)
	if err != nil {
		m.t.Fatal(err)
	}
	defer it.Close()
	for ok := it.SeekGE([]byte{layout.SpaceSlot}); ok; ok = it.Next() {
		m.t.Fatalf("row %x is left behind", it.Key())
	}
}
