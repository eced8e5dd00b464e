package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"cairn/tools/node"
)

// tally is a line of the final table.
type tally struct {
	kills, double  int
	sent, executed int64 // commands in flight at a kill, and how many of them were found executed
	restarts       []time.Duration
}

// stats are the figures of a run.
type stats struct {
	began       time.Time
	byPolicy    map[string]*tally
	keysChecked int64
	flushes     int
	logPeak     int64 // largest size of the log's folder, bytes
	logOffset   int64 // end of the stream
	rssPeak     int64 // bytes
}

func newStats() stats { return stats{began: time.Now(), byPolicy: map[string]*tally{}} }

func (s *stats) of(policy string) *tally {
	t := s.byPolicy[policy]
	if t == nil {
		t = &tally{}
		s.byPolicy[policy] = t
	}
	return t
}

func (s *stats) killed(policy string) { s.of(policy).kills++ }
func (s *stats) kills() (n int) {
	for _, t := range s.byPolicy {
		n += t.kills
	}
	return n
}

func (s *stats) killedTwice(policy string) { s.of(policy).double++ }

func (s *stats) restarted(policy string, took time.Duration) {
	t := s.of(policy)
	t.restarts = append(t.restarts, took)
}

func (s *stats) inFlight(policy string, sent, executed int) {
	t := s.of(policy)
	t.sent += int64(sent)
	t.executed += int64(executed)
}

// noteMemory is for information; a process that is gone has none.
func (s *stats) noteMemory(pid int) {
	if n, err := node.RSS(pid); err == nil {
		s.rssPeak = max(s.rssPeak, n)
	}
}

// progress says how far the run is: on a terminal one line that changes, elsewhere a line now and then.
func (r *crashRun) progress(n int) {
	if r.o.quiet {
		return
	}
	line := fmt.Sprintf("round %d of %d, %s, %d commands acknowledged, log %d MB", n, r.o.rounds, r.where(), r.acked(), r.logWritten()>>20)
	info, err := os.Stderr.Stat()
	switch {
	case err == nil && info.Mode()&os.ModeCharDevice != 0:
		fmt.Fprintf(os.Stderr, "\r\x1b[K%s", line)
		if n == r.o.rounds {
			fmt.Fprintln(os.Stderr)
		}
	case n%20 == 0 || n == r.o.rounds:
		fmt.Fprintln(os.Stderr, line)
	}
}

func (r *crashRun) acked() (sum int64) {
	for _, w := range r.writers {
		sum += w.acked
	}
	return sum
}

// report prints the final table.
func (r *crashRun) report(out io.Writer) {
	s := &r.stats
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "appendfsync\tkills\twhile starting\tin flight\tof these executed\trestart median\tlongest\t")
	for _, policy := range r.o.policies {
		t := s.of(policy)
		slices.Sort(t.restarts)
		var median, longest time.Duration
		if n := len(t.restarts); n > 0 {
			median, longest = t.restarts[n/2], t.restarts[n-1]
		}
		fmt.Fprintf(tab, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t\n", policy, t.kills, t.double, t.sent, t.executed,
			median.Round(time.Millisecond), longest.Round(time.Millisecond))
	}
	_ = tab.Flush() // out is a terminal or a file of the caller's
	fmt.Fprintf(out, "\n%d commands acknowledged, %d keys read back, %d FLUSHALL, log %d MB in all, %d MB on disk at most, memory %d MB at most, %v, seed %d\n",
		r.acked(), s.keysChecked, s.flushes, r.logWritten()>>20, s.logPeak>>20, s.rssPeak>>20,
		time.Since(s.began).Round(time.Second), r.o.seed)
}

// parseSize reads a size as redis.conf writes it: 32mb, 1gb, 100k, bytes.
func parseSize(text string) (int64, error) {
	lower := strings.ToLower(text)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"b", 1}, {"", 1}} {
		digits, ok := strings.CutSuffix(lower, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > 1<<62/u.bytes {
			return 0, fmt.Errorf("size %q: want a number of bytes, with kb, mb or gb behind it", text)
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("size %q: no unit fits", text)
}
