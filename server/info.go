package server

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cairn/engine"
	"cairn/server/command"
	"cairn/server/config"
)

// INFO has Redis's sections and fields, in its order, so that what reads them for Redis reads them here. What
// has no counterpart is 0. The section cairn tells of log, pending rows and Pebble.

// infoSection is one section: its name in lower case, its heading, and whether plain INFO shows it.
type infoSection struct {
	name    string
	heading string
	shown   bool
	write   func(*Server, *infoWriter)
}

func infoSections() []infoSection {
	return []infoSection{
		{"server", "Server", true, (*Server).infoServer},
		{"clients", "Clients", true, (*Server).infoClients},
		{"memory", "Memory", true, (*Server).infoMemory},
		{"persistence", "Persistence", true, (*Server).infoPersistence},
		{"stats", "Stats", true, (*Server).infoStats},
		{"replication", "Replication", true, (*Server).infoReplication},
		{"cpu", "CPU", true, (*Server).infoCPU},
		{"module_list", "Modules", true, func(*Server, *infoWriter) {}},
		{"commandstats", "Commandstats", false, (*Server).infoCommandStats},
		{"errorstats", "Errorstats", true, (*Server).infoErrorStats},
		{"latencystats", "Latencystats", false, (*Server).infoLatencyStats},
		{"cluster", "Cluster", true, (*Server).infoCluster},
		{"migration", "Migration", true, (*Server).infoMigration},
		{"keyspace", "Keyspace", true, (*Server).infoKeyspace},
		{"cairn", "Cairn", true, (*Server).infoCairn},
	}
}

// infoWriter gathers lines name:value.
type infoWriter struct{ bytes.Buffer }

func (w *infoWriter) put(name string, value any) {
	w.WriteString(name)
	w.WriteByte(':')
	switch v := value.(type) {
	case bool:
		if v {
			w.WriteByte('1')
		} else {
			w.WriteByte('0')
		}
	case float64:
		w.WriteString(strconv.FormatFloat(v, 'f', 2, 64))
	default:
		fmt.Fprint(w, v)
	}
	w.WriteString("\r\n")
}

// zeros writes fields that have nothing behind them here.
func (w *infoWriter) zeros(names string) {
	for name := range strings.FieldsSeq(names) {
		w.put(name, 0)
	}
}

// human writes a size and the same for people: name and name_human.
func (w *infoWriter) human(name string, bytes int64) {
	w.put(name, bytes)
	w.put(name+"_human", humanBytes(bytes))
}

// humanBytes is a size as Redis writes it for people.
func humanBytes(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + "B"
	}
	v := float64(n)
	for _, unit := range "KMGTP" {
		if v /= 1024; v < 1024 || unit == 'P' {
			return strconv.FormatFloat(v, 'f', 2, 64) + string(unit)
		}
	}
	return ""
}

// Info is INFO.
func (s *Server) Info(x *command.Ctx) error {
	x.W.Verbatim("txt", s.info(x.Args[1:]))
	return nil
}

// info writes the sections asked for; none: the default ones.
func (s *Server) info(asked [][]byte) []byte {
	want := map[string]bool{}
	if len(asked) == 0 {
		want["default"] = true
	}
	for _, a := range asked {
		want[strings.ToLower(string(a))] = true
	}
	if want["modules"] {
		want["module_list"] = true
	}
	all := want["all"] || want["everything"]
	var w infoWriter
	for _, sec := range infoSections() {
		if sec.name == "migration" && !s.ClusterEnabled() {
			continue // a heading with nothing below
		}
		if !all && !want[sec.name] && (!sec.shown || !want["default"]) {
			continue
		}
		if w.Len() > 0 {
			w.WriteString("\r\n")
		}
		w.WriteString("# " + sec.heading + "\r\n")
		sec.write(s, &w)
	}
	return w.Bytes()
}

func (s *Server) infoServer(w *infoWriter) {
	v := &s.cfg.V
	w.put("redis_version", redisVersion)
	w.put("redis_git_sha1", "00000000")
	w.put("redis_git_dirty", 0)
	w.put("redis_build_id", "0")
	w.put("redis_mode", s.mode())
	w.put("os", operatingSystem())
	w.put("arch_bits", strconv.IntSize)
	w.put("monotonic_clock", "POSIX clock_gettime")
	w.put("multiplexing_api", "go-netpoll")
	w.put("atomicvar_api", "go-atomic")
	w.put("gcc_version", "0.0.0")
	w.put("process_id", os.Getpid())
	w.put("process_supervised", supervision(v.Supervised.Load()))
	w.put("run_id", string(s.admin.runID[:]))
	w.put("tcp_port", v.Port.Load())
	now := time.Now()
	up := int64(now.Sub(s.started).Seconds())
	w.put("server_time_usec", now.UnixMicro())
	w.put("uptime_in_seconds", up)
	w.put("uptime_in_days", up/(24*3600))
	w.put("hz", v.Hz.Load())
	w.put("configured_hz", v.Hz.Load())
	w.put("lru_clock", now.Unix()&(1<<24-1))
	exe, _ := os.Executable() // "" where the system does not tell
	w.put("executable", exe)
	w.put("config_file", s.cfg.File())
	w.put("io_threads_active", 0)
	if v.Port.Load() != 0 {
		var b strings.Builder
		b.WriteString("name=tcp")
		for _, addr := range v.Bind.Load() {
			b.WriteString(",bind=" + addr)
		}
		fmt.Fprintf(&b, ",port=%d", v.Port.Load())
		w.put("listener0", b.String())
	}
	if path := v.UnixSocket.Load(); path != "" {
		w.put("listener1", "name=unix,bind="+path)
	}
	w.put("server_name", "cairn")
	w.put("cairn_version", Version)
	w.put("go_version", runtime.Version())
}

// mode is the word for how the node was started.
func (s *Server) mode() string {
	if s.cfg.V.ClusterEnabled.Load() {
		return "cluster"
	}
	return "standalone"
}

func supervision(s config.Supervision) string {
	switch s {
	case config.SupervisedSystemd:
		return "systemd"
	case config.SupervisedUpstart:
		return "upstart"
	case config.SupervisedAuto:
		return "unknown"
	}
	return "no"
}

func operatingSystem() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	text := func(b []byte) string { return string(b[:max(bytes.IndexByte(b, 0), 0)]) }
	return text(u.Sysname[:]) + " " + text(u.Release[:]) + " " + text(u.Machine[:])
}

func (s *Server) infoClients(w *infoWriter) {
	in, out := int64(0), int64(0)
	for _, c := range s.clients.snapshot() {
		in, out = max(in, c.inBuffer.Load()), max(out, c.outBuffer.Load())
	}
	w.put("connected_clients", s.clients.count()-s.attachedReplicas())
	w.put("cluster_connections", len(s.busLinks()))
	w.put("maxclients", s.cfg.V.MaxClients.Load())
	w.put("client_recent_max_input_buffer", in)
	w.put("client_recent_max_output_buffer", out)
	w.put("blocked_clients", s.stats.blocked.Load())
	w.zeros("tracking_clients clients_in_timeout_table total_blocking_keys total_blocking_keys_on_nokey")
}

func (s *Server) infoPersistence(w *infoWriter) {
	a := &s.admin
	w.put("loading", s.loading.Load())
	w.zeros("async_loading current_cow_peak current_cow_size current_cow_size_age")
	w.put("current_fork_perc", 0.0)
	w.zeros("current_save_keys_processed current_save_keys_total")
	w.put("rdb_changes_since_last_save", s.stats.changes.Load()-a.savedChanges.Load())
	w.put("rdb_bgsave_in_progress", a.saving.Load())
	w.put("rdb_last_save_time", a.lastSave.Load())
	w.put("rdb_last_bgsave_status", "ok")
	w.put("rdb_last_bgsave_time_sec", a.lastSaveTook.Load())
	w.put("rdb_current_bgsave_time_sec", -1)
	w.put("rdb_saves", a.saves.Load())
	w.zeros("rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded")
	w.put("aof_enabled", 1) // the log is always kept, whatever appendonly says
	w.zeros("aof_rewrite_in_progress aof_rewrite_scheduled")
	w.put("aof_last_rewrite_time_sec", -1)
	w.put("aof_current_rewrite_time_sec", -1)
	w.put("aof_last_bgrewrite_status", "ok")
	w.zeros("aof_rewrites aof_rewrites_consecutive_failures")
	w.put("aof_last_write_status", "ok")
	w.zeros("aof_last_cow_size module_fork_in_progress module_fork_last_cow_size")
	if s.loading.Load() {
		w.put("loading_start_time", s.started.Unix())
		w.zeros("loading_total_bytes loading_rdb_used_mem loading_loaded_bytes")
		w.put("loading_loaded_perc", 0.0)
		w.put("loading_eta_seconds", 1)
		return
	}
	log := s.wal.Stats()
	w.put("aof_current_size", log.DiskBytes)
	w.put("aof_base_size", 0)
	w.put("aof_pending_rewrite", 0)
	w.put("aof_buffer_length", log.End-log.Written)
	w.zeros("aof_pending_bio_fsync aof_delayed_fsync")
}

func (s *Server) infoCPU(w *infoWriter) {
	for _, who := range []struct {
		name string
		id   int
	}{{"", unix.RUSAGE_SELF}, {"_children", unix.RUSAGE_CHILDREN}} {
		var u unix.Rusage
		_ = unix.Getrusage(who.id, &u) // zeros where it fails
		w.put("used_cpu_sys"+who.name, fmt.Sprintf("%d.%06d", u.Stime.Sec, u.Stime.Usec))
		w.put("used_cpu_user"+who.name, fmt.Sprintf("%d.%06d", u.Utime.Sec, u.Utime.Usec))
	}
	// No thread is the main one: these are the same as the process's.
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	w.put("used_cpu_sys_main_thread", fmt.Sprintf("%d.%06d", u.Stime.Sec, u.Stime.Usec))
	w.put("used_cpu_user_main_thread", fmt.Sprintf("%d.%06d", u.Utime.Sec, u.Utime.Usec))
}

func (s *Server) infoCluster(w *infoWriter) { w.put("cluster_enabled", s.cfg.V.ClusterEnabled.Load()) }

func (s *Server) infoKeyspace(w *infoWriter) {
	if s.loading.Load() {
		return
	}
	if keys := s.store.Keys(); keys > 0 {
		expires, mean := s.store.Deadlines()
		ttl := int64(0)
		if expires > 0 {
			ttl = max(0, mean-s.clock())
		}
		w.put("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=%d", keys, expires, ttl))
	}
}

func (s *Server) infoCairn(w *infoWriter) {
	if s.loading.Load() {
		return
	}
	log, m := s.wal.Stats(), s.store.Metrics()
	w.put("log_first_offset", log.First)
	w.put("log_end_offset", log.End)
	w.put("log_written_offset", log.Written)
	w.put("log_synced_offset", log.Synced)
	w.put("log_bytes", log.DiskBytes)
	w.put("log_segments", log.Segments)
	w.put("log_pins", log.Pins)
	w.put("log_last_fsync_ms", log.FsyncMs)
	w.put("log_failures", log.Failures)
	w.put("applied_offset", m.Applied)
	w.put("durable_offset", m.Durable)
	w.put("pending_bytes", m.Pending)
	w.put("pending_bytes_limit", m.PendingLimit)
	w.put("recovery_log_size", s.cfg.V.RecoveryLogSize.Load())
	w.put("replay_bytes_per_sec", s.admin.replaySpeed.Load())
	w.put("client_memory_bytes", s.memory.total())
	w.put("client_memory_limit_bytes", s.memory.hard.Load())
	s.infoStore(w, &m)
}

func (s *Server) infoStore(w *infoWriter, m *engine.Metrics) {
	gate := "open"
	if m.GateClosed {
		gate = "closed"
	}
	w.put("gate", gate)
	w.put("data_keys", m.Keys)
	w.put("data_bytes", m.Bytes)
	w.put("disk_bytes", m.DiskBytes)
	w.put("disk_blob_bytes", m.BlobBytes)
	w.put("disk_free_bytes", m.DiskFree)
	w.put("compaction_debt_bytes", m.CompactionDebt)
	w.put("compactions_in_progress", m.Compactions)
	w.put("flushes", m.Flushes)
	w.put("read_amplification", m.ReadAmp)
	w.put("l0_sublevels", m.L0Sublevels)
	w.put("memtable_bytes", m.MemTableBytes)
	w.put("block_cache_bytes", m.BlockCacheBytes)
	w.put("record_cache_limit_bytes", m.CacheBytes)
	w.put("record_cache_rows", m.CacheRows)
	w.put("record_cache_hits", m.CacheHits)
	w.put("record_cache_misses", m.CacheMisses)
	w.put("record_cache_briefs", m.Briefs)
	w.put("record_cache_brief_hits", m.BriefHits)
	w.put("filter_bytes", m.FilterBytes)
	w.put("filter_limit_bytes", m.FilterLimit)
	w.put("filter_slots", m.FilterSlots)
	w.put("filter_denied", m.FilterDenied)
	w.put("filter_passed", m.FilterPassed)
	w.put("filter_built", m.FilterBuilt)
	w.put("damaged_blocks", m.Corruptions)
}
