package resp

import (
	"math"
	"strings"
	"testing"
)

// numberTexts are what a client may write where a number is wanted.
var numberTexts = []string{
	"0", "-0", "+0", "00", "1", "-1", "+1", "01", "1 ", " 1", "\t1", "\v1", "", "-", "+", ".", "1.", ".5", "-.5", "+.5", "1..2", "1.5", "1.50",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
	"1e5", "1E5", "1e+5", "1e-5", "1e", "1e+", "1e5.5", "1e400", "1e-400", "1e308", "1e309", "1.7976931348623157e308", "1.7976931348623159e308",
	"5e-324", "4.9e-324", "2e-324", "3e-324", "2.2250738585072011e-308", "0e999999999999999999999", "1e999999999999999999999", "1e-999999999999999999999",
	"1e4932", "1.18973149535723176502e4932", "1.2e4932", "1e4933", "3.7e-4951", "3.6e-4951", "1.9e-4951", "1.8e-4951", "1e-4951", "1e-5000", "123e4930", "0.001e4934",
	"inf", "-inf", "+inf", "INF", "Inf", "infinity", "-Infinity", "infinit", "infinityx", "nan", "NaN", "-nan", "nan(1)", "nan()", "in",
	"0x", "0x1", "0X1F", "0x1.8", "0x1.8p1", "0x1p", "0x1p-3", "0x.8p1", "0x.p1", "0xg", "0x1p20000", "0x1p-20000", "-0x10", "0x1p16383", "0x1p16384",
	"0xffffffffffffffffffffff", "0x1p-16445", "0x1p-16446", "0x1.8p-16446", "0x1e5", "1p5", "1_000", "1,5", "1d", "1f", "abc", "1\x00", "\x001", "0b1", "0o7",
	"3.0e3", "1e0005", "000000.5", "1" + strings.Repeat("0", 400), "0." + strings.Repeat("0", 400) + "1",
	strings.Repeat("9", 5118), strings.Repeat("9", 5119), strings.Repeat("9", 5120), "0." + strings.Repeat("3", 5117), "0." + strings.Repeat("3", 5118),
	"179769313486231570814527423731704356798070567525844996598917476803157260780028538760589558632766878171540458953514382464234321326889464182768467546703537516986049910576551282076245490090389328944075868508455133942304583236903222948165808559332123347747976",
}

func TestParseInt(t *testing.T) {
	good := map[string]int64{
		"0": 0, "1": 1, "-1": -1, "10": 10, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
		"1000000000000000000": 1e18,
	}
	for s, want := range good {
		if n, ok := ParseInt([]byte(s)); !ok || n != want {
			t.Errorf("%q: %d, %v, want %d", s, n, ok, want)
		}
	}
	for _, s := range []string{
		"", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1a", "a", "9223372036854775808", "-9223372036854775809",
		"99999999999999999999", "18446744073709551616", "18446744073709551615", "1.0", "0x1", "1\x00", "--1",
	} {
		if n, ok := ParseInt([]byte(s)); ok {
			t.Errorf("%q was taken for %d", s, n)
		}
	}
}

// Recorded from redis-server 7.2 (ZADD, ZSCORE), but for -0 and NaN, which a sorted
// set does not hold: those follow its d2string.
func TestAppendDouble(t *testing.T) {
	for v, want := range map[float64]string{
		0.1: "0.1", 1.5: "1.5", 3: "3", -3.25: "-3.25", 1e17: "100000000000000000", 1e21: "1e+21", 1e22: "1e+22", 1.5e300: "1.5e+300",
		1e-5: "0.00001", 1e-6: "0.000001", 1e-7: "1e-7", 1.25e-7: "1.25e-7", 123456.789: "123456.789", 5e-324: "5e-324", math.Inf(1): "inf", math.Inf(-1): "-inf",
		math.MaxFloat64: "1.7976931348623157e+308", 1.0 / 3: "0.3333333333333333", math.Copysign(0, -1): "-0", 9223372036854775807: "9223372036854776000",
		4611686018427387904: "4611686018427387904", 9007199254740993: "9007199254740992", 12345678901234567890: "12345678901234567000", 1.2345e-4: "1.2345e-4", 1.2345e-3: "0.0012345", 1e20: "1e+20", 1e18: "1000000000000000000",
	} {
		if got := string(AppendDouble(nil, v)); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	if got := string(AppendDouble(nil, math.NaN())); got != "nan" {
		t.Errorf("NaN: %q", got)
	}
	if got := string(AppendDouble17(nil, 0.1)); got != "0.10000000000000001" {
		t.Errorf("0.1 in seventeen digits: %q", got)
	}
}

// Recorded from redis-server (SET, INCRBYFLOAT).
func TestLongDoubleAdd(t *testing.T) {
	for _, tt := range [][3]string{
		{"10.5", "0.1", "10.6"},
		{"0.1", "0.2", "0.3"},
		{"3.0e3", "200", "3200"},
		{"5.0e3", "-5000", "0"},
		{"1e-20", "0", "0"},
		{"-1e-20", "0", "0"},
		{"1.1", "-1.1", "0"},
		{"17179869184", "1.5", "17179869185.5"},
		{"0x10", "0x.8", "16.5"},
	} {
		x, ok1 := ParseLongDouble([]byte(tt[0]))
		y, ok2 := ParseLongDouble([]byte(tt[1]))
		sum, ok3 := x.Add(y)
		if !ok1 || !ok2 || !ok3 {
			t.Fatal(tt, ok1, ok2, ok3)
		}
		if got := string(sum.Append(nil)); got != tt[2] {
			t.Errorf("%s + %s: %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
	big, _ := ParseLongDouble([]byte("1.18e4932"))
	if _, ok := big.Add(big); ok {
		t.Error("a sum beyond the range was taken for finite")
	}
	inf, ok := ParseLongDouble([]byte("-inf"))
	if !ok || !inf.IsInf() || string(inf.Append(nil)) != "-inf" {
		t.Errorf("-inf: %s, %v", inf.Append(nil), ok)
	}
	if _, ok := inf.Add(big); ok {
		t.Error("a sum with infinity was taken for finite")
	}
}
