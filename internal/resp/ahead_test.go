package resp

import (
	"bytes"
	"testing"
)

// What is seen ahead is what Next returns, and the look leaves the framer as it was.
func TestSecondArgs(t *testing.T) {
	stream := AppendCommandStrings(nil, "SET", "k1", "v")
	stream = AppendCommandStrings(stream, "PING")
	stream = AppendCommandStrings(stream, "GET", "")
	stream = AppendCommandStrings(stream, "INCR", "k3")
	stream = append(stream, "*2\r\n$3\r\nGET\r\n$5\r\nhal"...)
	f := NewFramer(Limits{})
	f.Advance(copy(f.Space(len(stream)), stream))
	for left := 4; left >= 0; left-- {
		for _, room := range []int{1, 8} {
			ahead := f.SecondArgs(make([][]byte, 0, room))
			if len(ahead) != min(left, room) {
				t.Fatalf("%d commands seen, want %d", len(ahead), min(left, room))
			}
			if left == 0 {
				continue
			}
			want := map[int]string{4: "k1", 3: "", 2: "", 1: "k3"}[left]
			if string(ahead[0]) != want || (ahead[0] == nil) != (left == 3) {
				t.Errorf("with %d commands left: %q, want %q", left, ahead[0], want)
			}
		}
		args, _, ok, err := f.Next()
		if ok != (left > 0) || err != nil {
			t.Fatalf("with %d commands left: %q, %v, %v", left, args, ok, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { f.SecondArgs(nil) }); n > 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// It ends where it is not sure.
func TestSecondArgsEnds(t *testing.T) {
	for _, s := range []string{
		"", "PING\r\n", "*0\r\n", "*-1\r\n", "*9\r\n", "*2\r\n$-1\r\n", "*2\r\n$999999999\r\n", "*1\r\n$4\r\nPIN", "*1\r\n$4\r\nPING\r",
	} {
		f := NewFramer(Limits{})
		f.Advance(copy(f.Space(len(s)+1), s))
		if got := f.SecondArgs(make([][]byte, 0, 4)); len(got) > 0 {
			t.Errorf("%q: %q", s, got)
		}
	}
}

func FuzzSecondArgs(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n"))
	f.Add([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fr := NewFramer(Limits{})
		fr.Advance(copy(fr.Space(len(data)+1), data))
		for _, want := range fr.SecondArgs(make([][]byte, 0, 16)) {
			args, _, ok, err := fr.Next()
			if err != nil || !ok {
				return // wrong, or an argument that is too long
			}
			if want == nil != (len(args) == 1) || len(args) > 1 && !bytes.Equal(want, args[1]) {
				t.Fatalf("%q ahead, then %q", want, args)
			}
		}
	})
}
