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
	type place struct {
		order uint64 // slot and upper bits of the hash, as in a record's row key
		at    int
	}
	places := make([]place, 0, len(args)/step+1)
	for i := 0; i < len(args); i += step {
		places = append(places, place{uint64(slot.Of(args[i]))<<48 | layout.Hash(args[i])>>16, i})
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.order, b.order) })
	for _, p := range places {
		if _, err := t.load(layout.Hash(args[p.at]), args[p.at], touch); err != nil {
			return err
		}
	}
	return nil
}
