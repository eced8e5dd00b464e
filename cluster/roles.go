package cluster

// A node is a primary or a replica, never both, and every change between the two goes through this file. A replica
// owns no slots. All of a role's change is one save: role, epoch and slots come back together after a crash, or not at
// all.

// takeOver puts this replica in its primary's place: it becomes a primary and claims the other's slots. The config
// epoch under which it claims them is set before. Slots that the other had said to have no more stay without owner
// until the one who got them is heard: to claim them under the new, higher epoch would make that one drop their keys.
func (m *Machine) takeOver(now int64) {
	old := m.me.Primary
	if !m.me.replica() || old == nil {
		return
	}
	m.becomePrimary()
	for s := range len(m.slots.owner) {
		if m.slots.owner[s] != old {
			continue
		}
		given := m.slots.noClaim.Has(uint16(s))
		m.unassign(uint16(s))
		if !given {
			m.assign(uint16(s), m.me)
		}
	}
	m.closeSettled()
	after := m.afterSave()
	m.emit(Promote{After: after})
	m.gained(after)
	m.broadcastPong(now, false, after)
}

// becomePrimary turns this node's entry into that of a primary. The caller says what becomes of data and slots.
func (m *Machine) becomePrimary() {
	if m.me.primary() {
		return
	}
	m.setRolePrimary(m.me)
	m.following = followed{}
	m.endManual()
	m.election = election{}
	clear(m.slots.word)
}

// becomeReplicaOf makes this node a replica of p, from whatever it was. It must own no slots. Nothing is left that was
// meant for the role before: open slots of another shard, an election against another primary, a manual failover.
func (m *Machine) becomeReplicaOf(now int64, p *Peer) {
	if p == nil || p == m.me {
		return
	}
	if m.me.Slots != 0 {
		m.note(Warning, "Not becoming a replica of %s: this node has %d slots, which must be 0", p.ID, m.me.Slots)
		return
	}
	if p.Shard != m.me.Shard {
		// In its own shard it goes on with what it knows: its next primary has the same moves under way.
		m.closeSlots()
	}
	clear(m.slots.taken)
	clear(m.slots.word)
	m.setPrimary(m.me, p) // and into its shard
	m.election = election{}
	m.endManual()
	m.follow(m.afterSave())
	m.newRole = true
}

// tellRole tells all what this node has become, one tick after it became a replica: its next failover may come soon,
// and those who vote must know by then whose replica it is. At once would be too soon: Redis takes the slots from a
// primary whose new role it hears of before the claim of the one that took over.
func (m *Machine) tellRole(now int64) {
	if !m.newRole {
		return
	}
	m.newRole = false
	after := uint64(0)
	if m.must > m.saved {
		after = m.must
	}
	m.broadcastPong(now, false, after)
}

// gained has clients routed here once what this node gained is on disk, not before.
func (m *Machine) gained(after uint64) {
	m.askCheck()
	m.reroute = true
	m.routeAfter = after
}
