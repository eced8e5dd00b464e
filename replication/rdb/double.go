package rdb

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Scores. Three forms exist:
//
//	binary   8 bytes, IEEE 754, little endian
//	text     one byte length, then that many characters; 253 is not a number,
//	         254 plus infinity, 255 minus infinity, with nothing behind
//	packed   a listpack or ziplist element: an integer, or the text
const (
	doubleNaN    = 253
	doublePosInf = 254
	doubleNegInf = 255
)

// double reads the binary form. It refuses what is not a number.
func (s *source) double(what string) (float64, error) {
	b, err := s.next(8, what)
	if err != nil {
		return 0, err
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(b))
	if math.IsNaN(v) {
		return 0, s.failf(what, "not a number")
	}
	return v, nil
}

// doubleText reads the text form. It refuses what is not a number.
func (s *source) doubleText(what string) (float64, error) {
	n, err := s.readByte(what)
	if err != nil {
		return 0, err
	}
	switch n {
	case doubleNaN:
		return 0, s.failf(what, "not a number")
	case doublePosInf:
		return math.Inf(1), nil
	case doubleNegInf:
		return math.Inf(-1), nil
	}
	b, err := s.next(int(n), what)
	if err != nil {
		return 0, err
	}
	v, err := parseScore(b)
	if err != nil {
		return 0, s.fail(what, err.Error(), nil)
	}
	return v, nil
}

// parseScore reads a score that is kept as text. It takes what servers write:
// decimal digits with an exponent, inf and -inf.
func parseScore(b []byte) (float64, error) {
	if len(b) == 0 || len(b) > 128 {
		return 0, fmt.Errorf("score of %d characters", len(b))
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9', c == '+', c == '-', c == '.', c == 'e', c == 'E', c == 'i', c == 'n', c == 'f':
		default: // ParseFloat knows more words than a server writes
			return 0, fmt.Errorf("score %q is not a number", b)
		}
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("score %q is not a number", b)
	}
	return v, nil
}

// scoreInt returns v as an integer when a packed sorted set stores it as one:
// whole, and no larger than 2^52, so that nothing is lost on the way.
func scoreInt(v float64) (int64, bool) {
	const limit = 1 << 52
	if v < -limit || v > limit || v != math.Trunc(v) {
		return 0, false
	}
	if v == 0 && math.Signbit(v) {
		return 0, false
	}
	return int64(v), true
}

// appendScore appends the packed text of v, as short as it can be while reading
// back as v.
func appendScore(dst []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(dst, "inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-inf"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}
