package rdb

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Ziplist: what servers before 7.0 packed small collections into. Read only.
//
//	0   uint32  bytes of the whole blob
//	4   uint32  offset of the last element
//	8   uint16  elements; 65535 means "count them"
//	10          elements, each: size of the one before, encoding, data
//	    FF      end
//
// The size of the one before is 1 byte below 254, else FE and a uint32.
//
//	encoding    element                           data
//	00LLLLLL    string of L bytes                 the string
//	01LLLLLL    string, 14-bit length big endian  1 byte of length, the string
//	10______    string                            uint32 length big endian, the string
//	C0 D0 E0    integer of 16, 32, 64 bits        2, 4, 8 bytes
//	F0 FE       integer of 24, 8 bits             3, 1 bytes
//	F1 to FD    0 to 12                           none
const (
	zlHeaderLen = 10
	zlEnd       = 0xff
	zlBigPrev   = 0xfe
)

type ziplist struct {
	b    []byte
	pos  int
	prev int // size of the element before pos
	seen int
}

func newZiplist(b []byte) (*ziplist, error) {
	if len(b) < zlHeaderLen+1 {
		return nil, fmt.Errorf("%d bytes, want at least %d", len(b), zlHeaderLen+1)
	}
	if n := binary.LittleEndian.Uint32(b); uint64(n) != uint64(len(b)) {
		return nil, fmt.Errorf("header says %d bytes, got %d", n, len(b))
	}
	if b[len(b)-1] != zlEnd {
		return nil, fmt.Errorf("last byte %#02x, want %#02x", b[len(b)-1], zlEnd)
	}
	return &ziplist{b: b, pos: zlHeaderLen}, nil
}

func (z *ziplist) claimed() int {
	if n := int(binary.LittleEndian.Uint16(z.b[8:])); n != lpCountByWay {
		return n
	}
	return 0
}

func (z *ziplist) room() int { return len(z.b) }

func (z *ziplist) next(scratch *[24]byte) ([]byte, bool, error) {
	if z.b[z.pos] == zlEnd {
		return nil, false, z.atEnd()
	}
	body := z.b[:len(z.b)-1]
	at := z.pos
	prevLen, before := 1, int(body[at])
	if before == zlBigPrev {
		if len(body)-at < 5 {
			return nil, false, fmt.Errorf("element at byte %d cut off", at)
		}
		prevLen, before = 5, int(binary.LittleEndian.Uint32(body[at+1:]))
	}
	if before != z.prev {
		return nil, false, fmt.Errorf("size before byte %d is %d, stored as %d", at, z.prev, before)
	}
	head, size, isInt, err := zlShape(body[at+prevLen:])
	if err != nil {
		return nil, false, fmt.Errorf("element at byte %d: %w", at, err)
	}
	start := at + prevLen + head
	if size > len(body)-start {
		return nil, false, fmt.Errorf("element of %d bytes at byte %d, %d left", size, start, len(body)-start)
	}
	elem := body[start : start+size]
	if isInt {
		elem = strconv.AppendInt(scratch[:0], zlInteger(body[at+prevLen], elem), 10)
	}
	z.prev = prevLen + head + size
	z.pos = start + size
	z.seen++
	return elem, true, nil
}

func (z *ziplist) atEnd() error {
	if z.pos != len(z.b)-1 {
		return fmt.Errorf("end at byte %d of %d", z.pos, len(z.b))
	}
	if n := int(binary.LittleEndian.Uint16(z.b[8:])); n != lpCountByWay && n != z.seen {
		return fmt.Errorf("%d elements, header says %d", z.seen, n)
	}
	// An empty one has seen several conventions for its tail; nothing depends on it.
	if tail := binary.LittleEndian.Uint32(z.b[4:]); z.seen > 0 && int64(tail) != int64(z.pos-z.prev) {
		return fmt.Errorf("last element at byte %d, header says %d", z.pos-z.prev, tail)
	}
	return nil
}

// zlShape returns the size of the encoding at the start of b, and of its data.
func zlShape(b []byte) (head, size int, isInt bool, err error) {
	if len(b) == 0 {
		return 0, 0, false, fmt.Errorf("encoding cut off")
	}
	switch c := b[0]; {
	case c>>6 == 0:
		return 1, int(c), false, nil
	case c>>6 == 1:
		if len(b) < 2 {
			return 0, 0, false, fmt.Errorf("string length cut off")
		}
		return 2, int(c&0x3f)<<8 | int(b[1]), false, nil
	case c>>6 == 2:
		if len(b) < 5 {
			return 0, 0, false, fmt.Errorf("string length cut off")
		}
		n := binary.BigEndian.Uint32(b[1:])
		if uint64(n) > uint64(len(b)) {
			return 0, 0, false, fmt.Errorf("string of %d bytes, %d left", n, len(b)-5)
		}
		return 5, int(n), false, nil
	case c == 0xc0:
		return 1, 2, true, nil
	case c == 0xd0:
		return 1, 4, true, nil
	case c == 0xe0:
		return 1, 8, true, nil
	case c == 0xf0:
		return 1, 3, true, nil
	case c == 0xfe:
		return 1, 1, true, nil
	case c >= 0xf1 && c <= 0xfd:
		return 1, 0, true, nil
	default:
		return 0, 0, false, fmt.Errorf("encoding %#02x is unknown", c)
	}
}

func zlInteger(enc byte, data []byte) int64 {
	switch len(data) {
	case 0:
		return int64(enc&0x0f) - 1
	case 1:
		return int64(int8(data[0]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(data)))
	case 3:
		return int64(int32(uint32(data[0])<<8|uint32(data[1])<<16|uint32(data[2])<<24)) >> 8
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(data)))
	default:
		return int64(binary.LittleEndian.Uint64(data))
	}
}
