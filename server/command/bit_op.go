package command

import (
	"encoding/binary"
	"errors"

	"cairn/engine"
	"cairn/engine/layout"
)

// BITOP reads its sources and writes its result in step, a window at a time, whatever their length. A result of
// engine.StageFrom bytes or more is staged, see stage_made.go. The result takes its place last, because it may replace
// one of the sources.

type bitOperation uint8

const (
	bitAnd bitOperation = iota
	bitOr
	bitXor
	bitNot
)

func parseBitOp(c *Ctx) (bitOperation, error) {
	switch {
	case c.Is(1, "and"):
		return bitAnd, nil
	case c.Is(1, "or"):
		return bitOr, nil
	case c.Is(1, "xor"):
		return bitXor, nil
	case c.Is(1, "not"):
		if len(c.Args) != 4 {
			return 0, Reply("ERR BITOP NOT must be called with a single source key.")
		}
		return bitNot, nil
	}
	return 0, ErrSyntax
}

func bitop(c *Ctx) error {
	op, err := parseBitOp(c)
	if err != nil {
		return err
	}
	keys := make([]*engine.Key, 0, len(c.Args)-3)
	size := int64(0)
	for _, name := range c.Args[3:] {
		k, err := c.TypedKey(name, layout.String)
		if err != nil {
			return err
		}
		c.CountRead(k)
		keys = append(keys, k)
		size = max(size, stringLen(k))
	}
	dst, err := c.Key(c.Args[2])
	if err != nil {
		return err
	}
	if size == 0 {
		if dst.Exists() {
			c.Txn.Delete(dst)
			c.Event('g', "del", dst.Name)
		}
		c.W.Int(0)
		return nil
	}
	if err := storeCombined(c, op, dst, keys, size); err != nil {
		return err
	}
	c.Event('$', "set", dst.Name)
	c.W.Int(size)
	return nil
}

// stageBitop makes a long result before the lock.
func stageBitop(c *Ctx) error {
	op, err := parseBitOp(c)
	if err != nil || len(c.Args)-3 > bitReaders || !c.mayStage() {
		return nil //nolint:nilerr // the handler answers it
	}
	size := int64(0)
	from, err := c.openOrigins(c.Args[3:], func(keys []*engine.Key) bool {
		for _, k := range keys {
			if k.Exists() && k.Rec.Type != layout.String {
				return false
			}
			size = max(size, stringLen(k))
		}
		return size >= engine.StageFrom
	})
	if from == nil || err != nil {
		return err
	}
	sources := bitSources{len(from), func(i int, _ int64) (stringReader, error) { return from[i].reader(), nil }}
	return c.stageMade(c.Args[2], true, from, func(s *staged, put rowPut) error {
		return sources.make(op, size, s, put)
	})
}

// storeCombined stores at dst the size bytes that op makes of the strings at keys.
func storeCombined(c *Ctx, op bitOperation, dst *engine.Key, keys []*engine.Key, size int64) error {
	noteNew(c, dst)
	sources := bitSources{len(keys), func(i int, at int64) (stringReader, error) {
		if at >= stringLen(keys[i]) {
			return stringReader{}, nil
		}
		return openString(c.Txn, keys[i], at)
	}}
	if size >= engine.StageFrom {
		made, err := c.made(dst, true, func(s *staged, put rowPut) error { return sources.make(op, size, s, put) })
		if err != nil {
			return err
		}
		dst.Rec = made.rec
		c.Txn.Put(dst)
		return nil
	}
	result := make([]byte, 0, size)
	err := sources.combine(op, size, func(page []byte) error {
		result = append(result, page...)
		return nil
	})
	if err == nil {
		setString(c.Txn, dst, result, EncRaw, 0)
	}
	return err
}

// bitSources are the strings that BITOP reads. open gives the i-th, to be read from byte at on.
type bitSources struct {
	count int
	open  func(i int, at int64) (stringReader, error)
}

const (
	// bitReaders is how many strings are open at once. Where there are more, each window opens all of them anew, some
	// at a time.
	bitReaders = 64
	// bitWindow is how many bytes of the result come into being at once.
	bitWindow = 64 * layout.ChunkBytes
)

// make makes the rows of a result of size bytes.
func (b bitSources) make(op bitOperation, size int64, s *staged, put rowPut) error {
	w := chunkWriter{put: put.Put}
	err := b.combine(op, size, w.add)
	s.rec = w.record(0, size)
	return err
}

// combine gives the size bytes of the result to add, a chunk at a time.
func (b bitSources) combine(op bitOperation, size int64, add func(page []byte) error) (err error) {
	readers := make([]stringReader, 0, min(b.count, bitReaders))
	defer func() {
		if closed := closeReaders(readers); err == nil {
			err = closed
		}
	}()
	window := make([]byte, min(size, bitWindow))
	for at := int64(0); at < size; at += int64(len(window)) {
		window = window[:min(size-at, int64(len(window)))]
		for first := 0; first < b.count; first += bitReaders {
			if at == 0 || b.count > bitReaders {
				err := closeReaders(readers)
				for i := first; i < min(first+bitReaders, b.count) && err == nil; i++ {
					var r stringReader
					if r, err = b.open(i, at); err == nil {
						readers = append(readers[:i-first], r)
					}
				}
				if err != nil {
					return err
				}
			}
			for i := range readers {
				if err := readers[i].fold(op, window, at, first+i == 0); err != nil {
					return err
				}
			}
		}
		if op == bitNot {
			invert(window)
		}
		for page := window; len(page) > 0; page = page[min(len(page), layout.ChunkBytes):] {
			if err := add(page[:min(len(page), layout.ChunkBytes)]); err != nil {
				return err
			}
		}
	}
	return nil
}

func closeReaders(readers []stringReader) error {
	var err error
	for i := range readers {
		err = errors.Join(err, readers[i].close())
	}
	return err
}

// fold combines window, which begins at byte at, with what the string has there; the first string just fills it.
func (r *stringReader) fold(op bitOperation, window []byte, at int64, first bool) error {
	for n := at / layout.ChunkBytes; len(window) > 0; n++ {
		page := window[:min(len(window), layout.ChunkBytes)]
		window = window[len(page):]
		b, err := r.chunk(n)
		if err != nil {
			return err
		}
		if first {
			clear(page[copy(page, b):])
		} else {
			combine(op, page, b)
		}
	}
	return nil
}

// combine changes dst to dst op src. src may be shorter, zeroes follow it.
func combine(op bitOperation, dst, src []byte) {
	if op == bitAnd {
		clear(dst[min(len(src), len(dst)):])
	}
	dst = dst[:min(len(src), len(dst))]
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		v, w := binary.LittleEndian.Uint64(dst[i:]), binary.LittleEndian.Uint64(src[i:])
		switch op {
		case bitAnd:
			v &= w
		case bitOr:
			v |= w
		case bitXor:
			v ^= w
		}
		binary.LittleEndian.PutUint64(dst[i:], v)
	}
	for ; i < len(dst); i++ {
		switch op {
		case bitAnd:
			dst[i] &= src[i]
		case bitOr:
			dst[i] |= src[i]
		case bitXor:
			dst[i] ^= src[i]
		}
	}
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}
