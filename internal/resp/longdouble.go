package resp

import (
	"bytes"
	"math"
	"math/big"
)

// LongDouble is a number as INCRBYFLOAT and HINCRBYFLOAT calculate with it. Redis
// uses C's long double, on x86-64 a float with 64 bits of mantissa and an
// exponent up to 16384, so 10.5 plus 0.1 shows as 10.6 and not with the tail that
// a 64-bit double would have. We calculate with math/big at 64 bits of precision,
// round once to nearest even after reading and after adding, and get the same
// digits. (On machines whose long double is wider, Redis itself shows others.)
//
// The zero value is 0. A LongDouble never changes.
type LongDouble struct{ f *big.Float }

const (
	longPrec   = 64
	longMaxExp = 16384  // every finite value is below two to this
	longMinExp = -16445 // exponent of the smallest value that is not zero

	// maxLongText is Redis's buffer: a text as long as this is not a number.
	maxLongText = 5 * 1024

	// Decimal exponents of the first digit beyond these settle the matter
	// without any arithmetic.
	longMaxDecimal = 4940
	longMinDecimal = -4960
)

// ParseLongDouble reads a number as Redis does: all that C's strtold takes,
// decimal or hexadecimal, and "inf" and "infinity" in any case, but no space, no
// NaN, nothing that overflows or that underflows to zero, and less than 5120
// bytes.
func ParseLongDouble(b []byte) (x LongDouble, ok bool) {
	if len(b) >= maxLongText {
		return x, false
	}
	s := scanFloat(b)
	switch {
	case s.kind == floatBad:
		return x, false
	case s.kind == floatInf:
		return LongDouble{new(big.Float).SetInf(s.neg)}, true
	case s.zero():
		return x, true
	}
	f := s.round()
	if f == nil {
		return x, false
	}
	if s.neg {
		f.Neg(f)
	}
	return LongDouble{f}, true
}

// round gives the nearest long double to the absolute value of a number that is
// not zero, or nil when it is out of range.
func (s *floatParts) round() *big.Float {
	digits, scale := s.digits, int64(0) // scale: digits behind the point
	if i := bytes.IndexByte(digits, '.'); i >= 0 {
		scale = int64(len(digits) - i - 1)
		digits = append(append(make([]byte, 0, len(digits)), digits[:i]...), digits[i+1:]...)
	}
	digits = bytes.TrimLeft(digits, "0")
	trimmed := bytes.TrimRight(digits, "0")
	scale -= int64(len(digits) - len(trimmed))
	digits = trimmed

	base, exp := 10, s.exp-scale
	if s.kind == floatHex {
		base, exp = 16, s.exp-4*scale
	}
	m, _ := new(big.Int).SetString(string(digits), base)
	f := new(big.Float).SetPrec(longPrec)
	if s.kind == floatHex {
		if top := exp + int64(m.BitLen()); top > longMaxExp || top < longMinExp {
			return nil
		}
		f.SetMantExp(f.SetInt(m), int(exp))
	} else {
		first := exp + int64(len(digits)) - 1
		if first > longMaxDecimal || first < longMinDecimal {
			return nil
		}
		power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(exp, -exp)), nil)
		if exp >= 0 {
			f.SetInt(m.Mul(m, power))
		} else {
			// Both sides are exact, so the quotient is rounded once.
			f.Quo(new(big.Float).SetInt(m), new(big.Float).SetInt(power))
		}
	}
	if e := f.MantExp(nil); e > longMaxExp || underflows(f, e) {
		return nil
	}
	return f
}

// underflows reports that f, whose exponent is e, rounds to zero: it is not above
// half of the smallest long double. What lies between that and the normal range
// keeps more bits here than there, which nothing can show: such numbers print as
// 0, and vanish in any sum that does not.
func underflows(f *big.Float, e int) bool {
	half := longMinExp // half of the smallest is 0.5 * 2^longMinExp
	return e < half || e == half && f.MinPrec() == 1
}

// LongDoubleFromInt gives an integer exactly.
func LongDoubleFromInt(n int64) LongDouble {
	return LongDouble{new(big.Float).SetPrec(longPrec).SetInt64(n)}
}

// LongDoubleFromFloat gives a double exactly. A NaN gives 0.
func LongDoubleFromFloat(v float64) LongDouble {
	if math.IsNaN(v) {
		return LongDouble{}
	}
	return LongDouble{new(big.Float).SetPrec(longPrec).SetFloat64(v)}
}

// IsInf reports an infinite number.
func (x LongDouble) IsInf() bool { return x.f != nil && x.f.IsInf() }

// Add gives x+y. ok is false when that is infinite or not a number.
func (x LongDouble) Add(y LongDouble) (sum LongDouble, ok bool) {
	switch {
	case x.IsInf() || y.IsInf():
		return LongDouble{}, false
	case x.f == nil:
		return y, true
	case y.f == nil:
		return x, true
	}
	f := new(big.Float).SetPrec(longPrec).Add(x.f, y.f)
	if f.Sign() != 0 && f.MantExp(nil) > longMaxExp {
		return LongDouble{}, false
	}
	return LongDouble{f}, true
}

// Append appends the number as Redis shows it: seventeen digits behind the point,
// then without the zeros at the end. At most about 4950 bytes.
func (x LongDouble) Append(dst []byte) []byte {
	switch {
	case x.f == nil:
		return append(dst, '0')
	case x.f.IsInf():
		return appendSpecial(dst, math.Inf(x.f.Sign()))
	}
	from := len(dst)
	dst = x.f.Append(dst, 'f', 17)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	if string(dst[from:]) == "-0" {
		dst = append(dst[:from], '0')
	}
	return dst
}
