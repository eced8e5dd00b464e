package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

type row struct{ key, val []byte }

// someRows are rows in order: short and long ones, values that pack and values that do not, one over many frames.
func someRows(n int) (all []row) {
	rnd := rand.NewChaCha8([32]byte{1})
	for i := range n {
		r := row{key: fmt.Appendf(nil, "key%08d", i)}
		switch i % 5 {
		case 1:
			r.val = bytes.Repeat([]byte{byte(i)}, 1000)
		case 2:
			r.val = make([]byte, 700)
			_, _ = rnd.Read(r.val) // never fails, by its documentation
		case 3:
			r.val = fmt.Appendf(nil, "value of %d", i)
		}
		if i == n/2 {
			r.key = append(r.key, bytes.Repeat([]byte("long"), frameBytes/3)...)
			r.val = make([]byte, 3*frameBytes+17)
			_, _ = rnd.Read(r.val[:frameBytes]) // likewise
		}
		all = append(all, r)
	}
	return all
}

func stream(t testing.TB, codec Codec, all []row) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, codec, Head{Layout: 7, Bytes: 12345})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if err := w.Row(r.key, r.val); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readAll reads a stream to its end and counts its rows.
func readAll(from io.Reader, each func(key, val []byte) error) (n int, err error) {
	r, err := NewReader(from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		key, val, err := r.Next()
		if err == io.EOF {
			return n, nil
		}
		if err == nil && each != nil {
			err = each(key, val)
		}
		if err != nil {
			return n, err
		}
		n++
	}
}

func TestRoundTrip(t *testing.T) {
	for _, codec := range []Codec{Plain, S2, Zstd} {
		for _, n := range []int{0, 1, 3000} {
			all := someRows(n)
			src := bytes.NewReader(append(stream(t, codec, all), "behind"...))
			i := 0
			got, err := readAll(src, func(key, val []byte) error {
				if !bytes.Equal(key, all[i].key) || !bytes.Equal(val, all[i].val) {
					return fmt.Errorf("row %d: %.40q = %.40q", i, key, val)
				}
				i++
				return nil
			})
			if err != nil || got != n {
				t.Fatalf("codec %d: %d rows of %d, %v", codec, got, n, err)
			}
			if src.Len() != len("behind") {
				t.Errorf("codec %d: %d bytes left behind the end", codec, src.Len())
			}
		}
	}
	r, err := NewReader(bytes.NewReader(stream(t, S2, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if h := r.Head(); h != (Head{7, 12345}) {
		t.Errorf("head %+v", h)
	}
}

// A stream that is cut, changed, or has a frame twice or too few is never taken for a whole one.
func TestDamage(t *testing.T) {
	for _, codec := range []Codec{Plain, S2, Zstd} {
		whole := stream(t, codec, someRows(300))
		rnd := rand.New(rand.NewPCG(uint64(codec), 2))
		for range 60 {
			at := rnd.IntN(len(whole))
			if _, err := readAll(bytes.NewReader(whole[:at]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("codec %d cut at %d of %d: %v", codec, at, len(whole), err)
			}
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << rnd.IntN(8)
			if _, err := readAll(bytes.NewReader(bad), nil); err == nil {
				t.Fatalf("codec %d changed at %d: taken", codec, at)
			}
		}
		first := len(Magic) + frameHead + 4 + int(whole[len(Magic)+6])<<16 + int(whole[len(Magic)+7])<<8 + int(whole[len(Magic)+8])
		for name, bad := range map[string][]byte{
			"twice":   append(append(bytes.Clone(whole[:first]), whole[len(Magic):first]...), whole[first:]...),
			"missing": append([]byte(Magic), whole[first:]...),
		} {
			var wrong *FormatError
			if _, err := readAll(bytes.NewReader(bad), nil); !errors.As(err, &wrong) {
				t.Errorf("codec %d, a frame %s: %v", codec, name, err)
			}
		}
	}
}

// A failure of the destination comes back.
func TestWriterFails(t *testing.T) {
	full := errors.New("no more")
	for room := range 12 {
		w, err := NewWriter(&narrow{room * 100_000, full}, Plain, Head{})
		for _, r := range someRows(3000) {
			if err == nil {
				err = w.Row(r.key, r.val)
			}
		}
		if err == nil {
			err = w.Close()
		}
		if !errors.Is(err, full) {
			t.Fatalf("room for %d bytes: %v", room*100_000, err)
		}
	}
}

type narrow struct {
	room int
	err  error
}

func (n *narrow) Write(b []byte) (int, error) {
	if n.room -= len(b); n.room < 0 {
		return 0, n.err
	}
	return len(b), nil
}

// FuzzReader gives a Reader anything, with right checksums where the input has frames: no panic, and no more memory than
// what came.
func FuzzReader(f *testing.F) {
	for _, codec := range []Codec{Plain, S2, Zstd} {
		f.Add(stream(f, codec, someRows(40)[:20]), true)
	}
	f.Add([]byte(Magic), false)
	f.Fuzz(func(_ *testing.T, b []byte, mend bool) {
		if mend {
			b = withSums(b)
		}
		_, _ = readAll(bytes.NewReader(b), nil) // whatever it says
	})
}

// What is known of the codecs: both pack what repeats, zstd also what only has few kinds of bytes.
func TestPacks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	hex := make([]byte, 1<<20)
	for i := range hex {
		hex[i] = "0123456789abcdef"[rnd.IntN(16)]
	}
	again := bytes.Repeat(hex[:1000], 1000)
	for _, c := range []struct {
		codec Codec
		val   []byte
		most  int // percent of what goes in
	}{{S2, again, 10}, {Zstd, again, 10}, {Zstd, hex, 60}, {S2, hex, 101}, {Plain, again, 101}} {
		if got := len(stream(t, c.codec, []row{{[]byte("k"), c.val}})) * 100 / len(c.val); got > c.most {
			t.Errorf("codec %d packs %d bytes to %d %%, at most %d %% expected", c.codec, len(c.val), got, c.most)
		}
	}
}
