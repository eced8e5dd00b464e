package command

import (
	"encoding/binary"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// How strings are stored, and the three ways to touch one without knowing how: stringReader walks it from front
// to back, stringEditor changes bytes in place, setString and stringBuilder make a new one.
//
// The length alone decides on the form:
//
//	0 .. InlineMax bytes          Inline     the record's body
//	InlineMax+1 .. ChunkedOver    ValueRow   a row named by the key; Count is the length
//	more                          Rows       chunk rows; Count is the length, Bytes what the rows hold
//
// The element of a chunk row is the chunk's number, 4 bytes big endian; chunk n holds the bytes from n*ChunkBytes
// on. A row ends with the chunk's last byte that is not zero, and a chunk of zeroes has no row, so a bitmap with
// one bit far out costs one chunk, and the rows are a function of the value alone, whatever commands made it.
//
// No string shrinks but by being replaced. What is changed in place costs the chunks it touches; of the two
// small forms it rewrites the whole, at most ChunkedOver bytes.

// maxChunked is half of what chunk numbers reach, bytes. The limit that clients meet is proto-max-bulk-len; this
// one holds where that does not apply, for what a primary sends.
const maxChunked = int64(layout.ChunkBytes) << 31

// stringLimit is how long a string may become, bytes.
func stringLimit(c *Ctx) int64 {
	if c.Replaying {
		return maxChunked
	}
	return min(c.Host.Settings().ProtoMaxBulk.Load(), maxChunked)
}

// checkStringLen refuses a string of size and more bytes; both are not negative.
func checkStringLen(c *Ctx, size int64, more int) error {
	if total := size + int64(more); total < size || total > stringLimit(c) {
		return ErrTooBig
	}
	return nil
}

// stringLen is the length in bytes of the string at k, 0 when there is none. Only the record is looked at.
func stringLen(k *engine.Key) int64 {
	switch {
	case !k.Exists():
		return 0
	case k.Rec.Form == layout.Inline:
		return int64(len(k.Rec.Body))
	}
	return int64(k.Rec.Count)
}

// stringReader reads a string chunk by chunk in ascending order, as it was when the reader was opened: it may
// outlive the transaction when the string is in chunks.
type stringReader struct {
	whole []byte       // the value, unless it is in chunks
	it    *engine.Iter // over the chunk rows
	name  []byte
	err   error
}

// openString opens the string at k, which may be missing, for reading from byte from on.
func openString(t *engine.Txn, k *engine.Key, from int64) (r stringReader, err error) {
	r.name = k.Name
	if !k.Exists() {
		return r, nil
	}
	if k.Rec.Form != layout.Rows {
		r.whole, err = t.Value(k)
		return r, err
	}
	element := chunkElement(from / layout.ChunkBytes)
	if r.it, err = t.Elements(k, element[:]); err != nil {
		return r, fmt.Errorf("read chunks of key %.64q: %w", k.Name, err)
	}
	return r, nil
}

func chunkElement(n int64) (e [4]byte) {
	binary.BigEndian.PutUint32(e[:], uint32(n))
	return e
}

// chunk gives the stored bytes of chunk n, valid until the next call: zeroes follow them up to the chunk's end
// or the string's.
func (r *stringReader) chunk(n int64) ([]byte, error) {
	if r.it == nil {
		from := min(n*layout.ChunkBytes, int64(len(r.whole)))
		return r.whole[from:min(from+layout.ChunkBytes, int64(len(r.whole)))], nil
	}
	for r.it.Valid() {
		key := r.it.Key()
		if len(key) != 4 {
			return nil, fmt.Errorf("read chunks of key %.64q: chunk number of %d bytes, want 4", r.name, len(key))
		}
		switch at := int64(binary.BigEndian.Uint32(key)); {
		case at > n:
			return nil, nil
		case at < n:
			r.it.Next()
		default:
			v := r.it.Value()
			if r.it.Valid() {
				return v[:min(len(v), layout.ChunkBytes)], nil
			}
		}
	}
	// The rows are at their end, or could not be read: only Close tells, and zeroes must not stand for the latter.
	return nil, r.close()
}

// close lets go of the rows. It may be called again.
func (r *stringReader) close() error {
	if r.it == nil || r.err != nil {
		return r.err
	}
	if err := r.it.Close(); err != nil {
		r.err = fmt.Errorf("read chunks of key %.64q: %w", r.name, err)
	}
	return r.err
}

// copyTo appends the bytes from from to to, both within the string, to w. flush, if given, is called whenever
// much has gathered.
func (r *stringReader) copyTo(w *resp.Writer, from, to int64, flush func() error) error {
	for at := from; at < to; {
		n := at / layout.ChunkBytes
		start := n * layout.ChunkBytes
		stop := min(to, start+layout.ChunkBytes)
		b, err := r.chunk(n)
		if err != nil {
			return err
		}
		w.Buf = appendPadded(w.Buf, b, int(at-start), int(stop-start))
		at = stop
		if flush != nil && len(w.Buf) > StreamFrom {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendPadded appends b[lo:hi], zeroes where b has ended before hi.
func appendPadded(dst, b []byte, lo, hi int) []byte {
	if lo < len(b) {
		part := b[lo:min(hi, len(b))]
		dst = append(dst, part...)
		lo += len(part)
	}
	return append(dst, make([]byte, hi-lo)...)
}

// replyString replies with the bytes from from to to of the string at k, both within it. What is long is
// streamed once the locks are gone; nothing is read for a reply that nobody gets.
func replyString(c *Ctx, k *engine.Key, from, to int64) error {
	if c.Replaying {
		c.W.Null()
		return nil
	}
	if k.Rec.Form != layout.Rows {
		v, err := c.Txn.Value(k)
		if err != nil {
			return err
		}
		c.W.Bulk(v[from:to])
		return nil
	}
	opened, err := openString(c.Txn, k, from)
	if err != nil {
		return err
	}
	r := &opened
	c.W.BulkHeader(to - from)
	if to-from > StreamFrom {
		c.Stream(func(w *resp.Writer, flush func() error) error { return r.copyTo(w, from, to, flush) }, r.close)
	} else {
		err = r.copyTo(c.W, from, to, nil)
		if closed := r.close(); err == nil {
			err = closed
		}
	}
	c.W.BulkEnd()
	return err
}

// wholeString gives all bytes of the string at k in memory, for who has checked that its length is bearable.
// They are valid until the end of the transaction and must not be changed.
func wholeString(t *engine.Txn, k *engine.Key) ([]byte, error) {
	r, err := openString(t, k, 0)
	if err != nil || r.it == nil {
		return r.whole, err
	}
	var w resp.Writer
	w.Buf = make([]byte, 0, stringLen(k))
	err = r.copyTo(&w, 0, stringLen(k), nil)
	if closed := r.close(); err == nil {
		err = closed
	}
	return w.Buf, err
}

// byteAt gives the byte at off of the string at k, 0 behind its end. It reads one chunk at most.
func byteAt(t *engine.Txn, k *engine.Key, off int64) (byte, error) {
	if off >= stringLen(k) {
		return 0, nil
	}
	if k.Rec.Form != layout.Rows {
		v, err := t.Value(k)
		if err != nil {
			return 0, err
		}
		return v[off], nil
	}
	n := off / layout.ChunkBytes
	element := chunkElement(n)
	v, _, err := t.Element(k, element[:])
	if err != nil {
		return 0, fmt.Errorf("read chunk %d of key %.64q: %w", n, k.Name, err)
	}
	if off -= n * layout.ChunkBytes; off < int64(len(v)) {
		return v[off], nil
	}
	return 0, nil
}

// trimZeroes cuts the zeroes off the end of a chunk.
func trimZeroes(b []byte) []byte {
	for len(b) >= 8 && binary.LittleEndian.Uint64(b[len(b)-8:]) == 0 {
		b = b[:len(b)-8]
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// setString makes value the string at k, replacing whatever is there. deadline is Unix milliseconds, 0 for none.
func setString(t *engine.Txn, k *engine.Key, value []byte, enc uint8, deadline int64) {
	k.Rec = layout.Record{Type: layout.String, Enc: enc, Deadline: deadline}
	switch {
	case len(value) <= layout.InlineMax:
		k.Rec.Body = value
	case len(value) <= layout.ChunkedOver:
		k.Rec.Form, k.Rec.Count = layout.ValueRow, uint64(len(value))
		t.SetValue(k, value)
	default:
		startChunks(t, k, int64(len(value)))
		putChunks(t, k, 0, value)
	}
	t.Put(k)
}

// startChunks makes k's record one of a string of length bytes in chunks, all zero so far.
func startChunks(t *engine.Txn, k *engine.Key, length int64) {
	k.Rec.Type, k.Rec.Form, k.Rec.Body = layout.String, layout.Rows, nil
	k.Rec.Gen, k.Rec.Count, k.Rec.Bytes = t.NewGeneration(), uint64(length), 0
}

// putChunks stores b as the chunks from n on, which have no rows yet.
func putChunks(t *engine.Txn, k *engine.Key, n int64, b []byte) {
	for ; len(b) > 0; n++ {
		part := b[:min(len(b), layout.ChunkBytes)]
		b = b[len(part):]
		if stored := trimZeroes(part); len(stored) > 0 {
			element := chunkElement(n)
			t.PutElement(k, element[:], stored)
			k.Rec.Bytes += uint64(len(stored))
		}
	}
}

// chunkWriter makes the rows of a long string from front to back.
type chunkWriter struct {
	put   func(element []byte, value ...[]byte) error
	n     int64 // the next chunk
	bytes uint64
}

// add appends the next ChunkBytes bytes, or as many of them as are before zeroes.
func (w *chunkWriter) add(page []byte) error {
	element := chunkElement(w.n)
	w.n++
	stored := trimZeroes(page)
	if len(stored) == 0 {
		return nil
	}
	w.bytes += uint64(len(stored))
	return w.put(element[:], stored)
}

// record is that of a string of length bytes whose rows were written.
func (w *chunkWriter) record(gen uint64, length int64) layout.Record {
	return layout.Record{
		Type: layout.String, Enc: EncRaw, Form: layout.Rows, Gen: gen, Count: uint64(length), Bytes: w.bytes,
	}
}

// stringBuilder makes a new string of a known length from front to back.
type stringBuilder struct {
	t      *engine.Txn
	k      *engine.Key
	enc    uint8
	small  []byte // of a string that is not in chunks
	chunks bool
	n      int64 // the next chunk
}

// buildString begins a string of length bytes at k, replacing whatever is there.
func buildString(t *engine.Txn, k *engine.Key, length int64, enc uint8, deadline int64) *stringBuilder {
	b := &stringBuilder{t: t, k: k, enc: enc, chunks: length > layout.ChunkedOver}
	k.Rec = layout.Record{Type: layout.String, Enc: enc, Deadline: deadline}
	if b.chunks {
		startChunks(t, k, length)
	} else {
		b.small = make([]byte, 0, length)
	}
	return b
}

// add appends the next ChunkBytes bytes, less only at the string's end. They are copied.
func (b *stringBuilder) add(part []byte) {
	if !b.chunks {
		b.small = append(b.small, part...)
		return
	}
	putChunks(b.t, b.k, b.n, part)
	b.n++
}
