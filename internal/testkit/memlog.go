package testkit

import (
	"bytes"
	"sync/atomic"
)

// MemLog is a log that keeps its entries in memory, for stores of tests.
type MemLog struct {
	bytes.Buffer
	end atomic.Int64 // the applier asks for it at any time
}

// Append is part of engine.Log, as are the methods below.
func (l *MemLog) Append(e []byte) int64 {
	l.Write(e)
	l.end.Store(int64(l.Len()))
	return int64(l.Len())
}

// AppendParts copies: nothing is borrowed.
func (l *MemLog) AppendParts(parts ...[]byte) (end int64, borrows bool) {
	return l.Append(bytes.Join(parts, nil)), false
}

// AwaitTaken has nothing to wait for.
func (l *MemLog) AwaitTaken(int64) {}

// Reserve always has room.
func (l *MemLog) Reserve(int) error { return nil }

// End is the offset after the last entry.
func (l *MemLog) End() int64 { return l.end.Load() }

// SyncAll has nothing to sync.
func (l *MemLog) SyncAll() error { return nil }

// Trim keeps everything.
func (l *MemLog) Trim(int64) error { return nil }
