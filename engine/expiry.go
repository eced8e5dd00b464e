package engine

import (
	"math"

	"cairn/engine/layout"
)

const noDeadline = math.MaxInt64

// noteDeadline learns of a deadline in the slot. Called under the slot's exclusive lock.
func (s *slotState) noteDeadline(at int64) {
	if next := s.nextDeadline.Load(); next != 0 && at < next {
		s.nextDeadline.Store(at)
	}
	if at < s.swept.Load() {
		s.swept.Store(at)
	}
}

// DueSlots calls f for each slot that may hold keys whose time has passed, until f says no. It looks at memory
// only, but for slots not looked at since the start.
func (s *Store) DueSlots(nowMs int64, f func(slot uint16) bool) {
	for i := range s.slots {
		if s.slots[i].nextDeadline.Load() < nowMs && !f(uint16(i)) {
			return
		}
	}
}

// Expire deletes up to limit keys of slot whose time has passed, in one transaction of t, which is not open.
// more says whether others are due.
func (s *Store) Expire(t *Txn, slot uint16, nowMs int64, limit int) (deleted int, more bool, end int64, err error) {
	t.Begin([]uint16{slot}, true, nowMs)
	if t.routing.Replica || t.routing.WritesPaused || !t.ownsExpiry(slot) {
		return 0, false, t.End(), nil
	}
	due, next, err := t.due(slot, limit)
	if err != nil {
		t.End()
		return 0, false, 0, err
	}
	for _, d := range due {
		k, err := t.Key(d.key)
		if err != nil {
			t.End()
			return 0, false, 0, err
		}
		if k.expired {
			deleted++
		} else if k.Rec.Deadline != d.at {
			// The index is a hint; what it says of this key is no longer so.
			t.putRow(slot, layout.AppendDeadlineKey(nil, slot, d.at, d.key), nil, true)
		}
	}
	// Still under the slot's lock, so that a deadline set right after the commit is seen against these.
	st := &s.slots[slot]
	st.swept.Store(next.swept)
	st.nextDeadline.Store(next.at)
	if end, err = t.Commit(); err != nil {
		s.forgetSweep(slot)
		return 0, true, 0, err
	}
	return deleted, next.at < nowMs, end, nil
}

// forgetSweep makes the next walk over slot begin anew, after a commit that did not happen.
func (s *Store) forgetSweep(slot uint16) {
	st := &s.slots[slot]
	st.mu.Lock()
	st.swept.Store(0)
	st.nextDeadline.Store(0)
	st.mu.Unlock()
}

type dueKey struct {
	at  int64
	key []byte
}

// sweep is what a walk over the index has learned.
type sweep struct {
	swept int64 // nothing lies below, once the found keys are gone
	at    int64 // the earliest deadline left
}

// due walks the expiry index of slot from where the last walk ended.
func (t *Txn) due(slot uint16, limit int) (due []dueKey, next sweep, err error) {
	st := &t.s.slots[slot]
	next = sweep{swept: st.swept.Load(), at: noDeadline}
	lo, hi := layout.KindRange(layout.SpaceSlot, slot, layout.KindDeadline)
	it, err := t.walk(slot, lo, hi, layout.AppendDeadlineKey(nil, slot, next.swept, nil))
	if err != nil {
		return nil, next, err
	}
	for ; it.Valid(); it.Next() {
		at, key, err := layout.DeadlineKeyParts(it.cur.Key)
		if err != nil {
			it.err = err
			break
		}
		if at >= t.now || len(due) == limit {
			next.at = at
			break
		}
		due = append(due, dueKey{at, append([]byte(nil), key...)})
		next.swept = at
	}
	return due, next, it.Close()
}
