// Package pending holds the ordered rows that are committed to the log and not yet in the store below:
// elements of large values, the expiry index, drop lists, chunks. (Point rows, key records and string values,
// are dirty rows of engine/cache.)
//
// Shape. A Set is one epoch's rows, a Slot per slot, each an ordered tree. A Slot may also say that everything
// below it is dropped: then what the tree does not hold is absent, whatever older epochs or the store say.
//
// Concurrency. Put and Drop run under the slot's exclusive lock; Snapshot and Get under at least its shared
// lock. Once its epoch is frozen a Slot has no writer, and readers may keep it as long as they like.
//
// Not here: point rows, the store, when an epoch ends.
package pending

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Row is one row on its way to the store. Key is the whole row key.
type Row struct {
	Key     []byte
	Val     []byte
	Deleted bool
}

func less(a, b Row) bool { return bytes.Compare(a.Key, b.Key) < 0 }

// Tree is an ordered set of rows. Copies share structure, so a snapshot costs nothing.
type Tree = btree.BTreeG[Row]

// NewTree makes an empty tree without locks of its own.
func NewTree() *Tree {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: 16})
}

// Slot holds the rows of one slot in one epoch.
type Slot struct {
	mu      sync.Mutex // snapshots taken by readers that share the slot's lock
	tree    *Tree
	dropped bool
}

// Put sets a row. Key and Val are kept: the caller must not change them afterwards.
func (s *Slot) Put(r Row) (growth int) {
	if s.tree == nil {
		s.tree = NewTree()
	}
	old, had := s.tree.Set(r)
	if had {
		return len(r.Val) - len(old.Val)
	}
	return len(r.Key) + len(r.Val) + rowOverhead
}

// rowOverhead is about what a row costs in the tree beyond its bytes.
const rowOverhead = 80

// Get looks a row up. known is false when only older epochs or the store can tell.
func (s *Slot) Get(key []byte) (val []byte, exists, known bool) {
	if s == nil {
		return nil, false, false
	}
	if s.tree != nil {
		if r, ok := s.tree.Get(Row{Key: key}); ok {
			return r.Val, !r.Deleted, true
		}
	}
	return nil, false, s.dropped
}

// Dropped says whether everything below this epoch is gone.
func (s *Slot) Dropped() bool { return s != nil && s.dropped }

// Drop forgets all rows and marks everything below as gone.
func (s *Slot) Drop() {
	s.mu.Lock()
	s.tree, s.dropped = nil, true
	s.mu.Unlock()
}

// Snapshot gives the rows as they are now; nil when there are none.
func (s *Slot) Snapshot() (t *Tree, dropped bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree == nil {
		return nil, s.dropped
	}
	return s.tree.IsoCopy(), s.dropped
}

// Ascend walks the rows in order. Only for a Slot whose epoch is frozen.
func (s *Slot) Ascend(f func(Row) bool) {
	if s != nil && s.tree != nil {
		s.tree.Scan(f)
	}
}

// Set is the slots of one epoch.
type Set struct {
	slots   [16384]atomic.Pointer[Slot]
	mu      sync.Mutex
	touched []uint16
	bytes   atomic.Int64
}

// Slot gives the slot's rows, nil when it has none.
func (s *Set) Slot(slot uint16) *Slot { return s.slots[slot].Load() }

// Make gives the slot's rows for writing. Only under the slot's exclusive lock.
func (s *Set) Make(slot uint16) *Slot {
	if p := s.slots[slot].Load(); p != nil {
		return p
	}
	p := &Slot{}
	s.slots[slot].Store(p)
	s.mu.Lock()
	s.touched = append(s.touched, slot)
	s.mu.Unlock()
	return p
}

// Grow notes n more bytes.
func (s *Set) Grow(n int) { s.bytes.Add(int64(n)) }

// Bytes is about how much memory the rows take.
func (s *Set) Bytes() int64 { return s.bytes.Load() }

// Touched lists the slots that have rows, in the order of their first row.
func (s *Set) Touched() []uint16 { return s.touched }

// Clear empties the set once its rows are in the store below. Readers keep what they hold.
func (s *Set) Clear() {
	for _, slot := range s.touched {
		s.slots[slot].Store(nil)
	}
	s.touched = s.touched[:0]
	s.bytes.Store(0)
}
