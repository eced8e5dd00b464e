package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/layout"
)

// The swap. What a crash leaves, step by step:
//
//	tables are written, old data is flushed       old set
//	the floor file admits both sets               old set, its log; the floor proves a little less of that log
//	the log is reset: its new chain is durable    old set; its history names the old chain, whose files stay
//	one version edit: old tables out, new ones in new set; its state row names the new history and offset
//	the floor file names the new offset           new set
//	the log is trimmed: the old chain goes        new set
//
// From before the flush until after the edit nobody is inside the store: all slots are held. So no entry is appended
// while the log is reset, and no cut can give the old rows an offset of the new log.

// span is all row keys.
var span = pebble.KeyRange{Start: []byte{layout.SpaceNode}, End: []byte{layout.SpaceBulk + 1}}

// Commit makes the new set the store's: as of offset of the log whose history is given, in the bytes of SetHistory.
// resetLog makes the log begin there (wal.Log.Reset); it is called when nobody can append. That history must have
// another counter than the log's present one, so that recovery can tell their chains apart, even if the id is the
// same.
//
// Errors. *DuplicateRowError, ErrDiskFull, ErrClosing and those of the file system: the old set stays as it is, and
// the Replacement is over. A failure once resetLog was called is final, since the old set no longer has its log:
// Options.Fatal is told too.
func (r *Replacement) Commit(history []byte, offset int64, resetLog func() error) error {
	if r.over {
		return errors.New("data set committed twice")
	}
	tables, err := r.tables()
	if err == nil {
		r.over = true
		err = r.s.swapSets(r, tables, history, offset, resetLog)
	}
	r.over = true
	r.rows.arena, r.rows.held = nil, nil
	cleared := clearReplacement(r.s.opts.FS, r.s.opts.Dir)
	r.s.replacing.Store(false)
	if err != nil {
		return errors.Join(fmt.Errorf("take over another data set: %w", err), cleared)
	}
	if cleared != nil {
		r.s.opts.Logf("leftovers of a data set that was taken over", "err", cleared) // they go at the next start
	}
	return nil
}

// DropAll replaces all data by none, durably, and gives its space back: for a node whose disk has no room for two
// sets, before it loads another. The arguments are those of Commit; the history is one of the node's own, so that
// nobody takes the empty set for a part of somebody's stream.
func (s *Store) DropAll(history []byte, offset int64, resetLog func() error) error {
	r, err := s.NewReplacement()
	if err != nil {
		return err
	}
	return r.Commit(history, offset, resetLog)
}

// tables writes the sorted rows as tables; those that came in order are there already.
func (r *Replacement) tables() ([]string, error) {
	if r.ordered != nil {
		return r.ordered.paths, r.ordered.finish()
	}
	w := r.s.newTableWriter(r.dir, r.rows.bytes)
	n := 0
	err := r.rows.each(func(key, val []byte) error {
		if n++; n%mergeEvery == 0 {
			if err := errors.Join(r.rows.space(), r.rows.ended()); err != nil {
				return err
			}
		}
		return w.put(key, val)
	})
	return w.paths, w.close(err)
}

// swapSets puts the tables of r in the place of everything.
func (s *Store) swapSets(r *Replacement, tables []string, history []byte, offset int64, resetLog func() error) error {
	if err := s.Flush(); err != nil { // most of what the edit would have to wait for
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	// A flush that began before would raise the floor to an offset of the old log.
	if err := s.waitFlushed(); err != nil {
		return err
	}
	// Watchers and the like hear of it as of FLUSHALL.
	t := s.NewTxn()
	t.BeginAll(true, Forever)
	held := time.Now()
	err := s.swapHeld(r, tables, history, offset, resetLog)
	if err == nil && s.effects != nil {
		t.dropAll = true
		s.effects.Committed(t)
	}
	t.dropAll = false
	t.End()
	if err != nil {
		return err
	}
	s.opts.Logf("data set replaced", "keys", r.keys, "tables", len(tables), "offset", offset, "held", time.Since(held).Round(time.Millisecond))
	s.room.L.Lock()
	s.room.Broadcast() // nothing is pending any more
	s.room.L.Unlock()
	if err := s.flushed(offset, s.appliedHistory, s.changes.applied); err != nil {
		s.fail(err)
		return err
	}
	return nil
}

// swapHeld is the part of the swap while all slots are held.
func (s *Store) swapHeld(r *Replacement, tables []string, history []byte, offset int64, resetLog func() error) error {
	s.reserveGenerations(r.gens)
	state := layout.State{Applied: offset, Recall: offset, NextGen: s.nextGen.Load(), History: history}
	node, err := s.writeNodeTable(r, state)
	if err != nil {
		return err
	}
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("flush the old data set: %w", err)
	}
	if err := s.admit(offset); err != nil {
		return err
	}
	if err := resetLog(); err != nil {
		err = fmt.Errorf("begin the log of the new data set: %w", err)
		s.fail(err)
		return err
	}
	if _, err := s.db.IngestAndExcise(context.Background(), append(tables, node), nil, nil, span); err != nil {
		err = fmt.Errorf("take over %d tables: %w", len(tables)+1, err)
		s.fail(err)
		return err
	}
	s.cut.lock()
	defer s.cut.unlock()
	s.forgetAll()
	s.counters.replace(r.counters)
	s.stands(state)
	s.durable.Store(offset)
	s.sinceFlush = 0
	return nil
}

// writeNodeTable writes the rows that say where the new set stands.
func (s *Store) writeNodeTable(r *Replacement, state layout.State) (path string, err error) {
	s.staging.Lock()
	s.stagedGen = max(s.stagedGen, state.NextGen)
	staged := s.stagedGen
	s.staging.Unlock()
	w := s.newTableWriter(s.opts.FS.PathJoin(r.dir, "node"), 0)
	if err := s.opts.FS.MkdirAll(w.dir, 0o755); err != nil {
		return "", err
	}
	for _, row := range r.nodeRows(state, staged) {
		if err := w.put(row[0], row[1]); err != nil {
			return "", w.close(err)
		}
	}
	return w.paths[0], w.close(nil)
}

// admit lets the floor file prove no more than both sets hold: the new one's offset is of another log and may be lower.
func (s *Store) admit(offset int64) error {
	s.floor.mu.Lock()
	defer s.floor.mu.Unlock()
	if !s.floor.cur.Exists || offset >= s.floor.cur.Applied {
		return nil
	}
	return s.floor.raise(offset)
}

// forgetAll forgets what memory knows of rows, those that are not in Pebble yet included. All slots and the whole cut
// lock are held, and nothing is frozen.
func (s *Store) forgetAll() {
	s.cache.DropAll()
	s.pend[0].Clear()
	s.pend[1].Clear()
	s.counters.replace(make([]layout.Counters, len(s.slots)))
	for i := range s.slots {
		st := &s.slots[i]
		st.end = 0
		st.nextDeadline.Store(0)
		st.swept.Store(0)
		st.drops.Add(1) // what is being staged was for the old set
		s.noteDrop(uint16(i))
	}
	s.drops.forget()
	s.garbage.forget()
}

// stands takes up where the store stands in its log. The whole cut lock is held.
func (s *Store) stands(state layout.State) {
	s.history, s.stateDirty = append([]byte(nil), state.History...), false
	s.appliedHistory = s.histories.Add(1)
	s.applied.Store(state.Applied)
	s.changes.applied = s.changes.sum()
	s.changes.durable.Store(s.changes.applied) // either caller's state is a durable one
}

// replace makes all counters those of another set, and clean. Who asks for one meanwhile holds no lock.
func (c *counters) replace(all []layout.Counters) {
	for i := range c.live {
		c.live[i].Store(&all[i])
	}
	for p := range c.dirty {
		c.dirty[p].Store(false)
	}
	c.frozen = nil
}

// forget gives up what waits: its rows are gone.
func (d *drops) forget() {
	d.mu.Lock()
	d.waiting = nil
	d.mu.Unlock()
}

// forget counts no garbage.
func (g *garbage) forget() {
	for p := range g.pages {
		g.pages[p].Store(0)
	}
}
