package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cairn/server/command"
	"cairn/server/pubsub"
)

func (s *Server) infoStats(w *infoWriter) {
	st := &s.stats
	ops, in, out := s.admin.rates.now(st)
	w.put("total_connections_received", st.connections.Load())
	w.put("total_commands_processed", st.commands.Load())
	w.put("instantaneous_ops_per_sec", int64(ops))
	w.put("total_net_input_bytes", st.inBytes.Load())
	w.put("total_net_output_bytes", st.outBytes.Load())
	w.zeros("total_net_repl_input_bytes")
	w.put("total_net_repl_output_bytes", s.replicaOutput())
	w.put("instantaneous_input_kbps", in/1024)
	w.put("instantaneous_output_kbps", out/1024)
	w.put("instantaneous_input_repl_kbps", 0.0)
	w.put("instantaneous_output_repl_kbps", 0.0)
	w.put("rejected_connections", st.rejected.Load())
	s.infoSyncs(w)
	w.put("expired_keys", st.expiredKeys.Load())
	w.put("expired_stale_perc", 0.0)
	w.zeros("expired_time_cap_reached_count expire_cycle_cpu_milliseconds evicted_keys")
	w.put("evicted_clients", s.memory.evicted.Load())
	w.zeros("total_eviction_exceeded_time current_eviction_exceeded_time")
	w.put("keyspace_hits", st.hits.Load())
	w.put("keyspace_misses", st.misses.Load())
	w.put("pubsub_channels", s.hub.Count(pubsub.Channel))
	w.put("pubsub_patterns", s.hub.Count(pubsub.Pattern))
	w.put("pubsubshard_channels", s.hub.Count(pubsub.Shard))
	w.zeros("latest_fork_usec total_forks")
	w.put("migrate_cached_sockets", s.moves.cachedSockets.Load())
	w.zeros("slave_expires_tracked_keys")
	w.zeros("active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses")
	w.zeros("total_active_defrag_time current_active_defrag_time")
	w.zeros("tracking_total_keys tracking_total_items tracking_total_prefixes unexpected_error_replies")
	w.put("total_error_replies", st.errorsTotal())
	w.zeros("dump_payload_sanitizations total_reads_processed total_writes_processed")
	w.zeros("io_threaded_reads_processed io_threaded_writes_processed reply_buffer_shrinks reply_buffer_expands")
	w.zeros("eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum")
	w.zeros("instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec")
	w.zeros("acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key acl_access_denied_channel")
}

func (st *serverStats) errorsTotal() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.total
}

// rates reckons what INFO calls instantaneous: the average since it was last asked, or a little longer.
type rates struct {
	mu       sync.Mutex
	at       time.Time
	commands int64
	in, out  int64

	ops, inRate, outRate float64
}

// rateSpan is the shortest time that a rate is taken over.
const rateSpan = 200 * time.Millisecond

// now gives commands and bytes a second.
func (r *rates) now(st *serverStats) (ops, in, out float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	span := time.Since(r.at)
	if span < rateSpan {
		return r.ops, r.inRate, r.outRate
	}
	commands, inBytes, outBytes := st.commands.Load(), st.inBytes.Load(), st.outBytes.Load()
	if !r.at.IsZero() {
		sec := span.Seconds()
		r.ops = max(float64(commands-r.commands), 0) / sec // RESETSTAT sets them back
		r.inRate = max(float64(inBytes-r.in), 0) / sec
		r.outRate = max(float64(outBytes-r.out), 0) / sec
	}
	r.at, r.commands, r.in, r.out = time.Now(), commands, inBytes, outBytes
	return r.ops, r.inRate, r.outRate
}

// eachCommand calls f for all commands and subcommands.
func (s *Server) eachCommand(f func(*command.Command)) {
	for _, cmd := range s.table.All() {
		f(cmd)
		for i := range cmd.Sub {
			f(&cmd.Sub[i])
		}
	}
}

func (s *Server) infoCommandStats(w *infoWriter) {
	s.eachCommand(func(cmd *command.Command) {
		st := cmd.Stats()
		calls, usec := st.Calls.Load(), st.Usec.Load()
		if calls == 0 && st.Rejected.Load() == 0 && st.Failed.Load() == 0 {
			return
		}
		each := 0.0
		if calls > 0 {
			each = float64(usec) / float64(calls)
		}
		w.put("cmdstat_"+cmd.FullName(), fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			calls, usec, each, st.Rejected.Load(), st.Failed.Load()))
	})
}

func (s *Server) infoErrorStats(w *infoWriter) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	kinds := make([]string, 0, len(s.stats.errors))
	for kind := range s.stats.errors {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		// The kind may come from a client's own words; it must not look like a field.
		safe := strings.Map(func(r rune) rune {
			if strings.ContainsRune("#:\n\r", r) {
				return '_'
			}
			return r
		}, kind)
		w.put("errorstat_"+safe, fmt.Sprintf("count=%d", s.stats.errors[kind]))
	}
}

func (s *Server) infoLatencyStats(w *infoWriter) {
	if !s.cfg.V.LatencyTracking.Load() {
		return
	}
	percentiles := s.cfg.V.LatencyPercentiles.Load()
	s.eachCommand(func(cmd *command.Command) {
		h := &cmd.Stats().Latency
		if h.Count() == 0 {
			return
		}
		parts := make([]string, len(percentiles))
		for i, p := range percentiles {
			parts[i] = fmt.Sprintf("p%s=%.3f", strconv.FormatFloat(p, 'f', -1, 64), h.Percentile(p))
		}
		w.put("latency_percentiles_usec_"+cmd.FullName(), strings.Join(parts, ","))
	})
}

// resetStats is what CONFIG RESETSTAT does.
func (s *Server) resetStats() {
	st := &s.stats
	s.eachCommand(func(cmd *command.Command) { cmd.Stats().Reset() })
	st.commands.Store(0)
	st.connections.Store(0)
	st.rejected.Store(0)
	st.inBytes.Store(0)
	st.outBytes.Store(0)
	st.expiredKeys.Store(0)
	st.hits.Store(0)
	st.misses.Store(0)
	s.memory.evicted.Store(0)
	st.mu.Lock()
	st.errors, st.total = nil, 0
	st.mu.Unlock()
}
