package engine

import (
	"slices"

	"cairn/engine/layout"
	"cairn/engine/pending"
)

// A value may come and go within one transaction: SET of a long string twice on one key in an EXEC, a command that
// fails after its first rows. Nobody would ever drop the rows of such a generation, so they are not committed.

// forgetUnnamed takes the rows of generations that were made or adopted here, and that no record names, out of the
// transaction. A staged value that is not named stays its maker's to drop.
func (t *Txn) forgetUnnamed() {
	if len(t.fresh) == 0 && len(t.adopted) == 0 {
		return
	}
	named := make(map[uint64]bool, len(t.fresh)+len(t.adopted))
	for _, k := range t.keys[:t.used] {
		if k.dirty && k.Rec.Form == layout.Rows && k.Exists() {
			named[k.Rec.Gen] = true
		}
	}
	t.adopted = slices.DeleteFunc(t.adopted, func(g *Staged) bool {
		if named[g.gen] {
			return false
		}
		t.forgetRows(g.slot, g.gen)
		return true
	})
	for _, gen := range t.fresh {
		if named[gen] {
			continue
		}
		for slot := range t.elems {
			t.forgetRows(slot, gen)
		}
	}
}

// forgetRows takes the rows of one generation in one slot out of the transaction.
func (t *Txn) forgetRows(slot uint16, gen uint64) {
	tree := t.elems[slot]
	if tree == nil {
		return
	}
	var rows []pending.Row
	for _, chunks := range []bool{false, true} {
		lo, hi := layout.GenerationRange(slot, gen, chunks)
		tree.Ascend(pending.Row{Key: lo}, func(r pending.Row) bool {
			if string(r.Key) >= string(hi) {
				return false
			}
			rows = append(rows, r)
			return true
		})
	}
	for _, r := range rows {
		tree.Delete(r)
	}
	t.forgetDrops(tree, slot, gen)
}
