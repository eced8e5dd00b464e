package engine

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"

	"cairn/engine/layout"
	"cairn/engine/pending"
)

// source is one layer of a merged walk. Layers are ordered newest first: among equal row keys the newest wins.
type source interface {
	first(from []byte)
	next()
	row() (r pending.Row, ok bool)
	close() error
}

// treeSource walks a snapshot of pending rows.
type treeSource struct {
	it btree.IterG[pending.Row]
	hi []byte
	ok bool
}

func newTreeSource(t *pending.Tree, hi []byte) *treeSource {
	return &treeSource{it: t.Iter(), hi: hi}
}

func (s *treeSource) first(from []byte) { s.ok = s.it.Seek(pending.Row{Key: from}) }
func (s *treeSource) next()             { s.ok = s.it.Next() }
func (s *treeSource) close() error      { return nil }

func (s *treeSource) row() (pending.Row, bool) {
	if !s.ok {
		return pending.Row{}, false
	}
	r := s.it.Item()
	return r, bytes.Compare(r.Key, s.hi) < 0
}

// sliceSource walks rows that are sorted already.
type sliceSource struct {
	rows []pending.Row
	at   int
}

func (s *sliceSource) first(from []byte) {
	s.at = sort.Search(len(s.rows), func(i int) bool { return bytes.Compare(s.rows[i].Key, from) >= 0 })
}
func (s *sliceSource) next()        { s.at++ }
func (s *sliceSource) close() error { return nil }

func (s *sliceSource) row() (pending.Row, bool) {
	if s.at >= len(s.rows) {
		return pending.Row{}, false
	}
	return s.rows[s.at], true
}

// pebbleSource walks Pebble.
type pebbleSource struct{ it *pebble.Iterator }

func (s *pebbleSource) first(from []byte) { s.it.SeekGE(from) }
func (s *pebbleSource) next()             { s.it.Next() }
func (s *pebbleSource) close() error      { return s.it.Close() }

func (s *pebbleSource) row() (pending.Row, bool) {
	if !s.it.Valid() {
		return pending.Row{}, false
	}
	// The value is left alone: a walk over keys must not fetch values that live elsewhere.
	return pending.Row{Key: s.it.Key()}, true
}

// ErrIterTooOld ends a walk that has lived too long: it pins files and memory that were given up since, so whoever
// reads that slowly has to begin anew. A walk may live for Options.IteratorLifetime, and longer the more it has
// brought: a long value read steadily over a slow line is not cut short, a reader that stands still is.
var ErrIterTooOld = errors.New("view of the data is too old")

const (
	// ageEvery is after how many steps a walk looks at the clock.
	ageEvery = 16
	// slowestWalk is what a walk has to bring to live on, bytes a second.
	slowestWalk = 1 << 20
	// stepBytes is what a step counts for beside the bytes it brings: it is work of the node's, and no waiting.
	stepBytes = 64
	// longestWalk bounds the life of a walk that brings enough, as a multiple of Options.IteratorLifetime.
	longestWalk = 60
)

// Iter walks rows in order, as they were when it was made: it may outlive the transaction, and is closed by
// its user. Key and Value are valid until the next step.
type Iter struct {
	sources []source
	prefix  []byte        // what all row keys begin with and nobody asks for
	limit   time.Duration // 0: none
	life    *walkLife
	cur     pending.Row
	from    int           // index of the source that cur comes from
	inStore *pebbleSource // that source, if it is Pebble
	valid   bool
	err     error
	walks   *walks // nil once closed
}

// walkLife is what a walk's limit is measured by. Walks that are made together may share it.
type walkLife struct {
	opened  time.Time
	steps   int
	brought int64 // bytes of values so far
}

func (it *Iter) settle() {
	for {
		best := -1
		var row pending.Row
		for i, s := range it.sources {
			r, ok := s.row()
			if ok && (best < 0 || bytes.Compare(r.Key, row.Key) < 0) {
				best, row = i, r
			}
		}
		if best < 0 {
			it.valid = false
			if err := it.storeError(); err != nil {
				it.err = err
			}
			return
		}
		for i := best + 1; i < len(it.sources); i++ {
			if r, ok := it.sources[i].row(); ok && bytes.Equal(r.Key, row.Key) {
				it.sources[i].next()
			}
		}
		if !row.Deleted {
			it.cur, it.from, it.valid = row, best, true
			it.inStore, _ = it.sources[best].(*pebbleSource)
			return
		}
		it.sources[best].next()
	}
}

// seek goes to the first row whose row key is row or more.
func (it *Iter) seek(row []byte) {
	for _, s := range it.sources {
		s.first(row)
	}
	it.settle()
}

// Valid says whether the walk stands on a row.
func (it *Iter) Valid() bool { return it.valid && it.err == nil }

// Err is why the walk ended before its end, nil when it did not. Close gives it too.
func (it *Iter) Err() error { return it.err }

// Key is the last part of the row key: the element, or what the walk is over.
func (it *Iter) Key() []byte { return it.cur.Key[len(it.prefix):] }

// Value is the row's content.
func (it *Iter) Value() []byte {
	v := it.cur.Val
	if it.inStore != nil {
		var err error
		if v, err = it.inStore.it.ValueAndErr(); err != nil {
			it.err = err
		}
	}
	it.life.brought += int64(len(v))
	return v
}

// Next goes to the next row.
func (it *Iter) Next() {
	if !it.step() {
		return
	}
	it.sources[it.from].next()
	it.settle()
}

// Seek goes to the first row at or after an element, forward or back. Also after the transaction has ended it
// sees what the walk saw when it was made.
func (it *Iter) Seek(element []byte) {
	if it.sources == nil || !it.step() {
		return
	}
	n := len(it.prefix)
	it.prefix = append(it.prefix, element...)
	it.seek(it.prefix)
	it.prefix = it.prefix[:n]
}

// step counts a step and now and then looks how old the walk is. Counting spares a clock read for each row and a
// timer for each walk: a walk that is not stepped ends at its next steps.
func (it *Iter) step() bool {
	if it.err != nil {
		return false
	}
	if it.walks != nil && it.walks.ended.Load() {
		it.err, it.valid = ErrReverted, false
		return false
	}
	if it.life.steps++; it.life.steps%ageEvery != 0 {
		return true
	}
	if age := time.Since(it.life.opened); it.limit > 0 && age > it.allowed() {
		it.err = fmt.Errorf("%w: opened %v ago, limit %v", ErrIterTooOld, age.Round(time.Millisecond), it.allowed())
		it.valid = false
		return false
	}
	return true
}

// allowed is how old the walk may be for what it has brought.
func (it *Iter) allowed() time.Duration {
	brought := it.life.brought + int64(it.life.steps)*stepBytes
	earned := time.Duration(float64(brought) / slowestWalk * float64(time.Second))
	return min(it.limit+earned, longestWalk*it.limit)
}

// KeepOpen takes the limit of time away, for a walk that goes at the node's own pace and not at a client's.
func (it *Iter) KeepOpen() { it.limit = 0 }

// Close lets go of the rows and gives the first error met.
func (it *Iter) Close() error {
	err := it.err
	for _, s := range it.sources {
		err = errors.Join(err, s.close())
	}
	it.sources, it.valid = nil, false
	if it.walks != nil {
		it.walks.open.Add(-1)
		it.walks = nil
	}
	return err
}

// walk opens a merged walk over [lo, hi) of slot, standing on the first row at or after from.
// points are rows of layers above, newest first.
func (t *Txn) walk(slot uint16, lo, hi, from []byte, points ...source) (*Iter, error) {
	it := &Iter{sources: points, life: &walkLife{opened: time.Now()}, limit: t.s.opts.IteratorLifetime, walks: &t.s.walks}
	it.walks.open.Add(1)
	if tree := t.elems[slot]; tree != nil {
		it.sources = append(it.sources, newTreeSource(tree.IsoCopy(), hi))
	}
	below := !t.isDropped(slot)
	if below {
		newer, older := t.s.layers(slot)
		for _, layer := range []*pending.Slot{newer, older} {
			tree, dropped := layer.Snapshot()
			if tree != nil {
				it.sources = append(it.sources, newTreeSource(tree, hi))
			}
			if dropped {
				below = false
				break
			}
		}
	}
	if below {
		pi, err := t.s.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		it.sources = append(it.sources, &pebbleSource{pi})
	}
	it.seek(from)
	if err := it.storeError(); err != nil {
		return nil, errors.Join(err, it.Close())
	}
	return it, nil
}

// storeError tells why Pebble's part of the walk ended, when it was not for lack of rows.
func (it *Iter) storeError() error {
	for _, s := range it.sources {
		if p, ok := s.(*pebbleSource); ok && p.it.Error() != nil {
			return p.it.Error()
		}
	}
	return nil
}

// Elements walks the element rows of k (chunks of a string) from the given element on, nil for all.
func (t *Txn) Elements(k *Key, from []byte) (*Iter, error) {
	lo, hi := layout.GenerationRange(k.Slot, k.Rec.Gen, k.Rec.Chunks())
	it, err := t.walk(k.Slot, lo, hi, append(append([]byte(nil), lo...), from...))
	if err != nil {
		return nil, err
	}
	it.prefix = lo
	return it, nil
}
