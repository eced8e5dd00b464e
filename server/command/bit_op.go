package command

import (
	"encoding/binary"

	"cairn/engine"
	"cairn/engine/layout"
)

// BITOP reads its sources and writes its result in step, a chunk at a time. The sources are opened first, as they
// are before, because the result may replace one of them.

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
	if err := combineStrings(c, op, dst, keys, size); err != nil {
		return err
	}
	c.Event('$', "set", dst.Name)
	c.W.Int(size)
	return nil
}

// combineStrings stores at dst the size bytes that op makes of the strings at keys.
func combineStrings(c *Ctx, op bitOperation, dst *engine.Key, keys []*engine.Key, size int64) (err error) {
	readers := make([]stringReader, 0, len(keys))
	defer func() {
		for i := range readers {
			if closed := readers[i].close(); err == nil {
				err = closed
			}
		}
	}()
	for _, k := range keys {
		r, err := openString(c.Txn, k, 0)
		if err != nil {
			return err
		}
		readers = append(readers, r)
	}
	noteNew(c, dst)
	out := buildString(c.Txn, dst, size, EncRaw, 0)
	page := make([]byte, min(size, layout.ChunkBytes))
	for n := int64(0); n*layout.ChunkBytes < size; n++ {
		page = page[:min(size-n*layout.ChunkBytes, layout.ChunkBytes)]
		for i := range readers {
			b, err := readers[i].chunk(n)
			if err != nil {
				return err
			}
			if i == 0 {
				clear(page[copy(page, b):])
			} else {
				combine(op, page, b)
			}
		}
		if op == bitNot {
			invert(page)
		}
		out.add(page)
	}
	out.finish()
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
