package cluster

import (
	"bytes"
	"slices"

	"cairn/cluster/wire"
)

// The table of nodes: who is in it, and who replicates whom.

// Limits of the table. A thousand nodes is what Redis is built for.
const (
	maxPeers      = 16384 // members; gossip adds no more
	maxHandshakes = 1024  // nodes that introduced themselves and are not members yet; more are not heard
)

// newPeer makes an entry, with a shard of its own until it is told another. It is taken to understand extensions until
// it shows that it does not: a message without a host name takes the name away.
func (m *Machine) newPeer(id wire.ID, flags wire.Flags, now int64) *Peer {
	return &Peer{ID: id, Shard: m.rand.id(), Flags: flags, Created: now, KnowsExt: true}
}

// place gives where id stands in peers, or would stand.
func (m *Machine) place(id *wire.ID) (int, bool) {
	return slices.BinarySearchFunc(m.peers, id, func(p *Peer, id *wire.ID) int {
		return bytes.Compare(p.ID[:], id[:])
	})
}

// addPeer puts a peer into the table. Its id must not be in it yet.
func (m *Machine) addPeer(p *Peer) {
	i, found := m.place(&p.ID)
	if found {
		return
	}
	m.peers = slices.Insert(m.peers, i, p)
	m.byID[p.ID] = p
	if p.handshake() {
		m.handshakes++
	}
	m.changed()
}

// deletePeer takes a peer out of the table, and every reference to it: its slots have no owner then, its replicas no
// primary that is known, its links are closed. This node itself stays.
func (m *Machine) deletePeer(p *Peer) {
	if p == m.me || m.byID[p.ID] != p {
		return
	}
	m.unassignAll(p)
	m.closeWith(p)
	for _, other := range m.peers {
		other.dropReport(p)
	}
	for len(p.Replicas) > 0 {
		m.detach(p.Replicas[len(p.Replicas)-1])
	}
	m.detach(p)
	m.dropOut(p)
	m.dropIn(p)
	m.suspects = slices.DeleteFunc(m.suspects, func(q *Peer) bool { return q == p })
	if m.manual.asker == p {
		m.manual.asker = nil // its deadline still ends the pause
	}
	if p.handshake() {
		m.handshakes--
	}
	i, _ := m.place(&p.ID)
	m.peers = slices.Delete(m.peers, i, i+1)
	delete(m.byID, p.ID)
	m.changed()
	m.reroute = true
	m.askCheck()
}

// renamePeer gives a peer the id that it told, in place of a made up one.
func (m *Machine) renamePeer(p *Peer, id wire.ID) {
	i, _ := m.place(&p.ID)
	m.peers = slices.Delete(m.peers, i, i+1)
	delete(m.byID, p.ID)
	p.ID = id
	i, _ = m.place(&id)
	m.peers = slices.Insert(m.peers, i, p)
	m.byID[id] = p
	m.changed()
}

// lookup finds a node by the text of its id; nil: there is none.
func (m *Machine) lookup(id string) *Peer {
	if len(id) != wire.IDLen {
		return nil
	}
	return m.byID[wire.ID([]byte(id))]
}

// setPrimary makes a node a replica of another one in the table, in place of whom it replicated. Roles and both lists
// of replicas are kept; with nil the node stays a replica whose primary is not known.
func (m *Machine) setPrimary(replica, primary *Peer) {
	m.detach(replica)
	replica.Flags = replica.Flags&^(wire.FlagPrimary|wire.FlagMigrateTo) | wire.FlagReplica
	replica.Primary = primary
	replica.claimed = nil
	if primary != nil {
		primary.Replicas = append(primary.Replicas, replica)
		m.replicas++
		primary.Flags |= wire.FlagMigrateTo
		m.setShard(replica, primary.Shard)
	}
	m.changed()
	m.reroute = true
	m.askCheck()
}

// detach makes a replica's primary unknown.
func (m *Machine) detach(replica *Peer) {
	p := replica.Primary
	if p == nil {
		return
	}
	p.Replicas = slices.DeleteFunc(p.Replicas, func(q *Peer) bool { return q == replica })
	if len(p.Replicas) == 0 {
		p.Flags &^= wire.FlagMigrateTo
	}
	replica.Primary = nil
	replica.claimed = nil
	m.replicas--
	m.changed()
	m.reroute = true
}

// setRolePrimary makes a node a primary in the table. One that had a primary may be given replicas of others: it took
// over from a primary that had some.
func (m *Machine) setRolePrimary(p *Peer) {
	if p.primary() {
		return
	}
	if p.Primary != nil {
		m.detach(p)
		if p != m.me {
			p.Flags |= wire.FlagMigrateTo
		}
	}
	p.Flags = p.Flags&^wire.FlagReplica | wire.FlagPrimary
	p.claimed = nil
	m.changed()
	m.reroute = true
	m.askCheck()
}

// setShard puts a node into a shard, and its replicas with it.
func (m *Machine) setShard(p *Peer, shard wire.ID) {
	if p.Shard == shard || shard.IsZero() {
		return
	}
	p.Shard = shard
	for _, r := range p.Replicas {
		m.setShard(r, shard) // ends, even where replicas go in a circle: all have it then
	}
	m.changed()
	m.reroute = true
}

// healthyReplicas counts the replicas of a primary that have not failed.
func (p *Peer) healthyReplicas() (n int) {
	for _, r := range p.Replicas {
		if !r.failed() {
			n++
		}
	}
	return n
}

// sizeOf counts the primaries that own slots: those whose votes matter.
func (m *Machine) sizeOf() int {
	if m.state.size < 0 {
		m.state.size = 0
		for _, p := range m.peers {
			if p.votes() {
				m.state.size++
			}
		}
	}
	return m.state.size
}

// votes says that the node is one of those who decide: a primary with slots.
func (p *Peer) votes() bool { return p.primary() && p.Slots > 0 }

// quorum is how many of them decide.
func (m *Machine) quorum() int { return m.sizeOf()/2 + 1 }
