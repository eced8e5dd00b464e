package wal

import (
	"slices"

	"cairn/wal/record"
)

// buffer holds what was appended and not yet written, laid out as it will be on disk: blocks with
// room for their heads, so that a chunk is written as it lies. It is guarded by Log.mu.
//
// A huge entry is not copied into it: a chunk that only names the entry (borrowed) keeps its place in the order, and the
// writer lays it out one real chunk after the other. In the same way a chunk stands for what was laid ahead.
type buffer struct {
	payloadMax int // longest payload of a block
	chunkCap   int // bytes of a chunk without the end mark
	borrowFrom int // entries in parts of so many bytes are borrowed
	passed     func(part []byte)
	chunks     []*chunk
	free       []*chunk
}

// chunk is one write: whole blocks, and room for the zero bytes that mark the end of the log.
type chunk struct {
	data   []byte // never grows beyond its capacity
	blocks []place
	open   bool      // the last block may take more entries
	long   *borrowed // nil, or what is to be written in place of this chunk, which has no data then
	laid   *Laid     // the same, for what is in files already
	start  int64     // of laid, in the stream
}

// stands says that the chunk has no data of its own.
func (c *chunk) stands() bool { return c.long != nil || c.laid != nil }

// borrowed is an entry, or what is left of it, in memory that its caller leaves as it is until it is written.
type borrowed struct {
	parts [][]byte
	left  int   // bytes
	start int64 // of what is left, in the stream
	more  bool  // the entry goes on behind it
}

// place is where a block lies: its start in the stream and its position.
type place struct {
	start int64
	pos   int64
	flags uint32
}

const maxFreeChunks = 8

func newBuffer(chunkBytes int) buffer {
	return buffer{
		chunkCap:   chunkBytes - record.BlockLen,
		payloadMax: min(record.MaxPayload, chunkBytes-2*record.BlockLen),
		borrowFrom: 2 * chunkBytes,
	}
}

// add appends one entry that starts at the stream offset start.
func (b *buffer) add(entry []byte, start int64) {
	if len(entry) == 0 {
		return
	}
	if len(entry) <= b.payloadMax {
		b.room(len(entry), start)
		b.put(entry)
		return
	}
	b.addLong(&borrowed{parts: [][]byte{entry}, left: len(entry), start: start})
}

// addStretch appends n bytes in blocks of their own: a long entry, or a stretch of one, behind which more of it comes.
func (b *buffer) addStretch(parts [][]byte, n int, start int64, more bool) (borrows bool) {
	if n == 0 {
		return false
	}
	e := &borrowed{slices.Clone(parts), n, start, more}
	if n < b.borrowFrom {
		b.addLong(e)
		return false
	}
	b.borrow(e)
	return true
}

// addLaid appends what lies in files already.
func (b *buffer) addLaid(d *Laid, start int64) {
	b.close()
	b.chunks = append(b.chunks, &chunk{laid: d, start: start})
}

// borrow appends an entry without a look at its bytes.
func (b *buffer) borrow(e *borrowed) {
	b.close()
	b.chunks = append(b.chunks, &chunk{long: e})
}

// addLong copies an entry that may be longer than a block.
func (b *buffer) addLong(e *borrowed) {
	b.close()
	for e.left > 0 {
		c := b.last()
		if c == nil || !c.takeBlock(e, b) {
			c = b.newChunk()
			b.chunks = append(b.chunks, c)
			c.takeBlock(e, b)
		}
	}
}

// takeBlock moves the next block's worth of e into the chunk; false when there is no room for it. An entry longer than a
// block gets blocks of its own. Only the last one says that an entry ends there, so that recovery never cuts in
// the middle of it.
func (c *chunk) takeBlock(e *borrowed, b *buffer) bool {
	n := min(e.left, b.payloadMax)
	if c.stands() || len(c.data)+record.BlockLen+n > b.chunkCap {
		return false
	}
	flags := uint32(0)
	if n == e.left && !e.more {
		flags = record.EndsEntry
	}
	c.blocks = append(c.blocks, place{start: e.start, pos: int64(len(c.data)), flags: flags})
	c.data = c.data[:len(c.data)+record.BlockLen]
	e.left, e.start = e.left-n, e.start+int64(n)
	for n > 0 {
		k := min(n, len(e.parts[0]))
		c.data = append(c.data, e.parts[0][:k]...)
		if b.passed != nil {
			b.passed(e.parts[0][:k])
		}
		if e.parts[0] = e.parts[0][k:]; len(e.parts[0]) == 0 {
			e.parts = e.parts[1:]
		}
		n -= k
	}
	return true
}

// last is the chunk at the end, or nil.
func (b *buffer) last() *chunk {
	if n := len(b.chunks); n > 0 {
		return b.chunks[n-1]
	}
	return nil
}

// room makes the last block of the last chunk one that takes n bytes more, n at most payloadMax.
func (b *buffer) room(n int, start int64) {
	c := b.last()
	if c != nil && c.open {
		last := c.blocks[len(c.blocks)-1]
		inBlock := len(c.data) - int(last.pos) - record.BlockLen
		if inBlock+n <= b.payloadMax && len(c.data)+n <= b.chunkCap {
			return
		}
	}
	if c == nil || c.stands() || len(c.data)+record.BlockLen+n > b.chunkCap {
		c = b.newChunk()
		b.chunks = append(b.chunks, c)
	}
	c.blocks = append(c.blocks, place{start: start, pos: int64(len(c.data)), flags: record.EndsEntry})
	c.data = c.data[:len(c.data)+record.BlockLen]
	c.open = true
}

func (b *buffer) put(p []byte) {
	c := b.chunks[len(b.chunks)-1]
	c.data = append(c.data, p...)
}

// close keeps later entries out of the last block.
func (b *buffer) close() {
	if c := b.last(); c != nil {
		c.open = false
	}
}

// newChunk is an empty chunk.
func (b *buffer) newChunk() *chunk {
	if n := len(b.free); n > 0 {
		c := b.free[n-1]
		b.free = b.free[:n-1]
		return c
	}
	return &chunk{data: make([]byte, 0, b.chunkCap+record.BlockLen)}
}

// take hands out in room what the next round writes, and where that ends, if there is anything: everything buffered, but
// a borrowed entry goes by itself, lest those before it wait for it.
func (b *buffer) take(room []*chunk) (chunks []*chunk, end int64) {
	n := slices.IndexFunc(b.chunks, func(c *chunk) bool { return c.long != nil })
	switch {
	case len(b.chunks) == 0:
		return room[:0], -1
	case n == 0:
		n = 1
	case n < 0:
		n = len(b.chunks)
	}
	chunks = append(room[:0], b.chunks[:n]...)
	b.chunks = slices.Delete(b.chunks, 0, n)
	return chunks, chunks[n-1].end()
}

// giveBack returns a chunk for reuse.
func (b *buffer) giveBack(c *chunk) {
	if len(b.free) < maxFreeChunks && c.long == nil {
		c.data, c.blocks, c.open = c.data[:0], c.blocks[:0], false
		b.free = append(b.free, c)
	}
}

// drop forgets everything: the log has failed. What is laid of it stays until the next Open.
func (b *buffer) drop() {
	for _, c := range b.chunks {
		if c.laid != nil {
			c.laid.closeFiles()
		}
	}
	b.chunks, b.free = nil, nil
}

// seal completes the heads of the chunk's blocks and adds the end mark. It returns what to write.
func (c *chunk) seal(seed record.Seed, synced int64) []byte {
	for i, p := range c.blocks {
		end := int64(len(c.data))
		if i+1 < len(c.blocks) {
			end = c.blocks[i+1].pos
		}
		record.Seal(c.data[p.pos:end], record.Block{Start: p.start, Synced: synced, Flags: p.flags}, seed)
	}
	out := c.data[:len(c.data)+record.BlockLen]
	clear(out[len(c.data):])
	return out
}

// end is the stream offset behind the chunk's last byte.
func (c *chunk) end() int64 {
	switch {
	case c.long != nil:
		return c.long.start + int64(c.long.left)
	case c.laid != nil:
		return c.start + c.laid.bytes()
	}
	last := c.blocks[len(c.blocks)-1]
	return last.start + int64(len(c.data)) - last.pos - record.BlockLen
}
