package server

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cairn/engine"
	"cairn/server/command"
)

// memoryUse is what the process holds, bytes.
type memoryUse struct {
	used     int64 // by objects, and by Pebble's caches outside the Go heap
	mapped   int64 // obtained from the system
	resident int64
	peak     int64 // the most used, as far as anybody looked
	machine  int64
	clients  int64
}

func (s *Server) memoryUse() (m memoryUse) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(samples)
	m.used, m.mapped = int64(samples[0].Value.Uint64()), int64(samples[1].Value.Uint64())
	m.resident = m.mapped
	if n := residentBytes(); n > 0 {
		m.resident = n
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.machine = int64(info.Totalram) * int64(info.Unit)
	}
	m.clients = s.memory.all()
	for {
		m.peak = s.admin.peakMemory.Load()
		if m.used <= m.peak || s.admin.peakMemory.CompareAndSwap(m.peak, m.used) {
			m.peak = max(m.peak, m.used)
			return m
		}
	}
}

// residentBytes is what the process has resident, 0 where the system does not say.
func residentBytes() int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	words := strings.Fields(string(raw))
	if len(words) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// freeKeeper returns free memory to the system when the process comes near its budget. Its zero value is ready.
type freeKeeper struct {
	next time.Time // not before it
}

const (
	returnNear  = 8                // one part of the budget that is left when it begins
	returnShare = 100              // one part of the time that it may take
	returnLeast = 64               // one part of the budget that makes it worth while
	returnRest  = 30 * time.Second // until the next, when it was not
)

// look is called each second. Allocations wait while memory is returned, so it is not done often where that is of no use.
func (k *freeKeeper) look(budget int64) {
	began := time.Now()
	if began.Before(k.next) {
		return
	}
	before := residentBytes()
	if before < budget-budget/returnNear {
		return
	}
	engine.ReturnFree()
	end := time.Now()
	rest := returnShare * end.Sub(began)
	if before-residentBytes() < budget/returnLeast {
		rest = max(rest, returnRest)
	}
	k.next = end.Add(rest)
}

func (s *Server) infoMemory(w *infoWriter) {
	m, v := s.memoryUse(), &s.cfg.V
	w.human("used_memory", m.used)
	w.human("used_memory_rss", m.resident)
	w.human("used_memory_peak", m.peak)
	w.put("used_memory_peak_perc", fmt.Sprintf("%.2f%%", percent(m.used, m.peak)))
	w.put("used_memory_overhead", m.used)
	w.zeros("used_memory_startup used_memory_dataset")
	w.put("used_memory_dataset_perc", "0.00%") // data is on disk
	w.put("allocator_allocated", m.used)
	w.put("allocator_active", m.mapped)
	w.put("allocator_resident", m.resident)
	w.human("total_system_memory", m.machine)
	w.zeros("used_memory_lua used_memory_vm_eval")
	w.put("used_memory_lua_human", "0B")
	w.zeros("used_memory_scripts_eval number_of_cached_scripts number_of_functions number_of_libraries")
	w.zeros("used_memory_vm_functions")
	w.human("used_memory_vm_total", 0)
	w.zeros("used_memory_functions")
	w.human("used_memory_scripts", 0)
	w.human("maxmemory", v.MaxMemory.Load())
	policy, _ := s.cfg.Value("maxmemory-policy")
	w.put("maxmemory_policy", policy)
	w.put("allocator_frag_ratio", ratio(m.mapped, m.used))
	w.put("allocator_frag_bytes", m.mapped-m.used)
	w.put("allocator_rss_ratio", ratio(m.resident, m.mapped))
	w.put("allocator_rss_bytes", m.resident-m.mapped)
	w.put("rss_overhead_ratio", 1.0)
	w.zeros("rss_overhead_bytes")
	w.put("mem_fragmentation_ratio", ratio(m.resident, m.used))
	w.put("mem_fragmentation_bytes", m.resident-m.used)
	w.zeros("mem_not_counted_for_evict mem_replication_backlog mem_total_replication_buffers mem_clients_slaves")
	w.put("mem_clients_normal", m.clients)
	w.put("mem_cluster_links", s.linkBytes())
	w.zeros("mem_aof_buffer")
	w.put("mem_allocator", "go")
	w.zeros("active_defrag_running lazyfree_pending_objects lazyfreed_objects")
}

func percent(part, whole int64) float64 { return 100 * ratio(part, whole) }

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// MemoryStats is MEMORY STATS.
func (s *Server) MemoryStats(x *command.Ctx) error {
	m := s.memoryUse()
	keys := s.store.Keys()
	type field struct {
		name  string
		value any
	}
	fields := []field{
		{"peak.allocated", m.peak},
		{"total.allocated", m.used},
		{"startup.allocated", 0},
		{"replication.backlog", 0},
		{"clients.slaves", 0},
		{"clients.normal", m.clients},
		{"cluster.links", 0},
		{"aof.buffer", 0},
		{"lua.caches", 0},
		{"functions.caches", 0},
		{"db.0", nil},
		{"overhead.total", m.used},
		{"keys.count", keys},
		{"keys.bytes-per-key", s.store.Bytes() / max(keys, 1)},
		{"dataset.bytes", s.store.Bytes()},
		{"dataset.percentage", 0.0},
		{"peak.percentage", percent(m.used, m.peak)},
		{"allocator.allocated", m.used},
		{"allocator.active", m.mapped},
		{"allocator.resident", m.resident},
		{"allocator-fragmentation.ratio", ratio(m.mapped, m.used)},
		{"allocator-fragmentation.bytes", m.mapped - m.used},
		{"allocator-rss.ratio", ratio(m.resident, m.mapped)},
		{"allocator-rss.bytes", m.resident - m.mapped},
		{"rss-overhead.ratio", 1.0},
		{"rss-overhead.bytes", 0},
		{"fragmentation", ratio(m.resident, m.used)},
		{"fragmentation.bytes", m.resident - m.used},
	}
	if keys == 0 {
		fields = append(fields[:10], fields[11:]...) // an empty database is not listed
	}
	x.W.Map(len(fields))
	for _, f := range fields {
		x.W.BulkString(f.name)
		switch v := f.value.(type) {
		case int:
			x.W.Int(int64(v))
		case int64:
			x.W.Int(v)
		case float64:
			x.W.Double(v)
		case nil:
			x.W.Map(3)
			for _, part := range []string{"overhead.hashtable.main", "overhead.hashtable.expires", "overhead.hashtable.slot-to-keys"} {
				x.W.BulkString(part)
				x.W.Int(0)
			}
		}
	}
	return nil
}

// MemoryDoctor is MEMORY DOCTOR.
func (s *Server) MemoryDoctor(x *command.Ctx) error {
	m, budget := s.memoryUse(), s.cfg.V.MemoryBudget.Load()
	text := fmt.Sprintf("Resident memory is %s of a memory-budget of %s, which is as it should be.\n", humanBytes(m.resident), humanBytes(budget))
	if m.resident > budget+budget/10 {
		text = fmt.Sprintf("Resident memory is %s, more than the memory-budget of %s and a tenth. Large values in flight and the buffers "+
			"of clients (%s) come on top of it: see CLIENT LIST.\n", humanBytes(m.resident), humanBytes(budget), humanBytes(m.clients))
	}
	x.W.Verbatim("txt", []byte(text))
	return nil
}

// MemoryMallocStats is MEMORY MALLOC-STATS.
func (s *Server) MemoryMallocStats(x *command.Ctx) error {
	all := metrics.All()
	var samples []metrics.Sample
	for _, d := range all {
		if strings.HasPrefix(d.Name, "/memory/classes/") {
			samples = append(samples, metrics.Sample{Name: d.Name})
		}
	}
	metrics.Read(samples)
	var b strings.Builder
	for _, m := range samples {
		fmt.Fprintf(&b, "%s %d\n", m.Name, m.Value.Uint64())
	}
	x.W.Verbatim("txt", []byte(b.String()))
	return nil
}

// MemoryPurge is MEMORY PURGE.
func (s *Server) MemoryPurge(x *command.Ctx) error {
	debug.FreeOSMemory()
	x.W.OK()
	return nil
}
