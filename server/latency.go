package server

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cairn/internal/resp"
	"cairn/server/command"
)

// delayLog is what LATENCY shows: for each kind of event, the latest of those that took longer than
// latency-monitor-threshold, one a second.
type delayLog struct {
	mu     sync.Mutex
	events map[string]*delaySeries
}

type delaySeries struct {
	samples []delaySample // oldest first
	max     int64         // ms, since the last reset
}

type delaySample struct {
	at int64 // Unix seconds
	ms int64
}

// delaySamples is how many samples an event keeps, as in Redis.
const delaySamples = 160

// add notes a delay. Event names are ours, so their number is bounded.
func (l *delayLog) add(event string, at, ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = make(map[string]*delaySeries)
	}
	e := l.events[event]
	if e == nil {
		e = &delaySeries{}
		l.events[event] = e
	}
	e.max = max(e.max, ms)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == at {
		e.samples[n-1].ms = max(e.samples[n-1].ms, ms)
		return
	}
	if len(e.samples) == delaySamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, delaySample{at, ms})
}

// names lists the events in order.
func (l *delayLog) names() (names []string) {
	for name := range l.events {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// series copies the samples of an event.
func (l *delayLog) series(event string) (s delaySeries, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[event]
	if e == nil {
		return s, false
	}
	return delaySeries{slices.Clone(e.samples), e.max}, true
}

// reset forgets an event and says how many there were.
func (l *delayLog) reset(event string) int64 {
	if _, ok := l.events[event]; !ok {
		return 0
	}
	delete(l.events, event)
	return 1
}

// LatencyLatest is LATENCY LATEST.
func (s *Server) LatencyLatest(x *command.Ctx) error {
	l := &s.admin.delays
	l.mu.Lock()
	defer l.mu.Unlock()
	x.W.Array(len(l.events))
	for _, name := range l.names() {
		e := l.events[name]
		last := e.samples[len(e.samples)-1]
		x.W.Array(4)
		x.W.BulkString(name)
		x.W.Int(last.at)
		x.W.Int(last.ms)
		x.W.Int(e.max)
	}
	return nil
}

// LatencyHistory is LATENCY HISTORY.
func (s *Server) LatencyHistory(x *command.Ctx) error {
	e, _ := s.admin.delays.series(string(x.Args[2]))
	x.W.Array(len(e.samples))
	for _, p := range e.samples {
		x.W.Array(2)
		x.W.Int(p.at)
		x.W.Int(p.ms)
	}
	return nil
}

// LatencyReset is LATENCY RESET.
func (s *Server) LatencyReset(x *command.Ctx) error {
	l := &s.admin.delays
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(0)
	if len(x.Args) == 2 {
		n = int64(len(l.events))
		clear(l.events)
	}
	for _, name := range x.Args[2:] {
		n += l.reset(string(name))
	}
	x.W.Int(n)
	return nil
}

// LatencyGraph is LATENCY GRAPH: a column for each sample, higher for longer.
func (s *Server) LatencyGraph(x *command.Ctx) error {
	event := string(x.Args[2])
	e, ok := s.admin.delays.series(event)
	if !ok {
		return command.Reply(fmt.Sprintf("ERR No samples available for event '%.128s'", event))
	}
	low, high := e.samples[0].ms, e.samples[0].ms
	for _, p := range e.samples {
		low, high = min(low, p.ms), max(high, p.ms)
	}
	const rows = 4
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", event, high, low, e.max, strings.Repeat("-", 80))
	columns := e.samples[max(0, len(e.samples)-80):]
	for row := rows; row > 0; row-- {
		for _, p := range columns {
			if p.ms-low >= (high-low)*int64(row-1)/rows {
				b.WriteByte('#')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	now := time.Now().Unix()
	fmt.Fprintf(&b, "from %d s ago to %d s ago\n", now-columns[0].at, now-columns[len(columns)-1].at)
	x.W.Verbatim("txt", []byte(b.String()))
	return nil
}

// LatencyDoctor is LATENCY DOCTOR.
func (s *Server) LatencyDoctor(x *command.Ctx) error {
	var b strings.Builder
	threshold := s.cfg.V.LatencyMonitorThreshold.Load()
	if threshold == 0 {
		b.WriteString("Delays are not watched: CONFIG SET latency-monitor-threshold <milliseconds> begins that.\n")
	}
	l := &s.admin.delays
	l.mu.Lock()
	for i, name := range l.names() {
		e := l.events[name]
		sum := int64(0)
		for _, p := range e.samples {
			sum += p.ms
		}
		fmt.Fprintf(&b, "%d. %s: %d delays (average %d ms, worst %d ms since the last reset)\n",
			i+1, name, len(e.samples), sum/int64(len(e.samples)), e.max)
	}
	if len(l.events) == 0 {
		b.WriteString("There were no delays.\n")
	} else {
		b.WriteString("SLOWLOG GET names the commands. INFO cairn shows whether writes wait for the disk (log, pending, compaction debt).\n")
	}
	l.mu.Unlock()
	x.W.Verbatim("txt", []byte(b.String()))
	return nil
}

// LatencyHistogram is LATENCY HISTOGRAM.
func (s *Server) LatencyHistogram(x *command.Ctx) error {
	var found []*command.Command
	take := func(cmd *command.Command) {
		if cmd.Stats().Latency.Count() > 0 {
			found = append(found, cmd)
		}
		for i := range cmd.Sub {
			if sub := &cmd.Sub[i]; sub.Stats().Latency.Count() > 0 {
				found = append(found, sub)
			}
		}
	}
	if len(x.Args) == 2 {
		for _, cmd := range s.table.All() {
			take(cmd)
		}
	}
	for _, name := range x.Args[2:] {
		if cmd := s.table.ByFullName(string(name)); cmd != nil && !slices.Contains(found, cmd) {
			take(cmd)
		}
	}
	x.W.Map(len(found))
	for _, cmd := range found {
		x.W.BulkString(cmd.FullName())
		writeHistogram(x.W, &cmd.Stats().Latency)
	}
	return nil
}

func writeHistogram(w *resp.Writer, h *command.Histogram) {
	counts := h.Cumulated()
	w.Map(2)
	w.BulkString("calls")
	w.Int(h.Count())
	w.BulkString("histogram_usec")
	steps := 0
	for i := range counts {
		if i == 0 && counts[0] > 0 || i > 0 && counts[i] > counts[i-1] {
			steps++
		}
	}
	w.Map(steps)
	for i := range counts {
		if i == 0 && counts[0] > 0 || i > 0 && counts[i] > counts[i-1] {
			w.Int(command.HistogramBound(i))
			w.Int(counts[i])
		}
	}
}
