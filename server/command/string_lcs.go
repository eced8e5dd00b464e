package command

import (
	"bytes"

	"cairn/engine/layout"
	"cairn/internal/resp"
)

// LCS finds the longest common subsequence by the table of all prefixes: cell (i, j) is the length for the first
// i bytes of a and the first j of b, and the way back from the last cell, with Redis's choice where two ways are
// as good, gives the subsequence and the ranges.
//
// Redis keeps the whole table and refuses when that exceeds proto-max-bulk-len. So do we, as answers must not
// differ, but we keep only every s-th row, s about the square root of their number, and compute the rows between
// again on the way back: twice the time, and 10 MB instead of 512. A large table is computed after the locks are
// gone.

// lcsAtOnce is how many cells are computed under the locks; about a millisecond.
const lcsAtOnce = 1 << 18

type lcsOptions struct {
	length, index, withLen bool
	minLen                 int64
}

func (o *lcsOptions) parse(c *Ctx) error {
	for i := 3; i < len(c.Args); i++ {
		switch {
		case c.Is(i, "idx"):
			o.index = true
		case c.Is(i, "len"):
			o.length = true
		case c.Is(i, "withmatchlen"):
			o.withLen = true
		case c.Is(i, "minmatchlen") && i+1 < len(c.Args):
			n, err := c.Int(i + 1)
			if err != nil {
				return err
			}
			o.minLen = max(n, 0)
			i++
		default:
			return ErrSyntax
		}
	}
	if o.length && o.index {
		return Reply("ERR If you want both the length and indexes, please just use IDX.")
	}
	return nil
}

func lcs(c *Ctx) error {
	a, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	b, err := c.Key(c.Args[2])
	if err != nil {
		return err
	}
	if a.Exists() && a.Rec.Type != layout.String || b.Exists() && b.Rec.Type != layout.String {
		return Reply("ERR The specified keys must contain string values")
	}
	var o lcsOptions
	if err := o.parse(c); err != nil {
		return err
	}
	const tooLong = 1<<32 - 2
	alen, blen := stringLen(a), stringLen(b)
	if alen >= tooLong || blen >= tooLong {
		return Reply("ERR String too long for LCS")
	}
	if cells := uint64(alen+1) * uint64(blen+1); cells > uint64(stringLimit(c))/4 {
		return Reply("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
	}
	var x, y []byte
	if alen > 0 && blen > 0 { // otherwise nothing is common, and the other may be very long
		if x, err = wholeString(c.Txn, a); err == nil {
			y, err = wholeString(c.Txn, b)
		}
		if err != nil {
			return err
		}
	}
	if len(x)*len(y) <= lcsAtOnce {
		o.reply(c.W, x, y)
		return nil
	}
	// The bytes belong to the transaction, which ends before the stream runs.
	x, y = bytes.Clone(x), bytes.Clone(y)
	c.Stream(func(w *resp.Writer, _ func() error) error {
		o.reply(w, x, y)
		return nil
	}, func() error { return nil })
	return nil
}

func (o *lcsOptions) reply(w *resp.Writer, a, b []byte) {
	t := newLCSTable(a, b)
	if o.length {
		w.Int(int64(t.length()))
		return
	}
	text, matches := t.walkBack(a, b)
	if !o.index {
		w.Bulk(text)
		return
	}
	kept := matches[:0]
	for _, m := range matches {
		if int64(m.n) >= o.minLen {
			kept = append(kept, m)
		}
	}
	w.Map(2)
	w.BulkString("matches")
	w.Array(len(kept))
	for _, m := range kept {
		if o.withLen {
			w.Array(3)
		} else {
			w.Array(2)
		}
		for _, from := range [2]int{m.a, m.b} {
			w.Array(2)
			w.Int(int64(from))
			w.Int(int64(from + m.n - 1))
		}
		if o.withLen {
			w.Int(int64(m.n))
		}
	}
	w.BulkString("len")
	w.Int(int64(len(text)))
}

// lcsMatch is a range that both strings have in common: n bytes, in a from a on and in b from b on.
type lcsMatch struct{ a, b, n int }

// lcsTable holds every step-th row of the table and one block of all rows between two of those. Rows go along
// the longer string, which the table's symmetry allows.
type lcsTable struct {
	long, short []byte
	swapped     bool // long is b
	step        int
	kept        [][]uint32 // rows 0, step, 2*step ...
	block       [][]uint32 // rows first .. first+step
	first       int        // -1: no block
}

func newLCSTable(a, b []byte) *lcsTable {
	t := &lcsTable{long: a, short: b, first: -1, step: 1}
	if len(a) < len(b) {
		t.long, t.short, t.swapped = b, a, true
	}
	for t.step*t.step < len(t.long) {
		t.step++
	}
	cur := make([]uint32, len(t.short)+1)
	next := make([]uint32, len(t.short)+1)
	t.kept = append(t.kept, bytesOfRow(cur))
	for i := 1; i <= len(t.long); i++ {
		t.row(next, cur, i)
		cur, next = next, cur
		if i%t.step == 0 || i == len(t.long) {
			t.kept = append(t.kept, bytesOfRow(cur))
		}
	}
	return t
}

func bytesOfRow(row []uint32) []uint32 { return append(make([]uint32, 0, len(row)), row...) }

// row computes row i into dst from row i-1.
func (t *lcsTable) row(dst, above []uint32, i int) {
	c := t.long[i-1]
	dst[0] = 0
	for j := 1; j < len(dst); j++ {
		if t.short[j-1] == c {
			dst[j] = above[j-1] + 1
		} else {
			dst[j] = max(above[j], dst[j-1])
		}
	}
}

func (t *lcsTable) length() int { return int(t.kept[len(t.kept)-1][len(t.short)]) }

// load makes the block hold rows i-1 and i.
func (t *lcsTable) load(i int) {
	first := (i - 1) / t.step * t.step
	if first == t.first {
		return
	}
	if t.block == nil {
		t.block = make([][]uint32, t.step+1)
		for r := range t.block {
			t.block[r] = make([]uint32, len(t.short)+1)
		}
	}
	copy(t.block[0], t.kept[first/t.step])
	for r := 1; r <= t.step && first+r <= len(t.long); r++ {
		t.row(t.block[r], t.block[r-1], first+r)
	}
	t.first = first
}

// before gives cells (i-1, j) and (i, j-1), i counting bytes of a and j of b.
func (t *lcsTable) before(i, j int) (up, left uint32) {
	if t.swapped {
		t.load(j)
		rows := t.block[j-1-t.first:]
		return rows[1][i-1], rows[0][i]
	}
	t.load(i)
	rows := t.block[i-1-t.first:]
	return rows[0][j], rows[1][j-1]
}

// walkBack follows the table from its last cell. The ranges come in this order, the last one in the strings first.
func (t *lcsTable) walkBack(a, b []byte) (text []byte, matches []lcsMatch) {
	at := t.length()
	text = make([]byte, at)
	var m lcsMatch // of the range being gathered; n 0: none
	emit := func() {
		if m.n > 0 {
			matches = append(matches, m)
		}
		m.n = 0
	}
	for i, j := len(a), len(b); i > 0 && j > 0; {
		if a[i-1] != b[j-1] {
			if up, left := t.before(i, j); up > left {
				i--
			} else {
				j--
			}
			emit()
			continue
		}
		// A byte that is in both but not next to the range gathered so far cannot be here: the way to it went
		// through a step that ended the range.
		i, j, at = i-1, j-1, at-1
		text[at] = a[i]
		m = lcsMatch{i, j, m.n + 1}
	}
	emit()
	return text, matches
}
