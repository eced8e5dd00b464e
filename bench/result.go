package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Run is one side of one pair. Fields that could not be had are 0.
type Run struct {
	Pair    int       `json:"pair"`
	Side    int       `json:"side"` // 0 cairn, 1 the other
	Started time.Time `json:"started"`

	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"`              // operations per second
	Offered float64 `json:"offered,omitempty"` // open loop: the rate that was asked for

	ServerMicros float64 `json:"server_us_per_op"`
	ClientMicros float64 `json:"client_us_per_op"`

	P50Ms        float64 `json:"p50_ms"`
	P99Ms        float64 `json:"p99_ms"`
	P999Ms       float64 `json:"p999_ms"`
	MaxMs        float64 `json:"max_ms"`
	LongestGapMs float64 `json:"longest_gap_ms"` // without any reply
	Curve        []Point `json:"curve,omitempty"`
	PerSecond    []int64 `json:"per_second,omitempty"`

	Errors     int64  `json:"errors,omitempty"`
	FirstError string `json:"first_error,omitempty"`
	Nulls      int64  `json:"nulls,omitempty"`

	PeakBytes    int64 `json:"peak_bytes"`
	DiskBytes    int64 `json:"disk_bytes"`    // the data folder after the run
	WrittenBytes int64 `json:"written_bytes"` // to the disk, meanwhile
	PayloadBytes int64 `json:"payload_bytes"` // of keys and values that were written

	Settled  bool    `json:"settled"` // the applied offset reached the log's end in time
	SettleMs float64 `json:"settle_ms"`
	Note     string  `json:"note,omitempty"`
}

// Point is a latency: so many percent of the operations took at most Ms.
type Point struct {
	Percent float64 `json:"percent"`
	Ms      float64 `json:"ms"`
}

// curvePercents are the points of a latency curve; each tail is a tenth of the one before.
func curvePercents() []float64 {
	return []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100}
}

// take writes what the client saw into the run.
func (r *Run) take(o *Outcome) {
	r.Ops, r.Seconds, r.Rate = o.Ops, o.Took.Seconds(), o.Rate()
	r.LongestGapMs = milliseconds(o.LongestGap)
	r.PerSecond = o.PerSecond
	r.Errors, r.FirstError, r.Nulls = o.Errors, o.FirstError, o.Nulls
	at := func(percent float64) float64 { return float64(o.Latency.ValueAtPercentile(percent)) / 1000 }
	r.P50Ms, r.P99Ms, r.P999Ms, r.MaxMs = at(50), at(99), at(99.9), float64(o.Latency.Max())/1000
	for _, percent := range curvePercents() {
		r.Curve = append(r.Curve, Point{percent, at(percent)})
	}
}

// RowResult is a row and all its runs.
type RowResult struct {
	Row   *Row     `json:"row"`
	Runs  []*Run   `json:"runs"`
	Notes []string `json:"notes,omitempty"`

	Ratio Spread    `json:"ratio"` // of rates, cairn to the other
	CPU   Spread    `json:"cpu_ratio"`
	Sides [2]Median `json:"sides"`
}

// Spread is a median and the values around it. N is 0 when there is none.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// Median is the middle of each figure of one side; they need not be of one run.
type Median struct {
	Rate         float64 `json:"rate"`
	ServerMicros float64 `json:"server_us_per_op"`
	ClientMicros float64 `json:"client_us_per_op"`
	P50Ms        float64 `json:"p50_ms"`
	P99Ms        float64 `json:"p99_ms"`
	P999Ms       float64 `json:"p999_ms"`
	GapMs        float64 `json:"longest_gap_ms"`
	PeakBytes    float64 `json:"peak_bytes"`
	DiskBytes    float64 `json:"disk_bytes"`
	WrittenRatio float64 `json:"written_per_payload"`
}

// median returns the middle of the values, the mean of two when there are two, and 0 for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{median(values), slices.Min(values), slices.Max(values), len(values)}
}

// counts says that a run may enter a ratio.
func (r *Run) counts() bool { return r.Settled && r.Errors == 0 && r.Ops > 0 }

// summarize fills the figures of a row from its runs. A pair has a ratio when both of its runs count.
func (r *RowResult) summarize() {
	pairs := map[int][2]*Run{}
	for _, run := range r.Runs {
		p := pairs[run.Pair]
		p[run.Side] = run
		pairs[run.Pair] = p
	}
	var ratios, cpus []float64
	for _, p := range pairs {
		if p[0] == nil || p[1] == nil || !p[0].counts() || !p[1].counts() {
			continue
		}
		ratios = append(ratios, p[0].Rate/p[1].Rate)
		if p[1].ServerMicros > 0 {
			cpus = append(cpus, p[0].ServerMicros/p[1].ServerMicros)
		}
	}
	r.Ratio, r.CPU = spreadOf(ratios), spreadOf(cpus)
	for side := range r.Sides {
		r.Sides[side] = r.middle(side)
	}
	r.remark()
}

func (r *RowResult) middle(side int) Median {
	of := func(f func(*Run) float64) float64 {
		var values []float64
		for _, run := range r.Runs {
			if run.Side == side {
				values = append(values, f(run))
			}
		}
		return median(values)
	}
	return Median{
		Rate:         of(func(r *Run) float64 { return r.Rate }),
		ServerMicros: of(func(r *Run) float64 { return r.ServerMicros }),
		ClientMicros: of(func(r *Run) float64 { return r.ClientMicros }),
		P50Ms:        of(func(r *Run) float64 { return r.P50Ms }),
		P99Ms:        of(func(r *Run) float64 { return r.P99Ms }),
		P999Ms:       of(func(r *Run) float64 { return r.P999Ms }),
		GapMs:        of(func(r *Run) float64 { return r.LongestGapMs }),
		PeakBytes:    of(func(r *Run) float64 { return float64(r.PeakBytes) }),
		DiskBytes:    of(func(r *Run) float64 { return float64(r.DiskBytes) }),
		WrittenRatio: of(func(r *Run) float64 {
			if r.PayloadBytes == 0 {
				return 0
			}
			return float64(r.WrittenBytes) / float64(r.PayloadBytes)
		}),
	}
}

// keptUp says that an open loop got what it asked for, but for two percent and the chance in its arrivals.
func (r *Run) keptUp() bool {
	want := r.Offered * r.Seconds
	return float64(r.Ops) >= 0.98*want-3*math.Sqrt(want)
}

// remark notes what a reader of the ratio must know.
func (r *RowResult) remark() {
	names := [2]string{ours, "the other"}
	for side, name := range names {
		var unsettled, slow, wrong, missing int
		for _, run := range r.Runs {
			if run.Side != side {
				continue
			}
			if !run.Settled {
				unsettled++
			}
			if run.Offered > 0 && !run.keptUp() {
				slow++
			}
			if run.Errors > 0 {
				wrong++
			}
			if run.Nulls > 0 {
				missing++
			}
		}
		note := func(n int, format string, args ...any) {
			if n > 0 {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: %d runs ", name, n)+fmt.Sprintf(format, args...))
			}
		}
		note(unsettled, "do not count: %v", errNotSettled)
		note(slow, "did not reach the offered rate")
		note(wrong, "do not count: error replies, such as %q", r.firstError(side))
		note(missing, "read keys that are not there")
	}
}

func (r *RowResult) firstError(side int) string {
	for _, run := range r.Runs {
		if run.Side == side && run.FirstError != "" {
			return run.FirstError
		}
	}
	return ""
}

// line is the row in one line, for somebody who watches.
func (r *RowResult) line() string {
	if len(r.Runs) == 0 {
		return fmt.Sprintf("%-20s no figure: %s", r.Row.Name, r.Notes[0])
	}
	return fmt.Sprintf("%-20s %9.0f/s %9.0f/s  ratio %s  cpu %.2f %.2f us/op", r.Row.Name, r.Sides[0].Rate, r.Sides[1].Rate, r.Ratio,
		r.Sides[0].ServerMicros, r.Sides[1].ServerMicros)
}

func (s Spread) String() string {
	switch s.N {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f (%.2f..%.2f)", s.Median, s.Min, s.Max)
}
