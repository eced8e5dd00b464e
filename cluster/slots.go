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
	migrating map[uint16]*Peer // of this node's, to whom
	importing map[uint16]*Peer // to this node, from whom
	version   uint64           // changes with owner and noClaim

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
	for s, owner := range &m.slots.owner {
		if owner == p && (all || !m.slots.noClaim.Has(uint16(s))) {
			b.Set(uint16(s))
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
	claimed, bound, lost := 0, 0, 0
	var dirty []uint16
	for s := range slotsIn(claims) {
		claimed++
		owner := m.slots.owner[s]
		switch {
		case owner == p:
			m.slots.noClaim.Clear(s)
			bound++
		case m.unclaimed(s) || owner.Epoch < epoch:
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
		m.markUnclaimed(p, claims)
	}
	m.retarget(p, epoch)
	m.afterClaim(now, p, claimed, lost, dirty)
}

// rebind gives a slot to a node that claims it by right. Slots on their way are looked after: one that went elsewhere is
// not this node's to move any more, and one that was to come goes on coming only from the shard that it was in.
func (m *Machine) rebind(s uint16, p *Peer) {
	owner := m.slots.owner[s]
	if owner != nil {
		// Who had the slot before is what stops a stale claim; it must not be forgotten in a crash. A slot that had no
		// owner is only news.
		m.afterSave()
	}
	if owner == m.me {
		delete(m.slots.migrating, s)
	}
	if from := m.slots.importing[s]; from != nil && from != p {
		if from.Shard == p.Shard {
			m.slots.importing[s] = p
		} else {
			delete(m.slots.importing, s)
		}
	}
	m.assign(s, p)
}

// markUnclaimed marks the slots that a node has in the table and does not claim. It keeps them, so that clients are not
// told of a hole, but whoever claims them gets them.
func (m *Machine) markUnclaimed(p *Peer, claims *slot.Bitmap) {
	for s, owner := range &m.slots.owner {
		if owner == p && !claims.Has(uint16(s)) && !m.slots.noClaim.Has(uint16(s)) {
			m.slots.noClaim.Set(uint16(s))
			m.slots.version++ // what agreed with the table does not any more
		}
	}
}

// retarget follows a failover in the shard to which slots of this node are moving.
func (m *Machine) retarget(p *Peer, epoch uint64) {
	for s, to := range m.slots.migrating {
		if to != p && to.Shard == p.Shard && (to.replica() || to.Epoch < epoch) {
			m.slots.migrating[s] = p
			m.changed()
		}
	}
}

// afterClaim draws the conclusions for this node's own role and data.
func (m *Machine) afterClaim(now int64, p *Peer, claimed, lost int, dirty []uint16) {
	mine := m.me
	if m.me.replica() {
		mine = m.me.Primary
	}
	// All that this shard had is p's. If p has nothing but that, or is of this shard, it has taken over from it.
	if lost > 0 && mine != nil && mine.Slots == 0 &&
		(m.cfg.ReplicaMigration || claimed == lost || p.Shard == m.me.Shard) {
		m.note(Notice, "Configuration change detected. Reconfiguring myself as a replica of %s (%s)", p.ID, p.Nodename)
		m.becomeReplicaOf(now, p)
		return
	}
	m.leaveReplica(now)
	if len(dirty) > 0 {
		m.emit(DropSlots{After: m.afterSave(), Slots: dirty})
	}
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
