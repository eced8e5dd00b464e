package engine

import "sync/atomic"

// Log is the durability of the store: the stream of all committed entries, addressed by byte offset.
// Package wal implements it; the store's owner attaches it.
type Log interface {
	// Append takes one whole entry and gives the offset after it. It never waits for a disk.
	Append(entry []byte) (end int64)
	// AppendParts is Append for an entry that lies in pieces. borrows says that the log has kept them: they must stay as
	// they are until AwaitTaken has returned.
	AppendParts(parts ...[]byte) (end int64, borrows bool)
	// AwaitTaken waits until the log no longer looks at a borrowed entry that ends at end, also after a failure.
	AwaitTaken(end int64)
	// Reserve is called before any lock is taken and waits while the log is behind.
	Reserve(n int) error
	// End is the offset after the last entry appended.
	End() int64
	// SyncAll makes everything appended so far durable.
	SyncAll() error
	// Trim lets go of what lies below the durable offset and nobody else keeps.
	Trim(durable int64) error
}

// replayLog stands in for the log while its entries are executed again: commits name their own end.
type replayLog struct {
	next int64 // end of the entry that is being executed
	// end is of the last one executed; the applier asks for it at any time.
	end atomic.Int64
}

// standsAt says where the replay begins.
func (r *replayLog) standsAt(applied int64) {
	r.next = applied
	r.end.Store(applied)
}

func (r *replayLog) Append([]byte) int64 {
	r.end.Store(r.next)
	return r.next
}

// AppendParts is part of Log.
func (r *replayLog) AppendParts(...[]byte) (int64, bool) { return r.Append(nil), false }

// AwaitTaken is part of Log.
func (r *replayLog) AwaitTaken(int64) {}

func (r *replayLog) Reserve(int) error { return nil }
func (r *replayLog) End() int64        { return r.end.Load() }
func (r *replayLog) SyncAll() error    { return nil }
func (r *replayLog) Trim(int64) error  { return nil }
