package engine

import (
	"cairn/engine/layout"
	"cairn/engine/pending"
)

// Pieces of long values of fields. They are rows of their own in SpaceBulk, under the generation of their hash, so that
// dropping the hash drops them; and under a number of their own, so that a value that is written while another one is
// read, or before its command has a lock, meets none of its rows. A value that is set again or deleted is listed for
// dropping by that number, whatever its length.

// NewNumber gives a number for the pieces of one value, never used before.
func (t *Txn) NewNumber() uint64 { return t.s.NewNumber() }

// NewNumber is Txn.NewNumber for who has no transaction.
func (s *Store) NewNumber() uint64 { return s.nextGen.Add(1) - 1 }

// PutPiece sets a piece of a value of k, whose record has Form Rows. Bytes are copied.
func (t *Txn) PutPiece(k *Key, number uint64, piece uint32, val []byte) {
	row := layout.AppendPieceKey(nil, k.Slot, k.Rec.Gen, number, piece)
	t.putRow(k.Slot, row, append([]byte(nil), val...), false)
}

// DropPieces gives up a value of k that was in pieces, about count of them. They go in the background.
func (t *Txn) DropPieces(k *Key, number, count uint64) {
	d := drop{slot: k.Slot, gen: k.Rec.Gen, number: number, field: true, Drop: layout.Drop{Pieces: true, Count: count}}
	t.putRow(k.Slot, d.row(), d.Append(nil), false)
	t.pieceDrops = append(t.pieceDrops, d)
}

// Pieces opens the pieces of all values of k, which has rows, for Iter.Seek to the ones that are wanted: the last part
// of a row key is layout.AppendPiece's. It shows what a walk over the fields shows that is opened in the same
// transaction. beside, if given, is that walk: the two then have one life, so that what the one brings while the other
// stands still counts for both.
func (t *Txn) Pieces(k *Key, beside *Iter) (*Iter, error) {
	lo, hi := layout.GenerationRange(k.Slot, k.Rec.Gen, true)
	it, err := t.walk(k.Slot, lo, hi, hi) // nothing is read until something is wanted
	if err != nil {
		return nil, err
	}
	it.prefix = lo
	if beside != nil {
		it.limit, it.life = beside.limit, beside.life
	}
	return it, nil
}

// StagePieces begins a value in pieces, of a hash in slot whose rows are under generation gen: as Stage, but what is
// adopted becomes part of that hash, if it still has the generation then.
func (s *Store) StagePieces(slot uint16, gen uint64) (*Staged, error) {
	drops, err := s.waitDrops(slot)
	if err != nil {
		return nil, err
	}
	return s.beginStaged(&Staged{s: s, slot: slot, gen: gen, number: s.NewNumber(), field: true, drops: drops})
}

// StagePieces is Store.StagePieces in a slot that the transaction holds. ErrDropped as for Stage.
func (t *Txn) StagePieces(k *Key) (*Staged, error) {
	if t.isDropped(k.Slot) || t.s.droppedBelow(k.Slot) {
		return nil, ErrDropped
	}
	g := &Staged{s: t.s, slot: k.Slot, gen: k.Rec.Gen, number: t.NewNumber(), field: true}
	g.drops = t.s.slots[k.Slot].drops.Load()
	return t.s.beginStaged(g)
}

// PutPiece adds a piece of a value. Of StagePieces, number is Number.
func (g *Staged) PutPiece(number uint64, piece uint32, val []byte) error {
	return g.put(layout.AppendPieceKey(nil, g.slot, g.gen, number, piece), val)
}

// NewNumber is Store.NewNumber.
func (g *Staged) NewNumber() uint64 { return g.s.NewNumber() }

// Number is that of the value that StagePieces began.
func (g *Staged) Number() uint64 { return g.number }

// forgetDrops takes out of the transaction what it lists of one generation for dropping, or takes off that list.
func (t *Txn) forgetDrops(tree *pending.Tree, slot uint16, gen uint64) {
	var rows []pending.Row
	lo, hi := layout.AppendDropKey(nil, slot, gen), layout.AppendDropKey(nil, slot, gen+1)
	tree.Ascend(pending.Row{Key: lo}, func(r pending.Row) bool {
		if string(r.Key) >= string(hi) {
			return false
		}
		rows = append(rows, r)
		return true
	})
	for _, r := range rows {
		tree.Delete(r)
	}
}
