package rdb

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
)

// Lengths and strings. The top two bits of the first byte choose:
//
//	00xxxxxx                      6-bit length
//	01xxxxxx xxxxxxxx             14-bit length, big endian
//	10000000 + 4 bytes            32-bit length, big endian
//	10000001 + 8 bytes            64-bit length, big endian
//	11000000 + 1 byte             the decimal text of an int8
//	11000001 + 2 bytes            of an int16, little endian
//	11000010 + 4 bytes            of an int32, little endian
//	11000011 length length block  LZF: compressed length, true length, block
//
// The last four stand in place of a string. Every other first byte is refused.
const (
	len32 = 0x80
	len64 = 0x81

	strInt8  = 0
	strInt16 = 1
	strInt32 = 2
	strLZF   = 3

	maxIntText    = 11 // "-2147483648"
	minLZFInput   = 21 // nothing shorter is tried, as in Redis
	minLZFSavings = 4
)

// AppendLength appends n in the shortest form.
func AppendLength(dst []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(dst, byte(n))
	case n < 1<<14:
		return append(dst, 0x40|byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, len32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(dst, len64), n)
	}
}

// AppendString appends b as an integer when it is the exact text of an int32, as
// an LZF block when that saves at least 4 bytes, else as it is.
func AppendString(dst, b []byte) []byte {
	if len(b) <= maxIntText {
		if v, ok := canonicalInt(b); ok && v >= math.MinInt32 && v <= math.MaxInt32 {
			return appendIntString(dst, int32(v))
		}
	}
	if len(b) >= minLZFInput {
		if out, ok := appendCompressed(dst, b); ok {
			return out
		}
	}
	return append(AppendLength(dst, uint64(len(b))), b...)
}

// appendCompressed appends b as an LZF string, or reports that it does not pay.
func appendCompressed(dst, b []byte) ([]byte, bool) {
	if len(b) > MaxElement {
		return dst, false
	}
	// The compressed length stands before the block, in as many bytes as it
	// needs: compress behind room for the longest form, then close the gap.
	const room = 1 + 5 + 5
	at := len(dst)
	dst = append(dst, make([]byte, room)...)
	out, ok := lzfCompress(dst, b, len(b)-minLZFSavings)
	if !ok {
		return dst[:at], false
	}
	block := out[at+room:]
	head := append(out[:at], 0xc0|strLZF)
	head = AppendLength(head, uint64(len(block)))
	head = AppendLength(head, uint64(len(b)))
	return append(head, block...), true
}

func appendIntString(dst []byte, v int32) []byte {
	switch {
	case v >= math.MinInt8 && v <= math.MaxInt8:
		return append(dst, 0xc0|strInt8, byte(v))
	case v >= math.MinInt16 && v <= math.MaxInt16:
		return binary.LittleEndian.AppendUint16(append(dst, 0xc0|strInt16), uint16(v))
	default:
		return binary.LittleEndian.AppendUint32(append(dst, 0xc0|strInt32), uint32(v))
	}
}

// canonicalInt returns the value of b when b is exactly how that int64 is printed:
// no plus sign, no leading zero, no minus zero.
func canonicalInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	digits := b
	if b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' {
		return 0, false
	}
	if digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	return v, err == nil
}

// length reads a length that is not allowed to be a string encoding.
func (s *source) length(what string) (uint64, error) {
	n, enc, err := s.lengthOrEncoding(what)
	if err == nil && enc {
		return 0, s.failf(what, "string encoding %d where a length belongs", n)
	}
	return n, err
}

// lengthOrEncoding reads a length, or the number of a string encoding (enc true).
func (s *source) lengthOrEncoding(what string) (n uint64, enc bool, err error) {
	c, err := s.readByte(what)
	if err != nil {
		return 0, false, err
	}
	switch {
	case c>>6 == 0:
		return uint64(c), false, nil
	case c>>6 == 1:
		lo, err := s.readByte(what)
		return uint64(c&0x3f)<<8 | uint64(lo), false, err
	case c>>6 == 3:
		return uint64(c & 0x3f), true, nil
	case c == len32:
		b, err := s.next(4, what)
		if err != nil {
			return 0, false, err
		}
		return uint64(binary.BigEndian.Uint32(b)), false, nil
	case c == len64:
		b, err := s.next(8, what)
		if err != nil {
			return 0, false, err
		}
		return binary.BigEndian.Uint64(b), false, nil
	}
	return 0, false, s.failf(what, "length form %#02x is unknown", c)
}

// intString reads the number behind one of the three integer encodings.
func (s *source) intString(enc uint64, what string) (int64, error) {
	b, err := s.next(1<<enc, what)
	if err != nil {
		return 0, err
	}
	switch enc {
	case strInt8:
		return int64(int8(b[0])), nil
	case strInt16:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	default:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
}

// str reads a whole string. It may lie in *buf, which grows as needed, or in the
// payload; it stays valid until *buf is used again.
func (s *source) str(buf *[]byte, what string) ([]byte, error) {
	n, enc, err := s.lengthOrEncoding(what)
	if err != nil {
		return nil, err
	}
	return s.strOf(buf, n, enc, what)
}

// strOf is str behind the length or encoding.
func (s *source) strOf(buf *[]byte, n uint64, enc bool, what string) ([]byte, error) {
	switch {
	case !enc:
		return s.rawString(buf, n, what)
	case n <= strInt32:
		v, err := s.intString(n, what)
		if err != nil {
			return nil, err
		}
		*buf = strconv.AppendInt((*buf)[:0], v, 10)
		return *buf, nil
	case n == strLZF:
		return s.lzfString(buf, what)
	}
	return nil, s.failf(what, "string encoding %d is unknown", n)
}

// rawString reads the n bytes of a plain string.
func (s *source) rawString(buf *[]byte, n uint64, what string) ([]byte, error) {
	if n > MaxElement {
		return nil, s.failf(what, "%d bytes, limit %d", n, MaxElement)
	}
	if s.br == nil {
		return s.next(int(n), what)
	}
	// The next read of a stream overwrites its buffer.
	b, err := s.fill(*buf, int(n), what)
	*buf = b
	return b, err
}

// lzfLengths reads the two lengths of an LZF string.
func (s *source) lzfLengths(what string) (packed, want uint64, err error) {
	if packed, err = s.length(what); err != nil {
		return 0, 0, err
	}
	if want, err = s.length(what); err != nil {
		return 0, 0, err
	}
	if err = lzfCheckLengths(packed, want); err != nil {
		return 0, 0, s.fail(what, "lzf: "+err.Error(), nil)
	}
	return packed, want, nil
}

// lzfString reads a whole LZF string into *buf.
func (s *source) lzfString(buf *[]byte, what string) ([]byte, error) {
	packed, want, err := s.lzfLengths(what)
	if err != nil {
		return nil, err
	}
	return s.lzfBytes(buf, packed, want, what)
}

// lzfBytes is lzfString behind the lengths.
func (s *source) lzfBytes(buf *[]byte, packed, want uint64, what string) ([]byte, error) {
	block, err := s.next(int(packed), what)
	if err != nil {
		return nil, err
	}
	out := slices.Grow((*buf)[:0], int(min(want, 1<<20)))
	if out, err = lzfAppend(out, block, int(want)); err != nil {
		return nil, s.fail(what, "lzf: "+err.Error(), nil)
	}
	*buf = out
	return out, nil
}
