package command

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/glob"
	"cairn/internal/resp"
)

// Whole hashes, HSCAN. A hash with rows is walked in the order of its fields' hashes. What is long is written
// from a snapshot while it is sent, so that neither the lock nor the reply's memory grows with the hash.

// hashParts says what a reply shows of each field.
type hashParts struct {
	fields, values bool
	pairs          bool // each field and its value in an array of two, as RESP3 nests them in HRANDFIELD
}

func hgetall(c *Ctx) error { return replyHash(c, hashParts{fields: true, values: true}) }
func hkeys(c *Ctx) error   { return replyHash(c, hashParts{fields: true}) }
func hvals(c *Ctx) error   { return replyHash(c, hashParts{values: true}) }

func replyHash(c *Ctx, parts hashParts) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	n, err := hashLen(k)
	if err != nil {
		return err
	}
	if parts.fields && parts.values {
		c.W.Map(int(n))
	} else {
		c.W.Array(int(n))
	}
	return replyFields(c, k, n, n, parts)
}

// replyFields appends want of the n fields of the hash at k: all of them, or some by chance, each as likely as
// any other.
func replyFields(c *Ctx, k *engine.Key, n, want uint64, parts hashParts) error {
	if n == 0 {
		return nil
	}
	next, close, err := hashFields(c.Txn, k, parts.values)
	if err != nil {
		return err
	}
	run := func(w *resp.Writer, flush func() error) error {
		return writeFields(w, next, n, want, parts, flush)
	}
	if c.Replaying || k.Rec.Form == layout.Inline || k.Rec.Bytes+k.Rec.Count*headerBytes <= StreamFrom {
		if err := errors.Join(run(c.W, nil), close()); err != nil {
			return hashError(k, err)
		}
		return nil
	}
	c.Stream(run, close)
	return nil
}

// headerBytes is about what a field costs in a reply beyond its bytes.
const headerBytes = 16

// nextField gives the fields of a hash one by one, ok false behind the last. The slices are valid until the next
// call.
type nextField func() (field []byte, value hashValue, ok bool, err error)

// hashFields walks the hash at k in either form. values: they are wanted.
func hashFields(t *engine.Txn, k *engine.Key, values bool) (next nextField, close func() error, err error) {
	if k.Rec.Form == layout.Rows {
		it, err := t.Elements(k, nil)
		if err != nil {
			return nil, nil, hashError(k, err)
		}
		if !values || !k.Rec.MayHavePieces() {
			return rowFields(it, nil), it.Close, nil
		}
		in, err := openPieces(t, k, it)
		if err != nil {
			return nil, nil, errors.Join(err, it.Close())
		}
		return rowFields(it, in), func() error { return errors.Join(it.Close(), in.close()) }, nil
	}
	p, err := layout.OpenPackedHash(k.Rec.Body)
	if err != nil {
		return nil, nil, hashError(k, err)
	}
	next = func() ([]byte, hashValue, bool, error) {
		f, ok, err := p.Next()
		return f.Name, hashValue{HashValue: layout.HashValue{Value: f.Value, Length: uint64(len(f.Value))}}, ok, err
	}
	return next, func() error { return nil }, nil
}

// rowFields walks rows from where it stands; in is where long values are.
func rowFields(it *engine.Iter, in *fieldPieces) nextField {
	begun := false
	return func() (field []byte, value hashValue, ok bool, err error) {
		if begun {
			it.Next()
		}
		begun = true
		if !it.Valid() {
			return nil, value, false, nil // Close tells why, if for more than lack of rows
		}
		if _, field, err = layout.HashElementParts(it.Key()); err != nil {
			return nil, value, false, err
		}
		value.in = in
		value.HashValue, err = layout.DecodeHashValue(it.Value())
		return field, value, err == nil, err
	}
}

// writeFields appends want of n fields. Going through them once, a field is taken with the chance of what is
// still wanted among what is still to come: so every choice of want fields is equally likely.
func writeFields(w *resp.Writer, next nextField, n, want uint64, parts hashParts, flush func() error) error {
	for left := n; want > 0; left-- {
		field, value, ok, err := next()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("hash of %d fields ends %d fields early", n, left)
		}
		if want < left && randomBelow(left) >= want {
			continue
		}
		want--
		if err := writeField(w, field, &value, parts, flush); err != nil {
			return err
		}
	}
	return nil
}

func writeField(w *resp.Writer, field []byte, value *hashValue, parts hashParts, flush func() error) error {
	if parts.pairs {
		w.Array(2)
	}
	if parts.fields {
		if err := writeBulk(w, field, flush); err != nil {
			return err
		}
	}
	if parts.values {
		return value.write(w, flush)
	}
	return nil
}

// writeBulk appends a bulk string, a piece at a time when it is long. flush nil: all goes to memory.
func writeBulk(w *resp.Writer, v []byte, flush func() error) error {
	if len(v) <= StreamFrom || flush == nil {
		w.Bulk(v)
		return flushFull(w, flush)
	}
	w.BulkHeader(int64(len(v)))
	for len(v) > 0 {
		n := min(len(v), StreamFrom)
		w.Buf = append(w.Buf, v[:n]...)
		v = v[n:]
		if err := flushFull(w, flush); err != nil {
			return err
		}
	}
	w.BulkEnd()
	return nil
}

func flushFull(w *resp.Writer, flush func() error) error {
	if flush == nil || len(w.Buf) <= StreamFrom {
		return nil
	}
	return flush()
}

// Limits of one HSCAN.
const (
	scanDefaultCount = 10
	// scanAtOnce is up to which COUNT the reply is made under the lock, and scanReplyMax about how many bytes it
	// has then: COUNT is a hint, and fields may be long.
	scanAtOnce   = 1000
	scanReplyMax = 1 << 20
)

// hashScan is one HSCAN over rows.
type hashScan struct {
	count   int64
	match   bool
	pattern []byte
	items   int    // fields and values that match
	next    uint64 // the cursor to go on from
}

func hscan(c *Ctx) error {
	cursor, ok := parseHashCursor(c.Args[2])
	if !ok {
		return Reply("ERR invalid cursor")
	}
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	if !k.Exists() {
		// Redis does not even look at the options then.
		writeScan(c.W, hashScan{}, nil)
		return nil
	}
	s, err := scanOptions(c)
	if err != nil {
		return err
	}
	if k.Rec.Form == layout.Inline {
		return scanPacked(c, k, s)
	}
	from := layout.AppendHashFrom(nil, cursor)
	it, err := c.Txn.Elements(k, from)
	if err != nil {
		return hashError(k, err)
	}
	if s.count <= scanAtOnce || c.Replaying {
		return s.atOnce(c, k, it)
	}
	return s.stream(c, k, it, from)
}

// longAt is a long value in a reply, left out at a place in its bytes.
type longAt struct {
	at    int
	value layout.HashValue
}

// atOnce makes the reply under the lock, but for long values.
func (s hashScan) atOnce(c *Ctx, k *engine.Key, it *engine.Iter) error {
	body, longs, long := &resp.Writer{}, []longAt(nil), uint64(0)
	full := func() bool { return uint64(len(body.Buf))+long > scanReplyMax }
	err := s.walk(it, full, func(field []byte, value layout.HashValue) error {
		body.Bulk(field)
		if value.InPieces {
			longs = append(longs, longAt{len(body.Buf), value})
			long += value.Length
		} else {
			body.Bulk(value.Value)
		}
		return nil
	})
	if err := errors.Join(err, it.Close()); err != nil {
		return hashError(k, err)
	}
	writeScan(c.W, s, nil)
	r, at := hashReply{c: c, k: k}, 0
	for _, l := range longs {
		c.W.Buf = append(c.W.Buf, body.Buf[at:l.at]...)
		at = l.at
		if err := r.value(l.value); err != nil {
			return errors.Join(err, r.close())
		}
	}
	c.W.Buf = append(c.W.Buf, body.Buf[at:]...)
	return r.close()
}

// stream makes the reply while it is sent: one walk counts what the header must say, a second one writes.
func (s hashScan) stream(c *Ctx, k *engine.Key, counted *engine.Iter, from []byte) error {
	written, err := c.Txn.Elements(k, from)
	if err != nil {
		return hashError(k, errors.Join(err, counted.Close()))
	}
	var in *fieldPieces
	if k.Rec.MayHavePieces() {
		if in, err = openPieces(c.Txn, k, written); err != nil {
			return hashError(k, errors.Join(err, counted.Close(), written.Close()))
		}
	}
	never := func() bool { return false }
	s.pattern = bytes.Clone(s.pattern) // the arguments are gone by then
	c.Stream(func(w *resp.Writer, flush func() error) error {
		again := s
		if err := errors.Join(s.walk(counted, never, nil), counted.Close()); err != nil {
			return err
		}
		writeScan(w, s, nil)
		err := again.walk(written, never, func(field []byte, value layout.HashValue) error {
			return writeField(w, field, &hashValue{value, in}, hashParts{fields: true, values: true}, flush)
		})
		if err != nil {
			return err
		}
		if again.items != s.items {
			return fmt.Errorf("scan announced %d items and met %d", s.items, again.items)
		}
		return nil
	}, func() error { return errors.Join(counted.Close(), written.Close(), in.close()) })
	return nil
}

// walk goes over count fields, and on to the last one of the same position: the next call begins at a position,
// so none of them may be left behind. full ends it earlier. What matches is counted and given to take, if there is one.
func (s *hashScan) walk(it *engine.Iter, full func() bool, take func(field []byte, value layout.HashValue) error) error {
	last := uint64(0)
	for seen := int64(0); it.Valid(); it.Next() {
		pos, field, err := layout.HashElementParts(it.Key())
		if err != nil {
			return err
		}
		if seen > 0 && pos != last && (seen >= s.count || full()) {
			// It is not 0, which would mean the end: the position before it is smaller.
			s.next = pos
			return nil
		}
		seen++
		last = pos
		if s.match && !glob.Match(s.pattern, field, false) {
			continue
		}
		s.items += 2
		if take == nil {
			continue
		}
		value, err := layout.DecodeHashValue(it.Value())
		if err == nil {
			err = take(field, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scanPacked replies with all of a packed hash, wherever the cursor is, as Redis does for a listpack.
func scanPacked(c *Ctx, k *engine.Key, s hashScan) error {
	next, _, err := hashFields(c.Txn, k, true)
	if err != nil {
		return err
	}
	body := &resp.Writer{}
	for {
		field, value, ok, err := next()
		if err != nil {
			return hashError(k, err)
		}
		if !ok {
			writeScan(c.W, s, body.Buf)
			return nil
		}
		if !s.match || glob.Match(s.pattern, field, false) {
			s.items += 2
			body.Bulk(field)
			body.Bulk(value.Value)
		}
	}
}

func writeScan(w *resp.Writer, s hashScan, body []byte) {
	var digits [20]byte
	w.Array(2)
	w.Bulk(strconv.AppendUint(digits[:0], s.next, 10))
	w.Array(s.items)
	w.Buf = append(w.Buf, body...)
}

// scanOptions reads what stands behind the cursor.
func scanOptions(c *Ctx) (s hashScan, err error) {
	s.count = scanDefaultCount
	for i := 3; i < len(c.Args); i += 2 {
		switch more := i+1 < len(c.Args); {
		case more && c.Is(i, "count"):
			if s.count, err = c.Int(i + 1); err != nil {
				return s, err
			}
			if s.count < 1 {
				return s, ErrSyntax
			}
		case more && c.Is(i, "match"):
			s.pattern = c.Args[i+1]
			s.match = string(s.pattern) != "*"
		default:
			return s, ErrSyntax
		}
	}
	return s, nil
}

// parseHashCursor reads a cursor as C's strtoul does, with Redis's additions: no space in front, nothing
// behind, and the empty word is 0. A minus sign counts down from 2^64.
func parseHashCursor(b []byte) (cursor uint64, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	digits, neg := b, b[0] == '-'
	if neg || b[0] == '+' {
		digits = b[1:]
	}
	if len(digits) == 0 {
		return 0, false
	}
	for _, c := range digits {
		d := uint64(c - '0')
		if d > 9 || cursor > (math.MaxUint64-d)/10 {
			return 0, false
		}
		cursor = cursor*10 + d
	}
	if neg {
		cursor = -cursor
	}
	return cursor, true
}
