package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/filter"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// filterStore is a store whose log is being executed again, so that nothing builds filters but the test.
type filterStore struct {
	*Store
	t   *testing.T
	txn *Txn
	end int64
}

func openFilterStore(t *testing.T, fs vfs.FS) *filterStore {
	t.Helper()
	s, opened, err := Open(Options{FS: fs, Dir: "s", MemoryBudget: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &filterStore{Store: s, t: t, txn: s.NewTxn(), end: opened.Applied}
}

func (s *filterStore) change(f func(*Txn)) {
	s.t.Helper()
	s.end += 10
	s.Replaying(s.end)
	s.txn.Begin([]uint16{slot.Of([]byte("{s}"))}, true, Forever)
	f(s.txn)
	if _, err := s.txn.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *filterStore) key(i int) *Key {
	s.t.Helper()
	k, err := s.txn.Key(fmt.Appendf(nil, "{s}%d", i))
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (s *filterStore) set(from, to int) {
	s.t.Helper()
	s.change(func(t *Txn) {
		for i := from; i < to; i++ {
			k := s.key(i)
			k.Rec = layout.Record{Type: layout.String, Body: []byte("v")}
			t.Put(k)
		}
	})
}

func (s *filterStore) delete(from, to int) {
	s.t.Helper()
	s.change(func(t *Txn) {
		for i := from; i < to; i++ {
			t.Delete(s.key(i))
		}
	})
}

// count looks for keys and says how many there are.
func (s *filterStore) count(from, to int) (n int) {
	s.t.Helper()
	s.txn.Begin([]uint16{slot.Of([]byte("{s}"))}, false, Forever)
	defer s.txn.End()
	for i := from; i < to; i++ {
		if s.key(i).Exists() {
			n++
		}
	}
	return n
}

// asked takes the order for a filter that lookups have given, if they have, and executes it.
func (s *filterStore) asked() (built bool, err error) {
	select {
	case sl := <-s.filters.asked:
		_, err = s.buildFilter(s.NewTxn(), sl, &filterPace{stop: s.stop, began: time.Now()})
		s.slots[sl].filter.asked.Store(false)
		return true, err
	default:
		return false, nil
	}
}

func (s *filterStore) state() *slotFilter { return &s.slots[slot.Of([]byte("{s}"))].filter }

// checkAccount adds up what the filters take. Nobody may be using the store.
func (s *filterStore) checkAccount() {
	s.t.Helper()
	var bytes, known int64
	for i := range s.slots {
		for _, f := range []*filter.Filter{s.slots[i].filter.keys, s.slots[i].filter.fresh} {
			if f != nil {
				bytes += f.Bytes()
			}
		}
		known += b2i(s.slots[i].filter.keys != nil)
	}
	a := &s.filters
	if a.bytes.Load() != bytes || a.known.Load() != known || bytes > a.limit {
		s.t.Fatalf("filters of %d slots take %d bytes, counted %d and %d, limit %d",
			known, bytes, a.known.Load(), a.bytes.Load(), a.limit)
	}
}

func (s *filterStore) close() {
	s.t.Helper()
	s.checkAccount()
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// New keys are loaded and absent ones denied without Pebble; after a restart Pebble answers until the filter is built.
func TestFilterSparesReads(t *testing.T) {
	fs := vfs.NewMem()
	s := openFilterStore(t, fs)
	s.set(0, 3000)
	if got := s.count(2000, 6000); got != 1000 {
		t.Fatalf("%d keys, want 1000", got)
	}
	if m := s.Metrics(); m.FilterDenied < 5500 || m.FilterDenied+m.FilterPassed != 6000 {
		t.Fatalf("%d of 6000 absent keys denied, %d passed", m.FilterDenied, m.FilterPassed)
	}
	s.close()

	s = openFilterStore(t, fs)
	if got := s.count(2990, 3010); got != 10 || s.state().keys != nil {
		t.Fatalf("%d keys after a restart, want 10; filter known: %v", got, s.state().keys != nil)
	}
	if m := s.Metrics(); m.FilterDenied != 0 || m.FilterPassed != 10 {
		t.Fatalf("%d denied, %d passed after a restart, want 0 and 10", m.FilterDenied, m.FilterPassed)
	}
	s.set(3000, 6000) // not in Pebble when the filter is built, and more than one walk copies
	s.delete(0, 5)
	if built, err := s.asked(); !built || err != nil || s.state().keys == nil {
		t.Fatalf("a filter was asked for: %v %v", built, err)
	}
	if got := s.count(0, 9000); got != 5995 {
		t.Fatalf("%d keys with the filter built, want 5995", got)
	}
	if added := s.state().keys.Added(); added < 5995 || added > 5995+5 {
		t.Fatalf("the filter has %d keys, want 5995", added)
	}
	if m := s.Metrics(); m.FilterDenied < 2800 || m.FilterBuilt != 1 {
		t.Fatalf("%d denied with the filter built, of about 3000; %d built", m.FilterDenied, m.FilterBuilt)
	}
	s.close()
}

// A key that comes to a slot of which nothing is known but that it has few others makes no filter.
func TestFilterUnknown(t *testing.T) {
	fs := vfs.NewMem()
	for n := range 4 {
		s := openFilterStore(t, fs)
		if got := s.count(0, 10); got != n {
			t.Fatalf("%d keys after a start, want %d", got, n)
		}
		s.set(n, n+1)
		if known := s.state().keys != nil; known != (n == 0) {
			t.Fatalf("filter known with %d keys from before: %v", n, known)
		}
		if got := s.count(0, 10); got != n+1 {
			t.Fatalf("%d keys, want %d", got, n+1)
		}
		s.close()
	}
}

// What was deleted stays in a filter until it is dull, then another one is built. A slot that is empty begins anew.
func TestFilterForgetsDeleted(t *testing.T) {
	s := openFilterStore(t, vfs.NewMem())
	s.set(0, 100)
	for i := 1; i <= 10; i++ {
		s.set(i*200, (i+1)*200)
		s.delete(i*200, (i+1)*200)
	}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	s.cache.SetLimit(0) // or its tombstones answer
	if got := s.count(0, 2200); got != 100 {
		t.Fatalf("%d keys, want 100", got)
	}
	if built, err := s.asked(); !built || err != nil || s.state().keys.Added() != 100 {
		t.Fatalf("dull filter built again: %v %v, %d keys in it, want 100", built, err, s.state().keys.Added())
	}
	if got := s.count(0, 2200); got != 100 {
		t.Fatalf("%d keys with another filter, want 100", got)
	}
	s.checkAccount()
	for range 50 {
		s.delete(0, 100)
		s.set(0, 100)
	}
	if layers := s.state().keys.Layers(); layers > 3 {
		t.Fatalf("a slot that was empty again and again has %d layers", layers)
	}
	s.set(100, 1000)
	s.change(func(t *Txn) { t.DropSlot(slot.Of([]byte("{s}"))) })
	if m := s.Metrics(); m.FilterBytes != 0 || s.count(0, 1000) != 0 {
		t.Fatalf("an emptied slot has %d keys and %d bytes of filter", s.count(0, 1000), m.FilterBytes)
	}
	s.close()
}

// A drop between the walk's beginning and its end, and more keys than there is room for, leave no half-built filter.
func TestFilterGivesUp(t *testing.T) {
	s := openFilterStore(t, vfs.NewMem())
	s.filters.limit = 600
	s.set(0, 300)
	if s.state().keys != nil || s.count(0, 400) != 300 {
		t.Fatalf("300 keys in 600 bytes: filter known, or %d keys", s.count(0, 400))
	}
	if _, err := s.asked(); err != nil || s.state().keys == nil || s.count(0, 400) != 300 {
		t.Fatalf("300 keys fit into 600 bytes when counted before: %v, %d keys", err, s.count(0, 400))
	}
	s.set(300, 3000)
	if s.state().keys != nil || s.count(0, 4000) != 3000 {
		t.Fatalf("3000 keys in 600 bytes: filter known, or %d keys", s.count(0, 4000))
	}
	if built, err := s.asked(); !built || err != nil || s.state().keys != nil {
		t.Fatalf("no room for 3000 keys, and yet built: %v %v", built, err)
	}
	s.checkAccount()
	s.filters.limit = 1 << 20
	s.count(5000, 5100) // others are known in the cache
	if built, err := s.asked(); !built || err != nil || s.state().keys == nil {
		t.Fatalf("there is room again: %v %v", built, err)
	}
	s.close()
}

// A slot whose records cannot be walked goes without a filter, and is not walked again and again.
func TestFilterOfDamagedSlot(t *testing.T) {
	fs := vfs.NewMem()
	s := openFilterStore(t, fs)
	s.set(0, 100)
	s.close()
	s = openFilterStore(t, fs)
	sl := slot.Of([]byte("{s}"))
	if err := s.db.Set(layout.AppendRecordKey(nil, sl, 1<<40, []byte("bad")), []byte{0xff}, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if got := s.count(0, 200); got != 100 {
		t.Fatalf("%d keys, want 100", got)
	}
	if built, err := s.asked(); !built || err == nil || !strings.Contains(err.Error(), fmt.Sprint("slot ", sl)) {
		t.Fatalf("walk over a bad record: %v %v", built, err)
	}
	if got := s.count(0, 300); got != 100 || s.state().keys != nil {
		t.Fatalf("%d keys, want 100", got)
	}
	if built, _ := s.asked(); built {
		t.Fatal("asked for a filter of a slot that cannot be walked")
	}
	s.change(func(t *Txn) { t.DropSlot(sl) })
	s.set(0, 10)
	if s.state().keys == nil || s.state().damaged {
		t.Fatal("no filter after the damage is gone")
	}
	s.close()
}

// filterModel is random changes of keys in a few slots against a map, while filters are built in the background
// and forgotten at random moments, in more or less memory.
type filterModel struct {
	t     *testing.T
	r     *rand.Rand
	s     *Store
	txn   *Txn
	log   *memLog
	fs    vfs.FS
	limit int64
	want  map[string]int64 // deadlines, 0 for none
	tags  []string
	all   []uint16
	now   int64
	next  int
}

func (m *filterModel) open() {
	s, _, err := Open(Options{
		FS: m.fs, Dir: "s", MemoryBudget: 16 << 20, CutInterval: time.Millisecond, CutBytes: 64 << 10,
		Logf: func(event string, fields ...any) {
			if strings.HasPrefix(event, "walk") {
				m.t.Error(event, fields)
			}
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if m.limit >= 0 {
		s.filters.limit = m.limit
	}
	m.s, m.txn = s, s.NewTxn()
	for range 40 { // what a recovery executes
		m.log.Append([]byte("X"))
		s.Replaying(m.log.End())
		m.change()
	}
	if err := s.Attach(m.log); err != nil {
		m.t.Fatal(err)
	}
}

// name is a key that may exist, or a new one.
func (m *filterModel) name() string {
	tag := m.tags[m.r.IntN(len(m.tags))]
	if m.r.IntN(3) == 0 {
		m.next++
		return fmt.Sprint(tag, "new", m.next)
	}
	return fmt.Sprint(tag, m.r.IntN(1500))
}

func (m *filterModel) begin(write bool) { m.txn.Begin(m.all, write, m.now) }

func (m *filterModel) find(name string) *Key {
	k, err := m.txn.Key([]byte(name))
	if err != nil {
		m.t.Fatal(err)
	}
	deadline, ok := m.want[name]
	if ok && deadline != 0 && deadline < m.now {
		delete(m.want, name)
		ok = false
	}
	if k.Exists() != ok {
		m.t.Fatalf("%s exists: %v, want %v", name, k.Exists(), ok)
	}
	return k
}

func (m *filterModel) change() {
	m.begin(true)
	if m.r.IntN(400) == 0 {
		m.txn.DropAll()
		clear(m.want)
	} else if m.r.IntN(200) == 0 {
		tag := m.tags[m.r.IntN(len(m.tags))]
		m.txn.DropSlot(slot.Of([]byte(tag)))
		for name := range m.want {
			if strings.HasPrefix(name, tag) {
				delete(m.want, name)
			}
		}
	}
	for range 1 + m.r.IntN(20) {
		name := m.name()
		k := m.find(name)
		if m.r.IntN(3) == 0 {
			m.txn.Delete(k)
			delete(m.want, name)
			continue
		}
		k.Rec = layout.Record{Type: layout.String, Body: make([]byte, m.r.IntN(500))}
		if m.r.IntN(4) == 0 {
			k.Rec.Deadline = m.now + int64(m.r.IntN(3000))
		}
		m.txn.Put(k)
		m.want[name] = k.Rec.Deadline
	}
	if m.r.IntN(50) == 0 {
		m.txn.End() // a handler failed
		m.resync()
		return
	}
	m.txn.LogStrings("X")
	if _, err := m.txn.Commit(); err != nil {
		m.t.Fatal(err)
	}
}

// resync makes the model what the store says by walks, which no filter has a part in.
func (m *filterModel) resync() {
	m.want = m.walk()
}

func (m *filterModel) walk() map[string]int64 {
	have := map[string]int64{}
	txn := m.s.NewTxn()
	txn.Begin(m.all, false, m.now)
	defer txn.End()
	for _, sl := range m.all {
		it, err := txn.Records(sl, 0, 0)
		if err != nil {
			m.t.Fatal(err)
		}
		for ; it.Valid(); it.Next() {
			have[string(it.Key())] = it.Record().Deadline
		}
		if err := it.Close(); err != nil {
			m.t.Fatal(err)
		}
	}
	return have
}

func (m *filterModel) forget() {
	sl := m.all[m.r.IntN(len(m.all))]
	st := &m.s.slots[sl]
	st.mu.Lock()
	m.s.filters.set(&st.filter, nil)
	st.mu.Unlock()
}

// checkAll looks every key up, and what walks show must be the same.
func (m *filterModel) checkAll() {
	m.begin(false)
	for name := range m.want {
		m.find(name)
	}
	m.txn.End()
	if have := m.walk(); len(have) != len(m.want) {
		m.t.Fatalf("walks show %d keys, want %d", len(have), len(m.want))
	}
}

func (m *filterModel) run(ops int) {
	var scratch []byte
	for i := range ops {
		m.now += int64(m.r.IntN(10))
		m.change()
		if i%5 == 0 {
			scratch = m.s.Warm([]byte(m.name()), scratch)
			m.begin(false)
			for range 10 {
				m.find(m.name())
			}
			m.txn.End()
		}
		switch m.r.IntN(40) {
		case 0, 1, 2:
			m.forget()
		case 3:
			m.s.cache.SetLimit(0) // all that Pebble has is forgotten
		case 4:
			m.checkAll()
		}
	}
}

// readers looks keys up in all slots until stop is closed.
func (m *filterModel) readers(stop chan struct{}, wait *sync.WaitGroup) {
	for n := range 2 {
		wait.Add(1)
		txn, r := m.s.NewTxn(), rand.New(rand.NewPCG(uint64(n), 9))
		go func() { // ends with stop
			defer wait.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				tag := m.tags[r.IntN(len(m.tags))]
				txn.Begin([]uint16{slot.Of([]byte(tag))}, false, Forever)
				for range 5 {
					if _, err := txn.Key(fmt.Append(nil, tag, r.IntN(3000))); err != nil {
						m.t.Error(err)
					}
				}
				txn.End()
			}
		}()
	}
}

func TestFilterModel(t *testing.T) {
	for seed, limit := range []int64{-1, 0, 300, 5000} {
		t.Run(fmt.Sprint("limit", limit, "seed", seed), func(t *testing.T) {
			m := &filterModel{
				t: t, r: rand.New(rand.NewPCG(uint64(seed), 7)), log: &memLog{}, fs: vfs.NewMem(), limit: limit,
				want: map[string]int64{}, now: 1000, tags: []string{"{a}", "{b}", "{c}"},
			}
			for _, tag := range m.tags {
				m.all = append(m.all, slot.Of([]byte(tag)))
			}
			slices.Sort(m.all)
			built := int64(0)
			for range 3 {
				m.open()
				stop, wait := make(chan struct{}), &sync.WaitGroup{}
				m.readers(stop, wait)
				m.run(150)
				close(stop)
				wait.Wait()
				m.checkAll()
				built += m.s.filters.built.Load()
				if err := m.s.Close(); err != nil {
					t.Fatal(err)
				}
				(&filterStore{Store: m.s, t: t}).checkAccount()
			}
			t.Logf("%d filters built", built)
			if limit < 0 && built == 0 {
				t.Error("no filter was built")
			}
		})
	}
}
