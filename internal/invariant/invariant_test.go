package invariant_test

import (
	"errors"
	"testing"

	"cairn/internal/invariant"
)

type offset int64

func (offset) String() string { return "not used by Check" }

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		run  func()
		want string
	}{
		{func() { invariant.Check(false, "slot %d outside [0, %d)", uint16(16384), 16384) }, "BUG: slot 16384 outside [0, 16384)"},
		{func() { invariant.Check(false, "offset %d", offset(7)) }, "BUG: offset 7"},
		{func() { invariant.Check(false, "key %q ends in %x, %v", "k", []byte{1, 255}, true) }, `BUG: key "k" ends in 01ff, true`},
		{func() { invariant.Check(false, "%v %s", nil, struct{}{}) }, "BUG: <nil> struct {}"},
		{func() { invariant.Check(false, "half of %g", 0.5) }, "BUG: half of 0.5"},
		{func() { invariant.Check(false, "no arguments") }, "BUG: no arguments"},
		{func() { invariant.Fail("save: %v", errors.New("cause")) }, "BUG: save: cause"},
	} {
		if got := panicOf(c.run); got != c.want {
			t.Errorf("panic with %v, want %q", got, c.want)
		}
	}
}

func TestCheckThatHolds(t *testing.T) {
	if got := panicOf(func() { invariant.Check(true, "never shown %d", 1) }); got != nil {
		t.Fatalf("panic with %v, want none", got)
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	at, name, bytes := offset(1<<40), "segment", []byte{1}
	if n := testing.AllocsPerRun(100, func() {
		invariant.Check(at > 0, "offset %d of %s: %x", at, name, bytes)
		at++
	}); n != 0 {
		t.Fatalf("a Check that holds allocates %v times, want 0", n)
	}
}

func panicOf(run func()) (text any) {
	defer func() { text = recover() }()
	run()
	return nil
}
