package cluster

import "cairn/cluster/wire"

// What headers tell of other nodes' roles.

// hearRole takes the role in a member's header: the primary that it names, or none.
func (m *Machine) hearRole(sender *Peer, msg *wire.Message) {
	if msg.Primary.IsZero() {
		m.setRolePrimary(sender)
		return
	}
	if msg.Primary == sender.ID {
		return // makes no sense
	}
	primary := m.byID[msg.Primary]
	if primary != nil && primary.handshake() {
		primary = nil
	}
	switch {
	case sender.primary():
		if primary != nil && primary.Shard == sender.Shard && sender.Slots > 0 && sender.Epoch > msg.ConfigEpoch {
			// It was a replica under an epoch that is over: an old message.
			m.note(Notice, "Ignore stale message from %s (%s) in shard %s; its epoch is %d, the message's is %d",
				sender.ID, sender.Nodename, sender.Shard, sender.Epoch, msg.ConfigEpoch)
			return
		}
		m.yieldSlots(sender, primary, msg)
		m.setPrimary(sender, primary)
	case primary != nil && sender.Primary != primary:
		m.setPrimary(sender, primary)
	}
	// It cannot replicate a replica of its own, nor one of that one's: that one has taken over, and its header will say so.
	if primary != nil && primary != m.me && m.follows(primary, sender) {
		m.setRolePrimary(primary)
	}
}

// follows says that a node is a replica of another one, or of its replica, and so on. In a circle the walk ends, too.
func (m *Machine) follows(p, above *Peer) bool {
	for range m.peers {
		if p = p.Primary; p == nil || p == above {
			break
		}
	}
	return p == above
}

// yieldSlots takes the slots from a primary that became a replica. Those that its new primary has, by its own word, go
// there at once if both are of one shard, so that no slot is without owner in the middle of a failover and the number of
// those who vote does not fall. The others have no owner until one claims them.
func (m *Machine) yieldSlots(sender, primary *Peer, msg *wire.Message) {
	if sender.Slots == 0 {
		return
	}
	if primary != nil && primary != m.me && primary.Shard == sender.Shard && msg.Slots != nil {
		if primary.Primary == sender {
			m.setRolePrimary(primary)
		}
		m.raiseEpoch(primary, msg.ConfigEpoch)
		for s, owner := range &m.slots.owner {
			if owner == sender && msg.Slots.Has(uint16(s)) && primary.primary() {
				m.rebind(uint16(s), primary)
			}
		}
	}
	if sender.Slots > 0 {
		m.afterSave()
		m.unassignAll(sender)
	}
}
