package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The second opinion: redis-benchmark, which is nobody's here, on the same keys. It counts commands, not seconds, so the
// first run of a row finds out how many there are in a run.

const (
	toolProbe   = 100_000 // commands
	maxToolRate = 1e9     // commands per second; more is a mistake
)

// runTool runs redis-benchmark for about as long as a row is measured.
func (p *place) runTool(r *Row, s *Side, run *Run) (ops int64, err error) {
	began := time.Now()
	n := max(1000, int64(toolProbe*p.lab.opts.Scale))
	probe, err := p.tool(r, s, n)
	if err != nil {
		return 0, err
	}
	more := max(n, int64(probe.rate*p.lab.opts.Measure.Seconds()))
	got, err := p.tool(r, s, more)
	if err != nil {
		return 0, err
	}
	run.Ops, run.Seconds, run.Rate = more, float64(more)/got.rate, got.rate
	run.P50Ms, run.P99Ms, run.MaxMs = got.p50, got.p99, got.max
	run.Note = fmt.Sprintf("redis-benchmark, %v with its probe of %d commands", time.Since(began).Round(time.Millisecond), n)
	return more + n, nil
}

// toolResult is a line of redis-benchmark --csv.
type toolResult struct{ rate, p50, p99, max float64 }

func (p *place) tool(r *Row, s *Side, n int64) (toolResult, error) {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return toolResult{}, err
	}
	cmd := exec.CommandContext(p.lab.ctx, "redis-benchmark", "-h", host, "-p", port, "-t", r.Work, "-n", strconv.FormatInt(n, 10),
		"-c", strconv.Itoa(p.lab.opts.Conns), "-d", strconv.Itoa(p.data.size), "-r", strconv.FormatUint(p.data.keys, 10),
		"-P", strconv.Itoa(r.Pipeline), "--csv")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return toolResult{}, fmt.Errorf("redis-benchmark: %w: %.200s", err, exit.Stderr)
	}
	if err != nil {
		return toolResult{}, fmt.Errorf("redis-benchmark: %w", err)
	}
	return parseTool(string(out), r.Work)
}

// parseTool reads what redis-benchmark --csv prints: a heading, then name, rate and the latencies average, least, median,
// 95 %, 99 %, most, in milliseconds.
func parseTool(out, test string) (r toolResult, err error) {
	rd := csv.NewReader(strings.NewReader(out))
	rd.FieldsPerRecord = -1
	lines, err := rd.ReadAll()
	if err != nil {
		return r, fmt.Errorf("redis-benchmark: %w", err)
	}
	for _, line := range lines {
		if len(line) < 8 || !strings.EqualFold(line[0], test) {
			continue
		}
		for column, field := range map[int]*float64{1: &r.rate, 4: &r.p50, 6: &r.p99, 7: &r.max} {
			if *field, err = strconv.ParseFloat(line[column], 64); err != nil {
				return r, fmt.Errorf("redis-benchmark: column %d: %w", column, err)
			}
		}
		if !(r.rate > 0 && r.rate < maxToolRate) { // also for what is no number
			return r, fmt.Errorf("redis-benchmark: rate %v, want more than 0 and less than %v", r.rate, float64(maxToolRate))
		}
		return r, nil
	}
	return r, fmt.Errorf("redis-benchmark: no line for %s in %.200q", test, out)
}
