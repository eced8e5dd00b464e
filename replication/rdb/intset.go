package rdb

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Intset: a set of integers, all of one width, in ascending order.
//
//	0  uint32  bytes of one integer: 2, 4 or 8
//	4  uint32  integers, at least one
//	8          the integers
const intsetHeaderLen = 8

// intset is the reading side. It has checked its header.
type intset struct {
	b     []byte
	width int
	count int
}

func newIntset(b []byte) (intset, error) {
	if len(b) < intsetHeaderLen {
		return intset{}, fmt.Errorf("%d bytes, want at least %d", len(b), intsetHeaderLen)
	}
	width := binary.LittleEndian.Uint32(b)
	if width != 2 && width != 4 && width != 8 {
		return intset{}, fmt.Errorf("integers of %d bytes", width)
	}
	count := binary.LittleEndian.Uint32(b[4:])
	if uint64(count)*uint64(width) != uint64(len(b)-intsetHeaderLen) {
		return intset{}, fmt.Errorf("%d integers of %d bytes in %d bytes", count, width, len(b)-intsetHeaderLen)
	}
	return intset{b: b[intsetHeaderLen:], width: int(width), count: int(count)}, nil
}

func (s intset) at(i int) int64 {
	b := s.b[i*s.width:]
	switch s.width {
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		return int64(binary.LittleEndian.Uint64(b))
	}
}

// appendIntset appends the blob of sorted, which must be strictly ascending and
// not empty.
func appendIntset(dst []byte, sorted []int64) []byte {
	lo, hi := sorted[0], sorted[len(sorted)-1]
	width := uint32(8)
	switch {
	case lo >= math.MinInt16 && hi <= math.MaxInt16:
		width = 2
	case lo >= math.MinInt32 && hi <= math.MaxInt32:
		width = 4
	}
	dst = binary.LittleEndian.AppendUint32(dst, width)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(sorted)))
	for _, v := range sorted {
		switch width {
		case 2:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(v))
		case 4:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
		default:
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
	}
	return dst
}
