package engine

import "sync/atomic"

// How long the log takes to be executed again is a matter of its bytes and of how much they change: an INCR of 30 bytes
// takes as long as 300 bytes of a long value. So what lies beyond the durable offset is weighed.

// changeWeight is what a change counts for beside its bytes. It takes longer than so many, but a flush costs as well:
// at 64, SETs of 100 bytes are flushed because a memtable is full, and no sooner.
const changeWeight = 64

// Weight is what so many bytes of log with so many changes count for, in bytes.
func Weight(bytes, changes int64) int64 { return bytes + changeWeight*changes }

// changes counts what is committed, each lane of the cut lock for itself. A sum is exact for who holds the whole lock.
type changes struct {
	lanes [cutShards]struct {
		n atomic.Int64
		_ [56]byte // a cache line each
	}
	applied int64        // how many had been counted at the applied offset; the applier's own
	durable atomic.Int64 // the same at the durable offset
}

// lookEvery is after how many changes of a lane somebody looks whether a flush is due.
const lookEvery = 4096

// add counts n changes and says whether it is time to look. The lane's shard of the cut lock is held.
func (c *changes) add(lane int, n int64) (look bool) {
	have := c.lanes[lane%cutShards].n.Add(n)
	return have/lookEvery != (have-n)/lookEvery
}

func (c *changes) sum() (n int64) {
	for i := range c.lanes {
		n += c.lanes[i].n.Load()
	}
	return n
}

// Changes counts the records and rows that were changed since the store was opened, at least one for each commit.
func (s *Store) Changes() int64 { return s.changes.sum() }

// changeCount is what a commit counts for.
func (t *Txn) changeCount() int64 {
	rows := 0
	for _, tree := range t.elems {
		rows += tree.Len()
	}
	return int64(max(1, t.dirty, rows))
}

// logHeavy says that recovery would have too much to do. Half of what is allowed is for what comes while a flush runs.
func (s *Store) logHeavy() bool {
	bytes, changes := s.attached().End()-s.durable.Load(), s.changes.sum()-s.changes.durable.Load()
	return Weight(bytes, changes) >= s.opts.RecoveryLogBytes/2
}

// nudgeHeavy wakes the applier when a flush is due: small changes of few keys leave little pending, and until the next
// interval a million of them may come.
func (s *Store) nudgeHeavy() {
	if s.flushing.Load() || !s.logHeavy() {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
