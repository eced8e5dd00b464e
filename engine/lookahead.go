package engine

import (
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
	if len(args) <= fewNames*step {
		return nil
	}
	type place struct { // in the order of record rows
		slot uint16
		hash uint64
		at   int
	}
	places := make([]place, 0, len(args)/step+1)
	for i := 0; i < len(args); i += step {
		places = append(places, place{slot.Of(args[i]), layout.Hash(args[i]), i})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.hash, b.hash))
	})
	for _, p := range places {
		if _, err := t.load(p.hash, args[p.at], touch); err != nil {
			return err
		}
	}
	return nil
}
