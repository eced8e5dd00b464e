package command

import (
	"math/bits"
	"sync/atomic"
)

// Stats counts the calls of one command, as INFO commandstats shows them.
type Stats struct {
	Calls    atomic.Int64
	Usec     atomic.Int64
	Rejected atomic.Int64
	Failed   atomic.Int64
	Latency  Histogram
}

// Stats gives the command's counters.
func (c *Command) Stats() *Stats { return c.stats }

// Reset sets all counters to zero.
func (s *Stats) Reset() {
	for _, n := range []*atomic.Int64{&s.Calls, &s.Usec, &s.Rejected, &s.Failed} {
		n.Store(0)
	}
	for i := range s.Latency.counts {
		s.Latency.counts[i].Store(0)
	}
}

// Histogram counts times in buckets, each twice as wide as the one before: bucket i has those below
// 1024 ns << i, the last one all beyond.
type Histogram struct {
	counts [histogramBuckets]atomic.Int64
}

const histogramBuckets = 24

// Add counts one call that took so many nanoseconds.
func (h *Histogram) Add(tookNs int64) {
	h.counts[min(bits.Len64(uint64(max(tookNs, 0))>>10), histogramBuckets-1)].Add(1)
}

// Count is how many calls there were.
func (h *Histogram) Count() (n int64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Cumulated gives for each bucket how many calls it and those below it have.
func (h *Histogram) Cumulated() (out [histogramBuckets]int64) {
	sum := int64(0)
	for i := range h.counts {
		sum += h.counts[i].Load()
		out[i] = sum
	}
	return out
}

// HistogramBound is the highest time of bucket i, microseconds.
func HistogramBound(i int) int64 { return (1024<<i - 1) / 1000 }

// Percentile gives the time in microseconds that p percent of the calls did not exceed, to the bucket.
func (h *Histogram) Percentile(p float64) float64 {
	counts := h.Cumulated()
	want := p / 100 * float64(counts[histogramBuckets-1])
	for i, n := range counts {
		if n > 0 && float64(n) >= want {
			return float64(int64(1024)<<i-1) / 1000
		}
	}
	return 0
}
