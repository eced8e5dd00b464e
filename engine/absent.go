package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cairn/engine/filter"
	"cairn/internal/invariant"
)

// Whether a key is there is asked by every write of a new one, and the record cache cannot know: what it has never
// seen it cannot deny. So each slot may have a filter of all keys that have a record, expired ones included, and
// what that denies is absent without a look into Pebble.
//
// A slot's filter is known when it has been kept since the slot was empty: the count of keys says so, also after a
// start. Else it is built when Pebble has had to say "no such key", in the background, from a walk over the slot's
// records like that of SCAN; what is committed meanwhile is gathered beside and joins it at the end. It is built again
// when deleted keys (which never leave it) or layers have made it dull; until then the old one is right, only less
// often of use.
//
// All filters have a part of the record cache's memory. A slot whose filter cannot grow gives it up, and Pebble
// answers.

const (
	// filterShare is which part of the record cache's memory filters may have. A key costs one and a half to two and a
	// half bytes there, as against 44 bytes and its name in the cache.
	filterShare = 6
	// filterLayers is how many layers a filter may have before it is worth building again as one.
	filterLayers = 6
	// filterGarbage and filterSlack: from how many keys added, as a multiple of those that live and above those,
	// a filter is dull.
	filterGarbage, filterSlack = 4, 64
	// filterWalk is after how many keys a walk looks whether it has to end or to rest.
	filterWalk = 1024
	// filterRest is how long building rests, as a multiple of the time that it took.
	filterRest = 3
	// filterWait is how long building rests when there was no room.
	filterWait = 10 * time.Millisecond
)

// slotFilter is what a slot knows of which keys it has. The pointers and damaged are written under the slot's
// exclusive lock.
type slotFilter struct {
	keys    *filter.Filter // every key with a record is in it; nil: not known
	fresh   *filter.Filter // while keys is being built: those that came since the walk began
	damaged bool           // a walk has failed, and would again
	asked   atomic.Bool    // stands in filters.asked, or is being built
	denied  atomic.Int64   // looks into Pebble that were spared
	passed  atomic.Int64   // looks that were not, and found nothing
}

// filters is the account of all slots' filters.
type filters struct {
	limit int64 // bytes
	bytes atomic.Int64
	known atomic.Int64 // slots that have one
	asked chan uint16  // has room for every slot once
	built atomic.Int64
}

func (a *filters) reserve(n int64) bool {
	if a.bytes.Add(n) <= a.limit {
		return true
	}
	a.bytes.Add(-n)
	return false
}

func (a *filters) release(f *filter.Filter) {
	if f != nil {
		a.bytes.Add(-f.Bytes())
	}
}

// set gives a slot another filter of its keys, nil for none.
func (a *filters) set(f *slotFilter, keys *filter.Filter) {
	a.release(f.keys)
	a.known.Add(b2i(keys != nil) - b2i(f.keys != nil))
	f.keys = keys
}

// add puts a hash into f and says whether there was room.
func (a *filters) add(f *filter.Filter, h uint64) bool {
	if f.Full() {
		if a.reserve(f.Growth()) {
			f.Grow()
		} else if f.Crowded() {
			return false
		}
	}
	f.Add(h)
	return true
}

// surelyAbsent says that no record of a key is committed. With at least the slot's shared lock.
func (s *Store) surelyAbsent(slot uint16, h uint64) bool {
	f := &s.slots[slot].filter
	if s.SlotCounters(slot).Keys > 0 && (f.keys == nil || f.keys.Has(h)) {
		return false
	}
	f.denied.Add(1)
	return true
}

// foundAbsent notes that Pebble had to be asked for a key that it does not have, and orders a filter if that would
// have helped. With at least the slot's shared lock.
func (s *Store) foundAbsent(slot uint16) {
	f := &s.slots[slot].filter
	f.passed.Add(1)
	if !f.damaged && s.filterDull(slot) && !f.asked.Load() && f.asked.CompareAndSwap(false, true) {
		s.filters.asked <- slot
	}
}

// filterDull says whether another filter would serve better.
func (s *Store) filterDull(slot uint16) bool {
	f := s.slots[slot].filter.keys
	return f == nil || f.Layers() > filterLayers || f.Layers() > 0 && f.Crowded() ||
		f.Added() > filterGarbage*s.SlotCounters(slot).Keys+filterSlack
}

// noteKey learns of a key that gets a record and had none. It comes before the counters move, under the slot's
// exclusive lock.
func (s *Store) noteKey(slot uint16, h uint64) {
	f := &s.slots[slot].filter
	if s.SlotCounters(slot).Keys == 0 && (f.keys == nil || f.keys.Full() || f.keys.Layers() > 1) {
		s.filters.set(f, &filter.Filter{})
	}
	if f.keys != nil && !s.filters.add(f.keys, h) {
		s.filters.set(f, nil)
	}
	if f.fresh != nil && !s.filters.add(f.fresh, h) {
		s.filters.release(f.fresh)
		f.fresh = nil
	}
}

// noteDrop learns that a slot was emptied, or its keys replaced by others. Under the slot's exclusive lock.
func (s *Store) noteDrop(slot uint16) {
	f := &s.slots[slot].filter
	s.filters.set(f, nil) // where there are none, the count of keys says so
	s.filters.release(f.fresh)
	f.fresh, f.damaged = nil, false
}

// yieldToFilters keeps the record cache out of what filters have of its memory. Small steps are not worth the
// pass over the cache.
func (s *Store) yieldToFilters() {
	want := s.opts.cacheBytes() - s.filters.bytes.Load()
	if diff := want - s.cache.Limit(); max(diff, -diff) > s.opts.cacheBytes()/64 {
		s.cache.SetLimit(want)
	}
}

// filterLoop builds the filters that were asked for, one after the other, until the store closes.
func (s *Store) filterLoop() {
	defer s.background.Done()
	t, pace := s.NewTxn(), &filterPace{stop: s.stop}
	for {
		var slot uint16
		select {
		case <-s.stop:
			return
		case slot = <-s.filters.asked:
		}
		pace.began = time.Now()
		done, err := s.buildFilter(t, slot, pace)
		if err != nil {
			s.opts.Logf("walk over the keys of a slot failed, it goes without a filter", "slot", slot, "err", err)
		}
		s.slots[slot].filter.asked.Store(false)
		if !done {
			pace.began = pace.began.Add(-filterWait)
		}
		if !pace.rest() {
			return
		}
	}
}

// filterPace keeps building to a part of a core.
type filterPace struct {
	stop  chan struct{}
	began time.Time // of the work since the last rest
}

// rest rests in proportion to the work done, and says whether to go on.
func (p *filterPace) rest() bool {
	rest := time.NewTimer(filterRest * time.Since(p.began))
	defer rest.Stop()
	select {
	case <-p.stop:
		return false
	case <-rest.C:
		p.began = time.Now()
		return true
	}
}

// buildFilter builds the filter of one slot, in transactions of t; done is false when there was no room.
func (s *Store) buildFilter(t *Txn, slot uint16, pace *filterPace) (done bool, err error) {
	f := &s.slots[slot].filter
	t.Begin([]uint16{slot}, true, Forever)
	if f.damaged || !s.filterDull(slot) {
		t.End()
		return true, nil
	}
	keys := s.SlotCounters(slot).Keys
	keys += keys / 8 // for those that come first
	if !s.filters.reserve(filter.BytesFor(keys)) {
		t.End()
		return false, nil
	}
	fresh := &filter.Filter{}
	if f.keys != nil && s.filters.reserve(filter.BytesFor(keys/8)) {
		// It is dull because keys keep coming: as many more would make as many layers, and the new one as dull.
		fresh = filter.New(keys / 8)
	}
	f.fresh = fresh
	t.End()

	built := filter.New(keys)
	err = s.walkKeys(t, slot, built, pace)

	t.Begin([]uint16{slot}, true, Forever)
	defer t.End()
	stale := f.fresh != fresh // the slot was emptied, or what came meanwhile had no room
	if !stale {
		f.fresh = nil
	}
	if stale || err != nil {
		s.filters.release(built)
		if !stale {
			s.filters.release(fresh)
		}
		if stale || errors.Is(err, errFilterEnded) {
			return false, nil
		}
		f.damaged = true
		return true, err
	}
	built.Take(fresh)
	s.filters.set(f, built)
	s.filters.built.Add(1)
	return true, nil
}

// errFilterEnded is why a walk ended that could succeed another time: no room, or the store closes.
var errFilterEnded = errors.New("walk for a filter ended early")

// walkKeys puts every key of slot into built. It holds the slot's lock only where a walk opens.
func (s *Store) walkKeys(t *Txn, slot uint16, built *filter.Filter, pace *filterPace) error {
	n := 0
	for from, more := uint64(0), true; more; {
		t.Begin([]uint16{slot}, false, Forever) // keys whose time has passed have records too
		r, err := t.Records(slot, from, filterWalk)
		t.End()
		if err != nil {
			return fmt.Errorf("walk over slot %d: %w", slot, err)
		}
		r.KeepOpen()
		for ; r.Valid(); r.Next() {
			if !s.filters.add(built, r.Hash48()<<16) {
				return errors.Join(errFilterEnded, r.Close())
			}
			if n++; n%filterWalk == 0 && !pace.rest() {
				return errors.Join(errFilterEnded, r.Close())
			}
		}
		from, more = r.More()
		if err := r.Close(); err != nil {
			return fmt.Errorf("walk over slot %d: %w", slot, err)
		}
	}
	return nil
}

// checkAbsent looks into Pebble all the same, in builds that check what they believe. With at least the slot's
// shared lock.
func (s *Store) checkAbsent(row []byte) {
	_, ok, err := s.get(row, nil)
	invariant.Check(err != nil || !ok, "a filter denies a key that is there, row %x", row)
}
