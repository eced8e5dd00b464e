package engine

import (
	"sync/atomic"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/internal/invariant"
)

// A string of middling length is two rows: its record, and its value in a row of SpaceBulk that is named by the key. GET wants
// the value, and of the record only what the value says as well: that there is a string of this length. The two rows come
// and go in one commit and one group, so there is one exactly when there is the other. So when the record is not in memory
// GET may ask for the value at once, and has read one row instead of two.
//
// What the value does not tell is a deadline: this is done only in slots where no key has one, which is counted exactly.
// A record that says more (Arrived, Enc) is read when somebody else in the transaction looks the key up. And a value that has
// come into the cache is in use: its record is read into it, too, since there accesses are counted.

// valueGuess foretells whether the value row of a key of a slot is worth asking for: a look for a row that is not there costs
// little, since tables have filters, but more than nothing. It knows what the last records and looks were like.
type valueGuess struct{ credit atomic.Int32 }

// guessCredit is after how many looks in vain records are asked for first again.
const guessCredit = 4

func (g *valueGuess) likely() bool { return g.credit.Load() > 0 }

// was learns of a look that found a value, or of a record that names one, and of a look in vain. Of two that come at the
// same time one may be lost.
func (g *valueGuess) was(right bool) {
	switch now := g.credit.Load(); {
	case right && now < guessCredit:
		g.credit.Store(guessCredit)
	case !right && now > 0:
		g.credit.Store(now - 1)
	}
}

// KeyForValue is Key, or KeyNoTouch, for who wants nothing of the key but whether it is a string and its Value: it may know
// the key by its value only. The Key must not be changed; whoever may have to looks the name up anew with Key.
func (t *Txn) KeyForValue(name []byte, touch bool) (*Key, error) {
	return t.lookup(name, access{touch: touch, value: true})
}

// loadByValue fills k.Rec from the value row of k, whose record is not in memory and not denied. ok is false when k has to be
// known by its record.
func (t *Txn) loadByValue(k *Key) (ok bool, err error) {
	guess := &t.s.slots[k.Slot].values
	if !guess.likely() || atomic.LoadInt64(&t.s.counters.live[k.Slot].Deadlines) != 0 ||
		t.s.cache.Has(kindValue, k.Slot, k.Hash, k.Name) != cache.Miss {
		return false, nil
	}
	raw, state, err := t.stored(kindValue, k)
	if err != nil {
		return false, err
	}
	guess.was(state == cache.Hit)
	if state != cache.Hit {
		return false, nil
	}
	k.Rec = layout.Record{Type: layout.String, Form: layout.ValueRow, Count: uint64(len(raw))}
	k.value, k.byValue = raw, true
	if invariant.Enabled {
		t.checkRecord(k)
	}
	return true, nil
}

// loadWhole makes k one that is known by its record.
func (t *Txn) loadWhole(k *Key, touch bool) error {
	guessed := k.Rec
	k.Rec = layout.Record{}
	if err := t.loadRecord(k, access{touch: touch}); err != nil {
		k.Rec = guessed
		return err
	}
	k.value, k.byValue = nil, false
	k.old = k.Rec
	k.oldSize = recordSize(k)
	return nil
}
