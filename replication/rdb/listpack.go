package rdb

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Listpack: many elements in one blob, readable from both ends.
//
//	0  uint32  bytes of the whole blob, with this header and the end byte
//	4  uint16  elements; 65535 means "count them"
//	6          elements, each: first byte, data, back length
//	   FF      end
//
//	first byte       element                          data
//	0xxxxxxx         0 to 127                         none
//	10LLLLLL         string of L bytes                the string
//	110xxxxx         13-bit integer, high bits first  1 byte
//	1110LLLL         string of up to 4095 bytes       1 byte of length, the string
//	F0               string                           uint32 length, the string
//	F1 F2 F3 F4      integer of 16, 24, 32, 64 bits   2, 3, 4, 8 bytes
//
// Integers are little endian except the 13-bit one. The back length is the size
// of first byte and data, in groups of 7 bits laid out so that it reads
// backwards: the last byte holds the low bits, and every byte but the first has
// its top bit set. Real servers widen it one value early at three of the four
// borders (backLenSize); the same borders are needed to be read by them.
const (
	lpHeaderLen  = 6
	lpEnd        = 0xff
	lpCountByWay = 0xffff
)

// backLenSize returns how many bytes the back length n takes.
func backLenSize(n int) int {
	switch {
	case n <= 127:
		return 1
	case n < 1<<14-1:
		return 2
	case n < 1<<21-1:
		return 3
	case n < 1<<28-1:
		return 4
	}
	return 5
}

func appendBackLen(dst []byte, n int) []byte {
	size := backLenSize(n)
	for i := size - 1; i >= 0; i-- {
		c := byte(n>>(7*i)) & 0x7f
		if i != size-1 {
			c |= 0x80
		}
		dst = append(dst, c)
	}
	return dst
}

// packedReader walks a listpack or a ziplist. next gives the element at the
// cursor: a string inside the blob, or the text of an integer in scratch. ok is
// false after the last one, when everything that the header claims has been
// checked.
type packedReader interface {
	claimed() int // elements according to the header; 0 when it does not say
	room() int    // bytes of the blob
	next(scratch *[24]byte) (elem []byte, ok bool, err error)
}

// listpack is the reading side.
type listpack struct {
	b    []byte
	pos  int
	seen int
}

func newListpack(b []byte) (*listpack, error) {
	if len(b) < lpHeaderLen+1 {
		return nil, fmt.Errorf("%d bytes, want at least %d", len(b), lpHeaderLen+1)
	}
	if n := binary.LittleEndian.Uint32(b); uint64(n) != uint64(len(b)) {
		return nil, fmt.Errorf("header says %d bytes, got %d", n, len(b))
	}
	if b[len(b)-1] != lpEnd {
		return nil, fmt.Errorf("last byte %#02x, want %#02x", b[len(b)-1], lpEnd)
	}
	return &listpack{b: b, pos: lpHeaderLen}, nil
}

func (l *listpack) claimed() int {
	if n := int(binary.LittleEndian.Uint16(l.b[4:])); n != lpCountByWay {
		return n
	}
	return 0
}

func (l *listpack) room() int { return len(l.b) }

func (l *listpack) next(scratch *[24]byte) ([]byte, bool, error) {
	if l.b[l.pos] == lpEnd {
		return nil, false, l.atEnd()
	}
	head, size, isInt, err := l.shape()
	if err != nil {
		return nil, false, err
	}
	back := backLenSize(head + size)
	end := l.pos + head + size
	if end+back > len(l.b)-1 {
		return nil, false, fmt.Errorf("element of %d bytes at byte %d, %d left", head+size+back, l.pos, len(l.b)-1-l.pos)
	}
	var want [5]byte
	if got := l.b[end : end+back]; string(got) != string(appendBackLen(want[:0], head+size)) {
		return nil, false, fmt.Errorf("back length %x at byte %d, want %d", got, end, head+size)
	}
	elem := l.b[l.pos+head : end]
	if isInt {
		elem = strconv.AppendInt(scratch[:0], l.integer(), 10)
	}
	l.pos = end + back
	l.seen++
	return elem, true, nil
}

func (l *listpack) atEnd() error {
	if l.pos != len(l.b)-1 {
		return fmt.Errorf("end at byte %d of %d", l.pos, len(l.b))
	}
	if n := int(binary.LittleEndian.Uint16(l.b[4:])); n != lpCountByWay && n != l.seen {
		return fmt.Errorf("%d elements, header says %d", l.seen, n)
	}
	return nil
}

// shape returns the size of what precedes the data of the element at pos, and of
// the data. The 7-bit integer counts as one byte of head without data.
func (l *listpack) shape() (head, size int, isInt bool, err error) {
	rest := l.b[l.pos : len(l.b)-1]
	c := rest[0]
	switch {
	case c < 0x80:
		return 1, 0, true, nil
	case c < 0xc0:
		return 1, int(c & 0x3f), false, nil
	case c < 0xe0:
		return 1, 1, true, nil
	case c < 0xf0:
		if len(rest) < 2 {
			return 0, 0, false, fmt.Errorf("string length at byte %d cut off", l.pos)
		}
		return 2, int(c&0x0f)<<8 | int(rest[1]), false, nil
	case c == 0xf0:
		if len(rest) < 5 {
			return 0, 0, false, fmt.Errorf("string length at byte %d cut off", l.pos)
		}
		n := binary.LittleEndian.Uint32(rest[1:])
		if uint64(n) > uint64(len(rest)) {
			return 0, 0, false, fmt.Errorf("string of %d bytes at byte %d, %d left", n, l.pos, len(rest)-5)
		}
		return 5, int(n), false, nil
	case c <= 0xf3:
		return 1, int(c-0xf1) + 2, true, nil
	case c == 0xf4:
		return 1, 8, true, nil
	}
	return 0, 0, false, fmt.Errorf("first byte %#02x at byte %d is unknown", c, l.pos)
}

// integer decodes the integer at pos; its bytes are known to be there.
func (l *listpack) integer() int64 {
	b := l.b[l.pos:]
	switch c := b[0]; {
	case c < 0x80:
		return int64(c)
	case c < 0xe0:
		return int64(int16(uint16(c&0x1f)<<11|uint16(b[1])<<3)) >> 3
	case c == 0xf1:
		return int64(int16(binary.LittleEndian.Uint16(b[1:])))
	case c == 0xf2:
		return int64(int32(uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24)) >> 8
	case c == 0xf3:
		return int64(int32(binary.LittleEndian.Uint32(b[1:])))
	default:
		return int64(binary.LittleEndian.Uint64(b[1:]))
	}
}

// Listpack builds one. The zero value is an empty one, ready for use.
type Listpack struct {
	b     []byte
	count int
}

// Reset empties l and keeps its memory.
func (l *Listpack) Reset() { l.b, l.count = l.b[:0], 0 }

// Len returns the number of elements.
func (l *Listpack) Len() int { return l.count }

// Size returns the bytes of the whole blob.
func (l *Listpack) Size() int { return max(len(l.b), lpHeaderLen) + 1 }

// Append adds one element at the end. The exact text of an int64 is stored as an
// integer, as servers do.
func (l *Listpack) Append(elem []byte) {
	if v, ok := canonicalInt(elem); ok {
		l.AppendInt(v)
		return
	}
	at := l.open()
	switch n := len(elem); {
	case n < 64:
		l.b = append(l.b, 0x80|byte(n))
	case n < 4096:
		l.b = append(l.b, 0xe0|byte(n>>8), byte(n))
	default:
		l.b = binary.LittleEndian.AppendUint32(append(l.b, 0xf0), uint32(n))
	}
	l.b = append(l.b, elem...)
	l.close(at)
}

// AppendInt adds one integer at the end.
func (l *Listpack) AppendInt(v int64) {
	at := l.open()
	switch {
	case v >= 0 && v <= 127:
		l.b = append(l.b, byte(v))
	case v >= -4096 && v <= 4095:
		l.b = append(l.b, 0xc0|byte(v>>8)&0x1f, byte(v))
	case v >= math.MinInt16 && v <= math.MaxInt16:
		l.b = binary.LittleEndian.AppendUint16(append(l.b, 0xf1), uint16(v))
	case v >= -1<<23 && v < 1<<23:
		l.b = append(l.b, 0xf2, byte(v), byte(v>>8), byte(v>>16))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		l.b = binary.LittleEndian.AppendUint32(append(l.b, 0xf3), uint32(v))
	default:
		l.b = binary.LittleEndian.AppendUint64(append(l.b, 0xf4), uint64(v))
	}
	l.close(at)
}

// AppendScore adds a score: an integer when it is one, else its text.
func (l *Listpack) AppendScore(v float64) {
	if n, ok := scoreInt(v); ok {
		l.AppendInt(n)
		return
	}
	var scratch [32]byte
	l.Append(appendScore(scratch[:0], v))
}

func (l *Listpack) open() int {
	if len(l.b) == 0 {
		l.b = append(l.b, make([]byte, lpHeaderLen)...)
	}
	return len(l.b)
}

func (l *Listpack) close(at int) {
	l.b = appendBackLen(l.b, len(l.b)-at)
	l.count++
}

// Bytes finishes the blob and returns it. It is valid until l is used again;
// appending more and calling Bytes again is allowed.
func (l *Listpack) Bytes() []byte {
	l.open()
	out := append(l.b, lpEnd)
	l.b = out[:len(out)-1]
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	binary.LittleEndian.PutUint16(out[4:], uint16(min(l.count, lpCountByWay)))
	return out
}
