// Package wal keeps the node's replication stream on disk, addressed by byte offset.
//
// Shape. The stream is a sequence of entries (one whole command, or MULTI to EXEC), which this
// package never looks into. Append copies an entry into memory and returns the offset behind it;
// AppendParts borrows a huge one from its caller until it is written, or takes what Lay has written of it ahead.
// Wait hands everything buffered to the kernel with one write, or to stable storage with one
// fsync, for all who wait at that moment: whoever finds nobody at work does the work for the rest.
// On disk the stream is a chain of segment files; package record draws them. A segment says which
// one it follows and where, so that a change of history, a cut, and a lost tail are all the same
// act: a new segment, made durable before anything is written to it.
//
// Units. Offsets are Redis's replication offsets: bytes since the stream began, the offset of a
// place being the number of bytes before it. Times are milliseconds of Options.Now.
//
// Errors. A write or an fsync that fails is final: the kernel may have dropped the pages and say
// nothing the next time. From then on every Wait, Reserve and Reader fails with *FailedError, and
// Options.OnFailure has been told once. Damage found on disk is *DamageError and is never passed
// over in silence. Offsets that the log no longer has are *TrimmedError.
//
// Locks. One mutex guards the buffer, the list of segments and the counters, and is never held over
// a disk operation. The right to write and the right to sync are batons (baton.go), taken in the
// order sync, write.
//
// Not here: what entries mean, replicas, deciding when to trim.
package wal

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"cairn/wal/record"
)

// History names the stream: replication id, second id and the offset it holds up to.
type History = record.History

// Policy is when a write counts as done: Redis's appendfsync.
type Policy int32

// The policies. Whatever the policy, WaitDurable returns after the bytes reached the kernel.
const (
	EverySec Policy = iota // in the kernel; synced once a second in the background
	Always                 // synced
	No                     // in the kernel; synced when a segment is full, by SyncAll and by Close
)

// Level is what Wait waits for.
type Level int

// The levels. LevelKernel survives the end of the process, LevelSynced the end of the machine.
const (
	LevelKernel Level = iota
	LevelSynced
)

// Log is an open log. All methods are safe for concurrent use, except that SetHistory, CutTo and
// Reset want nobody to append while they run.
type Log struct {
	o Options

	policy   atomic.Int32
	keep     atomic.Int64
	pinLimit atomic.Int64
	failed   atomic.Pointer[FailedError]

	// Each of these is written under mu only, and may be read without it.
	end     atomic.Int64 // behind the last byte appended
	written atomic.Int64 // behind the last byte the kernel has; the end of a block
	synced  atomic.Int64 // behind the last byte on stable storage; the end of a block
	lastAt  atomic.Int64 // when everything written so far was last known synced, ms
	ahead   atomic.Int64 // bytes appended and not written that lie in files already

	laidSeq atomic.Uint64 // numbers the files of what is laid ahead

	mu        sync.Mutex
	buf       buffer
	writing   baton
	writingTo int64    // the round under way covers bytes up to here
	round     []*chunk // of the write baton's holder: what is being written
	syncing   baton
	syncingTo int64

	segments  []*segment // the chain, in offset order; the last one is written to
	unsynced  []*segment // full segments whose bytes are not all synced
	dirStale  bool       // a file was created or renamed since the directory was last synced
	foreign   []string   // files of abandoned chains, removed by the next Trim
	history   History
	nextSeq   uint64
	rolls     int   // segments begun by this process: the first ones are small
	declared  int64 // highest synced offset that a block on disk declares
	applied   int64 // highest offset the store is known to have applied durably
	pins      []*Pin
	changes   int           // counts cuts and resets: what a reader opened before no longer holds
	moved     chan struct{} // closed when readers may go on; nil when no reader waits
	spare     *spare        // the next segment's file, ready
	laid      []*Laid       // written ahead, and not part of an entry yet
	laidBytes int64         // of all entries so far
	preparing bool
	closed    bool
	fsyncTook int64 // duration of the last fsync, ms
	failures  int64

	kick struct{ prepare, sync chan struct{} }
	quit chan struct{}
	done sync.WaitGroup
}

// Append copies entry, whole, to the end of the log and returns the offset behind it. It never waits
// for the disk: call Reserve before taking any lock, and Wait or WaitDurable before replying.
func (l *Log) Append(entry []byte) (end int64) {
	l.mu.Lock()
	end = l.end.Load()
	if l.failed.Load() == nil {
		l.buf.add(entry, end)
	}
	end += int64(len(entry))
	l.end.Store(end)
	l.mu.Unlock()
	return end
}

// AppendParts is Append for an entry that lies in several pieces. One of a megabyte or more is not copied: borrowed
// says that the log keeps the parts and that their bytes must stay as they are until AwaitTaken has returned. So
// a value of hundreds of megabytes exists once, and nobody waits for it to be copied under a lock.
func (l *Log) AppendParts(parts ...[]byte) (end int64, borrows bool) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	l.mu.Lock()
	end = l.end.Load()
	switch {
	case l.failed.Load() != nil || n == 0:
	default:
		borrows = l.addParts(parts, n, end)
	}
	end += int64(n)
	l.end.Store(end)
	l.mu.Unlock()
	return end, borrows
}

// AwaitTaken returns when the log no longer looks at the parts of a borrowed entry that ends at end: they are with the
// kernel, or the log has failed and nobody is writing. Whether they are safe is another question: see Wait.
func (l *Log) AwaitTaken(end int64) {
	if l.waitWritten(end) == nil {
		return
	}
	// Whoever writes at this moment may be at that very entry. Nobody begins to after the failure.
	l.mu.Lock()
	l.acquire(&l.writing)
	l.writingTo = -1
	l.writing.done()
	l.mu.Unlock()
}

// reserveSyncAgeMs is how old the last sync may be before writes wait, with EverySec. Redis waits
// after the same two seconds.
const reserveSyncAgeMs = 2000

// Reserve waits until the log may take n bytes more: while the buffer is over its limit, and with
// EverySec while the last sync is more than two seconds old. Call it while holding no lock.
func (l *Log) Reserve(n int) error {
	for {
		if f := l.failed.Load(); f != nil {
			return f
		}
		end, written := l.end.Load(), l.written.Load()
		if buffered := end - written - l.ahead.Load(); buffered > 0 && buffered+int64(n) > l.o.BufferLimit {
			if err := l.Wait(end, LevelKernel); err != nil {
				return err
			}
			continue
		}
		if l.Policy() == EverySec && l.synced.Load() < written && l.o.Now()-l.lastAt.Load() > reserveSyncAgeMs {
			return l.Wait(written, LevelSynced)
		}
		return nil
	}
}

// Wait returns when all bytes before end have reached the level. It returns *FailedError after any
// failure of the log, also for bytes that were written before it, and ErrAhead for bytes that
// nobody appended or that were cut.
func (l *Log) Wait(end int64, level Level) error {
	if level == LevelSynced {
		return l.waitSynced(end)
	}
	return l.waitWritten(end)
}

// WaitDurable is Wait at the level of the policy: LevelSynced for Always, else LevelKernel. Before it writes it lets
// others run that have something to append. So one write serves many, and most of them find theirs written when
// their turn comes again, without having slept: on few cores that is a third of what a small write costs.
func (l *Log) WaitDurable(end int64) error {
	if l.Policy() == Always {
		return l.waitSynced(end)
	}
	if l.written.Load() < end {
		runtime.Gosched()
	}
	return l.waitWritten(end)
}

// SyncAll returns when everything appended before the call is on stable storage.
func (l *Log) SyncAll() error { return l.waitSynced(l.End()) }

// End is the offset behind the last byte appended.
func (l *Log) End() int64 { return l.end.Load() }

// Written is the offset behind the last byte handed to the kernel.
func (l *Log) Written() int64 { return l.written.Load() }

// Synced is the offset behind the last byte known to be on stable storage. Like Written it may lie
// inside an entry longer than a block.
func (l *Log) Synced() int64 { return l.synced.Load() }

// First is the lowest offset that can still be read.
func (l *Log) First() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[0].hdr.Start
}

// Policy is the policy in force.
func (l *Log) Policy() Policy { return Policy(l.policy.Load()) }

// SetPolicy changes the policy for calls that come after it.
func (l *Log) SetPolicy(p Policy) {
	l.policy.Store(int32(p))
	l.mu.Lock()
	l.wakeReaders() // what they may read depends on it
	l.mu.Unlock()
}

// SetKeepBytes changes how many bytes Trim leaves for replicas.
func (l *Log) SetKeepBytes(n int64) { l.keep.Store(n) }

// History is the history that the next byte will belong to.
func (l *Log) History() History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history
}

// Failed is the failure that ended the log, or nil.
func (l *Log) Failed() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	return nil
}

// fail records the first failure. Whoever waits is woken by the end of its round, whose holder calls
// this; readers are woken here.
func (l *Log) fail(err error) error {
	f := &FailedError{Cause: err}
	if !l.failed.CompareAndSwap(nil, f) {
		return l.failed.Load()
	}
	l.mu.Lock()
	l.failures++
	l.buf.drop()
	l.wakeReaders()
	l.mu.Unlock()
	l.o.Logf("log failed", "dir", l.o.Dir, "reason", err)
	if l.o.OnFailure != nil {
		l.o.OnFailure(f)
	}
	return f
}

// Close writes and syncs everything, marks the log as closed and ends the background work. Nobody may
// use the log meanwhile or afterwards. After a failure it only closes files and returns the failure.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	l.wakeReaders()
	l.mu.Unlock()
	close(l.quit)
	l.done.Wait()

	err := l.SyncAll()
	if err == nil {
		err = l.exclusive(func() error { return l.mark(record.Closed) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.laid {
		d.closeFiles()
	}
	for _, s := range append(l.unsynced, l.segments[len(l.segments)-1]) {
		s.closeFiles()
	}
	if l.spare != nil {
		l.spare.closeFiles()
	}
	return err
}

// Stats is a reading of the log's counters.
type Stats struct {
	First, End, Written, Synced int64 // offsets
	DiskBytes                   int64 // files of the chain and the one prepared, at full size
	Segments                    int
	FsyncMs                     int64 // duration of the last fsync
	Failures                    int64
	Pins                        int
	Laid                        int64 // bytes of entries that were laid ahead
}

// Stats reads the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := Stats{
		First: l.segments[0].hdr.Start, End: l.End(), Written: l.Written(), Synced: l.Synced(),
		Segments: len(l.segments), FsyncMs: l.fsyncTook, Failures: l.failures, Pins: len(l.pins), Laid: l.laidBytes,
	}
	for _, s := range l.segments {
		st.DiskBytes += s.size
	}
	if l.spare != nil {
		st.DiskBytes += l.spare.size
	}
	return st
}

// background runs Tick once a second and prepares segment files. Both goroutines end with Close.
func (l *Log) background() {
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		var tick <-chan time.Time
		if !l.o.ManualTick {
			t := time.NewTicker(time.Second)
			defer t.Stop()
			tick = t.C
		}
		for {
			select {
			case <-l.quit:
				return
			case <-tick:
				l.Tick()
			case <-l.kick.sync:
				_ = l.SyncAll() // a failure is sticky, and told through OnFailure
			}
		}
	}()
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		for {
			select {
			case <-l.quit:
				return
			case <-l.kick.prepare:
				l.prepare()
			}
		}
	}()
}
