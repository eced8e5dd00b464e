package resp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// outcome is what a stream of requests came to: commands as AppendCommand writes
// them, then the error or what is left over.
type outcome struct {
	commands []string
	err      string
	offset   int64
}

// feed gives src to a new framer in pieces whose lengths cut chooses.
func feed(t testing.TB, lim Limits, src []byte, cut func(left int) int) outcome {
	t.Helper()
	f := NewFramer(lim)
	var out outcome
	for len(src) > 0 {
		n := min(len(src), max(cut(len(src)), 1))
		n = copy(f.Space(1), src[:n])
		src = src[n:]
		f.Advance(n)
		if !drain(t, f, &out) {
			break
		}
	}
	out.offset = f.Offset()
	return out
}

// drain calls Next until it has no more, and checks what it promises.
func drain(t testing.TB, f *Framer, out *outcome) bool {
	t.Helper()
	var batch [][][]byte
	var raws [][]byte
	more := true
	for {
		args, raw, ok, err := f.Next()
		if err != nil {
			if _, _, _, again := f.Next(); again != err {
				t.Fatalf("error %v became %v", err, again)
			}
			out.err = err.Error()
			more = false
			break
		}
		if !ok {
			break
		}
		if len(args) == 0 {
			t.Fatal("a command without arguments")
		}
		batch = append(batch, args)
		raws = append(raws, raw)
	}
	// Only now are they looked at: all of them live until the next Space.
	for i, args := range batch {
		canonical := AppendCommand(nil, args...)
		if raws[i] != nil && !bytes.Equal(raws[i], canonical) {
			t.Fatalf("raw %q, arguments %q", raws[i], args)
		}
		out.commands = append(out.commands, string(canonical))
	}
	return more
}

func whole(left int) int { return left }

func byBytes(int) int { return 1 }

func (o outcome) equal(p outcome) bool {
	return o.err == p.err && o.offset == p.offset && strings.Join(o.commands, "") == strings.Join(p.commands, "")
}

// corpus holds streams that have hurt some server, or that sit on an edge.
var corpus = []string{
	"*1\r\n$4\r\nPING\r\n",
	"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
	"PING\r\nPING\n\r\n\n   \r\nPING\r\n",
	"*0\r\n*1\r\n$4\r\nPING\r\n",
	"*-1\r\n*-9223372036854775808\r\nPING\r\n",
	"*0\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
	"*1\r\n$9223372036854775807\r\n",
	"*1\r\n$9223372036854775808\r\n",
	"*1\r\n$536870913\r\n",
	"*1\r\n$-1\r\n",
	"*1\r\n$-0\r\n",
	"*1\r\n$\r\n",
	"*1\r\n$+4\r\nPING\r\n",
	"*1\r\n$04\r\nPING\r\n",
	"*1\r\n$ 4\r\nPING\r\n",
	"*2147483648\r\n",
	"*9223372036854775808\r\n",
	"*\r\n",
	"*a\r\n",
	"*01\r\n$4\r\nPING\r\n",
	"*1 \r\n",
	"*1\r\nPING\r\n",
	"*1\r\n:4\r\n",
	"*1\r\n\r\n",
	"*1\r\n\n\r\n",
	"*1\rx$4\ryPINGzw*1\r\n$4\r\nPING\r\n", // terminators that Redis does not look at
	"ECHO \"a\\x41\\n\\\"b\"\r\n",
	"ECHO 'it\\'s\\n'\r\n",
	"ECHO \"a\r\n",
	"ECHO \"a\"b\r\n",
	"ECHO 'a'b\r\n",
	"ECHO a\"b c\"\r\n",
	"ECHO \"\"\r\n",
	"ECHO \"\\\"\r\n",
	"ECHO \"\\x4\"\r\n",
	"ECHO '\\\\'\r\n",
	"ECHO a\vb\fc\r\n",
	"\v\fPING\r\n",
	"ECHO a\rb\r\n",
	"PING\r\r\n",
	"$4\r\n",
	"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$1\r\nv",
	"*" + strings.Repeat("1", 25) + "\r\n",
	strings.Repeat("*1\r\n$4\r\nPING\r\n", 5000),
}

func TestCorpusDoesNotDependOnPackets(t *testing.T) {
	for _, src := range corpus {
		want := feed(t, Limits{}, []byte(src), whole)
		if got := feed(t, Limits{}, []byte(src), byBytes); !got.equal(want) {
			t.Errorf("%.60q: by bytes %+v, whole %+v", src, got, want)
		}
		for at := 1; at < len(src) && at < 200; at++ {
			first := true
			got := feed(t, Limits{}, []byte(src), func(left int) int {
				if first {
					first = false
					return at
				}
				return left
			})
			if !got.equal(want) {
				t.Errorf("%.60q cut at %d: %+v, whole %+v", src, at, got, want)
			}
		}
	}
}

func TestTooLongLines(t *testing.T) {
	for prefix, text := range map[string]string{
		"a":       "too big inline request",
		"*":       "too big mbulk count string",
		"*1\r\n$": "too big bulk count string",
		"*1\r\nx": "too big bulk count string",
	} {
		head := prefix[:len(prefix)-1]
		for _, n := range []int{DefaultMaxInline, DefaultMaxInline + 1} {
			line := head + strings.Repeat(prefix[len(prefix)-1:], n)
			for _, cut := range []func(int) int{whole, byBytes} {
				got := feed(t, Limits{}, []byte(line), cut)
				want := ""
				if n > DefaultMaxInline {
					want = "Protocol error: " + text
				}
				if got.err != want {
					t.Errorf("%q, line of %d bytes: %q, want %q", prefix, n, got.err, want)
				}
			}
			// With its end in sight the line is judged alike.
			if n > DefaultMaxInline {
				if got := feed(t, Limits{}, []byte(line+"\r\n"), whole); got.err != "Protocol error: "+text {
					t.Errorf("%q, complete line: %q, want %q", prefix, got.err, text)
				}
			}
		}
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		lim  Limits
		src  string
		want string
	}{
		{Limits{Unauthenticated: true}, "*11\r\n", "Protocol error: unauthenticated multibulk length"},
		{Limits{Unauthenticated: true}, "*10\r\n", ""},
		{Limits{Unauthenticated: true}, "*1\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"},
		{Limits{Unauthenticated: true}, "*1\r\n$16384\r\n", ""},
		{Limits{MaxBulk: 100}, "*1\r\n$101\r\n", "Protocol error: invalid bulk length"},
		{Limits{MaxBulk: 100}, "*1\r\n$100\r\n", ""},
		{Limits{MaxArgs: 5}, "*6\r\n", "Protocol error: invalid multibulk length"},
		{Limits{MaxQuery: 1000}, "*1\r\n$1000\r\n", ErrQueryLimit.Error()},
		{Limits{MaxBulk: math.MaxInt64}, "*1\r\n$9223372036854775807\r\n", ErrQueryLimit.Error()},
		{Limits{MaxBulk: math.MaxInt64, MaxQuery: math.MaxInt64}, "*1\r\n$9223372036854775807\r\n", ErrQueryLimit.Error()},
		{Limits{MaxQuery: 64 << 10}, "*9999\r\n" + strings.Repeat("$1\r\nx\r\n", 5000), ErrQueryLimit.Error()},
	}
	for _, tt := range tests {
		if got := feed(t, tt.lim, []byte(tt.src), whole); got.err != tt.want {
			t.Errorf("%+v, %.40q: %q, want %q", tt.lim, tt.src, got.err, tt.want)
		}
	}
	f := NewFramer(Limits{})
	f.Advance(copy(f.Space(1), "*1\r\n$-5\r\n"))
	_, _, _, err := f.Next()
	var pe *ProtocolError
	if !errors.As(err, &pe) {
		t.Errorf("%T, want *ProtocolError", err)
	}
}

// A login raises the limits for what follows in the same packet.
func TestSetLimitsWithinOnePacket(t *testing.T) {
	f := NewFramer(Limits{Unauthenticated: true})
	f.Advance(copy(f.Space(1), "AUTH x\r\n*11\r\n"+strings.Repeat("$1\r\na\r\n", 11)))
	if _, _, ok, err := f.Next(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	f.SetLimits(Limits{})
	if args, _, ok, err := f.Next(); !ok || err != nil || len(args) != 11 {
		t.Fatal(args, ok, err)
	}
}

// A length is only a promise: 26 bytes must not take a process or its memory.
func TestHostileLength(t *testing.T) {
	for _, src := range []string{"*1\r\n$9223372036854775807\r\n", "*1\r\n$536870912\r\n", "*2147483647\r\n$1\r\na\r\n"} {
		f := NewFramer(Limits{})
		f.Advance(copy(f.Space(1), src))
		_, _, ok, err := f.Next()
		if ok {
			t.Errorf("%q: complete", src)
		}
		if err == nil {
			f.Space(1)
		}
		if f.MemoryBytes() > 80<<10 {
			t.Errorf("%q: holds %d bytes", src, f.MemoryBytes())
		}
	}
}

// The buffer never outgrows eight times what was received, and reaches the
// declared length without copying the argument more than a little.
func TestBigBulkGrowth(t *testing.T) {
	const size = 40 << 20
	f := NewFramer(Limits{})
	head := fmt.Sprintf("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size)
	f.Advance(copy(f.Space(1), head))
	got, before := len(head), f.work
	for f.missing() > 0 || got == len(head) {
		if _, _, ok, err := f.Next(); ok || err != nil {
			t.Fatal(ok, err)
		}
		room := f.Space(1)
		if len(f.buf) > max(growStep*(got+2*lowRoom), maxReadAhead) {
			t.Fatalf("buffer of %d bytes for %d received", len(f.buf), got)
		}
		n := min(len(room), 60000, size+2+len(head)-got)
		if n == 0 {
			break
		}
		clear(room[:n])
		if got+n == size+2+len(head) {
			room[n-2], room[n-1] = '\r', '\n'
		}
		f.Advance(n)
		got += n
	}
	if copied := f.work - before; copied > size/5 {
		t.Errorf("%d bytes looked at or moved for an argument of %d", copied, size)
	}
	held := len(f.buf)
	if held > size+size/50 {
		t.Errorf("buffer of %d bytes for an argument of %d", held, size)
	}
	if _, _, ok, err := f.Next(); ok || err != nil {
		t.Fatal(ok, err)
	}
	// The short arguments behind it fit without another copy.
	f.Advance(copy(f.Space(1), "$2\r\nEX\r\n$3\r\n100\r\n"))
	args, raw, ok, err := f.Next()
	if !ok || err != nil || len(args) != 5 || len(args[2]) != size || string(args[0]) != "SET" || string(args[4]) != "100" {
		t.Fatal(ok, err, len(args))
	}
	if len(raw) != got+17 || len(f.buf) != held {
		t.Errorf("raw of %d bytes, want %d; buffer %d, want %d", len(raw), got+17, len(f.buf), held)
	}
	f.Space(1)
	if f.MemoryBytes() > 8<<10 {
		t.Errorf("%d bytes held after the command", f.MemoryBytes())
	}
}

// A command of many arguments takes its own length and little more at any time, however long they are, and a length alone
// takes nothing.
func TestManyLongArguments(t *testing.T) {
	for _, size := range []int{100, 5000, 15_000, 17_000, 63_000, 150_000, 600_000, 1_024_000, 9 << 20} {
		n := max(4, (12<<20)/size)
		f := NewFramer(Limits{})
		src := AppendCommand(nil, slicesOf(n, size)...)
		largest, moved := 0, f.work
		for at := 0; at < len(src); {
			if at > 0 {
				if _, _, ok, err := f.Next(); ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			room, before := f.Room(1), f.MemoryBytes()
			space := f.Space(1)
			headers := cap(f.args) * int(argHeader)
			if want := f.MemoryBytes() - headers; room != want && before != 0 {
				t.Fatalf("%d arguments of %d: room of %d foretold, %d made", n, size, room, want)
			}
			if have := f.MemoryBytes() - headers; have > max(growStep*(at+2*lowRoom), maxReadAhead) {
				t.Fatalf("%d arguments of %d: %d bytes held for %d received", n, size, have, at)
			}
			largest = max(largest, f.MemoryBytes()-headers)
			k := copy(space, src[at:min(len(src), at+50_000)])
			f.Advance(k)
			at += k
		}
		args, raw, ok, err := f.Next()
		if !ok || err != nil || raw != nil || !bytes.Equal(AppendCommand(nil, args...), src) {
			t.Fatalf("%d arguments of %d: %v, %v, raw of %d bytes", n, size, ok, err, len(raw))
		}
		if limit := len(src) + len(src)/8 + nextBuffer; largest > limit {
			t.Errorf("%d arguments of %d: %d bytes held, for %d", n, size, largest, len(src))
		}
		if w := f.work - moved; w > int64(len(src)) {
			t.Errorf("%d arguments of %d: %d bytes looked at or moved, for %d", n, size, w, len(src))
		}
		f.Space(1)
		if f.MemoryBytes() > keepBuffer+keepArgs*int(argHeader) {
			t.Errorf("%d arguments of %d: %d bytes held after the command", n, size, f.MemoryBytes())
		}
	}
}

// One megabyte in pieces of one byte, and 80,000 arguments in pieces of 100, cost
// work in proportion to their length.
func TestWorkIsLinear(t *testing.T) {
	work := func(src []byte, piece int) int64 {
		f := NewFramer(Limits{})
		n := 0
		for len(src) > 0 {
			k := copy(f.Space(1), src[:min(piece, len(src))])
			f.Advance(k)
			src = src[k:]
			if _, _, ok, err := f.Next(); err != nil {
				t.Fatal(err)
			} else if ok {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d commands, want 1", n)
		}
		return f.work
	}
	many := func(n int) []byte {
		src := fmt.Appendf(nil, "*%d\r\n", n)
		return append(src, strings.Repeat("$1\r\na\r\n", n)...)
	}
	tests := []struct {
		name  string
		src   []byte
		piece int
	}{
		{"a bulk of 1 MB by bytes", AppendCommand(nil, []byte("PING"), make([]byte, 1<<20)), 1},
		{"80000 arguments by 100", many(80000), 100},
		{"80000 arguments by bytes", many(80000), 1},
		{"a line of 60000 by bytes", append(bytes.Repeat([]byte("a "), 30000), "\r\n"...), 1},
		{"a length line of 60000 by bytes", append(append([]byte("PING "), bytes.Repeat([]byte("a"), 60000)...), "\r\n"...), 1},
		{"1000 arguments of 10000", AppendCommand(nil, slicesOf(1000, 10000)...), 1000},
	}
	for _, tt := range tests {
		if w := work(tt.src, tt.piece); w > 6*int64(len(tt.src)) {
			t.Errorf("%s: %d bytes looked at or moved, for %d", tt.name, w, len(tt.src))
		}
	}
}

func slicesOf(n, size int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, size)
	}
	return out
}

// Long commands among short ones in an endless stream: the memory goes back.
func TestBufferShrinks(t *testing.T) {
	f := NewFramer(Limits{})
	push := func(src []byte, cut int) {
		for len(src) > 0 {
			n := copy(f.Space(1), src[:min(cut, len(src))])
			f.Advance(n)
			src = src[n:]
			for {
				if _, _, ok, err := f.Next(); err != nil {
					t.Fatal(err)
				} else if !ok {
					break
				}
			}
		}
	}
	ping := []byte("*1\r\n$4\r\nPING\r\n")
	push(AppendCommand(nil, []byte("SET"), make([]byte, 3<<20)), 1<<20)
	for range 10 {
		push(append(ping, ping[:7]...), 1<<20) // never quite empty
		push(ping[7:], 1<<20)
	}
	if f.MemoryBytes() > 8<<10 {
		t.Errorf("%d bytes held after a long command", f.MemoryBytes())
	}
	push(bytes.Repeat(ping, 20000), 1<<20)
	if len(f.buf) != maxReadAhead {
		t.Errorf("read-ahead of %d bytes, want %d", len(f.buf), maxReadAhead)
	}
	for range 40 {
		push(ping, 100)
	}
	if len(f.buf) != initialBuffer {
		t.Errorf("buffer of %d bytes when quiet, want %d", len(f.buf), initialBuffer)
	}
	push(ping[:5], 5)
	if f.Release() {
		t.Error("released a buffer with bytes pending")
	}
	push(ping[5:], 100)
	if at := f.Offset(); !f.Release() || f.MemoryBytes() != 0 || f.Offset() != at {
		t.Errorf("after release: %d bytes held, offset %d, want %d", f.MemoryBytes(), f.Offset(), at)
	}
	push(ping, 3)
}

func TestSpaceHasTheRoomAskedFor(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	f := NewFramer(Limits{})
	for range 20000 {
		want := 1 << rnd.IntN(18)
		room := f.Space(want)
		if len(room) < want {
			t.Fatalf("room of %d bytes, want %d", len(room), want)
		}
		k := rnd.IntN(40)
		src := AppendCommand(nil, slicesOf(k+1, rnd.IntN(100))...)
		f.Advance(copy(room, src[:min(len(src), len(room))]))
		for {
			_, _, ok, err := f.Next()
			if err != nil { // a command was cut short by the one behind it
				f = NewFramer(Limits{})
				break
			}
			if !ok {
				break
			}
		}
	}
}

// A busy connection allocates nothing.
func TestFramerDoesNotAllocate(t *testing.T) {
	f := NewFramer(Limits{})
	src := bytes.Repeat(AppendCommandStrings(nil, "GET", "key:000000001"), 64)
	round := func() {
		for at := 0; at < len(src); {
			n := copy(f.Space(1), src[at:])
			f.Advance(n)
			at += n
			for {
				if _, _, ok, _ := f.Next(); !ok {
					break
				}
			}
		}
	}
	round()
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations per round, want 0", n)
	}
}

// Commands of all sizes, in pieces of all sizes, come out as they went in.
func TestRandomStream(t *testing.T) {
	split := 0
	defer func() {
		if split < 100 {
			t.Errorf("%d commands did not lie in one piece: the test no longer tests them", split)
		}
	}()
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		length := func(bits int) int { return rnd.IntN(1 << rnd.IntN(bits+1)) }
		var src []byte
		for len(src) < 6<<20 {
			args := make([][]byte, 1+length(6))
			for i := range args {
				args[i] = make([]byte, length(16))
				for j := 0; j < len(args[i]); j += 97 {
					args[i][j] = byte(rnd.Uint32())
				}
			}
			if rnd.IntN(40) == 0 {
				args[len(args)-1] = make([]byte, length(22))
			}
			src = AppendCommand(src, args...)
		}
		f := NewFramer(Limits{})
		got := 0
		for at := 0; at < len(src); {
			n := copy(f.Space(1+length(10)), src[at:min(len(src), at+1+length(18))])
			f.Advance(n)
			at += n
			for {
				args, raw, ok, err := f.Next()
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if !ok {
					break
				}
				again := AppendCommand(nil, args...)
				if !bytes.Equal(again, src[got:got+len(again)]) || raw != nil && !bytes.Equal(again, raw) {
					t.Fatalf("seed %d: command at %d came out differently", seed, got)
				}
				got += len(again)
				if raw == nil {
					split++
				}
				if f.Offset() != int64(got) {
					t.Fatalf("seed %d: offset %d, want %d", seed, f.Offset(), got)
				}
			}
			switch rnd.IntN(20) {
			case 0, 1:
				f.Release()
			case 2:
				f.Trim()
			}
		}
		if got != len(src) || f.Buffered() != 0 {
			t.Errorf("seed %d: %d of %d bytes came out, %d buffered", seed, got, len(src), f.Buffered())
		}
		if f.work > 6*int64(len(src)) {
			t.Errorf("seed %d: %d bytes looked at or moved, for %d", seed, f.work, len(src))
		}
	}
}

// Trim leaves what is pending as it is, wherever the command was cut, and no room beside it.
func TestTrim(t *testing.T) {
	command := AppendCommand(nil, []byte("SET"), []byte("key"), bytes.Repeat([]byte("v"), 3000))
	for cut := range len(command) {
		f := NewFramer(Limits{})
		f.Advance(copy(f.Space(len(command)), command[:cut]))
		if _, _, ok, err := f.Next(); ok || err != nil {
			t.Fatalf("cut at %d: complete %v, %v", cut, ok, err)
		}
		f.Trim()
		if n := f.Buffered(); n != cut || len(f.buf) > cut+lowRoom && cut > 0 || cut == 0 && f.buf != nil {
			t.Fatalf("cut at %d: %d bytes pending in a buffer of %d", cut, n, len(f.buf))
		}
		if parsed, raw := f.Pending(); parsed+raw != cut {
			t.Fatalf("cut at %d: %d and %d bytes pending", cut, parsed, raw)
		}
		f.Advance(copy(f.Space(len(command)-cut), command[cut:]))
		if _, raw, ok, err := f.Next(); !ok || err != nil || !bytes.Equal(raw, command) {
			t.Fatalf("cut at %d: %q, %v, %v", cut, raw, ok, err)
		}
	}
}
