package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cairn/engine/layout"
)

// Space comes back without anyone asking. Pebble compacts for the sake of what is written: after a mass expiry
// nothing is, and tombstones and what they cover would stay as long as the node is idle. So deleted bytes are counted
// by ranges of slots, those of a counter page, and ranges with much garbage are compacted one at a time.
//
// Overwritten values are not counted: new values of the same size make Pebble compact by itself.

const (
	// garbageRow is about what a deleted key costs beyond its payload: its tombstone, the row of the expiry index.
	garbageRow = 64
	// garbageMin is how much garbage there must be in all for compaction to pay, bytes.
	garbageMin = 4 << 20
	// garbageStill: while garbage grows faster than by this part from one look to the next, waiting saves work.
	garbageStill = 10
	// garbagePatience is after how many looks waiting ends.
	garbagePatience = 12
	// garbageRun bounds what one compaction covers, bytes of tables about, so that others have their turn.
	garbageRun = 128 << 20
)

// garbage counts deleted bytes by counter page.
type garbage struct {
	pages [layout.Pages]atomic.Int64

	// The collector's own.
	last int64
	seen int
}

func (g *garbage) add(slot uint16, n int64) { g.pages[slot/layout.PageSlots].Add(n) }

// note counts what a change of a slot's counters left behind.
func (g *garbage) note(slot uint16, d layout.Counters) {
	if n := max(-d.Bytes, 0) + max(-d.Keys, 0)*garbageRow; n > 0 {
		g.add(slot, n)
	}
}

// collectLoop gives space back until the store closes.
func (s *Store) collectLoop() {
	defer s.background.Done()
	tick := time.NewTicker(s.opts.GarbageInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if err := s.collect(s.life); err != nil && s.life.Err() == nil {
			s.opts.Logf("compaction of deleted data failed", "err", err)
		}
	}
}

// collect compacts the ranges that are mostly garbage, if there are any and it is time.
func (s *Store) collect(ctx context.Context) error {
	g := &s.garbage
	wanted, total := s.garbagePages()
	if total < garbageMin {
		g.last, g.seen = total, 0
		return nil
	}
	growing := total > g.last+g.last/garbageStill
	g.last = total
	if g.seen++; (growing || s.drops.waits()) && g.seen < garbagePatience {
		return nil
	}
	g.seen = 0
	// What was deleted up to now has to be in Pebble for a compaction to meet it.
	var counted [layout.Pages]int64
	for p := range counted {
		counted[p] = g.pages[p].Load()
	}
	if err := s.Apply(); err != nil {
		s.fail(err)
		return err
	}
	for p := 0; p < layout.Pages; {
		if !wanted[p] {
			p++
			continue
		}
		end, err := s.garbageRunFrom(p, &wanted)
		if err != nil {
			return err
		}
		if err := s.compactPages(ctx, p, end); err != nil {
			return err
		}
		for ; p < end; p++ {
			g.pages[p].Add(-counted[p])
		}
	}
	return nil
}

// garbagePages says which pages are worth a compaction: a third of what they hold is dead. total is what those have.
func (s *Store) garbagePages() (wanted [layout.Pages]bool, total int64) {
	for p := range wanted {
		dead := s.garbage.pages[p].Load()
		if dead == 0 {
			continue
		}
		live := int64(0)
		for slot := p * layout.PageSlots; slot < (p+1)*layout.PageSlots; slot++ {
			c := s.SlotCounters(uint16(slot))
			live += c.Bytes + c.Keys*garbageRow
		}
		if dead*2 > live {
			wanted[p], total = true, total+dead
		}
	}
	return wanted, total
}

// garbageRunFrom gives the end of the run of wanted pages that begins at p, cut where it gets large.
func (s *Store) garbageRunFrom(p int, wanted *[layout.Pages]bool) (end int, err error) {
	size := uint64(0)
	for end = p; end < layout.Pages && wanted[end] && size < garbageRun; end++ {
		for _, space := range []byte{layout.SpaceSlot, layout.SpaceBulk} {
			lo, hi := pageRange(space, end, end+1)
			n, err := s.db.EstimateDiskUsage(lo, hi)
			if err != nil {
				return end, fmt.Errorf("size of slots from %d: %w", end*layout.PageSlots, err)
			}
			size += n
		}
	}
	return end, nil
}

func pageRange(space byte, p, end int) (lo, hi []byte) {
	return layout.SlotRange(space, uint16(p*layout.PageSlots), uint16(end*layout.PageSlots-1))
}

// compactPages compacts the rows of some pages, then rests as long as that took, so that it never has more than half
// of the disk's time.
func (s *Store) compactPages(ctx context.Context, p, end int) error {
	began := time.Now()
	for _, space := range []byte{layout.SpaceSlot, layout.SpaceBulk} {
		lo, hi := pageRange(space, p, end)
		if err := s.db.Compact(ctx, lo, hi, false); err != nil {
			return fmt.Errorf("compact slots %d to %d: %w", p*layout.PageSlots, end*layout.PageSlots-1, err)
		}
	}
	took := time.Since(began)
	s.opts.Logf("space given back", "from", p*layout.PageSlots, "to", end*layout.PageSlots-1, "took", took.Round(time.Millisecond))
	rest := time.NewTimer(took)
	defer rest.Stop()
	select {
	case <-s.stop:
	case <-rest.C:
	}
	return ctx.Err()
}
