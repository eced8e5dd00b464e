package engine

import (
	"bytes"
	"cmp"
	"slices"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// fewNames is up to how many names are looked up one by one: a block of the store read twice is no matter then.
const fewNames = 64

// LookAhead reads the records of many names in the order in which they lie in the store, so that each block of it is
// read once and not once for each name. The names stand every step places in args, from the first on. It is for who is
// about to call Key, or KeyNoTouch, with each of them in turn: that finds the record here, and all else that comes of a
// look at a key happens then, in the caller's order. touch says which of the two. An error is a failed read.
func (t *Txn) LookAhead(args [][]byte, step int, touch bool) error {
	return t.lookAhead(args, step, access{touch: touch})
}

// LookAheadForValue is LookAhead for who is about to call KeyForValue with each of args.
func (t *Txn) LookAheadForValue(args [][]byte, touch bool) error {
	return t.lookAhead(args, 1, access{touch: touch, value: true})
}

func (t *Txn) lookAhead(args [][]byte, step int, how access) error {
	if len(args) <= fewNames*step {
		return nil
	}
	type place struct {
		slot uint16
		hash uint64
		at   int
	}
	places := make([]place, 0, len(args)/step+1)
	for i := 0; i < len(args); i += step {
		places = append(places, place{slot.Of(args[i]), layout.Hash(args[i]), i})
	}
	// Records lie by hash, values by name. Most often the names are all of one slot, which stands for the others here.
	byName := how.value && t.s.slots[places[0].slot].values.likely()
	slices.SortFunc(places, func(a, b place) int {
		if a.slot == b.slot && byName {
			return bytes.Compare(args[a.at], args[b.at])
		}
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.hash, b.hash))
	})
	for _, p := range places {
		if _, err := t.load(p.hash, args[p.at], how); err != nil {
			return err
		}
	}
	return nil
}
