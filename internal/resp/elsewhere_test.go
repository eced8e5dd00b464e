package resp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// shelf keeps arguments in memory of its own, as a file would.
type shelf struct {
	t    testing.TB
	want int
	held []byte
	fail error
}

func (s *shelf) Take(b []byte) {
	if s.held = append(s.held, b...); len(s.held) > s.want {
		s.t.Fatalf("took %d bytes of an argument of %d", len(s.held), s.want)
	}
}

func (s *shelf) Whole() ([]byte, error) {
	if len(s.held) != s.want {
		s.t.Fatalf("whole with %d bytes of %d", len(s.held), s.want)
	}
	if s.fail != nil {
		return nil, s.fail
	}
	return s.held, nil
}

// feedKept is feed of a framer that puts each argument of more than from bytes elsewhere, but for those that skip names.
func feedKept(t testing.TB, lim Limits, from int, src []byte, skip func(args [][]byte) bool, cut func(left int) int) outcome {
	t.Helper()
	f := NewFramer(lim)
	f.KeepElsewhere(from, func(args [][]byte, length int) Keeper {
		if len(args) == 0 || length <= from {
			t.Fatalf("asked for %d bytes behind %d arguments", length, len(args))
		}
		if skip(args) {
			return nil
		}
		return &shelf{t: t, want: length}
	})
	var out outcome
	for fed := 0; len(src) > 0; {
		n := min(len(src), max(cut(len(src)), 1))
		n = copy(f.Space(1), src[:n])
		src = src[n:]
		fed += n
		f.Advance(n)
		more := drain(t, f, &out)
		if parsed, raw := f.Pending(); parsed+raw != f.Buffered() || more && f.Offset()+int64(f.Buffered()) != int64(fed) {
			t.Fatalf("fed %d bytes: offset %d, buffered %d, pending %d and %d", fed, f.Offset(), f.Buffered(), parsed, raw)
		}
		if !more {
			break
		}
	}
	out.offset = f.Offset()
	return out
}

func never([][]byte) bool { return false }

func TestKeptElsewhereTheSameComesOut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		src := randomCommands(rnd)
		want := feed(t, Limits{}, bytes.Clone(src), whole)
		for _, cut := range []func(int) int{whole, func(int) int { return 1 + rnd.IntN(40) }, func(int) int { return 1 + rnd.IntN(5000) }} {
			got := feedKept(t, Limits{}, 100, bytes.Clone(src), func([][]byte) bool { return rnd.IntN(3) == 0 }, cut)
			if !got.equal(want) {
				t.Fatalf("%.300q\ngot  %.300q %q %d\nwant %.300q %q %d", src, got.commands, got.err, got.offset, want.commands, want.err, want.offset)
			}
		}
	}
}

// randomCommands has arguments around the length from which they go elsewhere, and some terminators that are none.
func randomCommands(rnd *rand.Rand) (src []byte) {
	for range 1 + rnd.IntN(6) {
		if rnd.IntN(8) == 0 {
			src = append(src, "PING x\r\n"...)
			continue
		}
		args := make([][]byte, 1+rnd.IntN(6))
		for i := range args {
			n := rnd.IntN(120)
			if rnd.IntN(3) == 0 {
				n = rnd.IntN(9000)
			}
			args[i] = bytes.Repeat([]byte{'a' + byte(rnd.IntN(26))}, n)
		}
		one := AppendCommand(nil, args...)
		if rnd.IntN(10) == 0 {
			one[len(one)-1] = 'x'
		}
		src = append(src, one...)
	}
	return src
}

func TestKeptElsewhereTakesNoMemory(t *testing.T) {
	const length = 8 << 20
	f := NewFramer(Limits{})
	var s *shelf
	f.KeepElsewhere(1<<20, func(_ [][]byte, n int) Keeper { s = &shelf{t: t, want: n}; return s })
	src := AppendCommand(nil, []byte("RESTORE"), []byte("key"), []byte("0"), bytes.Repeat([]byte("x"), length), []byte("REPLACE"))
	src = append(src, "PING\r\n"...)
	var got []string
	for len(src) > 0 {
		if room := f.Room(1); room > 4*maxReadAhead {
			t.Fatalf("asks for a buffer of %d bytes", room)
		}
		n := copy(f.Space(1), src)
		src = src[n:]
		f.Advance(n)
		for {
			args, raw, ok, err := f.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if raw != nil && len(args) > 1 {
				t.Error("gave a command in one piece that does not lie in one")
			}
			for _, a := range args {
				got = append(got, strconv.Itoa(len(a)))
			}
		}
		if f.MemoryBytes() > 4*maxReadAhead {
			t.Fatalf("%d bytes of memory, %d came", f.MemoryBytes(), f.Buffered())
		}
		f.Trim()
	}
	if want := strings.Join([]string{"7", "3", "1", strconv.Itoa(length), "7", "4"}, " "); strings.Join(got, " ") != want {
		t.Errorf("lengths %v, want %s", got, want)
	}
	if f.work > length {
		t.Errorf("%d bytes looked at or moved", f.work)
	}
}

// An argument that is lost spoils its command and no other.
func TestKeptElsewhereLost(t *testing.T) {
	failed := errors.New("no room")
	f := NewFramer(Limits{})
	f.KeepElsewhere(10, func(args [][]byte, n int) Keeper { return &shelf{t: t, want: n, fail: failed} })
	long := bytes.Repeat([]byte("x"), 50)
	src := AppendCommand(nil, []byte("A"), long, []byte("more"))
	src = AppendCommand(src, []byte("B"), []byte("short"))
	f.Advance(copy(f.Space(len(src)), src))
	args, _, ok, err := f.Next()
	if !ok || err != nil || len(args) != 3 || len(args[1]) != 0 || string(args[2]) != "more" || f.Lost() != failed {
		t.Errorf("got %q, %v, %v, lost %v", args, ok, err, f.Lost())
	}
	args, _, ok, err = f.Next()
	if !ok || err != nil || len(args) != 2 || string(args[1]) != "short" || f.Lost() != nil {
		t.Errorf("got %q, %v, %v, lost %v", args, ok, err, f.Lost())
	}
}

// The limits are those of all arguments.
func TestKeptElsewhereLimits(t *testing.T) {
	lim := Limits{MaxBulk: 1000, MaxQuery: 3000}
	for _, src := range []string{
		"*2\r\n$1\r\na\r\n$1001\r\n",
		"*2\r\n$1\r\na\r\n$-1\r\n",
		"*5\r\n$1\r\na\r\n" + strings.Repeat("$1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 4),
	} {
		want := feed(t, lim, []byte(src), whole)
		if got := feedKept(t, lim, 100, []byte(src), never, byBytes); got.err != want.err || want.err == "" {
			t.Errorf("%.60q: error %q, want %q", src, got.err, want.err)
		}
	}
}

// What a keeper takes may be a little longer, if it may; what goes into memory may not.
func TestKeptElsewhereOver(t *testing.T) {
	lim := Limits{MaxBulk: 1000, KeptOver: 20}
	always := func([][]byte) bool { return true }
	command := func(n int) []byte {
		return []byte("*2\r\n$1\r\na\r\n$" + strconv.Itoa(n) + "\r\n" + strings.Repeat("x", n) + "\r\n")
	}
	for _, c := range []struct {
		n    int
		skip func([][]byte) bool
		ok   bool
	}{{1000, never, true}, {1020, never, true}, {1021, never, false}, {1000, always, true}, {1001, always, false}} {
		got := feedKept(t, lim, 100, command(c.n), c.skip, byBytes)
		if c.ok != (got.err == "") || !c.ok && got.err != "Protocol error: invalid bulk length" {
			t.Errorf("%d bytes: error %q, want one: %v", c.n, got.err, !c.ok)
		}
	}
}
