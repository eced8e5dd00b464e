package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// Staged is a large value that is written to Pebble in pieces, under a generation of its own, before the
// command that brings it takes any lock. Nothing names the generation until a record does, and until then it
// is listed among those to be dropped: a crash leaves rows that the next start removes. This is the one
// exception to "nothing after the applied offset is in Pebble".
type Staged struct {
	s      *Store
	slot   uint16
	gen    uint64
	chunks bool
	drops  int64 // how often the slot had been dropped when this began
	batch  *pebble.Batch
	piece  int // bytes after which the batch is written
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

// Stage begins a value in slot; chunks for a string. The caller holds no lock.
func (s *Store) Stage(slot uint16, chunks bool) (*Staged, error) {
	// A drop that waits to be applied would take what is staged now with it. The count comes first: a drop after it
	// makes the value stale, one before it is waited for.
	drops := s.slots[slot].drops.Load()
	for s.dropWaits(slot) {
		if err := s.Apply(); err != nil {
			s.fail(err)
			return nil, err
		}
	}
	g := &Staged{s: s, slot: slot, gen: s.nextGen.Add(1) - 1, chunks: chunks, drops: drops}
	// A batch of half a memtable or more becomes a memtable of its own.
	g.piece = int(min(stagePiece, s.opts.memTableBytes()/4))
	g.batch = s.db.NewBatch()
	err := g.list()
	if err == nil {
		err = s.raiseStaged(g.batch, g.gen+1)
	}
	if err != nil {
		return nil, errors.Join(err, g.batch.Close())
	}
	return g, nil
}

// list puts the generation among those to be dropped.
func (g *Staged) list() error {
	listed := layout.Drop{Chunks: g.chunks, Count: ^uint64(0)}
	return g.batch.Set(layout.AppendDropKey(nil, g.slot, g.gen), listed.Append(nil), nil)
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

// Put adds one element or chunk row.
func (g *Staged) Put(element, val []byte) error {
	var row []byte
	if g.chunks {
		lo, _ := layout.GenerationRange(g.slot, g.gen, true)
		row = append(lo, element...)
	} else {
		row = layout.AppendElementKey(nil, g.slot, g.gen, element)
	}
	g.rows++
	if g.batch.Empty() { // a drop of the slot may have taken the list's row
		if err := g.list(); err != nil {
			return err
		}
	}
	if err := g.batch.Set(row, val, nil); err != nil {
		return err
	}
	if g.batch.Len() < g.piece {
		return nil
	}
	return g.Finish()
}

// Finish writes what is left. The value may be adopted then.
func (g *Staged) Finish() error {
	if g.batch.Empty() {
		return nil
	}
	if err := g.s.db.Apply(g.batch, pebble.NoSync); err != nil {
		return fmt.Errorf("write a large value in pieces: %w", err)
	}
	g.batch.Reset()
	return nil
}

// Gen is the generation of the value's rows.
func (g *Staged) Gen() uint64 { return g.gen }

// Rows counts the rows put.
func (g *Staged) Rows() int { return g.rows }

// Stale says whether the slot was emptied since g began: its rows are gone, stage the value again. With the slot's
// lock held, an answer of no holds until the commit, unless the transaction itself drops the slot.
func (g *Staged) Stale() bool { return g.s.slots[g.slot].drops.Load() != g.drops }

// Adopt makes the staged rows those of a record that the transaction commits; the caller sets the record's Gen.
// ErrDropped: the rows are gone, stage the value again.
func (t *Txn) Adopt(g *Staged) error {
	if g.Stale() || t.isDropped(g.slot) {
		return ErrDropped
	}
	t.putRow(g.slot, layout.AppendDropKey(nil, g.slot, g.gen), nil, true)
	t.adopted = append(t.adopted, g)
	return nil
}

// Close ends the staging. What was not adopted by a commit is dropped later.
func (g *Staged) Close() error {
	err := g.batch.Close()
	if !g.taken {
		g.s.drops.addAt(0, g.slot, g.gen, layout.Drop{Chunks: g.chunks, Count: ^uint64(0)})
	}
	return err
}
