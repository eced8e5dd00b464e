package cache

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const raceSlots = 64

// rig is a small engine: slot locks, a cut lock, a store below, one applier. Each slot's truth is a map under the
// slot's lock, and every reader compares what cache and store say together with it.
type rig struct {
	c     *Cache
	locks [raceSlots]sync.RWMutex
	truth [raceSlots]map[string]string
	cut   sync.RWMutex

	dropsMu sync.Mutex
	drops   [2][]uint16
	dropped [raceSlots]atomic.Uint64 // epoch of the last drop

	belowMu sync.RWMutex
	below   [raceSlots]map[string]string
	applied uint64
}

// lookBelow reads the store: nothing, if a drop that it does not have yet hides the slot.
func (g *rig) lookBelow(slot uint16) (rows map[string]string, hidden bool) {
	return g.below[slot], g.dropped[slot].Load() > g.applied
}

func (g *rig) write(r *rand.Rand, slot uint16, key string) {
	g.locks[slot].Lock()
	defer g.locks[slot].Unlock()
	g.cut.RLock()
	defer g.cut.RUnlock()
	h := testHash(key)
	switch n := r.IntN(100); {
	case n == 0:
		g.dropsMu.Lock()
		g.drops[g.c.Epoch()&1] = append(g.drops[g.c.Epoch()&1], slot)
		g.dropsMu.Unlock()
		g.dropped[slot].Store(g.c.Epoch())
		g.c.DropSlot(slot)
		clear(g.truth[slot])
	case n < 20:
		g.c.Delete(KindRecord, slot, h, []byte(key))
		delete(g.truth[slot], key)
	default:
		val := fmt.Sprint(r.Uint64(), strings.Repeat("v", r.IntN(300)))
		g.c.Put(KindRecord, slot, h, []byte(key), []byte(val))
		g.truth[slot][key] = val
	}
}

func (g *rig) read(t *testing.T, slot uint16, key string) {
	g.c.AheadIndex(slot, testHash(key))
	g.c.AheadRow(slot, testHash(key))
	g.locks[slot].RLock()
	defer g.locks[slot].RUnlock()
	h := testHash(key)
	want, exists := g.truth[slot][key]
	raw, state := g.c.Get(KindRecord, slot, h, []byte(key), nil)
	got := string(raw)
	if state == Miss {
		g.belowMu.RLock()
		rows, hidden := g.lookBelow(slot)
		val, ok := rows[key]
		g.belowMu.RUnlock()
		if ok && !hidden {
			got, state = val, Hit
			g.c.Fill(KindRecord, slot, h, []byte(key), []byte(val))
		} else {
			state = Absent
			g.c.FillAbsent(KindRecord, slot, h, []byte(key))
		}
	}
	if (state == Hit) != exists || got != want {
		t.Errorf("slot %d %s: %d %.30q, want %v %.30q", slot, key, state, got, exists, want)
	}
	if state == Hit {
		g.c.Access(KindRecord, slot, h, []byte(key))
		g.c.SetAccess(KindRecord, slot, h, []byte(key), 5, 5)
	}
}

func (g *rig) scan(t *testing.T, buf *RowBuf, slot uint16) {
	g.locks[slot].RLock()
	defer g.locks[slot].RUnlock()
	dirty, _, _ := g.c.ScanDirty(buf, slot, 0, 0)
	got := map[string]string{}
	g.belowMu.RLock()
	if rows, hidden := g.lookBelow(slot); !hidden {
		maps.Copy(got, rows)
	}
	g.belowMu.RUnlock()
	for _, r := range dirty {
		if r.Deleted {
			delete(got, string(r.Key))
		} else {
			got[string(r.Key)] = string(r.Val)
		}
	}
	if !maps.Equal(got, g.truth[slot]) {
		t.Errorf("slot %d: a scan finds %d keys, want %d", slot, len(got), len(g.truth[slot]))
	}
}

func (g *rig) apply() {
	g.cut.Lock()
	epoch := g.c.Cut()
	g.cut.Unlock()
	type put struct {
		slot     uint16
		key, val string
		deleted  bool
	}
	var batch []put
	g.c.Frozen(func(slot uint16, rows []Row) bool {
		for _, r := range rows {
			batch = append(batch, put{slot, string(r.Key), string(r.Val), r.Deleted})
		}
		return true
	})
	g.belowMu.Lock()
	for _, slot := range g.drops[epoch&1] {
		clear(g.below[slot])
	}
	g.drops[epoch&1] = nil
	for _, p := range batch {
		if p.deleted {
			delete(g.below[p.slot], p.key)
		} else {
			g.below[p.slot][p.key] = p.val
		}
	}
	g.applied = epoch
	g.belowMu.Unlock()
	g.c.Applied()
}

func TestConcurrent(t *testing.T) {
	g := &rig{c: New(512 << 10)}
	for slot := range raceSlots {
		g.truth[slot], g.below[slot] = map[string]string{}, map[string]string{}
	}
	steps := 30000
	if testing.Short() {
		steps = 5000
	}
	var workers, applier sync.WaitGroup
	var done atomic.Bool
	for w := range 4 {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			var buf RowBuf
			for i := range steps {
				slot := uint16(r.IntN(raceSlots))
				key := fmt.Sprintf("%d-%d", slot, r.IntN(60))
				switch n := r.IntN(100); {
				case n < 45:
					g.write(r, slot, key)
				case n < 95:
					g.read(t, slot, key)
				default:
					g.scan(t, &buf, slot)
				}
				if w == 0 && i%1000 == 0 {
					g.c.SetNow(uint32(i))
					g.c.SetLimit(int64(256<<10 + r.IntN(1<<20)))
					g.c.Stats()
				}
			}
		})
	}
	applier.Go(func() { // ends after the workers
		for !done.Load() {
			g.apply()
		}
	})
	workers.Wait()
	done.Store(true)
	applier.Wait()
	g.apply()
	g.apply()
	checkCache(t, g.c)
	for slot := range raceSlots {
		if !maps.Equal(g.below[slot], g.truth[slot]) {
			t.Errorf("slot %d: %d keys below in the end, want %d", slot, len(g.below[slot]), len(g.truth[slot]))
		}
	}
	if g.c.Bytes() > g.c.Limit() {
		t.Errorf("all rows clean: %d bytes, limit %d", g.c.Bytes(), g.c.Limit())
	}
}
