package wal

import "cairn/wal/record"

// buffer holds what was appended and not yet written, laid out as it will be on disk: blocks with
// room for their heads, so that a chunk is written as it lies. It is guarded by Log.mu.
type buffer struct {
	payloadMax int // longest payload of a block
	chunkCap   int // bytes of a chunk without the end mark
	chunks     []*chunk
	free       []*chunk
}

// chunk is one write: whole blocks, and room for the zero bytes that mark the end of the log.
type chunk struct {
	data   []byte // never grows beyond its capacity
	blocks []place
	open   bool // the last block may take more entries
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
	b.addLong([][]byte{entry}, len(entry), start)
}

// addLong appends an entry of total bytes that lies in pieces. One longer than a block gets blocks of its own.
// Only the last one says that an entry ends there, so that recovery never cuts in the middle of it.
func (b *buffer) addLong(parts [][]byte, total int, start int64) {
	b.close()
	piece := []byte(nil)
	for total > 0 {
		n := min(total, b.payloadMax)
		b.room(n, start)
		for left := n; left > 0; {
			for len(piece) == 0 {
				piece, parts = parts[0], parts[1:]
			}
			k := min(left, len(piece))
			b.put(piece[:k])
			piece, left = piece[k:], left-k
		}
		total, start = total-n, start+int64(n)
		if total > 0 {
			c := b.chunks[len(b.chunks)-1]
			c.blocks[len(c.blocks)-1].flags = 0
		}
		b.close()
	}
}

// room makes the last block of the last chunk one that takes n bytes more, n at most payloadMax.
func (b *buffer) room(n int, start int64) {
	var c *chunk
	if len(b.chunks) > 0 {
		c = b.chunks[len(b.chunks)-1]
	}
	if c != nil && c.open {
		last := c.blocks[len(c.blocks)-1]
		inBlock := len(c.data) - int(last.pos) - record.BlockLen
		if inBlock+n <= b.payloadMax && len(c.data)+n <= b.chunkCap {
			return
		}
	}
	if c == nil || len(c.data)+record.BlockLen+n > b.chunkCap {
		c = b.newChunk()
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
	if len(b.chunks) > 0 {
		b.chunks[len(b.chunks)-1].open = false
	}
}

func (b *buffer) newChunk() *chunk {
	var c *chunk
	if n := len(b.free); n > 0 {
		c, b.free = b.free[n-1], b.free[:n-1]
	} else {
		c = &chunk{data: make([]byte, 0, b.chunkCap+record.BlockLen)}
	}
	b.chunks = append(b.chunks, c)
	return c
}

// take hands out everything buffered.
func (b *buffer) take() []*chunk {
	chunks := b.chunks
	b.chunks = nil
	return chunks
}

// giveBack returns a chunk for reuse.
func (b *buffer) giveBack(c *chunk) {
	if len(b.free) < maxFreeChunks {
		c.data, c.blocks, c.open = c.data[:0], c.blocks[:0], false
		b.free = append(b.free, c)
	}
}

func (b *buffer) drop() { b.chunks, b.free = nil, nil }

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
	last := c.blocks[len(c.blocks)-1]
	return last.start + int64(len(c.data)) - last.pos - record.BlockLen
}
