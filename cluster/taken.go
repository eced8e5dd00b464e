package cluster

import (
	"maps"
	"slices"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
)

// Slots that this primary took, at the end of their move, before the source knew of it. Until the source knows, it claims
// them still, and if it has got a higher epoch meanwhile (another slot came to it, or the two had the same epoch, which
// collision repairs) its claim is the stronger one:
//
//	source                                      target
//	                                            SETSLOT s NODE target, epoch 4
//	another slot comes, epoch 5
//	          ──── claims s, epoch 5 ────────▶  by epochs s is the source's again, and its keys here are dropped
//	SETSLOT s NODE target
//
// But the keys are here and nowhere else. So the target does not give such a slot back to the shard that it came from; it
// claims it anew, in a higher epoch. It does so until a header of that shard has shown that the slot is known to be gone, or
// it is told to move the slot there again; and a few times only, since two that both remember so could go on for ever. Its
// replicas remember, too, and do not take back what they were told when the slot came.
//
// nodes.conf has it as a slot that comes, and is this node's already.

// takenFrom is of whom a slot was taken.
type takenFrom struct {
	peer  *Peer
	again int   // how often it is claimed anew
	fresh int64 // until when a header without the slot may be older than the peer's claim to it; 0: none is
}

// takenAgain is how often at most: each time the source may have got another epoch before it heard of the last claim.
const takenAgain = 8

// A slot that goes there and back at once: this node gave it to the peer, takes it again, and has not heard of the peer's
// claim. That comes yet, and headers that the peer made before do not have the slot either. They do not show that it is gone.

// noteGiven keeps in mind that a slot was given to a node.
func (m *Machine) noteGiven(s uint16, to *Peer) {
	if m.slots.given == nil {
		m.slots.given = make(map[uint16]*Peer)
	}
	m.slots.given[s] = to
}

// noteTaken keeps in mind that a slot was taken.
func (m *Machine) noteTaken(now int64, s uint16, from *Peer) {
	taken := takenFrom{peer: from, again: takenAgain}
	if to := m.slots.given[s]; to != nil && to.Shard == from.Shard {
		taken.fresh = now + m.cfg.NodeTimeout
	}
	delete(m.slots.given, s)
	m.slots.taken[s] = taken
}

// A replica hears in its primary's stream that a slot has come before the primary's headers say so: they wait for a save,
// and one is for many slots. Until then a header without the slot shows nothing, and who takes over has the slot.
// With the slot comes a new epoch: a header that has it in an epoch above the one that was known when the word came ends that
// time, since from there on older headers can be told from newer ones.

// word is a primary's, that a slot came.
type word struct {
	until int64  // how long a header may be older
	epoch uint64 // the primary's, when it came
}

// noteWord keeps in mind that this replica's primary said that a slot came.
func (m *Machine) noteWord(now int64, s uint16) {
	if m.slots.word == nil {
		m.slots.word = make(map[uint16]word)
	}
	m.slots.word[s] = word{now + m.cfg.NodeTimeout, m.me.Primary.Epoch}
}

// hasWord says that a header of this replica's primary may be older than its word that the slot came.
func (m *Machine) hasWord(now int64, s uint16) bool {
	w, said := m.slots.word[s]
	return said && now < w.until
}

// isBack says that a primary's claim is to be answered, not heeded.
func (m *Machine) isBack(s uint16, p *Peer) bool {
	from, taken := m.slots.taken[s]
	if !taken || from.again == 0 || from.peer != p && from.peer.Shard != p.Shard {
		return false
	}
	to := m.slots.migrating[s]
	return to == nil || to != p && to.Shard != p.Shard
}

// hearTaken forgets what a primary knows to be gone. If it has a higher epoch now, it may have claimed the slot in that one,
// and such a claim may be on its way still.
//
// It comes after the header's claims, so that no slot is claimed that this very header takes away. sends: slots were on
// their way to the sender, who has its epoch from one of them, most likely. A new one here would be above that of the next
// slot it takes before it has heard of it, and redis-server would give that slot back, and drop its keys.
func (m *Machine) hearTaken(now int64, sender *Peer, msg *wire.Message, sends bool) {
	mine, known := m.me, false
	if m.me.replica() {
		mine = m.me.Primary
	}
	maps.DeleteFunc(m.slots.word, func(s uint16, w word) bool {
		return now >= w.until || sender == mine && msg.ConfigEpoch > w.epoch && msg.Slots.Has(s)
	})
	for s, to := range m.slots.given {
		if to.Shard == sender.Shard && msg.Slots.Has(s) || m.owner(s) != to {
			delete(m.slots.given, s)
		}
	}
	for s, from := range m.slots.taken {
		gone := (sender == mine && !m.hasWord(now, s) || m.isBack(s, sender)) && !msg.Slots.Has(s)
		switch {
		case from.fresh == 0 || sender.Shard != from.peer.Shard:
		case msg.Slots.Has(s):
			from.fresh = 0
			m.slots.taken[s] = from
		case now < from.fresh:
			gone = false
		}
		if gone || m.owner(s) != mine {
			delete(m.slots.taken, s)
			m.changed()
		}
		known = known || gone && m.owner(s) == m.me
	}
	if known && !sends && sender.Epoch > m.me.Epoch {
		m.claimAnew(now, sender)
	}
}

// sendsTo says that a slot is on its way from this node to p, or was until just now: between two slots that a tool moves
// there is a moment in which none is.
func (m *Machine) sendsTo(now int64, p *Peer) bool {
	if p.gaveAt != 0 && now-p.gaveAt < m.cfg.NodeTimeout {
		return true
	}
	for _, to := range m.slots.migrating {
		if to == p {
			return true
		}
	}
	return false
}

// claimAnew claims all that this node has in a new epoch.
func (m *Machine) claimAnew(now int64, p *Peer) {
	for s, from := range m.slots.taken {
		if m.isBack(s, p) {
			from.again--
			m.slots.taken[s] = from
		}
	}
	if !m.newEpoch() {
		return
	}
	m.note(Notice, "Node %s (%s) does not know yet that a slot has come from it to here. Claiming it in epoch %d",
		p.ID, p.Nodename, m.me.Epoch)
	m.broadcastPong(now, false, m.afterSave())
}

// yields says that a slot of this node goes to a primary that claims it, whatever the epochs: it is on its way there, no
// key of it is left here, and the claim is of an epoch that the target did not have before. So the source's own new epoch does not stand against the end of
// the move.
func (m *Machine) yields(s uint16, p *Peer, epoch uint64) bool {
	before, known := m.slots.sentUnder[s]
	return known && m.slots.owner[s] == m.me && m.slots.migrating[s] == p && epoch > before && epoch >= p.Epoch &&
		m.data.SlotKeys(s) == 0
}

// takenSlots is what is saved of it.
func (m *Machine) takenSlots() (open []nodesconf.OpenSlot) {
	if !m.me.primary() {
		return nil
	}
	for s, from := range m.slots.taken {
		if m.owner(s) == m.me && m.slots.migrating[s] == nil {
			open = append(open, nodesconf.OpenSlot{Slot: s, Importing: true, Peer: from.peer.ID.String()})
		}
	}
	slices.SortFunc(open, compareOpen)
	return open
}

// loadTaken tells what was taken from what comes, when all slots are there.
func (m *Machine) loadTaken() {
	for s, from := range m.slots.importing {
		if m.me.primary() && m.owner(s) == m.me {
			m.slots.taken[s] = takenFrom{peer: from, again: takenAgain}
			delete(m.slots.importing, s)
		}
	}
}
