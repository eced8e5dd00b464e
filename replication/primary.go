package replication

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cairn/wal"
)

// Snapshot is the data set as it was at one offset of the log.
type Snapshot interface {
	// Offset is of the log: everything up to here is in it, nothing after.
	Offset() int64
	// History is what the offset belongs to.
	History() wal.History
	// WriteRDB writes the data set as RDB in bounded memory. A second call writes as many bytes.
	WriteRDB(w io.Writer) error
	// WriteRows writes it as a stream of rows, for a replica that is a node of this program.
	WriteRows(w io.Writer) error
	// Close lets go of it.
	Close() error
}

// Source gives snapshots.
type Source interface {
	Snapshot() (Snapshot, error)
}

// ErrNotNow says that an entry may not be appended: this node is a replica, or writes are held back.
var ErrNotNow = errors.New("nothing may be appended to the log now")

// PrimaryOptions are what a Primary needs of the node around it.
type PrimaryOptions struct {
	Log    *wal.Log
	Source Source
	// Append appends an entry without rows to the log and returns the offset behind it, ErrNotNow when the stream is
	// not this node's to write to.
	Append func(words ...string) (end int64, err error)
	// Timeout is repl-timeout, PingEvery repl-ping-replica-period, MaxLag min-replicas-max-lag. They are asked
	// each time, since they change while the node runs.
	Timeout, PingEvery, MaxLag func() time.Duration
	// Logf takes an event and fields.
	Logf func(event string, fields ...any)
}

// Primary holds all replicas attached to this node. Its methods are safe for concurrent use.
type Primary struct {
	o     PrimaryOptions
	syncs chan struct{} // a place for each full sync under way

	waiting atomic.Int64 // replicas that wait for a turn

	mu       sync.Mutex
	attached []*Attached
	changed  chan struct{} // closed when a replica acknowledged or left; nil when nobody waits

	asking sync.Mutex
	asked  atomic.Int64 // where the last GETACK begins in the stream

	good  atomic.Int64 // replicas online that acknowledged within MaxLag
	ticks int64        // of Run, since the last ping; its goroutine's

	// Counters of INFO.
	Full, PartialOK, PartialErr, OutBytes atomic.Int64
}

// NewPrimary makes a Primary without replicas.
func NewPrimary(o PrimaryOptions) *Primary {
	p := &Primary{o: o, syncs: make(chan struct{}, syncsMost)}
	p.asked.Store(-1)
	return p
}

// Run does what is due each second until stop is closed.
func (p *Primary) Run(stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			p.tick(time.Now())
		}
	}
}

// tick closes links that have been silent for too long, moves pins along and pings.
func (p *Primary) tick(now time.Time) {
	timeout, end := p.o.Timeout(), p.o.Log.End()
	all := p.list()
	for _, r := range all {
		r.tick(now, timeout, end)
	}
	p.reclaimTurns(now, all)
	p.refresh()
	if len(all) == 0 {
		p.ticks = 0
		return
	}
	if p.ticks++; time.Duration(p.ticks)*time.Second < p.o.PingEvery() {
		return
	}
	p.ticks = 0
	if end, err := p.o.Append("ping"); err == nil {
		_ = p.o.Log.WaitDurable(end) // a failure of the log is told to the node by the log
	}
}

// list gives the replicas attached now, in the order in which they came.
func (p *Primary) list() []*Attached {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.attached)
}

func (p *Primary) attach(r *Attached) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached = append(p.attached, r)
}

func (p *Primary) detach(r *Attached) {
	p.mu.Lock()
	p.attached = slices.DeleteFunc(p.attached, func(a *Attached) bool { return a == r })
	p.mu.Unlock()
	p.moved()
}

// moved tells those who count acknowledgements to count again.
func (p *Primary) moved() {
	p.refresh()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Changed gives a channel that is closed when a count of acknowledgements may have changed. Take it before counting.
func (p *Primary) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// Acked counts the replicas online that have executed the stream up to offset.
func (p *Primary) Acked(offset int64) (n int) {
	return p.count(func(r *Attached) bool { return r.acked.Load() >= offset })
}

// AckedSynced counts those that have it on stable storage.
func (p *Primary) AckedSynced(offset int64) (n int) {
	return p.count(func(r *Attached) bool { return r.ackedSynced.Load() >= offset })
}

// Every says whether f holds for all replicas that are attached, by what they have told of themselves.
func (p *Primary) Every(f func(h *Hello) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.attached, func(r *Attached) bool { return !f(&r.h) })
}

func (p *Primary) count(f func(*Attached) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.attached {
		if r.State() == SyncOnline && f(r) {
			n++
		}
	}
	return n
}

// refresh counts the good replicas, so that a write need not.
func (p *Primary) refresh() {
	limit := time.Now().Add(-p.o.MaxLag()).UnixMilli()
	p.good.Store(int64(p.count(func(r *Attached) bool { return r.heard.Load() >= limit })))
}

// Good is how many replicas are online and have acknowledged within min-replicas-max-lag. It is at most a second old.
func (p *Primary) Good() int64 { return p.good.Load() }

// getackLen is the length of REPLCONF GETACK * in the stream.
const getackLen = int64(len("*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"))

// AskAcks makes the replicas acknowledge as soon as they have executed the stream up to offset, which is in the log.
// A replica answers with the offset before the question, so one that lies behind offset already will do.
func (p *Primary) AskAcks(offset int64) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.asked.Load() >= offset {
		return
	}
	end, err := p.o.Append("REPLCONF", "GETACK", "*")
	if err != nil {
		return // they acknowledge each second anyway
	}
	p.asked.Store(end - getackLen)
	_ = p.o.Log.WaitDurable(end) // so that it is fed; a failure of the log is told to the node by the log
}

// DisconnectAll ends all links, because the stream is not any more what they were promised: whoever changes the
// history of the log calls it before anything is appended under the new one.
func (p *Primary) DisconnectAll(reason string) {
	p.asked.Store(-1)
	for _, r := range p.list() {
		r.drop(errors.New(reason))
	}
}

// Statuses describes the replicas attached, in the order in which they came.
func (p *Primary) Statuses() []AttachedStatus {
	all := p.list()
	out := make([]AttachedStatus, len(all))
	for i, r := range all {
		out[i] = r.status()
	}
	return out
}

// Len is how many replicas are attached.
func (p *Primary) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.attached)
}

// Drain waits until the replicas online have executed all of the stream, for at most limit, and says how many have not.
// The caller has seen to it that nothing is appended any more.
func (p *Primary) Drain(limit time.Duration) (behind int) {
	target := p.o.Log.End()
	if asked := p.asked.Load(); asked+getackLen == target {
		target = asked // what stands behind it is the question itself
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		moved := p.Changed()
		behind = p.count(func(r *Attached) bool { return !r.h.Old && r.acked.Load() < target })
		if behind == 0 {
			return 0
		}
		select {
		case <-moved:
		case <-late.C:
			return behind
		}
	}
}
