package resp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Small limits let a fuzzer reach them.
var fuzzLimits = Limits{MaxInline: 100, MaxArgs: 50, MaxBulk: 5000, MaxQuery: 50000}

func FuzzFramer(f *testing.F) {
	for _, src := range corpus {
		f.Add([]byte(src), uint64(1))
	}
	f.Fuzz(func(t *testing.T, src []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		for _, lim := range []Limits{{}, fuzzLimits, {Unauthenticated: true}} {
			// Inline words are decoded in place, so each feeding gets a copy.
			want := feed(t, lim, bytes.Clone(src), whole)
			got := feed(t, lim, bytes.Clone(src), func(int) int { return 1 + rnd.IntN(20) })
			if !got.equal(want) {
				t.Fatalf("in pieces %+v, whole %+v", got, want)
			}
			kept := feedKept(t, lim, int(seed%7), bytes.Clone(src), never, func(int) int { return 1 + rnd.IntN(20) })
			if !kept.equal(want) {
				t.Fatalf("long ones elsewhere %+v, whole %+v", kept, want)
			}
		}
	})
}

func FuzzSplitArgs(f *testing.F) {
	f.Add([]byte(`set "a\x00\n" 'b\'' c"d"`))
	f.Fuzz(func(t *testing.T, line []byte) {
		n := len(line)
		words, ok := SplitArgs(nil, bytes.Clone(line))
		total := 0
		for _, w := range words {
			total += len(w)
		}
		if total > n {
			t.Fatalf("%d bytes of words from a line of %d", total, n)
		}
		if !ok {
			return
		}
		// Quoted again, the words come back.
		var quoted []byte
		for _, w := range words {
			quoted = append(quoted, '"')
			for _, c := range w {
				quoted = append(quoted, '\\', 'x', "0123456789abcdef"[c>>4], "0123456789ABCDEF"[c&15])
			}
			quoted = append(quoted, '"', ' ')
		}
		again, ok := SplitArgs(nil, quoted)
		if !ok || !bytes.Equal(AppendCommand(nil, again...), AppendCommand(nil, words...)) {
			t.Fatalf("%q became %q", words, again)
		}
	})
}

func FuzzNextCommand(f *testing.F) {
	for _, src := range corpus {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		args, n, err := NextCommand(src, nil)
		if err != nil || n == 0 {
			if n != 0 || len(args) != 0 {
				t.Fatalf("%d bytes, arguments %q with error %v", n, args, err)
			}
			return
		}
		if !bytes.Equal(AppendCommand(nil, args...), src[:n]) {
			t.Fatalf("%q gave %q", src[:n], args)
		}
		for k := range min(n, 300) { // no shorter start is complete or wrong
			if _, n, err := NextCommand(src[:k], nil); n != 0 || err != nil {
				t.Fatalf("first %d bytes: %d, %v", k, n, err)
			}
		}
		// What the log takes, the framer takes alike.
		fr := NewFramer(Limits{})
		fr.Advance(copy(fr.Space(n), src[:n]))
		if _, raw, ok, err := fr.Next(); !ok || err != nil || !bytes.Equal(raw, src[:n]) {
			t.Fatalf("framer: %q, %v, %v", raw, ok, err)
		}
	})
}

func FuzzReply(f *testing.F) {
	for _, src := range replySamples {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		v, n, err := ParseReply(src)
		var whole, pieces ReplyScanner
		end, scanErr := whole.End(src)
		if err == nil && n > 0 {
			if end != n || scanErr != nil {
				t.Fatalf("scanner: %d, %v; parser: %d", end, scanErr, n)
			}
			again, m, err := ParseReply(src[:n])
			if err != nil || m != n || again.Kind != v.Kind {
				t.Fatalf("parsing %q again: %d, %v", src[:n], m, err)
			}
		} else if err == nil && end > 0 {
			t.Fatalf("scanner found an end at %d, the parser did not", end)
		}
		for k := 0; k <= len(src); k++ {
			got, err := pieces.End(src[:k])
			if err != nil || got > 0 {
				if got != end || (err == nil) != (scanErr == nil) {
					t.Fatalf("in pieces %d, %v; whole %d, %v", got, err, end, scanErr)
				}
				return
			}
		}
		if end != 0 || scanErr != nil {
			t.Fatalf("in pieces nothing; whole %d, %v", end, scanErr)
		}
	})
}

func FuzzNumbers(f *testing.F) {
	for _, s := range numberTexts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := ParseInt(b); ok {
			if got := AppendInt(nil, n); string(got) != ":"+string(b)+"\r\n" {
				t.Fatalf("%q came back as %q", b, got)
			}
		}
		if v, ok := ParseFloat(b); ok {
			text := AppendDouble(nil, v)
			if again, ok := ParseFloat(text); !ok || again != v || len(text) > maxDoubleLen {
				t.Fatalf("%q is %v, written as %q", b, v, text)
			}
		}
		if x, ok := ParseLongDouble(b); ok && !x.IsInf() {
			text := x.Append(nil)
			if y, ok := ParseLongDouble(text); !ok || !bytes.Equal(y.Append(nil), text) {
				t.Fatalf("%q was written as %q, which does not come back", b, text)
			}
		}
	})
}

// An error text never forges a second reply, whatever is in it.
func FuzzErrorText(f *testing.F) {
	f.Add("ERR a\r\n+OK\r\nb")
	f.Add("\r\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		for _, b := range [][]byte{AppendError(nil, text), AppendSimple(nil, text)} {
			var s ReplyScanner
			n, err := s.End(b)
			if len(b) < maxReplyLine && (err != nil || n != len(b)) || bytes.IndexByte(b, 0) >= 0 {
				t.Fatalf("%q: reply of %d bytes, %v", b, n, err)
			}
		}
	})
}
