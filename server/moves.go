package server

import (
	"sync"
	"sync/atomic"
	"time"

	"cairn/engine"
	"cairn/internal/slot"
)

// How far slots have moved: the section Migration of INFO, and the same lines behind Redis's own in CLUSTER INFO.
// docs/resharding.md says what each tells.

// moveStats counts what moved since the node started, keys and bytes of their payloads.
type moveStats struct {
	keysOut, bytesOut atomic.Int64 // MIGRATE sent them, and they are deleted here
	keysIn, bytesIn   atomic.Int64 // RESTORE-ASKING brought them

	running       atomic.Int64 // MIGRATEs under way
	cachedSockets atomic.Int64 // connections kept for the next one

	rates moveRates
}

// arrived counts a RESTORE-ASKING that was executed.
func (m *moveStats) arrived(args [][]byte) {
	const payload = 3
	if len(args) > payload {
		m.keysIn.Add(1)
		m.bytesIn.Add(int64(len(args[payload])))
	}
}

// moveRates are the averages a second since INFO was last asked, or a little longer.
type moveRates struct {
	mu    sync.Mutex
	at    time.Time
	last  [4]int64
	rates [4]int64
}

// now gives keys out, bytes out, keys in, bytes in, a second.
func (m *moveStats) now() [4]int64 {
	r := &m.rates
	r.mu.Lock()
	defer r.mu.Unlock()
	span := time.Since(r.at)
	if span < rateSpan {
		return r.rates
	}
	counts := [4]int64{m.keysOut.Load(), m.bytesOut.Load(), m.keysIn.Load(), m.bytesIn.Load()}
	if !r.at.IsZero() {
		for i, n := range counts {
			r.rates[i] = int64(float64(n-r.last[i]) / span.Seconds())
		}
	}
	r.at, r.last = time.Now(), counts
	return r.rates
}

// keysBy are keys by what their slots are to this node.
type keysBy struct {
	migrating, importing, foreign   int64
	slotsOut, slotsIn, foreignSlots int
	dropping                        int64
	droppingSlots                   int
	foreignOnes                     slot.Bitmap
}

// keysOnTheWay counts keys that are not simply this node's. A slot whose keys wait to be dropped is not foreign.
func (s *Server) keysOnTheWay(r *engine.Routing) (n keysBy) {
	var drop slot.Bitmap
	for _, sl := range s.drops.list() {
		drop.Set(sl)
	}
	for i := range slot.Count {
		sl, state := uint16(i), r.Slots[i]
		if state == engine.SlotOwned {
			continue
		}
		keys := s.store.SlotCounters(sl).Keys
		switch owned := state&engine.SlotOwned != 0; {
		case owned && state&engine.SlotMigrating != 0:
			n.slotsOut++
			n.migrating += keys
		case owned:
		case state&engine.SlotImporting != 0:
			n.slotsIn++
			n.importing += keys
		case keys == 0:
		case drop.Has(sl):
			n.droppingSlots++
			n.dropping += keys
		default:
			n.foreignSlots++
			n.foreign += keys
			n.foreignOnes.Set(sl)
		}
	}
	return n
}

// rangesShown bounds a list of slots in INFO.
const rangesShown = 64

// someRanges lists slots for people, "..." behind those that are too many.
func someRanges(b *slot.Bitmap) string {
	var text []byte
	for i, r := range b.Ranges() {
		if i > 0 {
			text = append(text, ',')
		}
		if i == rangesShown {
			text = append(text, "..."...)
			break
		}
		text = r.Append(text)
	}
	return string(text)
}

// infoMigration writes the section; nothing without a cluster.
func (s *Server) infoMigration(w *infoWriter) {
	if s.loading.Load() || s.inCluster() != nil {
		return
	}
	m, n := &s.moves, s.keysOnTheWay(s.store.Routing())
	rates := m.now()
	w.put("migration_slots_migrating", n.slotsOut)
	w.put("migration_slots_importing", n.slotsIn)
	w.put("migration_keys_to_send", n.migrating)
	w.put("migration_keys_arrived", n.importing)
	w.put("migration_calls_running", m.running.Load())
	w.put("migration_keys_leaving", s.leaving.n.Load())
	w.put("migration_sent_keys", m.keysOut.Load())
	w.put("migration_sent_bytes", m.bytesOut.Load())
	w.put("migration_sent_keys_per_sec", rates[0])
	w.put("migration_sent_bytes_per_sec", rates[1])
	w.put("migration_received_keys", m.keysIn.Load())
	w.put("migration_received_bytes", m.bytesIn.Load())
	w.put("migration_received_keys_per_sec", rates[2])
	w.put("migration_received_bytes_per_sec", rates[3])
	w.put("migration_drop_slots", n.droppingSlots)
	w.put("migration_drop_keys", n.dropping)
	w.put("migration_dropped_keys", s.drops.keys.Load())
	w.put("migration_foreign_slots", n.foreignSlots)
	w.put("migration_foreign_keys", n.foreign)
	w.put("migration_foreign_ranges", someRanges(&n.foreignOnes))
}
