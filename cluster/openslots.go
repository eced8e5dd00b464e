package cluster

import (
	"maps"
	"slices"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// Slots on their way from one primary to another, key by key, as a tool moves them:
//
//	target: SETSLOT s IMPORTING source      source: SETSLOT s MIGRATING target      the slot is open
//	keys go over, one by one (MIGRATE)
//	target: SETSLOT s NODE target           source: SETSLOT s NODE target           it is closed again
//
// The marks outlive both ends. Replicas have their primary's: the server logs each SETSLOT for them before it is done
// here (CmdHeedSlot), and a replica that takes over goes on with the move. At the other end a mark follows a failover within the
// shard that it points to. A mark that nobody closed is cleared by news of the slot's owner:
//
//	the slot goes to a third shard             both marks go
//	the source does not have it any more       the target takes it, if nobody else claims it
//	a primary's claims contradict its replica's copies of the marks     the copies go
//
// The last two wait for a node timeout in which nothing else was heard: one header may have been under way for long.

// closeSlot ends a move of the slot, in either direction, before it is finished.
func (m *Machine) closeSlot(s uint16) {
	if m.slots.importing[s] != nil {
		m.slots.unfinished.Set(s)
	}
	delete(m.slots.migrating, s)
	delete(m.slots.sentUnder, s)
	delete(m.slots.importing, s)
	delete(m.slots.doubted, s)
}

// closeSlots ends all moves.
func (m *Machine) closeSlots() {
	clear(m.slots.migrating)
	clear(m.slots.sentUnder)
	clear(m.slots.importing)
	clear(m.slots.doubted)
}

// closeWith ends the moves from and to a node that is not known any more.
func (m *Machine) closeWith(p *Peer) {
	gone := func(_ uint16, other *Peer) bool { return other == p }
	maps.DeleteFunc(m.slots.migrating, gone)
	maps.DeleteFunc(m.slots.importing, gone)
	maps.DeleteFunc(m.slots.given, gone)
	maps.DeleteFunc(m.slots.taken, func(_ uint16, from takenFrom) bool { return from.peer == p })
}

// closeSettled ends the moves that this primary has no part in: to others, of slots that it does not own, and to it, of
// those that it owns.
func (m *Machine) closeSettled() {
	maps.DeleteFunc(m.slots.migrating, func(s uint16, _ *Peer) bool { return m.owner(s) != m.me })
	maps.DeleteFunc(m.slots.importing, func(s uint16, _ *Peer) bool { return m.owner(s) == m.me })
}

// setMigrating and setImporting open a slot: in one direction, and without the doubts of an earlier move.
func (m *Machine) setMigrating(s uint16, to *Peer) {
	m.closeSlot(s)
	m.slots.migrating[s], m.slots.sentUnder[s] = to, to.Epoch
}

func (m *Machine) setImporting(s uint16, from *Peer) {
	m.closeSlot(s)
	m.slots.unfinished.Clear(s)
	m.slots.importing[s] = from
}

// runCheckSlot looks whether SETSLOT may be done.
func (m *Machine) runCheckSlot(c CmdSetSlot) Answer {
	p, err := m.checkSetSlot(c)
	if err != nil {
		return Answer{Err: err}
	}
	_, leaves := m.slots.migrating[c.Slot]
	_, comes := m.slots.importing[c.Slot]
	return Answer{OK: true, Replicas: leaves || comes || p == m.me || m.owner(c.Slot) == m.me || c.Action == SlotImporting}
}

// runSetSlot does what SETSLOT says. quick: it is saved soon, and not waited for.
func (m *Machine) runSetSlot(now int64, c CmdSetSlot, quick bool) Answer {
	p, err := m.checkSetSlot(c)
	if err != nil {
		return Answer{Err: err}
	}
	switch c.Action {
	case SlotStable:
		m.closeSlot(c.Slot)
	case SlotMigrating:
		m.setMigrating(c.Slot, p)
	case SlotImporting:
		m.setImporting(c.Slot, p)
	default:
		if m.giveSlot(now, c.Slot, p, quick) {
			return m.acceptedSoon()
		}
		return m.accepted()
	}
	if quick {
		return m.acceptedSoon()
	}
	return m.accepted()
}

// runAskEpoch is for a slot about to go to a member. What takes it there is the member's next epoch, above all that it has
// heard of: if it has not heard this node's, an old header of this node claims the slot in a higher one, and redis-server
// gives it back, and drops its keys.
func (m *Machine) runAskEpoch(now int64, c CmdAskEpoch) Answer {
	p := m.member(c.ID)
	if p == nil || p == m.me || p.failed() || !p.outUp || p.heard >= m.me.Epoch {
		return Answer{OK: true}
	}
	if p.PingSent == 0 {
		m.ping(now, p)
	}
	return Answer{}
}

// runRecallSlot opens a slot that was this node's already. It has doubted the source's mark for all but a moment: no header
// that is heard now was sent before the start.
func (m *Machine) runRecallSlot(now int64, c CmdSetSlot) Answer {
	a := m.runSetSlot(now, c, true)
	if a.Err == nil {
		m.slots.doubted[c.Slot] = now - max(m.cfg.NodeTimeout-startDelayMs, 0)
	}
	return a
}

// acceptedSoon is accepted for what is saved soon, and answered before.
func (m *Machine) acceptedSoon() Answer {
	m.askCheck()
	m.reroute = true
	m.changed()
	return Answer{OK: true}
}

// checkSetSlot gives the node that SETSLOT names, and why the command may not be done.
func (m *Machine) checkSetSlot(c CmdSetSlot) (*Peer, error) {
	if !m.me.primary() {
		return nil, refuse("Please use SETSLOT only with masters.")
	}
	if int(c.Slot) >= slot.Count {
		return nil, refuse("Invalid or out of range slot")
	}
	if c.Action == SlotStable {
		return nil, nil
	}
	mine := m.owner(c.Slot) == m.me
	p := m.member(c.ID)
	switch {
	case c.Action == SlotMigrating && !mine:
		return nil, refuse("I'm not the owner of hash slot %d", c.Slot)
	case c.Action == SlotImporting && mine:
		return nil, refuse("I'm already the owner of hash slot %d", c.Slot)
	case p == nil && c.Action == SlotNode:
		return nil, refuse("Unknown node %s", c.ID)
	case p == nil:
		return nil, refuse("I don't know about node %s", c.ID)
	case p.replica():
		return nil, refuse("Target node is not a master")
	case c.Action == SlotNode && mine && p != m.me && m.data.SlotKeys(c.Slot) != 0:
		return nil, refuse("Can't assign hashslot %d to a different node while I still hold keys for this hash slot.", c.Slot)
	}
	return p, nil
}

// giveSlot binds a slot to a node because a person says so, whatever the epochs say: the last step of moving a slot. later
// says that the answer need not wait for the save: what of it a crash takes back the cluster brings again.
func (m *Machine) giveSlot(now int64, s uint16, to *Peer, quick bool) (later bool) {
	mine := m.owner(s) == m.me
	if m.data.SlotKeys(s) == 0 {
		delete(m.slots.migrating, s)
	}
	source := m.slots.importing[s]
	m.pointImport(s, to)
	m.slots.unfinished.Clear(s)
	m.unassign(s)
	m.assign(s, to)
	if mine && to != m.me {
		to.gaveAt = now
	}
	switch {
	case to == m.me && source != nil:
		// The slot came with its keys. A new epoch makes the claim stronger than that of the node it came from, which
		// has not been told yet; if another node takes the same epoch at the same time, collision parts them.
		m.unhurried(quick, func() { m.claimImported(now, s, source, quick) })
		return quick
	case to == m.me:
		m.gained(m.afterSave())
	case mine && m.me.Slots == 0 && m.cfg.ReplicaMigration && m.data.Keys() == 0:
		// Keys that are left belong to slots of others, from a move that was broken off. As a replica this node would
		// lose them.
		m.note(Notice, "Configuration change detected. Reconfiguring myself as a replica of %s (%s)", to.ID, to.Nodename)
		m.becomeReplicaOf(now, to)
	default:
		if mine { // before others hear of it
			m.noteGiven(s, to)
			m.unhurried(quick, func() { m.afterSave() })
		}
		return quick
	}
	return false
}

// claimImported claims a slot that came with its keys. The epoch is a new one also if this node has the highest: a header
// in which it does not claim the slot yet may come after one in which it does, on the other link, and must look as old as
// it is.
//
// quick: clients are served at once. They are sent here by the source already, with ASK; and if a crash takes the claim
// back, the slot is on its way here again, with all its keys.
func (m *Machine) claimImported(now int64, s uint16, from *Peer, quick bool) {
	m.noteTaken(now, s, from)
	if !quick {
		m.gained(m.afterSave())
	}
	if m.newEpoch() {
		m.note(Notice, "configEpoch updated after importing slot %d", s)
	}
	if quick {
		// Once for all slots that come while a save is under way. Word of each, with an epoch of its own, would reach the
		// others in one heap, and who has such a slot back by then would have to claim it anew for each.
		m.tell = m.afterSave()
		return
	}
	m.broadcastPong(now, false, m.afterSave())
}

// unhurried does what has to be saved, if quick at leisure: others hear of it when it is saved, and nobody waits for that.
func (m *Machine) unhurried(quick bool, f func()) {
	hurry := m.hurry
	f()
	m.hurry = hurry || m.hurry && !quick
}

// pointImport follows a slot that is to come here, when it goes to a node: what is on its way comes from whoever has the
// source's place now; if a third node has the slot, or this one, it does not come any more.
func (m *Machine) pointImport(s uint16, to *Peer) {
	from := m.slots.importing[s]
	switch {
	case from == nil || from == to:
	case to != m.me && from.Shard == to.Shard:
		m.setImporting(s, to)
	default:
		delete(m.slots.importing, s)
	}
}

// runHeedSlot takes what this replica's primary is about to do. The primary has checked it; what this node knows of owners
// may be older or newer than that, so it is not held against it.
func (m *Machine) runHeedSlot(now int64, c CmdSetSlot) Answer {
	primary := m.me.Primary
	if !m.me.replica() || primary == nil || int(c.Slot) >= slot.Count {
		return Answer{OK: true}
	}
	if c.Action == SlotStable {
		m.heedStable(c.Slot)
		return m.acceptedSoon()
	}
	p := m.member(c.ID)
	if p != nil && p.replica() && p.Primary != nil {
		p = p.Primary // it lost its role after the primary said so
	}
	switch {
	case p == nil:
		m.note(Warning, "The primary moves slot %d from or to node %s, which is not known here", c.Slot, c.ID)
		return Answer{OK: true}
	case c.Action == SlotNode && p == primary:
		// That it comes is kept in mind until the primary's claim is heard: it makes it stronger than the source's first,
		// and may end before. Its epoch will be the next one: who is to take its place must not stand for a lower one.
		if from := m.slots.importing[c.Slot]; from != nil {
			m.slots.taken[c.Slot] = takenFrom{peer: from, again: takenAgain}
			m.raiseCurrentEpoch(m.topEpoch() + 1)
		}
		m.assign(c.Slot, p)
		m.noteWord(now, c.Slot)
	case c.Action == SlotNode:
		delete(m.slots.word, c.Slot)
		delete(m.slots.migrating, c.Slot)
		m.pointImport(c.Slot, p)
		m.assign(c.Slot, p)
	case p == primary: // an old word, from before a failover
	case c.Action == SlotMigrating:
		m.setMigrating(c.Slot, p)
	default:
		m.setImporting(c.Slot, p)
	}
	return m.acceptedSoon()
}

// heedStable ends a move. If the slot was on its way back to where it had come from, the primary has most likely heard that
// it is there, and this is all that it says of that. A claim of it is heeded from here on: kept in mind as one that came, the
// slot would be claimed by this node, taking over, in an epoch in which its owner would drop the keys.
func (m *Machine) heedStable(s uint16) {
	from, came := m.slots.taken[s]
	if to := m.slots.migrating[s]; came && to != nil && to.Shard == from.peer.Shard {
		delete(m.slots.taken, s)
	}
	m.closeSlot(s)
}

// runCloseSlots forgets a replica's copies.
func (m *Machine) runCloseSlots() Answer {
	if !m.me.replica() || len(m.slots.migrating)+len(m.slots.importing) == 0 {
		return Answer{OK: true}
	}
	m.closeSlots()
	return m.accepted()
}

// runTakeFound takes the slots of keys that were here before the cluster was. Who knows others learns from them who has
// which slot: what it would take now, under an epoch of its own, somebody may have been given meanwhile.
func (m *Machine) runTakeFound() Answer {
	if !m.me.primary() {
		return Answer{OK: true}
	}
	taken, foreign := 0, 0
	for s := range uint16(slot.Count) {
		if m.owner(s) == m.me || m.slots.importing[s] != nil || m.data.SlotKeys(s) == 0 {
			continue
		}
		if len(m.peers) > 1 {
			foreign++
			continue
		}
		m.assign(s, m.me)
		taken++
	}
	if foreign > 0 {
		m.note(Warning, "This node has keys of %d slots that are not its own. They are kept, and served by nobody: "+
			"INFO migration lists the slots. CLUSTER SETSLOT <slot> IMPORTING <owner's id> here, and redis-cli --cluster fix "+
			"after it, move them to where they belong", foreign)
	}
	if taken == 0 {
		return Answer{OK: true}
	}
	m.note(Notice, "This node has keys of %d slots that nobody owns. Taking responsibility for them.", taken)
	m.gained(m.afterSave())
	return m.accepted()
}

// rebind gives a slot to a node that claims it by right, and looks after the slot's marks.
func (m *Machine) rebind(s uint16, p *Peer) {
	if m.slots.owner[s] != nil {
		// Who had the slot before is what stops a stale claim; it must not be forgotten in a crash. A slot that had no
		// owner is only news.
		m.afterSave()
	}
	if p.Shard != m.me.Shard {
		delete(m.slots.migrating, s) // it is not this shard's to move
	}
	m.pointImport(s, p)
	m.assign(s, p)
}

// retarget follows a failover in a shard that slots are moving to or from.
func (m *Machine) retarget(p *Peer, epoch uint64) {
	replaced := func(other *Peer) bool {
		return other != p && other.Shard == p.Shard && (other.replica() || other.Epoch < epoch)
	}
	for _, marks := range []map[uint16]*Peer{m.slots.migrating, m.slots.importing} {
		for s, other := range marks {
			if replaced(other) {
				marks[s] = p
				m.changed()
				m.reroute = true
			}
		}
	}
}

// hearOpen compares the marks with what a primary says that it owns.
func (m *Machine) hearOpen(now int64, sender *Peer, msg *wire.Message) {
	switch {
	case msg.ConfigEpoch < sender.Epoch || msg.Slots == nil:
		return // an old message
	case m.me.primary():
		m.finishImports(now, sender, msg.Slots)
	case sender == m.me.Primary:
		m.closeDenied(now, m.slots.migrating, func(s uint16) bool { return !msg.Slots.Has(s) })
		m.closeDenied(now, m.slots.importing, msg.Slots.Has)
	}
}

// closeDenied ends the moves, a replica's copies, that its primary denies.
func (m *Machine) closeDenied(now int64, marks map[uint16]*Peer, denies func(uint16) bool) {
	for _, s := range slices.Sorted(maps.Keys(marks)) {
		if m.doubt(now, s, denies(s)) {
			m.closeSlot(s)
			m.changed()
			m.reroute = true
		}
	}
}

// finishImports takes the slots whose source does not have them any more, though nobody else does: the source was told
// that they are here, and this node was not.
func (m *Machine) finishImports(now int64, source *Peer, claims *slot.Bitmap) {
	for _, s := range slices.Sorted(maps.Keys(m.slots.importing)) {
		if m.slots.importing[s] != source {
			continue
		}
		if !m.doubt(now, s, !claims.Has(s) && m.leftBy(source, s)) || !m.inMajority(now) {
			continue
		}
		m.note(Notice, "Slot %d, which is imported from %s, is not claimed by that node any more. Taking it.", s, source.ID)
		m.closeSlot(s)
		m.slots.unfinished.Clear(s) // who gives a slot away has no keys of it
		m.unassign(s)
		m.assign(s, m.me)
		m.claimImported(now, s, source, false)
	}
}

// leftBy says that nobody has a slot but its source, or one whose place the source took.
func (m *Machine) leftBy(source *Peer, s uint16) bool {
	owner := m.owner(s)
	return owner == nil || owner == source || owner.Shard == source.Shard && owner.Epoch < source.Epoch
}

// doubt notes what a header says about a mark. True: for a node timeout all have contradicted it.
func (m *Machine) doubt(now int64, s uint16, contradicts bool) bool {
	since, doubted := m.slots.doubted[s]
	switch {
	case !contradicts:
		delete(m.slots.doubted, s)
	case !doubted:
		m.slots.doubted[s] = now
	default:
		return now-since >= m.cfg.NodeTimeout
	}
	return false
}
