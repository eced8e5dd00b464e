package cluster

import (
	"encoding/binary"
	"iter"
	"math/bits"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// Who owns which slot, and how that changes: a primary claims slots under its epoch, and the higher epoch has them.

// slotTable is who owns what.
type slotTable struct {
	owner     [slot.Count]*Peer
	noClaim   slot.Bitmap      // owned by one who no longer claims it
	migrating map[uint16]*Peer // of this node's, or of its primary's: to whom
	importing map[uint16]*Peer // to this node, or to its primary: from whom
	// unfinished are slots whose import was ended by hand without its last step: what is still at the source is the
	// truth, as it was before. Not saved.
	unfinished slot.Bitmap
	sentUnder  map[uint16]uint64    // of migrating: the target's epoch when the move began; not saved
	taken      map[uint16]takenFrom // at the end of their move to this node, from whom: see taken.go
	given      map[uint16]*Peer     // at the end of their move from this node, to whom, until it claims them; not saved
	word       map[uint16]word      // this replica's primary said that they came, and no header has shown it; not saved
	doubted    map[uint16]int64     // of the two: since when what a primary claims contradicts it, see openslots.go
	letGo      map[uint16]letGo     // taken from others by hand, a moment ago; not saved
	version    uint64               // changes with owner and noClaim

	runs   []slotRun // of equal owners, all slots in rising order; see runsNow
	runsAt uint64    // version

	shared   *slot.Bitmap // of sharedOf, for headers; never changed
	sharedOf *Peer
	sharedAt uint64 // its changed
}

// slotsIn gives the slots of a bitmap in rising order.
func slotsIn(b *slot.Bitmap) iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for at := 0; at < len(b); at += 8 {
			for w := binary.LittleEndian.Uint64(b[at:]); w != 0; w &= w - 1 {
				if !yield(uint16(at*8 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}

// slotRun is slots, next to each other, of one owner; nil: of nobody.
type slotRun struct {
	slot.Range
	owner *Peer
}

// runsNow gives the table as runs, valid until it changes: a walk over single slots for every view and save would be most of
// their cost while slots move.
func (t *slotTable) runsNow() []slotRun {
	if t.runsAt == t.version {
		return t.runs
	}
	t.runs, t.runsAt = t.runs[:0], t.version
	for from := 0; from < slot.Count; {
		owner, end := t.owner[from], from+1
		for end < slot.Count && t.owner[end] == owner {
			end++
		}
		t.runs = append(t.runs, slotRun{slot.Range{First: uint16(from), Last: uint16(end - 1)}, owner})
		from = end
	}
	return t.runs
}

// owner gives who has a slot; nil: nobody.
func (m *Machine) owner(s uint16) *Peer { return m.slots.owner[s] }

// unclaimed says that a slot is for whoever claims it.
func (m *Machine) unclaimed(s uint16) bool {
	return m.slots.owner[s] == nil || m.slots.noClaim.Has(s)
}

// assign gives a slot to a node, from whoever had it.
func (m *Machine) assign(s uint16, p *Peer) {
	if m.slots.owner[s] == p {
		m.slots.noClaim.Clear(s)
		return
	}
	m.unassign(s)
	m.slots.version++
	if p != m.me {
		m.slots.unfinished.Clear(s)
	}
	m.slots.owner[s] = p
	p.Slots++
	p.changed = m.slots.version
	if p.Slots == 1 && p.primary() && !p.any(wire.FlagMigrateTo) && m.replicas > 0 {
		// Others have replicas, so one of these may come to it, too.
		p.Flags |= wire.FlagMigrateTo
	}
	m.slotsChanged()
}

// unassign takes a slot from its owner.
func (m *Machine) unassign(s uint16) {
	p := m.slots.owner[s]
	if p == nil {
		return
	}
	m.slots.version++
	m.slots.owner[s] = nil
	m.slots.noClaim.Clear(s)
	p.Slots--
	p.changed = m.slots.version
	m.slotsChanged()
}

func (m *Machine) slotsChanged() {
	m.changed()
	m.reroute = true
	m.askCheck()
}

// unassignAll takes all slots from a node.
func (m *Machine) unassignAll(p *Peer) {
	for s := 0; s < slot.Count && p.Slots > 0; s++ {
		if m.slots.owner[s] == p {
			m.unassign(uint16(s))
		}
	}
}

// bitmapOf gives a node's slots. The bitmap is shared by all who ask until they change.
func (m *Machine) bitmapOf(p *Peer) *slot.Bitmap {
	t := &m.slots
	if t.shared == nil || t.sharedOf != p || t.sharedAt != p.changed {
		t.shared, t.sharedOf, t.sharedAt = m.collect(p, true), p, p.changed
	}
	return t.shared
}

// collect makes a bitmap of a node's slots, with or without those that it no longer claims.
func (m *Machine) collect(p *Peer, all bool) *slot.Bitmap {
	b := new(slot.Bitmap)
	if p.Slots == 0 {
		return b
	}
	for _, run := range m.slots.runsNow() {
		if run.owner != p {
			continue
		}
		for s := int(run.First); s <= int(run.Last); s++ {
			if all || !m.slots.noClaim.Has(uint16(s)) {
				b.Set(uint16(s))
			}
		}
	}
	return b
}

// agrees says that the table gives a node exactly these slots. from is who sent them; it remembers the answer, so that
// the same claim is not compared again.
func (m *Machine) agrees(from, p *Peer, claims *slot.Bitmap) bool {
	if from.claimedAt == m.slots.version && from.claimed != nil &&
		(from.claimed == claims || *from.claimed == *claims) {
		from.claimed = claims // the same one comes again, most often
		return true
	}
	if claims.Count() != p.Slots {
		return false
	}
	for s := range slotsIn(claims) {
		if m.slots.owner[s] != p || m.slots.noClaim.Has(s) {
			return false
		}
	}
	from.claimed, from.claimedAt = claims, m.slots.version
	return true
}

// claim takes a primary's claim to slots under an epoch, from its own header or from an UPDATE about it.
func (m *Machine) claim(now int64, p *Peer, epoch uint64, claims *slot.Bitmap) {
	mine := m.me // whose slots are this shard's
	if m.me.replica() {
		mine = m.me.Primary
	}
	claimed, bound, lost, back := 0, 0, 0, false
	var dirty []uint16
	for s := range slotsIn(claims) {
		claimed++
		owner := m.slots.owner[s]
		switch {
		case owner == p:
			if epoch >= p.Epoch { // in an old message it may be what has gone since
				m.slots.noClaim.Clear(s)
			}
			bound++
		case len(m.slots.letGo) > 0 && m.isLetGo(now, s, p, epoch):
		case owner != nil && owner == mine && owner.Epoch < epoch && m.isBack(s, p):
			back = m.me.primary() // a replica leaves it to its primary to say so
		case m.unclaimed(s) || owner.Epoch < epoch || m.yields(s, p, epoch):
			if owner != nil && owner == mine {
				lost++
			}
			if owner == m.me && m.data.SlotKeys(s) > 0 {
				dirty = append(dirty, s)
			}
			m.rebind(s, p)
			bound++
		}
	}
	// An epoch below the one that it is known to have is that of an old message: what is missing there may have come since.
	if p.Slots > bound && epoch >= p.Epoch {
		m.markUnclaimed(now, p, claims)
	}
	if back {
		m.claimAnew(now, p)
	}
	m.retarget(p, epoch)
	m.afterClaim(now, p, claimed, lost, dirty)
}

// markUnclaimed marks the slots that a node has in the table and does not claim. It keeps them, so that clients are not
// told of a hole, but whoever claims them gets them.
//
// What this replica's primary said of a slot outlives that one's headers, nobody else's: a mark that is missing would go to
// others as a claim under an epoch that never had it.
func (m *Machine) markUnclaimed(now int64, p *Peer, claims *slot.Bitmap) {
	mine := p == m.me.Primary
	for s, owner := range &m.slots.owner {
		if owner == p && !claims.Has(uint16(s)) && !m.slots.noClaim.Has(uint16(s)) && !(mine && m.hasWord(now, uint16(s))) {
			m.slots.noClaim.Set(uint16(s))
			m.slots.version++ // what agreed with the table does not any more
		}
	}
}

// afterClaim draws the conclusions for this node's own role and data.
func (m *Machine) afterClaim(now int64, p *Peer, claimed, lost int, dirty []uint16) {
	mine := m.me
	if m.me.replica() {
		mine = m.me.Primary
	}
	if lost > 0 && mine != nil && mine.Slots == 0 {
		if heir := m.heir(p, claimed == lost); heir != nil {
			m.note(Notice, "Configuration change detected. Reconfiguring myself as a replica of %s (%s)", heir.ID, heir.Nodename)
			m.becomeReplicaOf(now, heir)
			return
		}
	}
	m.leaveReplica(now)
	if lost > 0 && m.me.primary() {
		m.closeSettled() // also what went to another primary of this shard, where two were told to take over
	}
	if len(dirty) > 0 {
		m.emit(DropSlots{After: m.afterSave(), Slots: dirty})
	}
}

// heir is whom this node follows when p took the last of its shard's slots. A primary of this shard that has slots has taken
// over from it, also when the last one that was missed had gone to another shard before. Else p has, if all that it has is
// what was here, or if replicas may go to other shards.
func (m *Machine) heir(p *Peer, all bool) *Peer {
	for _, other := range m.peers {
		if other != m.me && other.primary() && other.Slots > 0 && other.Shard == m.me.Shard {
			return other
		}
	}
	if all || m.cfg.ReplicaMigration {
		return p
	}
	return nil
}

// leaveReplica makes a replica whose primary became a replica follow that one's primary.
func (m *Machine) leaveReplica(now int64) {
	p := m.me.Primary
	if p == nil || !p.replica() || p.Primary == nil || p.Primary == m.me || !p.Primary.primary() {
		return
	}
	to := p.Primary
	m.note(Notice, "I'm a sub-replica! Reconfiguring myself as a replica of grandmaster %s (%s)", to.ID, to.Nodename)
	m.becomeReplicaOf(now, to)
}

// tellOwner sends a node that claims slots of another one, which has them under a higher epoch, who that is: one at a
// time, its next message brings the next one.
func (m *Machine) tellOwner(sender *Peer, epoch uint64, claims *slot.Bitmap) {
	for s := range slotsIn(claims) {
		owner := m.slots.owner[s]
		if owner == sender || m.unclaimed(s) || owner.Epoch <= epoch {
			continue
		}
		if owner == m.me.Primary && len(m.slots.word) > 0 {
			continue // this replica has slots for it that no header of it has had yet
		}
		m.note(Verbose, "Node %s has old slots configuration, sending an UPDATE message about %s", sender.ID, owner.ID)
		// What is told must not be more than is saved, if it is about this node.
		after := uint64(0)
		if owner == m.me && m.must > m.saved {
			after = m.must
		}
		msg := m.header(wire.Update)
		msg.Update = wire.NodeUpdate{Epoch: owner.Epoch, ID: owner.ID, Slots: m.collect(owner, false)}
		m.send(sender, msg, after)
		return
	}
}

// hearUpdate takes what a member tells of who has slots.
func (m *Machine) hearUpdate(now int64, sender *Peer, u *wire.NodeUpdate) {
	p := m.byID[u.ID]
	if p == nil || p.handshake() || u.Slots == nil || p.Epoch >= u.Epoch && p != m.me {
		return
	}
	if p == m.me {
		// Nobody knows this node's epoch and slots better than itself.
		m.note(Notice, "Discarding UPDATE message about myself.")
		return
	}
	if m.tooFar(now, sender, u.Epoch) {
		return
	}
	m.setRolePrimary(p)
	m.raiseEpoch(p, u.Epoch)
	m.claim(now, p, u.Epoch, u.Slots)
}
