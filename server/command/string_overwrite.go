package command

import (
	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// APPEND and SETRANGE: bytes that take the place of others, or follow them. A change that is small beside its string is
// made in place, in the chunks it touches; a large one by a new string, staged as stage_made.go says.

// overwrite puts value at off into the string at k, which may be missing; together they are within the limit.
func overwrite(c *Ctx, k *engine.Key, off int64, value []byte) error {
	if rewrites(&k.Rec, len(value)) {
		size := stringLen(k)
		made, err := c.made(k, true, func(s *staged, put rowPut) error {
			r, err := openString(c.Txn, k, 0)
			if err != nil {
				return err
			}
			return overlay{off, value}.make(r, size, s, put)
		})
		if err != nil {
			return err
		}
		deadline := k.Rec.Deadline
		k.Rec = made.rec
		k.Rec.Deadline = deadline
		c.Txn.Put(k)
		return nil
	}
	e, err := editString(c.Txn, k)
	if err != nil {
		return err
	}
	e.grow(off + int64(len(value)))
	if err := e.write(off, value); err != nil {
		return err
	}
	e.finish()
	return nil
}

func stageAppend(c *Ctx) error {
	return stageOverwrite(c, c.Args[2], func(size int64) int64 { return size })
}

func stageSetrange(c *Ctx) error {
	off, ok := resp.ParseInt(c.Args[2])
	if !ok || off < 0 {
		return nil
	}
	return stageOverwrite(c, c.Args[3], func(int64) int64 { return off })
}

// stageOverwrite makes the string anew that the command's key holds once value is where offset says, which is asked
// with the string's length.
func stageOverwrite(c *Ctx, value []byte, offset func(size int64) int64) error {
	if len(value) < engine.StageFrom || !c.mayStage() {
		return nil
	}
	var size, off int64
	from, err := c.openOrigins(c.Args[1:2], func(keys []*engine.Key) bool {
		k := keys[0]
		if k.Exists() && k.Rec.Type != layout.String || !rewrites(&k.Rec, len(value)) {
			return false
		}
		size = stringLen(k)
		off = offset(size)
		return checkStringLen(c, off, len(value)) == nil
	})
	if from == nil || err != nil {
		return err
	}
	return c.stageMade(c.Args[1], true, from, func(s *staged, put rowPut) error {
		return overlay{off, value}.make(from[0].reader(), size, s, put)
	})
}

// overlay is value at byte off.
type overlay struct {
	off   int64
	value []byte
}

// make makes the rows of the string of size bytes that r reads, with the overlay over it. r is closed.
func (o overlay) make(r stringReader, size int64, s *staged, put rowPut) error {
	w, total := chunkWriter{put: put.Put}, max(size, o.off+int64(len(o.value)))
	buf := make([]byte, layout.ChunkBytes)
	for w.n*layout.ChunkBytes < total {
		if w.n*layout.ChunkBytes >= size {
			w.n = max(w.n, o.off/layout.ChunkBytes) // zeroes in between have no rows
		}
		page, err := o.page(&r, w.n, total, buf)
		if err == nil {
			err = w.add(page)
		}
		if err != nil {
			_ = r.close() // err says enough
			return err
		}
	}
	s.rec = w.record(0, total)
	return r.close()
}

// page gives the stored bytes of chunk n of a string of total bytes, in buf when they are put together there.
func (o overlay) page(r *stringReader, n, total int64, buf []byte) ([]byte, error) {
	at, end := n*layout.ChunkBytes, o.off+int64(len(o.value))
	stop := min(at+layout.ChunkBytes, total)
	if o.off <= at && stop <= end {
		return o.value[at-o.off : stop-o.off], nil
	}
	b, err := r.chunk(n)
	if err != nil || stop <= o.off || end <= at {
		return b, err
	}
	buf = buf[:stop-at]
	clear(buf[copy(buf, b):])
	copy(buf[max(o.off-at, 0):], o.value[max(at-o.off, 0):])
	return buf, nil
}
