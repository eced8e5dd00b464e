package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"cairn/engine/layout"
)

// A Replacement is another set of keys and values that is built beside the one in use and takes its place at once,
// as a full sync needs it: until Commit everybody sees the old set, from then on the new one, and a crash at any
// moment leaves the one or the other, whole.
//
//	NewReplacement -> PutRecord, PutValue, PutElement ... -> Commit or Abort
//	NewReplacement -> Expect, PutRow ... -> Commit or Abort
//
// Rows come in any order, or as another store has them (replace_rows.go). The former are sorted in files beside the store (replace_runs.go), written as tables
// (replace_tables.go) and taken over in one edit of Pebble's version (replace_commit.go). A folder of that is left by
// a crash goes at the next start. A Replacement is for one goroutine; the store may be used and written meanwhile.
//
// The disk holds, beside the old set, the new rows twice at worst: sorted and as tables. See ReplacementBytes.

// ErrReplacing means that the store is being replaced already.
var ErrReplacing = errors.New("another data set is already being built beside the one in use")

// ErrClosing means that the store ends.
var ErrClosing = errors.New("store is closing")

// replacementDir is the folder of rows and tables, below the store's own.
const replacementDir = "replacement"

// runShare is which part of the memory budget rows have while they are sorted.
const runShare = 16

// Replacement is explained above.
type Replacement struct {
	s        *Store
	dir      string
	rows     *sorter
	counters []layout.Counters
	keys     int64
	row      []byte
	over     bool

	// Of rows that come in order, replace_rows.go.
	ordered     *tableWriter // nil: they come in any
	orderedRows int64
	gens        uint64 // above all generations of theirs
}

// NewReplacement begins another set. ErrReplacing: one is being built already.
func (s *Store) NewReplacement() (*Replacement, error) {
	if !s.replacing.CompareAndSwap(false, true) {
		return nil, ErrReplacing
	}
	r := &Replacement{s: s, dir: s.opts.FS.PathJoin(s.opts.Dir, replacementDir), counters: make([]layout.Counters, len(s.slots))}
	if err := s.makeReplacementDir(r.dir); err != nil {
		s.replacing.Store(false)
		return nil, err
	}
	r.rows = newSorter(s.opts.FS, r.dir, int(max(1<<20, s.opts.spendable()/runShare)))
	r.rows.ended = s.ended
	r.rows.space = func() error {
		s.LookAtDisk()
		return s.Gate()
	}
	return r, nil
}

func (s *Store) makeReplacementDir(dir string) error {
	if err := clearReplacement(s.opts.FS, s.opts.Dir); err != nil {
		return err
	}
	if err := s.opts.FS.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for another data set: %w", err)
	}
	return nil
}

// clearReplacement removes what a Replacement has left in a store's folder.
func clearReplacement(fs FS, dir string) error {
	path := fs.PathJoin(dir, replacementDir)
	if err := fs.RemoveAll(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// ended says whether the store is closing.
func (s *Store) ended() error {
	if s.life.Err() != nil {
		return ErrClosing
	}
	return nil
}

// ReplacementBytes is about how much room on the disk a Replacement of so many bytes of keys and values needs while
// it is built, the old set not counted: its rows sorted, and in tables. Replaced files go afterwards.
func ReplacementBytes(data int64) int64 { return 2*data + data/4 + 64<<20 }

// NewGeneration gives a number for the rows of a value.
func (r *Replacement) NewGeneration() uint64 { return r.s.nextGen.Add(1) - 1 }

// PutElement adds an element row of the value with this generation, or a chunk of such a string; the row's value may
// come in parts. Bytes are copied.
func (r *Replacement) PutElement(slot uint16, gen uint64, chunks bool, element []byte, val ...[]byte) error {
	if chunks {
		lo, _ := layout.GenerationRange(slot, gen, true)
		r.row = append(append(r.row[:0], lo...), element...)
	} else {
		r.row = layout.AppendElementKey(r.row[:0], slot, gen, element)
	}
	return r.put(r.row, val...)
}

// NewNumber gives a number for the pieces of one value.
func (r *Replacement) NewNumber() uint64 { return r.s.NewNumber() }

// PutPiece adds a piece of a value of a field, of the hash with this generation.
func (r *Replacement) PutPiece(slot uint16, gen, number uint64, piece uint32, val []byte) error {
	r.row = layout.AppendPieceKey(r.row[:0], slot, gen, number, piece)
	return r.put(r.row, val)
}

// PutValue adds the value row of the string at name.
func (r *Replacement) PutValue(slot uint16, name, val []byte) error {
	r.row = layout.AppendValueKey(r.row[:0], slot, name)
	return r.put(r.row, val)
}

// PutRecord adds a key: its record, its place in the expiry index, its part of the counters. A name that comes twice
// is found at the latest by Commit. Bytes are copied.
func (r *Replacement) PutRecord(slot uint16, name []byte, rec *layout.Record) error {
	r.row = layout.AppendRecordKey(r.row[:0], slot, layout.Hash(name), name)
	at := len(r.row)
	r.row = rec.Append(r.row)
	if err := r.put(r.row[:at], r.row[at:]); err != nil {
		return err
	}
	r.count(slot, &Key{Name: name, Rec: *rec})
	if rec.Deadline == 0 {
		return nil
	}
	r.row = layout.AppendDeadlineKey(r.row[:0], slot, rec.Deadline, name)
	return r.put(r.row)
}

// count counts a key.
func (r *Replacement) count(slot uint16, k *Key) {
	c := &r.counters[slot]
	c.Keys++
	c.Large += b2i(k.Rec.Form == layout.Rows)
	c.Bytes += recordSize(k)
	c.Deadlines += b2i(k.Rec.Deadline != 0)
	c.DeadlineSum += layout.DeadlineWeight(k.Rec.Deadline)
	r.keys++
}

func (r *Replacement) put(row []byte, val ...[]byte) error {
	if r.over || r.ordered != nil {
		return errors.New("rows added to a data set that is finished, or expects them in order")
	}
	return r.rows.add(row, val...)
}

// Keys counts the keys so far, Bytes the bytes of all rows.
func (r *Replacement) Keys() int64 { return r.keys }

// Bytes is explained at Keys.
func (r *Replacement) Bytes() int64 { return r.rows.bytes }

// Abort throws the new set away. After Commit it does nothing.
func (r *Replacement) Abort() error {
	if r.over {
		return nil
	}
	r.over = true
	r.rows.arena, r.rows.held = nil, nil
	if r.ordered != nil {
		_ = r.ordered.finish() // its table goes, whatever is amiss with it
	}
	err := clearReplacement(r.s.opts.FS, r.s.opts.Dir)
	r.s.replacing.Store(false)
	return err
}

// nodeRows are the rows of a new set that say where it stands, in order.
func (r *Replacement) nodeRows(st layout.State, stagedGen uint64) (rows [][2][]byte) {
	for p := range layout.Pages {
		var page [layout.PageSlots]layout.Counters
		copy(page[:], r.counters[p*layout.PageSlots:])
		rows = append(rows, [2][]byte{layout.AppendPageKey(nil, p), layout.AppendPage(nil, &page)})
	}
	rows = append(rows,
		[2][]byte{stagedKey(), binary.BigEndian.AppendUint64(nil, stagedGen)},
		[2][]byte{layout.StateKey(), st.Append(nil)})
	slices.SortFunc(rows, func(a, b [2][]byte) int { return slices.Compare(a[0], b[0]) })
	return rows
}

// replacing is whether a Replacement is under way.
type replacing = atomic.Bool
