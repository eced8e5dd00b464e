package engine

import (
	"encoding/binary"

	"cairn/engine/layout"
	"cairn/engine/pending"
)

// Effects hears of each commit, under the slot locks, after its rows are visible: watchers, tracking, blocked
// clients and keyspace events are queued there, so that their order is the order of commits.
type Effects interface {
	Committed(t *Txn)
}

// SetEffects names who hears of commits. Without one, events are not even built.
func (s *Store) SetEffects(e Effects) { s.effects = e }

// End lets the locks go without changing anything. The end is what a reply that shows values of these slots
// waits for.
func (t *Txn) End() (end int64) {
	if !t.open {
		return 0
	}
	t.open = false
	for _, slot := range t.slots {
		end = max(end, t.s.slots[slot].end)
	}
	t.s.unlockSlots(t.slots, t.write)
	t.seen = max(t.seen, end)
	return end
}

// TakeSeen gives the highest end that End or Commit returned since the last call: what a reply made of several
// transactions waits for.
func (t *Txn) TakeSeen() (end int64) {
	end, t.seen = t.seen, 0
	return end
}

// changed says whether there is anything to commit.
func (t *Txn) changed() bool {
	return t.dirty > 0 || t.purged > 0 || t.nlogged > 0
}

// Commit makes the transaction's changes visible and lets the locks go. The end is the log offset that the
// reply waits for, also when nothing was changed. After ErrRerouted nothing was. A huge entry is with the kernel when
// Commit returns: it is not copied, so the bytes given to Log must stay as they are until then.
func (t *Txn) Commit() (end int64, err error) {
	if !t.write || !t.changed() {
		if len(t.events) > 0 && t.s.effects != nil {
			t.s.effects.Committed(t) // a missing key can be an event too
		}
		return t.End(), nil
	}
	return t.commit(t.finishEntry())
}

// CommitEntry is Commit with the entry's bytes as a primary sent them.
func (t *Txn) CommitEntry(entry []byte) (end int64, err error) {
	clear(t.long)
	t.long, t.pieces = t.long[:0], nil // what the handlers would have logged is not asked for
	return t.commit(entry)
}

func (t *Txn) commit(entry []byte) (int64, error) {
	s := t.s
	t.forgetUnnamed()
	rows := t.encode()
	s.cut.rlock(t.lane)
	if s.routing.Load() != t.routing {
		s.cut.runlock(t.lane)
		t.End()
		return 0, ErrRerouted
	}
	log := s.attached()
	end, borrows := t.appendEntry(log, entry)
	t.publish(rows)
	look := s.changes.add(t.lane, t.changeCount())
	s.cut.runlock(t.lane)
	for _, slot := range t.slots {
		s.slots[slot].end = end
	}
	for _, g := range t.adopted {
		g.taken = true
	}
	if s.effects != nil {
		s.effects.Committed(t)
	}
	t.open = false
	s.unlockSlots(t.slots, true)
	t.seen = max(t.seen, end)
	s.nudge()
	if look {
		s.nudgeHeavy()
	}
	if borrows {
		// No lock is held any more. Only now may the caller use the memory of its arguments for something else; that the
		// log has failed meanwhile is told to whoever waits for the end.
		log.AwaitTaken(end)
	}
	return end, nil
}

// encode gives the bytes of all changed records, one behind the other in t.arena, in the order of t.keys.
func (t *Txn) encode() []byte {
	at := len(t.arena)
	for _, k := range t.keys[:t.used] {
		if k.dirty && k.Exists() {
			n := len(t.arena)
			t.arena = append(t.arena, 0, 0, 0, 0)
			t.arena = k.Rec.Append(t.arena)
			binary.LittleEndian.PutUint32(t.arena[n:], uint32(len(t.arena)-n-4))
		}
	}
	return t.arena[at:]
}

// publish puts all rows where reads find them and moves the counters. It holds the cut lock's shared side.
func (t *Txn) publish(rows []byte) {
	s := t.s
	cur := s.pend[s.cache.Epoch()&1]
	t.publishDrops(cur)
	for _, d := range t.pieceDrops {
		s.drops.add(d)
	}
	for slot, tree := range t.elems {
		dst, grown := cur.Make(slot), 0
		tree.Scan(func(r pending.Row) bool {
			grown += dst.Put(r)
			s.keepElement(slot, r)
			return true
		})
		cur.Grow(grown)
	}
	for _, k := range t.keys[:t.used] {
		if !k.dirty {
			continue
		}
		if k.Exists() {
			if k.old.Type == 0 {
				s.noteKey(k.Slot, k.Hash)
			}
			n := binary.LittleEndian.Uint32(rows)
			if k.recordStands() {
				s.cache.Fill(kindRecord, k.Slot, k.Hash, k.Name, rows[4:4+n])
			} else {
				s.cache.Put(kindRecord, k.Slot, k.Hash, k.Name, rows[4:4+n])
			}
			rows = rows[4+n:]
		} else if k.old.Type != 0 {
			s.cache.Delete(kindRecord, k.Slot, k.Hash, k.Name)
		}
		if k.Rec.Form == layout.Rows {
			s.versions.of(k.Rec.Gen).Add(1)
		}
		t.publishValue(k)
		t.publishIndex(cur, k)
		t.count(k)
	}
}

// recordStands says that k's record is what it was: of a string in a row of its own that got another value of the same
// length. Its row is written already, or waits to be, and is not written again: as a row, in a flush and in each merge that
// would cost as much as the value, which merges mostly pass over. The cache has it as a clean row, where accesses are counted.
func (k *Key) recordStands() bool {
	r, old := &k.Rec, &k.old
	return r.Form == layout.ValueRow && old.Form == layout.ValueRow && r.Type == old.Type && r.Enc == old.Enc &&
		r.Deadline == old.Deadline && r.Arrived == old.Arrived && r.Count == old.Count &&
		len(r.Body) == 0 && recordSize(k) == k.oldSize // the old body was empty, too
}

func (t *Txn) publishDrops(cur *pending.Set) {
	s := t.s
	drop := t.dropped
	if t.dropAll {
		drop = t.slots
	}
	for _, slot := range drop {
		s.cache.DropSlot(slot)
		cur.Make(slot).Drop()
		cur.Grow(1) // so that the cut sees it even when nothing else is pending
		c := s.SlotCounters(slot)
		s.garbage.note(slot, layout.Counters{Keys: -c.Keys, Bytes: -c.Bytes})
		s.counters.clear(slot)
		s.noteDrop(slot)
		s.slots[slot].nextDeadline.Store(noDeadline)
		s.slots[slot].swept.Store(0)
		s.slots[slot].drops.Add(1)
	}
}

// publishValue keeps the value row in step with the record's form.
func (t *Txn) publishValue(k *Key) {
	switch {
	case k.Exists() && k.Rec.Form == layout.ValueRow:
		if k.setVal {
			t.s.cache.Put(kindValue, k.Slot, k.Hash, k.Name, k.value)
		}
	case k.old.Form == layout.ValueRow:
		t.s.cache.Delete(kindValue, k.Slot, k.Hash, k.Name)
	}
}

// publishIndex keeps the expiry index and the list of dropped generations in step with the record.
func (t *Txn) publishIndex(cur *pending.Set, k *Key) {
	oldAt, newAt := k.old.Deadline, k.Rec.Deadline
	if oldAt != newAt {
		p, grown := cur.Make(k.Slot), 0
		if oldAt != 0 {
			grown += p.Put(pending.Row{Key: layout.AppendDeadlineKey(nil, k.Slot, oldAt, k.Name), Deleted: true})
		}
		if newAt != 0 {
			grown += p.Put(pending.Row{Key: layout.AppendDeadlineKey(nil, k.Slot, newAt, k.Name)})
			t.s.slots[k.Slot].noteDeadline(newAt)
		}
		cur.Grow(grown)
	}
	if k.old.Form == layout.Rows && (k.Rec.Form != layout.Rows || k.Rec.Gen != k.old.Gen) && !t.moved(k) {
		d := layout.Drop{Chunks: k.old.Chunks(), Pieces: k.old.MayHavePieces(), Count: k.old.Count}
		switch {
		case d.Chunks:
			d.Count = k.old.Count/layout.ChunkBytes + 1
		case d.Pieces:
			d.Count += k.old.Bytes / layout.PieceBytes
		}
		row := pending.Row{Key: layout.AppendDropKey(nil, k.Slot, k.old.Gen), Val: d.Append(nil)}
		cur.Grow(cur.Make(k.Slot).Put(row))
		t.s.drops.add(drop{slot: k.Slot, gen: k.old.Gen, Drop: d})
	}
}

// moved says whether another key of the transaction has taken over the rows that k had.
func (t *Txn) moved(k *Key) bool {
	if !t.moves {
		return false
	}
	if t.holders == nil { // in a transaction of many moves each would search all keys
		t.holders = make(map[uint64]*Key)
		for _, other := range t.keys[:t.used] {
			if other.dirty && other.Rec.Form == layout.Rows {
				t.holders[other.Rec.Gen] = other
			}
		}
	}
	holder := t.holders[k.old.Gen]
	return holder != nil && holder != k
}

// recordSize is what a key counts for in its slot's bytes.
func recordSize(k *Key) int64 {
	r := &k.Rec
	if r.Type == 0 {
		return 0
	}
	n := len(k.Name) + len(r.Body)
	switch {
	case r.Form == layout.ValueRow:
		n += int(r.Count)
	case r.Form == layout.Rows:
		n += int(r.Bytes)
	}
	return int64(n)
}

func (t *Txn) count(k *Key) {
	var d layout.Counters
	d.Bytes = recordSize(k) - k.oldSize
	d.Keys = b2i(k.Exists()) - b2i(k.old.Type != 0)
	d.Large = b2i(k.Exists() && k.Rec.Form == layout.Rows) - b2i(k.old.Type != 0 && k.old.Form == layout.Rows)
	// A record that is gone has no deadline; k.old is as it was.
	d.Deadlines = b2i(k.Rec.Deadline != 0) - b2i(k.old.Deadline != 0)
	d.DeadlineSum = layout.DeadlineWeight(k.Rec.Deadline) - layout.DeadlineWeight(k.old.Deadline)
	t.s.counters.add(k.Slot, d)
	t.s.garbage.note(k.Slot, d)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
