package replication

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"cairn/internal/resp"
)

func line(words ...string) string {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return string(resp.AppendCommand(nil, args...))
}

// cutAll gives the entries of a stream that arrives in pieces, as text, and the error that ended it.
func cutAll(stream []byte, piece func() int) (entries []string, raw []byte, err error) {
	var c cutter
	var args [][]byte
	var commands [][][]byte
	from, to := 0, 0
	for {
		n, err := c.next(stream[from:to])
		if err != nil {
			return entries, raw, err
		}
		if n > 0 {
			e := c.entry(stream[from:], &args, &commands)
			var text []string
			for _, cmd := range e.Commands {
				text = append(text, string(bytes.Join(cmd, []byte(" "))))
			}
			entries = append(entries, strings.Join(text, "; "))
			raw = append(raw, e.Raw...)
			from += n
			continue
		}
		if to == len(stream) {
			return entries, raw, nil
		}
		to = min(len(stream), to+piece())
	}
}

func TestCut(t *testing.T) {
	stream := line("SELECT", "0") + line("set", "a", "1\r\n$3") + line("multi") + line("DEL", "a") + line("SET", "b", "") +
		line("EXEC") + line("MULTI") + line("EXEC") + line("ping") + line("MULTI", "x") + line("MULTI") + line("SET", "open", "x")
	want := "SELECT 0|set a 1\r\n$3|DEL a; SET b ||ping|MULTI x"
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 300 {
		most := []int{1, 2, 7, 1000}[round%4]
		got, raw, err := cutAll([]byte(stream), func() int { return 1 + r.IntN(most) })
		if err != nil || strings.Join(got, "|") != want {
			t.Fatalf("pieces up to %d: %q, %v\nwant %q", most, strings.Join(got, "|"), err, want)
		}
		if rest := stream[len(raw):]; !strings.HasPrefix(stream, string(raw)) || rest != line("MULTI")+line("SET", "open", "x") {
			t.Fatalf("left %q", rest)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	for _, c := range []struct{ stream, part string }{
		{"\n", "byte '\\n' where '*' is due"},
		{"PING\r\n", "byte 'P'"},
		{"*0\r\n", "0 arguments"},
		{"*-1\r\n", "byte '-'"},
		{"*99999999999\r\n", "99999999999 arguments"},
		{"*1\r\n$9999999999999\r\n", "beyond the limit"},
		{"*1\r\n$-1\r\n", "byte '-'"},
		{"*1\r\n$1\r\nabc", "ends in"},
		{"*1\n", "byte '\\n'"},
		{"*\r\n", "byte '\\r'"},
		{"*1\rx", "ends in"},
		{"*000000000000000000000000000001\r\n", "a length of more"},
		{line("MULTI") + line("MULTI"), "MULTI inside MULTI"},
		{line("EXEC"), "EXEC without MULTI"},
	} {
		_, _, err := cutAll([]byte(c.stream), func() int { return 1 })
		if err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%q: %v, want %q", c.stream, err, c.part)
		}
	}
}

// What is cut is what resp makes of the same bytes, however they arrive.
func FuzzCut(f *testing.F) {
	f.Add([]byte(line("MULTI")+line("SET", "a", "b")+line("EXEC")+line("PING")), byte(3))
	f.Add([]byte("*1\r\n$4\r\nPING\r\n*"), byte(1))
	f.Fuzz(func(t *testing.T, stream []byte, piece byte) {
		_, raw, err := cutAll(stream, func() int { return int(piece%64) + 1 })
		whole, rawWhole, errWhole := cutAll(stream, func() int { return len(stream) })
		if !bytes.Equal(raw, rawWhole) || (err == nil) != (errWhole == nil) {
			t.Fatalf("in pieces %q %v, at once %q %v", raw, err, rawWhole, errWhole)
		}
		if !bytes.HasPrefix(stream, raw) {
			t.Fatalf("%q is no beginning of %q", raw, stream)
		}
		for left := raw; len(left) > 0; {
			_, n, err := resp.NextCommand(left, nil)
			if err != nil || n == 0 {
				t.Fatalf("resp gives %d, %v for %q", n, err, left)
			}
			left = left[n:]
		}
		_ = whole
	})
}

func TestMarkedReader(t *testing.T) {
	mark := []byte(strings.Repeat("0123456789", 4))
	data := append(append([]byte("REDIS"), mark[:39]...), []byte("x and more")...)
	whole := append(append([]byte(nil), data...), mark...)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "by halves": iotest.HalfReader,
		"with the error": iotest.DataErrReader,
	} {
		got, err := io.ReadAll(newMarkedReader(wrap(bytes.NewReader(whole)), mark))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		_, err = io.ReadAll(newMarkedReader(wrap(bytes.NewReader(whole[:len(whole)-1])), mark))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s, cut short: %v", name, err)
		}
	}
	got, err := io.ReadAll(&lengthReader{iotest.OneByteReader(strings.NewReader("abcdef")), 4})
	if err != nil || string(got) != "abcd" {
		t.Errorf("of a length: %q, %v", got, err)
	}
	if _, err := io.ReadAll(&lengthReader{strings.NewReader("abc"), 4}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a length, cut short: %v", err)
	}
}

// An entry longer than memory is meant to hold waits in a file, and is the same bytes.
func TestInboxSpills(t *testing.T) {
	var watched [][]byte
	passed := 0
	b := inbox{dir: t.TempDir(), passed: func(part []byte) { passed += len(part) }}
	b.watch = func(data []byte) (unwatch func()) {
		watched = append(watched, data)
		return func() { watched = watched[1:] } // the old mapping goes when the new one is there
	}
	defer b.close()
	r := rand.New(rand.NewPCG(3, 3))
	var want []byte
	fill := func(size int) {
		for len(want) < size {
			room, err := b.room()
			if err != nil {
				t.Fatal(err)
			}
			n := min(len(room), 1+r.IntN(4<<20))
			for i := 0; i < n; i += 4096 {
				room[i] = byte(r.Uint32())
			}
			want = append(want, room[:n]...)
			b.received(n)
		}
		if !bytes.Equal(b.unread(), want) {
			t.Fatalf("%d bytes differ", size)
		}
	}
	fill(spillBytes + 1<<20)
	if b.file == nil {
		t.Error("a long entry is in memory")
	}
	b.take(1 << 20)
	want = want[1<<20:]
	before := passed
	fill(spillBytes + 3<<20)
	if len(watched) != 1 || &watched[0][0] != &b.buf[0] || passed == before {
		t.Errorf("%d mappings are known, and %d bytes of them passed", len(watched), passed-before)
	}
	b.take(len(want))
	want = nil
	fill(1)
	if b.file != nil || len(b.buf) > inboxLeast {
		t.Errorf("%d bytes of room are kept, in a file: %t", len(b.buf), b.file != nil)
	}
	if len(watched) > 0 {
		t.Errorf("%d mappings are known that are gone", len(watched))
	}
}
