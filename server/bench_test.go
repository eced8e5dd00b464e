package server

import (
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/server/config"
	"cairn/wal"
)

// One command from framed arguments to its reply, the log included, sockets left out: what the node itself costs.

func benchSession(b testing.TB) *session {
	b.Helper()
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", b.TempDir()}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	s := New(cfg, NewLogger("", io.Discard, config.LogWarning))
	s.fs = vfs.NewMem()
	s.tune = func(e *engine.Options, w *wal.Options) {
		e.Dir, w.Dir, e.MemoryBudget = "cairn/store", "cairn/log", 1<<30
	}
	s.followConfig()
	if err := s.open(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.close(); err != nil {
			b.Error(err)
		}
	})
	x := newSession(s)
	x.conn = sink{w: io.Discard}
	return x
}

func benchCommand(b *testing.B, keys int, command func(key []byte) [][]byte) {
	x := benchSession(b)
	names := make([][]byte, keys)
	for i := range names {
		names[i] = fmt.Appendf(nil, "key:%012d", i)
	}
	const pipeline = 16
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.s.dispatch(x.client, command(names[(i*7919)%keys]))
		if i%pipeline == 0 {
			x.flush()
		}
	}
}

func BenchmarkSet(b *testing.B) {
	val := make([]byte, 100)
	args := [][]byte{[]byte("SET"), nil, val}
	benchCommand(b, 100_000, func(k []byte) [][]byte { args[1] = k; return args })
}

func BenchmarkGet(b *testing.B) {
	args := [][]byte{[]byte("GET"), nil}
	benchCommand(b, 100_000, func(k []byte) [][]byte { args[1] = k; return args })
}

func BenchmarkIncr(b *testing.B) {
	args := [][]byte{[]byte("INCR"), nil}
	benchCommand(b, 100_000, func(k []byte) [][]byte { args[1] = k; return args })
}
