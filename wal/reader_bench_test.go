package wal

import (
	"testing"
)

// BenchmarkReaderAtTheEnd appends one small entry after the other and has a reader follow each.
func BenchmarkReaderAtTheEnd(b *testing.B) {
	l, _, err := Open(Options{Dir: b.TempDir()}, OpenPoint{Fresh: true, Floor: -1, History: History{Offset2: -1}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	r, err := l.NewReader(0)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	entry, got := make([]byte, 200), make([]byte, 4096)
	for b.Loop() {
		if err := l.WaitDurable(l.Append(entry)); err != nil {
			b.Fatal(err)
		}
		if n, err := r.Read(got); n != len(entry) || err != nil {
			b.Fatalf("%d, %v", n, err)
		}
	}
}
