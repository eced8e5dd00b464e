package engine

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/engine/pending"
)

// nudge wakes the applier when enough is pending.
func (s *Store) nudge() {
	if s.pendingNow() < s.opts.CutBytes {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pendingNow is what the epoch under way has gathered, bytes.
func (s *Store) pendingNow() int64 {
	cur, _ := s.cache.DirtyBytes()
	return cur + s.pend[s.cache.Epoch()&1].Bytes()
}

// Pending is what is committed and not yet in Pebble, bytes.
func (s *Store) Pending() int64 {
	cur, frozen := s.cache.DirtyBytes()
	return cur + frozen + s.pend[0].Bytes() + s.pend[1].Bytes()
}

// While the applier is behind but not out of room, a writer sleeps for every throttleBytes that are written, up
// to throttleMax when the room is all but used up: a measure of bytes, so that one fast writer is slowed as much
// as fifty slow ones.
const (
	throttleMax   = 4 * time.Millisecond
	throttleBytes = 256 << 10
)

// stuckFor is how long the applier makes no progress on a full disk before who waits for it is refused. A flush into the reserve is
// much faster.
const stuckFor = time.Second

// Reserve waits until there is room for a write of about n bytes. It comes before any lock: from half of the
// limit on writers are slowed in proportion, at the limit they wait for the applier. While the space gate is closed the
// applier may have to wait for somebody to free space: when it has not moved for stuckFor, they get ErrDiskFull.
func (s *Store) Reserve(n int) error { return s.reserve(n, s.Gate) }

// AwaitRoom is Reserve for those that nobody waits for: the start, a primary's stream, the background. Where a write would be
// refused they wait, until the disk has space again.
func (s *Store) AwaitRoom(n int) error { return s.reserve(n, func() error { return nil }) }

// reserve waits for room unless refused says why not to.
func (s *Store) reserve(n int, refused func() error) error {
	if err := s.attached().Reserve(n); err != nil {
		return err
	}
	limit := s.opts.pendingBytes()
	have := s.Pending()
	if have < limit/2 {
		return nil
	}
	if have < limit {
		if sum := s.written.Add(int64(n)); sum/throttleBytes != (sum-int64(n))/throttleBytes {
			time.Sleep(throttleMax * time.Duration(2*have-limit) / time.Duration(limit))
		}
		return nil
	}
	s.room.L.Lock()
	defer s.room.L.Unlock()
	moved, since := s.applied.Load(), time.Now()
	for s.Pending() >= limit && s.failed.Load() == nil {
		if at := s.applied.Load(); at != moved {
			moved, since = at, time.Now()
		} else if err := refused(); err != nil && time.Since(since) > stuckFor {
			return err
		}
		s.nudge()
		s.room.Wait()
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// applyLoop writes pending rows to Pebble until the store closes.
func (s *Store) applyLoop() {
	defer close(s.applierDone)
	tick := time.NewTicker(s.opts.CutInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-tick.C:
		}
		if err := s.Apply(); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *Store) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) {
		s.opts.Fatal(err)
	}
	s.room.Broadcast()
}

// group is what one cut froze, beside the rows.
type group struct {
	epoch   uint64
	applied int64
	state   layout.State
	history int64
	changes int64
}

// Apply cuts the pending rows at the log's end and writes them as one batch. The background does this by
// itself; a caller that needs the store to have caught up may do it too.
func (s *Store) Apply() error {
	s.applying.Lock()
	defer s.applying.Unlock()
	return s.applyHeld()
}

// applyHeld is Apply for who holds applying.
func (s *Store) applyHeld() error {
	g, ok := s.cutGroup()
	if !ok {
		return s.maintain(0)
	}
	b := s.db.NewBatchWithSize(s.batchSize(g))
	defer b.Close()
	if err := s.fillBatch(b, g); err != nil {
		return err
	}
	written := len(b.Repr())
	if err := s.db.Apply(b, pebble.NoSync); err != nil {
		return fmt.Errorf("apply group up to offset %d: %w", g.applied, err)
	}
	// The pending set goes first: a walk that no longer finds a record dirty must not find the mark either that
	// everything below is dropped, or it would not look into Pebble, which has the record.
	s.pend[g.epoch&1].Clear()
	s.cache.Applied()
	s.appliedEpoch, s.appliedHistory, s.changes.applied = g.epoch, g.history, g.changes
	s.applied.Store(g.applied)
	s.room.L.Lock()
	s.room.Broadcast()
	s.room.L.Unlock()
	return s.maintain(written)
}

// huge says that a group of so many bytes is a single command's doing: it is far more than writers may leave pending.
func (s *Store) huge(bytes int64) bool { return bytes > s.opts.pendingBytes()+s.opts.MemoryBudget/8 }

// batchSize is how much room a group's batch is given: all that it needs, since one that grows is copied each time. Until the
// log has the command of a huge group its arguments are there as well; then they are garbage.
func (s *Store) batchSize(g group) int {
	const besideRows = 64 << 10 // counters, the state
	_, frozen := s.cache.DirtyBytes()
	rows := frozen + s.pend[g.epoch&1].Bytes() // more than they take in a batch
	if s.huge(rows) {
		s.attached().AwaitTaken(g.applied)
		runtime.GC()
	}
	return int(rows) + besideRows
}

// cutGroup closes the epoch. Nothing inside waits: commits stand still meanwhile.
func (s *Store) cutGroup() (g group, ok bool) {
	s.cut.lock()
	defer s.cut.unlock()
	end := s.attached().End()
	if end == s.applied.Load() && s.pendingNow() == 0 && !s.stateDirty {
		return g, false
	}
	g.applied = end
	g.epoch = s.cache.Cut()
	s.drops.seal(g.epoch)
	g.state = layout.State{Applied: end, Recall: s.recallFrom(end), NextGen: s.nextGen.Load(), History: s.history}
	g.history, g.changes = s.histories.Load(), s.changes.sum()
	s.stateDirty = false
	s.counters.freeze()
	return g, true
}

// recallFrom is where entries begin that are executed and whose effect outside the store may be lost in a crash.
func (s *Store) recallFrom(end int64) int64 {
	if s.opts.Recall == nil {
		return end
	}
	return min(s.opts.Recall(end), end)
}

// fillBatch writes the group in the order of row keys, slot by slot, drops first.
func (s *Store) fillBatch(b *pebble.Batch, g group) error {
	frozen := s.pend[g.epoch&1]
	touched := append([]uint16(nil), frozen.Touched()...)
	slices.Sort(touched)
	if err := s.batchDrops(b, frozen, touched); err != nil {
		return err
	}
	var err error
	var row []byte
	s.cache.Frozen(func(slot uint16, rows []cache.Row) bool {
		for _, r := range rows {
			if r.Kind == kindRecord {
				row = layout.AppendRecordKey(row[:0], slot, r.Hash, r.Key)
			} else {
				row = layout.AppendValueKey(row[:0], slot, r.Key)
			}
			if err = put(b, row, r.Val, r.Deleted); err != nil {
				return false
			}
		}
		return true
	})
	for _, slot := range touched {
		frozen.Slot(slot).Ascend(func(r pending.Row) bool {
			err = put(b, r.Key, r.Val, r.Deleted)
			return err == nil
		})
		if err != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	for p, page := range s.counters.frozen {
		if err := b.Set(layout.AppendPageKey(nil, p), layout.AppendPage(nil, page), nil); err != nil {
			return err
		}
	}
	return b.Set(layout.StateKey(), g.state.Append(nil), nil)
}

func put(b *pebble.Batch, row, val []byte, deleted bool) error {
	if deleted {
		return b.Delete(row, nil)
	}
	return b.Set(row, val, nil)
}

// batchDrops writes one range tombstone for each run of neighbouring dropped slots.
func (s *Store) batchDrops(b *pebble.Batch, frozen *pending.Set, touched []uint16) error {
	for i := 0; i < len(touched); i++ {
		if !frozen.Slot(touched[i]).Dropped() {
			continue
		}
		first, last := touched[i], touched[i]
		for i+1 < len(touched) && touched[i+1] == last+1 && frozen.Slot(touched[i+1]).Dropped() {
			i++
			last = touched[i]
		}
		for _, space := range []byte{layout.SpaceSlot, layout.SpaceBulk} {
			lo, hi := layout.SlotRange(space, first, last)
			if err := b.DeleteRange(lo, hi, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// maintain follows a group: dropped values give their rows back, and a flush moves the durable offset when
// recovery would otherwise have too much to do.
func (s *Store) maintain(written int) error {
	if err := s.drops.run(s); err != nil {
		return err
	}
	s.yieldToFilters()
	s.sinceFlush += int64(written)
	s.hugeGroup = s.hugeGroup || s.huge(int64(written))
	applied := s.applied.Load()
	if applied == s.durable.Load() || s.flushing.Load() {
		return nil
	}
	due := s.sinceFlush >= s.opts.memTableBytes()*3/4 ||
		s.logHeavy() ||
		time.Since(s.lastFlush) >= s.opts.RecoveryAge
	if !due {
		return nil
	}
	return s.startFlush(applied)
}
