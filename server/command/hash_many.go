package command

import (
	"cmp"
	"iter"
	"slices"

	"cairn/engine/layout"
)

// Many fields in one command. Rows of fields lie in the store in the order of the fields' hashes: read in the order of
// the arguments, a block of the store is read again for nearly every one of them.

const (
	// fewFields is up to how many fields are read in the order of the arguments.
	fewFields = 64
	// fieldWindow is how many are read before the first of them is replied: what is known of each takes 80 bytes.
	fieldWindow = 16 << 10
)

// inRowOrder gives the places of fields, which stand every step places in args from the first on. Where rows says that
// they have rows, and they are many, it is the order in which these lie; the same field twice keeps its order.
func inRowOrder(args [][]byte, step int, rows bool) iter.Seq[int] {
	if !rows || len(args) <= fewFields*step {
		return func(yield func(int) bool) {
			for i := 0; i < len(args) && yield(i); i += step {
			}
		}
	}
	type place struct {
		hash uint64
		at   int
	}
	places := make([]place, 0, len(args)/step+1)
	for i := 0; i < len(args); i += step {
		places = append(places, place{layout.Hash(args[i]), i})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.at, b.at))
	})
	return func(yield func(int) bool) {
		for _, p := range places {
			if !yield(p.at) {
				return
			}
		}
	}
}

// fields replies with the values of fields in their order, null for one that is not there.
func (r *hashReply) fields(names [][]byte) error {
	if r.k.Rec.Form != layout.Rows || len(names) <= fewFields {
		for _, name := range names {
			if err := r.field(name); err != nil {
				return err
			}
		}
		return nil
	}
	type found struct {
		value layout.HashValue
		ok    bool
	}
	read := make([]found, min(len(names), fieldWindow))
	for part := range slices.Chunk(names, fieldWindow) {
		for i := range inRowOrder(part, 1, true) {
			var err error
			if read[i].value, read[i].ok, err = rowValue(r.c, r.k, part[i]); err != nil {
				return err
			}
		}
		for _, f := range read[:len(part)] {
			if err := r.found(f.value, f.ok); err != nil {
				return err
			}
		}
	}
	return nil
}
