package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// Staged is a large value that is written to Pebble in pieces, under a generation of its own, mostly before the
// command that brings it takes any lock. Nothing names the generation until a record does, and until then it
// is listed among those to be dropped: a crash leaves rows that the next start removes. This is the one
// exception to "nothing after the applied offset is in Pebble".
type Staged struct {
	s      *Store
	slot   uint16
	gen    uint64
	chunks bool
	field  bool          // pieces of one value of a hash only, under a generation that is in use
	number uint64        // theirs
	drops  int64         // how often the slot had been dropped when this began
	db     *pebble.DB    // Revert opens another
	batch  *pebble.Batch // nil while there is nothing to write
	piece  int           // bytes after which the batch is written
	rows   int
	taken  bool
}

// ErrDropped means that the slot was emptied while a value was being staged for it: stage it again.
var ErrDropped = errors.New("slot was emptied while a value was being written to it")

const (
	// StageFrom is how large a value must be for staging to pay, bytes.
	StageFrom  = 1 << 20
	stagePiece = 1 << 20
)

// stagedKey is the node row that keeps generations of staged values from being given out again.
func stagedKey() []byte { return []byte{layout.SpaceNode, 'g'} }

// Stage begins a value in slot; chunks for a string. The caller holds no lock, see Txn.Stage for who does.
func (s *Store) Stage(slot uint16, chunks bool) (*Staged, error) {
	// A drop that waits to be applied would take what is staged now with it. The count comes first: a drop after it
	// makes the value stale, one before it is waited for.
	drops, err := s.waitDrops(slot)
	if err != nil {
		return nil, err
	}
	return s.stage(slot, chunks, drops)
}

// waitDrops waits until no drop of the slot is still to be applied, and gives the count of those before.
func (s *Store) waitDrops(slot uint16) (drops int64, err error) {
	drops = s.slots[slot].drops.Load()
	for s.dropWaits(slot) {
		if err := s.Apply(); err != nil {
			s.fail(err)
			return 0, err
		}
	}
	return drops, nil
}

// Stage begins a value in a slot that the transaction holds, for what could not be made before: others wait for the
// slot as long as it is written. ErrDropped: the slot is being emptied, by this transaction or by one that is not in
// Pebble yet, and what is staged now would go with the rest.
func (t *Txn) Stage(slot uint16, chunks bool) (*Staged, error) {
	if t.isDropped(slot) || t.s.droppedBelow(slot) {
		return nil, ErrDropped
	}
	return t.s.stage(slot, chunks, t.s.slots[slot].drops.Load())
}

func (s *Store) stage(slot uint16, chunks bool, drops int64) (*Staged, error) {
	return s.beginStaged(&Staged{s: s, slot: slot, gen: s.nextGen.Add(1) - 1, chunks: chunks, drops: drops})
}

// beginStaged lists what g will write, before anything of it is written.
func (s *Store) beginStaged(g *Staged) (*Staged, error) {
	// A batch of half a memtable or more becomes a memtable of its own.
	g.piece = int(min(stagePiece, s.opts.memTableBytes()/4))
	s.place.RLock()
	defer s.place.RUnlock()
	g.db = s.db
	g.batch = s.db.NewBatch()
	err := g.list()
	if err == nil {
		err = s.raiseStaged(g.batch, max(g.gen, g.number)+1)
	}
	if err != nil {
		return nil, errors.Join(err, g.batch.Close())
	}
	return g, nil
}

// list puts the generation, or the one value in it, among those to be dropped.
func (g *Staged) list() error {
	d := g.drop()
	return g.batch.Set(d.row(), d.Append(nil), nil)
}

// drop is what has to go if nobody adopts it.
func (g *Staged) drop() drop {
	d := drop{slot: g.slot, gen: g.gen, number: g.number, field: g.field}
	d.Drop = layout.Drop{Chunks: g.chunks, Pieces: !g.chunks, Count: ^uint64(0)}
	return d
}

// dropWaits is droppedBelow for who does not hold the slot's lock.
func (s *Store) dropWaits(slot uint16) bool {
	mu := &s.slots[slot].mu
	mu.RLock()
	defer mu.RUnlock()
	return s.droppedBelow(slot)
}

// raiseStaged writes a number above all generations staged so far, before any of their rows.
func (s *Store) raiseStaged(b *pebble.Batch, next uint64) error {
	s.staging.Lock()
	defer s.staging.Unlock()
	s.stagedGen = max(s.stagedGen, next)
	if err := b.Set(stagedKey(), binary.BigEndian.AppendUint64(nil, s.stagedGen), nil); err != nil {
		return err
	}
	// Applied here, so that no younger batch can write a smaller number after it.
	err := s.db.Apply(b, pebble.NoSync)
	b.Reset()
	return err
}

// Put adds one element or chunk row, whose value may come in parts.
func (g *Staged) Put(element []byte, val ...[]byte) error {
	var row []byte
	if g.chunks {
		lo, _ := layout.GenerationRange(g.slot, g.gen, true)
		row = append(lo, element...)
	} else {
		row = layout.AppendElementKey(nil, g.slot, g.gen, element)
	}
	return g.put(row, val...)
}

func (g *Staged) put(row []byte, val ...[]byte) error {
	g.rows++
	if g.batch == nil {
		g.batch = g.db.NewBatch()
	}
	if g.batch.Empty() { // a drop of the slot may have taken the list's row
		if err := g.list(); err != nil {
			return err
		}
	}
	size := 0
	for _, part := range val {
		size += len(part)
	}
	if size > g.piece {
		return g.putLong(row, val, size)
	}
	if err := setRow(g.batch, row, val, size); err != nil {
		return err
	}
	if g.batch.Len() < g.piece {
		return nil
	}
	return g.flush()
}

// putLong writes a row that is longer than a piece in a batch of just its size: one that grows to it would hold the
// row several times.
func (g *Staged) putLong(row []byte, val [][]byte, size int) error {
	if err := g.flush(); err != nil {
		return err
	}
	b := g.db.NewBatchWithSize(len(row) + size + 64)
	err := setRow(b, row, val, size)
	if err == nil {
		err = g.apply(b)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("write a row of %d bytes: %w", size, err)
	}
	return nil
}

// setRow puts the parts of a value together in the batch itself.
func setRow(b *pebble.Batch, row []byte, val [][]byte, size int) error {
	op := b.SetDeferred(len(row), size)
	copy(op.Key, row)
	at := op.Value
	for _, part := range val {
		for len(part) > 0 { // not at once: nothing interrupts a copy, and a collector waits for it
			n := copy(at, part[:min(len(part), stagePiece)])
			at, part = at[n:], part[n:]
		}
	}
	return op.Finish()
}

// apply writes a batch. After a Revert the value is stale and its rows are of no use.
func (g *Staged) apply(b *pebble.Batch) error {
	g.s.place.RLock()
	defer g.s.place.RUnlock()
	if g.db != g.s.db {
		return nil
	}
	return g.db.Apply(b, pebble.NoSync)
}

// flush writes what the batch has.
func (g *Staged) flush() error {
	if g.batch.Empty() {
		return nil
	}
	if err := g.apply(g.batch); err != nil {
		return fmt.Errorf("write a large value in pieces: %w", err)
	}
	g.batch.Reset()
	return nil
}

// Finish writes what is left. The value may be adopted then. The batch goes at once: of an MSET a thousand values may wait
// for their command.
func (g *Staged) Finish() error {
	if g.batch == nil {
		return nil
	}
	err := g.flush()
	err = errors.Join(err, g.batch.Close())
	g.batch = nil
	return err
}

// Gen is the generation of the value's rows.
func (g *Staged) Gen() uint64 { return g.gen }

// Rows counts the rows put.
func (g *Staged) Rows() int { return g.rows }

// Stale says whether the slot was emptied since g began: its rows are gone, stage the value again. With the slot's
// lock held, an answer of no holds until the commit, unless the transaction itself drops the slot.
func (g *Staged) Stale() bool { return g.s.slots[g.slot].drops.Load() != g.drops }

// Adopt makes the staged rows those of a record that the transaction commits; the caller sets the record's Gen. Of
// StagePieces, the record has that generation, and a row that the caller puts names them.
// ErrDropped: the rows are gone, stage the value again.
func (t *Txn) Adopt(g *Staged) error {
	if g.Stale() || t.isDropped(g.slot) {
		return ErrDropped
	}
	d := g.drop()
	t.putRow(g.slot, d.row(), nil, true)
	t.adopted = append(t.adopted, g)
	return nil
}

// Close ends the staging. What was not adopted by a commit is dropped later.
func (g *Staged) Close() error {
	var err error
	if g.batch != nil {
		err = g.batch.Close()
	}
	if !g.taken {
		g.s.drops.addAt(0, g.drop())
	}
	return err
}
