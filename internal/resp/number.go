package resp

import (
	"math"
	"strconv"
)

// maxDoubleLen is room for any double that AppendDouble or AppendDouble17 writes.
const maxDoubleLen = 32

// ParseInt reads a whole 64-bit integer as Redis does: no plus sign, no spaces,
// no leading zeros, no "-0".
func ParseInt(b []byte) (n int64, ok bool) {
	digits := b
	neg := false
	if len(digits) > 0 && digits[0] == '-' {
		neg = true
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	if digits[0] == '0' {
		return 0, len(b) == 1
	}
	var v uint64 // nineteen digits fit
	for _, c := range digits {
		d := c - '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + uint64(d)
	}
	if neg {
		return -int64(v), v <= 1<<63
	}
	return int64(v), v <= math.MaxInt64
}

// ParseFloat reads a double as Redis does for scores and other doubles: all that
// C's strtod takes, decimal or hexadecimal, and "inf" and "infinity" in any case,
// but no space, no NaN, and nothing that overflows or that is not zero and
// underflows to zero.
func ParseFloat(b []byte) (v float64, ok bool) {
	s := scanFloat(b)
	switch s.kind {
	case floatBad:
		return 0, false
	case floatInf:
		return math.Inf(s.sign()), true
	}
	text := string(b)
	if s.kind == floatHex && !s.hasExp {
		text += "p0" // Go wants the exponent that C leaves out
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v == 0 && !s.zero() {
		return 0, false
	}
	return v, true
}

type floatKind uint8

const (
	floatBad floatKind = iota
	floatDecimal
	floatHex
	floatInf
)

// floatParts is a number as strtod would cut it.
type floatParts struct {
	kind   floatKind
	neg    bool
	digits []byte // integer and fraction, with the point where there is one
	hasExp bool
	exp    int64 // as written, held at ±maxExp
}

// maxExp is far beyond what decides over a number whose digits fit in memory.
const maxExp = 1 << 50

func (s *floatParts) sign() int {
	if s.neg {
		return -1
	}
	return 1
}

// zero reports that all digits are zero.
func (s *floatParts) zero() bool {
	for _, c := range s.digits {
		if c != '0' && c != '.' {
			return false
		}
	}
	return true
}

// scanFloat takes b apart. It is bad unless strtod would use all of it.
func scanFloat(b []byte) (s floatParts) {
	rest := b
	if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
		s.neg = rest[0] == '-'
		rest = rest[1:]
	}
	if IsWord(rest, "inf") || IsWord(rest, "infinity") {
		s.kind = floatInf
		return s
	}
	kind, mark := floatDecimal, byte('e')
	if len(rest) > 2 && rest[0] == '0' && rest[1]|0x20 == 'x' {
		kind, mark = floatHex, 'p'
		rest = rest[2:]
	}
	n, seen, point := 0, false, false
	for ; n < len(rest); n++ {
		c := rest[n]
		if c == '.' && !point {
			point = true
		} else if d := hexDigit(c); d >= 0 && (d < 10 || kind == floatHex) {
			seen = true
		} else {
			break
		}
	}
	if !seen {
		return s
	}
	s.digits = rest[:n]
	rest = rest[n:]
	if len(rest) > 0 {
		if rest[0]|0x20 != mark {
			return s
		}
		var ok bool
		if s.exp, ok = scanExp(rest[1:]); !ok {
			return s
		}
		s.hasExp = true
	}
	s.kind = kind
	return s
}

// scanExp reads an exponent: a sign or none, then digits to the end.
func scanExp(b []byte) (exp int64, ok bool) {
	neg := false
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		exp = min(exp*10+int64(c-'0'), maxExp)
	}
	if neg {
		exp = -exp
	}
	return exp, true
}

// AppendDouble appends a double as Redis 7.2 writes scores: integers plainly,
// else the shortest digits that read back as the same double, with an exponent
// where the plain form would be long. "inf", "-inf", "nan", "-0".
//
// Redis finds the digits with Grisu2, which in about one case of a thousand gives
// one digit more than needed; these do not. Both read back as the same double.
func AppendDouble(dst []byte, v float64) []byte {
	const safe = math.MaxInt64 / 2
	switch {
	case v == 0 && math.Signbit(v):
		return append(dst, "-0"...)
	case v >= -safe && v <= safe && v == math.Trunc(v):
		return strconv.AppendInt(dst, int64(v), 10)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return appendSpecial(dst, v)
	}
	if v < 0 {
		dst = append(dst, '-')
		v = -v
	}
	digits, k := shortest(v)
	return layoutDouble(dst, digits.bytes(), k)
}

// AppendDouble17 appends a double with C's %.17g, as Redis 7.0 writes scores.
func AppendDouble17(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return appendSpecial(dst, v)
	}
	return strconv.AppendFloat(dst, v, 'g', 17, 64)
}

func appendSpecial(dst []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "nan"...)
	case v < 0:
		return append(dst, "-inf"...)
	}
	return append(dst, "inf"...)
}

// shortDigits holds the at most seventeen digits of a double.
type shortDigits struct {
	b [maxDoubleLen]byte
	n int
}

func (d *shortDigits) bytes() []byte { return d.b[:d.n] }

// shortest gives the shortest digits of v and the exponent k, so that v is the
// digits as an integer, times ten to the k. v is positive and finite.
func shortest(v float64) (d shortDigits, k int) {
	var buf [maxDoubleLen]byte
	text := strconv.AppendFloat(buf[:0], v, 'e', -1, 64) // d.ddde±xx
	at := 0
	for at < len(text) && text[at] != 'e' {
		if text[at] != '.' {
			d.b[d.n] = text[at]
			d.n++
		}
		at++
	}
	exp, _ := scanExp(text[at+1:])
	return d, int(exp) - (d.n - 1)
}

// layoutDouble writes digits times ten to the k in the form that Redis 7.2
// chooses: plain while that is about as short as with an exponent.
func layoutDouble(dst, digits []byte, k int) []byte {
	n := len(digits)
	exp := k + n - 1 // of the first digit
	abs := max(exp, -exp)
	switch {
	case k >= 0 && abs < n+7:
		dst = append(dst, digits...)
		return appendZeros(dst, k)
	case k < 0 && (k > -7 || abs < 4):
		if n+k <= 0 {
			dst = append(dst, "0."...)
			dst = appendZeros(dst, -(n + k))
			return append(dst, digits...)
		}
		dst = append(dst, digits[:n+k]...)
		dst = append(dst, '.')
		return append(dst, digits[n+k:]...)
	}
	dst = append(dst, digits[0])
	if n > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if exp >= 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(exp), 10)
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
