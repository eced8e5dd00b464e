package wal

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func benchLog(b *testing.B, policy Policy) *Log {
	b.Helper()
	l, _, err := Open(Options{FS: vfs.Default, Dir: b.TempDir(), Policy: policy}, fresh('a'))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// One SET of a 100 byte value, as the log sees it.
func benchEntry() []byte { return make([]byte, 140) }

func BenchmarkAppend(b *testing.B) {
	l := benchLog(b, No)
	e := benchEntry()
	b.SetBytes(int64(len(e)))
	for b.Loop() {
		if err := l.Reserve(len(e)); err != nil {
			b.Fatal(err)
		}
		l.Append(e)
	}
}

func BenchmarkAppendWait(b *testing.B) {
	for _, c := range []struct {
		name     string
		policy   Policy
		clients  int
		pipeline int
	}{
		{"kernel/c1/p1", EverySec, 1, 1},
		{"kernel/c50/p1", EverySec, 50, 1},
		{"kernel/c50/p16", EverySec, 50, 16},
		{"always/c1/p1", Always, 1, 1},
		{"always/c50/p1", Always, 50, 1},
		{"always/c50/p16", Always, 50, 16},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := benchLog(b, c.policy)
			e := benchEntry()
			b.SetParallelism((c.clients + 1) / 2)
			if c.clients == 1 {
				for b.Loop() {
					if err := l.WaitDurable(l.Append(e)); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				n, end := 0, int64(0)
				for pb.Next() {
					end = l.Append(e)
					if n++; n%c.pipeline != 0 {
						continue
					}
					if err := l.Reserve(len(e)); err != nil {
						b.Error(err)
					}
					if err := l.WaitDurable(end); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	l := benchLog(b, No)
	e := benchEntry()
	const total = 32 << 20
	for l.End() < total {
		l.Append(e)
		if l.End()-l.Written() > 1<<20 {
			if err := l.Wait(l.End(), LevelKernel); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.SyncAll(); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 64<<10)
	b.SetBytes(l.End())
	for b.Loop() {
		r, err := l.NewReader(0)
		if err != nil {
			b.Fatal(err)
		}
		for n := 1; n > 0; {
			if n, err = r.Read(p); err != nil {
				b.Fatal(err)
			}
		}
		if r.Offset() != l.End() {
			b.Fatal(fmt.Errorf("read to %d of %d", r.Offset(), l.End()))
		}
		_ = r.Close()
	}
}

// Recovery of a log of 64 MiB whose store has applied nothing.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	o := Options{FS: vfs.Default, Dir: dir, Policy: No}
	l, _, err := Open(o, fresh('a'))
	if err != nil {
		b.Fatal(err)
	}
	e := benchEntry()
	for l.End() < 64<<20 {
		l.Append(e)
		if l.End()%(1<<16) < 140 {
			if err := l.Wait(l.End(), LevelKernel); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.SyncAll(); err != nil {
		b.Fatal(err)
	}
	abandon(l)
	b.SetBytes(l.End())
	for b.Loop() {
		l, _, err := Open(o, OpenPoint{History: history('a', nil, 0), Floor: -1})
		if err != nil {
			b.Fatal(err)
		}
		abandon(l)
	}
}
