package layout

import (
	"bytes"
	"testing"
)

// The codec of the one row that every key has.

func benchRecords() map[string]Record {
	return map[string]Record{
		"small":    {Type: String, Body: bytes.Repeat([]byte("v"), 100)},
		"deadline": {Type: String, Deadline: 1_700_000_000_000, Body: bytes.Repeat([]byte("v"), 100)},
		"rows":     {Type: HashType, Form: Rows, Gen: 1 << 40, Count: 100_000, Bytes: 5_000_000},
	}
}

func BenchmarkRecordAppend(b *testing.B) {
	for name, r := range benchRecords() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				buf = r.Append(buf[:0])
			}
		})
	}
}

func BenchmarkRecordDecode(b *testing.B) {
	for name, r := range benchRecords() {
		b.Run(name, func(b *testing.B) {
			raw := r.Append(nil)
			var got Record
			b.ReportAllocs()
			for b.Loop() {
				if err := got.Decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
