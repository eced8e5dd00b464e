package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Load is what a client does to a server.
type Load struct {
	Addr     string
	Conns    int
	Pipeline int // commands in flight on a connection: all sent together in a closed loop, at most so many in an open one
	Threads  int // of the client, which share the connections
	Source   func(rng *rand.Rand) Source
	Seed     uint64

	// Rate is commands per second of an open loop, whose arrivals do not wait for replies; 0: a closed loop.
	Rate float64

	Warmup  time.Duration // not measured
	Measure time.Duration
	// AtLeast is how many measured operations there are, though it take longer, up to five times Measure.
	AtLeast int64
	// Count ends the load after so many commands, all of them measured; Warmup, Measure and AtLeast do not count then.
	Count int64

	// Began is called when measuring begins, by one of the client's threads. It may be nil.
	Began func()
	// Progress counts all replies, for somebody who watches. It may be nil.
	Progress func(replies int64)
}

// Outcome is what the client saw of one load.
type Outcome struct {
	Ops     int64
	Took    time.Duration
	Latency *hdrhistogram.Histogram // microseconds
	// LongestGap is the longest time without any reply while some were owed.
	LongestGap time.Duration
	PerSecond  []int64 // operations of each whole second
	Errors     int64
	FirstError string
	Nulls      int64
}

// Rate returns operations per second.
func (o *Outcome) Rate() float64 {
	if o.Took <= 0 {
		return 0
	}
	return float64(o.Ops) / o.Took.Seconds()
}

const (
	maxLatency   = 5 * time.Minute // longer ones count as this
	latencyBits  = 3               // significant decimal digits
	replyTimeout = 60 * time.Second
	stretch      = 5 // how much longer than Measure a load may last for AtLeast
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), latencyBits)
}

var errStalled = errors.New("no reply")

// Run puts the load on the server and returns what came of it. An error reply counts in the outcome and is no error; a
// lost connection is one, and so is a minute without a reply.
func (l *Load) Run(ctx context.Context) (*Outcome, error) {
	threads := max(1, min(l.Threads, l.Conns))
	parts := make([]*loop, 0, threads)
	defer func() {
		for _, p := range parts {
			p.close()
		}
	}()
	for i := range threads {
		rng := rand.New(rand.NewPCG(l.Seed, uint64(i)))
		p, err := newLoop(l, share(l.Conns, i, threads), rng)
		if err != nil {
			return nil, err
		}
		p.count, p.atLeast = int64(share(int(l.Count), i, threads)), int64(share(int(l.AtLeast), i, threads))
		p.rate = l.Rate / float64(threads)
		if i == 0 {
			p.began, p.progress = l.Began, l.Progress
		}
		parts = append(parts, p)
	}
	var wg sync.WaitGroup
	faults := make([]error, threads)
	start := time.Now()
	for i, p := range parts {
		wg.Go(func() { faults[i] = p.run(ctx, start) }) // ends with the load or with ctx
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("load on %s: %w", l.Addr, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return merge(parts), nil
}

// share is the i-th of n parts of a whole.
func share(whole, i, n int) int { return whole*(i+1)/n - whole*i/n }

func merge(parts []*loop) *Outcome {
	sum := &Outcome{Latency: newHistogram()}
	for _, p := range parts {
		sum.Ops += p.ops
		sum.Took = max(sum.Took, p.took)
		sum.Latency.Merge(p.latency)
		sum.LongestGap = max(sum.LongestGap, p.longestGap)
		sum.Errors += p.counts.errors
		sum.Nulls += p.counts.nulls
		if sum.FirstError == "" {
			sum.FirstError = p.counts.firstError
		}
		for i, n := range p.perSecond {
			if i == len(sum.PerSecond) {
				sum.PerSecond = append(sum.PerSecond, 0)
			}
			sum.PerSecond[i] += n
		}
	}
	return sum
}
