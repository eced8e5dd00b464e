package rdb

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkChecksum(b *testing.B) {
	p := make([]byte, 64<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		Checksum(0, p)
	}
}

func BenchmarkString(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 100)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for name, s := range map[string][]byte{"int": []byte("123456"), "noise100": noise, "text100": bytes.Repeat([]byte("key:value;"), 10), "text64k": bytes.Repeat([]byte("key:value;"), 6554)} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				dst = AppendStringValue(dst[:0], s)
				dst = CloseDump(dst, 0)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	small := pairsOf(distinct(rand.New(rand.NewPCG(1, 1)), 20, 20))
	big := AppendLength([]byte{TypeSet}, 200_000)
	for i := range 200_000 {
		big = AppendString(big, fmt.Appendf(nil, "member:%d", i))
	}
	for name, body := range map[string][]byte{
		"small hash": AppendHash(nil, 10, small, Limits{128, 64}),
		"big set":    big,
	} {
		b.Run(name, func(b *testing.B) {
			p := AppendDump(nil, body)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeDump(p, Discard{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
