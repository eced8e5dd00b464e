package server

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cairn/server/command"
)

// serverStats are the counters that INFO shows.
type serverStats struct {
	commands    atomic.Int64
	connections atomic.Int64
	rejected    atomic.Int64
	inBytes     atomic.Int64
	outBytes    atomic.Int64
	expiredKeys atomic.Int64
	hits        atomic.Int64 // keys that a command read and found
	misses      atomic.Int64 // and those that were not there
	changes     atomic.Int64
	blocked     atomic.Int64

	outputOverruns atomic.Int64 // clients closed for their output buffer

	expiryOff atomic.Bool // DEBUG SET-ACTIVE-EXPIRE 0

	mu     sync.Mutex
	errors map[string]int64
	total  int64
}

// maxErrorKinds bounds the table of errorstats, which clients could otherwise grow.
const maxErrorKinds = 128

// countError counts an error reply by its first word.
func (st *serverStats) countError(text string) {
	kind, _, _ := strings.Cut(text, " ")
	kind = strings.TrimRight(kind, "\r\n")
	st.mu.Lock()
	defer st.mu.Unlock()
	st.total++
	if st.errors == nil {
		st.errors = make(map[string]int64)
	}
	if _, ok := st.errors[kind]; ok || len(st.errors) < maxErrorKinds {
		st.errors[kind]++
	}
}

// note is where slow log, latency monitor, histograms and monitors look on.
func (s *Server) note(c *client, cmd *command.Command, args [][]byte, took time.Duration) {
	v := &s.cfg.V
	if v.LatencyTracking.Load() {
		cmd.Stats().Latency.Add(took.Nanoseconds())
	}
	if limit := v.LatencyMonitorThreshold.Load(); limit > 0 && took.Milliseconds() >= limit {
		event := "command"
		if cmd.Is(command.Fast) {
			event = "fast-command"
		}
		s.admin.delays.add(event, time.Now().Unix(), took.Milliseconds())
	}
	if limit := v.SlowlogSlowerThan.Load(); limit >= 0 && took.Microseconds() >= limit && !cmd.Is(command.SkipSlowlog) {
		s.noteSlow(c, cmd, args, took)
	}
	s.feedMonitors(c, cmd, args)
}
