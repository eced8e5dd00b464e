package resp

import (
	"bytes"
	"fmt"
	"testing"
)

// BenchmarkFramer measures one GET of a 16-byte key, alone or in a pipeline: Space,
// Advance, Next and nothing else but the copy that stands for read(2).
func BenchmarkFramer(b *testing.B) {
	for _, depth := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("get/pipeline=%d", depth), func(b *testing.B) {
			benchFramer(b, bytes.Repeat(AppendCommandStrings(nil, "GET", "key:000000000001"), depth), depth)
		})
	}
	b.Run("set100/pipeline=64", func(b *testing.B) {
		one := AppendCommand(nil, []byte("SET"), []byte("key:000000000001"), make([]byte, 100))
		benchFramer(b, bytes.Repeat(one, 64), 64)
	})
	b.Run("set1M/pipeline=1", func(b *testing.B) {
		benchFramer(b, AppendCommand(nil, []byte("SET"), []byte("key:000000000001"), make([]byte, 1<<20)), 1)
	})
}

func benchFramer(b *testing.B, src []byte, depth int) {
	f := NewFramer(Limits{})
	b.ReportAllocs()
	b.SetBytes(int64(len(src) / depth))
	for done := 0; done < b.N; {
		for at := 0; at < len(src); {
			n := copy(f.Space(1), src[at:])
			f.Advance(n)
			at += n
			for {
				args, _, ok, err := f.Next()
				if err != nil {
					b.Fatal(err)
				}
				if !ok {
					break
				}
				if len(args) < 2 {
					b.Fatal(args)
				}
				done++
			}
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	value := make([]byte, 100)
	w := Writer{Proto: 2}
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.Buf = w.Buf[:0]
				f()
			}
		})
	}
	run("bulk100", func() { w.Bulk(value) })
	run("int", func() { w.Int(123456) })
	run("double", func() { w.Double(3.14159) })
	run("error", func() { w.Error("WRONGTYPE Operation against a key holding the wrong kind of value") })
}

func BenchmarkNextCommand(b *testing.B) {
	src := AppendCommand(nil, []byte("SET"), []byte("key:000000000001"), make([]byte, 100))
	var args [][]byte
	b.ReportAllocs()
	for b.Loop() {
		out, n, err := NextCommand(src, args[:0])
		if err != nil || n != len(src) {
			b.Fatal(n, err)
		}
		args = out
	}
}

func BenchmarkLongDouble(b *testing.B) {
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		x, _ := ParseLongDouble([]byte("10.5"))
		y, _ := ParseLongDouble([]byte("0.1"))
		sum, _ := x.Add(y)
		out = sum.Append(out[:0])
	}
}
