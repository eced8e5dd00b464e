package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A loop is one thread of the client and its connections. It waits for whichever has replies, counts them, and sends
// the next commands on the same connection: no goroutine is woken for a reply, since on a machine of two processors the
// client takes from the server what it needs itself.
//
// Closed loop: a connection sends its pipeline, waits for all replies, and sends the next. A latency is the time from
// the sending of the pipeline to the reply.
//
// Open loop: commands arrive at random times of a fixed mean rate, as from many users who do not know of each other, and
// are sent on the connection that has been free for longest. When none is free they wait. A latency is the time from the
// arrival, not from the sending: a server that stops for a second is charged for everybody who came in that second.
type loop struct {
	load   *Load
	poll   *poller
	lanes  []lane
	source Source
	rng    *rand.Rand
	in     []byte // what was read last; used up at once

	count, atLeast int64
	rate           float64
	began          func()
	progress       func(int64)

	start   time.Time
	sent    int64 // commands
	from    int64 // nanoseconds since start: when measuring began; -1 before
	last    int64 // the same, of the last reply
	stopped bool  // nothing new is sent any more
	end     int64 // nanoseconds since start: when that began

	told int64 // nanoseconds since start: the last progress

	due  int64  // open loop: the next arrival
	free []int  // open loop: lanes with room, a ring
	head uint64 // of free
	tail uint64

	ops        int64
	took       time.Duration
	latency    *hdrhistogram.Histogram
	longestGap time.Duration
	perSecond  []int64
	counts     replyCounts
}

// lane is one connection.
type lane struct {
	out      []byte // commands; out[written:] is not sent yet
	written  int
	blocked  bool // the socket took less than all
	inflight int
	since    int64   // closed loop: when the pipeline was sent
	arrivals []int64 // open loop: of the commands in flight, oldest first
	scan     replyScanner
}

const (
	readBytes     = 64 << 10
	progressEvery = 200 * time.Millisecond
)

func newLoop(l *Load, conns int, rng *rand.Rand) (*loop, error) {
	poll, err := newPoller(l.Addr, conns)
	if err != nil {
		return nil, err
	}
	p := &loop{
		load: l, poll: poll, lanes: make([]lane, conns), source: l.Source(rng), rng: rng,
		in: make([]byte, readBytes), latency: newHistogram(), from: -1,
	}
	return p, nil
}

func (p *loop) close() { p.poll.close() }

func (p *loop) now() int64 { return int64(time.Since(p.start)) }

// run is the whole life of the loop.
func (p *loop) run(ctx context.Context, start time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.start = start
	if p.count > 0 {
		p.measure(0)
	}
	if p.rate > 0 {
		p.poll.sharpen()
		p.free = make([]int, len(p.lanes)*p.load.Pipeline)
		for range p.load.Pipeline {
			for i := range p.lanes {
				p.release(i)
			}
		}
	} else {
		for i := range p.lanes {
			if err := p.sendBatch(i, p.now()); err != nil {
				return err
			}
		}
	}
	for ctx.Err() == nil {
		now := p.now()
		if err := p.advance(now); err != nil {
			return err
		}
		if p.stopped && p.owed() == 0 && (p.rate == 0 || p.due >= p.end) {
			return nil
		}
		ready, err := p.poll.wait(p.pause(now))
		if err != nil {
			return err
		}
		for _, r := range ready {
			if err := p.serve(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// owed is the number of replies that are to come.
func (p *loop) owed() int64 { return p.sent - p.counts.replies }

// advance does what the time asks for.
func (p *loop) advance(now int64) error {
	if p.owed() > 0 && now-p.last > int64(replyTimeout) {
		return fmt.Errorf("%w for %v, %d owed", errStalled, replyTimeout, p.owed())
	}
	if p.progress != nil && now-p.told > int64(progressEvery) {
		p.told = now
		p.progress(p.counts.replies)
	}
	if p.from < 0 && now >= int64(p.load.Warmup) {
		p.measure(now)
	}
	if !p.stopped && p.finished(now) {
		p.stopped, p.end = true, now
		if p.owed() > 0 && p.count == 0 {
			p.longestGap = max(p.longestGap, time.Duration(now-p.last)) // though nobody knows how long it becomes
		}
		if p.count == 0 {
			p.took = time.Duration(now - p.from)
		}
	}
	if p.stopped {
		now = p.end - 1 // who came before the end is still served, and counts
	}
	if p.rate > 0 {
		return p.arrive(now)
	}
	return nil
}

// finished says that enough is measured.
func (p *loop) finished(now int64) bool {
	if p.count > 0 {
		return p.sent >= p.count
	}
	if p.from < 0 {
		return false
	}
	took, want := now-p.from, int64(p.load.Measure)
	return took >= want && p.ops >= p.atLeast || took >= stretch*want
}

// measure begins to count.
func (p *loop) measure(now int64) {
	p.from = now
	p.last = now
	p.longestGap = 0
	if p.began != nil {
		p.began()
	}
}

// pause is how long to wait for replies at most.
func (p *loop) pause(now int64) time.Duration {
	const look = 100 * time.Millisecond // at the context, and at the clock
	if p.rate > 0 && p.head != p.tail && !(p.stopped && p.due >= p.end) {
		return max(0, min(look, time.Duration(p.due-now)))
	}
	return look
}

// serve takes what happened on one connection.
func (p *loop) serve(r readiness) error {
	l := &p.lanes[r.lane]
	if r.writable && l.blocked {
		if err := p.flush(r.lane); err != nil {
			return err
		}
	}
	if !r.readable {
		return nil
	}
	n, err := p.poll.read(r.lane, p.in)
	if err != nil || n == 0 {
		return err
	}
	before := p.counts.replies
	if err := l.scan.scan(p.in[:n], &p.counts); err != nil {
		return err
	}
	now := p.now()
	if done := int(p.counts.replies - before); done > 0 {
		return p.replied(r.lane, done, now)
	}
	return nil
}

// replied accounts for replies on a lane, and sends what may be sent now.
func (p *loop) replied(i, done int, now int64) error {
	l := &p.lanes[i]
	if done > l.inflight {
		return fmt.Errorf("%d replies where %d were owed", done, l.inflight)
	}
	l.inflight -= done
	counts := p.from >= 0 && (!p.stopped || p.count > 0)
	if counts {
		p.ops += int64(done)
		p.longestGap = max(p.longestGap, time.Duration(now-p.last))
		second := int((now - p.from) / int64(time.Second))
		for len(p.perSecond) <= second {
			p.perSecond = append(p.perSecond, 0)
		}
		p.perSecond[second] += int64(done)
		if p.count > 0 {
			p.took = time.Duration(now - p.from)
		}
	}
	p.last = now
	if p.rate > 0 {
		for _, arrived := range l.arrivals[:done] {
			if p.from >= 0 && arrived >= p.from {
				p.record(now-arrived, 1)
			}
			p.release(i)
		}
		l.arrivals = l.arrivals[:copy(l.arrivals, l.arrivals[done:])]
		return nil
	}
	if counts && l.since >= p.from {
		p.record(now-l.since, int64(done))
	}
	if l.inflight == 0 && !p.stopped {
		return p.sendBatch(i, now)
	}
	return nil
}

func (p *loop) record(nanos, n int64) {
	micros := max(1, min(nanos/1000, maxLatency.Microseconds()))
	_ = p.latency.RecordValues(micros, n) // fails only beyond the bounds just kept
}

// sendBatch sends a pipeline of a closed loop.
func (p *loop) sendBatch(i int, now int64) error {
	l := &p.lanes[i]
	n := p.load.Pipeline
	if p.count > 0 {
		n = int(min(int64(n), p.count-p.sent))
	}
	for range n {
		l.out = p.source(l.out)
	}
	p.ask(l, n, now)
	l.since = now
	return p.flush(i)
}

// arrive sends what has arrived by now, as far as there are connections for it.
func (p *loop) arrive(now int64) error {
	for p.due <= now && p.head != p.tail {
		i := p.free[p.head%uint64(len(p.free))]
		p.head++
		l := &p.lanes[i]
		l.out = p.source(l.out)
		p.ask(l, 1, now)
		l.arrivals = append(l.arrivals, p.due)
		if err := p.flush(i); err != nil {
			return err
		}
		p.due += int64(p.rng.ExpFloat64() * float64(time.Second) / p.rate)
	}
	return nil
}

// ask accounts for commands that are about to be sent on a lane.
func (p *loop) ask(l *lane, n int, now int64) {
	if p.owed() == 0 {
		p.last = now // silence before a question is nobody's fault
	}
	l.inflight += n
	p.sent += int64(n)
}

// release gives a lane of an open loop one more command.
func (p *loop) release(i int) {
	p.free[p.tail%uint64(len(p.free))] = i
	p.tail++
}

// flush writes what the socket takes; the rest goes when it is writable again.
func (p *loop) flush(i int) error {
	l := &p.lanes[i]
	n, err := p.poll.write(i, l.out[l.written:])
	if err != nil {
		return err
	}
	if l.written += n; l.written == len(l.out) {
		l.out, l.written = l.out[:0], 0
	}
	if blocked := l.written < len(l.out); blocked != l.blocked {
		l.blocked = blocked
		return p.poll.wantWrite(i, blocked)
	}
	return nil
}
