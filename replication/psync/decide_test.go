package psync

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func id(b byte) (out [40]byte) {
	copy(out[:], bytes.Repeat([]byte{b}, 40))
	return out
}

func TestDecide(t *testing.T) {
	now, old := strings.Repeat("a", 40), strings.Repeat("b", 40)
	two := Held{ID: id('a'), ID2: id('b'), Offset2: 101, First: 50, End: 200}
	one := Held{ID: id('a'), ID2: id('0'), Offset2: -1, First: 50, End: 200}
	for _, tc := range []struct {
		name string
		h    Held
		r    Request
		want Kind
		from int64
	}{
		{"without a history", two, Request{ID: []byte("?"), Next: -1}, Full, 0},
		{"nothing is missing", two, Request{ID: []byte(now), Next: 201}, Partial, 200},
		{"one byte ahead", two, Request{ID: []byte(now), Next: 202}, Full, 0},
		{"first byte kept", two, Request{ID: []byte(now), Next: 51}, Partial, 50},
		{"one byte too late", two, Request{ID: []byte(now), Next: 50}, Full, 0},
		{"upper case", two, Request{ID: []byte(strings.ToUpper(now)), Next: 60}, Partial, 59},
		{"the history before, up to its end", two, Request{ID: []byte(old), Next: 101}, Partial, 100},
		{"the history before, beyond its end", two, Request{ID: []byte(old), Next: 102}, Full, 0},
		{"the same by a replica that goes back", two, Request{ID: []byte(old), Next: 102, Fork: true}, Fork, 100},
		{"a fork that the log no longer has", Held{ID: id('a'), ID2: id('b'), Offset2: 101, First: 150, End: 200}, Request{ID: []byte(old), Next: 102, Fork: true}, Full, 0},
		{"no history before", one, Request{ID: bytes.Repeat([]byte("0"), 40), Next: 60}, Full, 0},
		{"another history", two, Request{ID: []byte(strings.Repeat("c", 40)), Next: 60}, Full, 0},
		{"a part of the id", two, Request{ID: []byte(now[:39]), Next: 60}, Full, 0},
		{"offset -1", two, Request{ID: []byte(now), Next: -1}, Full, 0},
		{"lowest number", Held{ID: id('a'), Offset2: -1, End: 200}, Request{ID: []byte(now), Next: math.MinInt64}, Full, 0},
		{"highest number", two, Request{ID: []byte(now), Next: math.MaxInt64}, Full, 0},
		{"an empty log", Held{ID: id('a'), Offset2: -1}, Request{ID: []byte(now), Next: 1}, Partial, 0},
		{"byte 0 of an empty log", Held{ID: id('a'), Offset2: -1}, Request{ID: []byte(now), Next: 0}, Full, 0},
	} {
		got := Decide(tc.h, tc.r)
		if got.Kind != tc.want || got.From != tc.from {
			t.Errorf("%s: got %+v, want kind %d from %d", tc.name, got, tc.want, tc.from)
		}
		if asked := string(tc.r.ID) != "?"; (got.Reason != "") != (asked && got.Kind == Full) {
			t.Errorf("%s: reason %q", tc.name, got.Reason)
		}
	}
}
