package record

import (
	"fmt"
	"testing"
)

// What the log's checksums cost for one write of a group.

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			raw := make([]byte, BlockLen+size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				Seal(raw, Block{Start: 1 << 30, Synced: 1 << 29}, 7)
			}
		})
	}
}

func BenchmarkDecodeBlock(b *testing.B) {
	raw := Block{Start: 1 << 30, Synced: 1 << 29}.Append(nil, 7, make([]byte, 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBlock(raw, 7); err != nil {
			b.Fatal(err)
		}
	}
}
