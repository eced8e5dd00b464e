package cluster

import (
	"cairn/cluster/wire"
)

// What a message says of this node (the header), of others (the gossip section), and what is done with the latter.

const (
	// gossipShare is the part of the nodes that one message tells of, and gossipMin how many it tells of at least. With a
	// tenth, a node that is suspected by all is reported to each by far more than half of them within the time in which
	// such reports count.
	gossipShare = 10
	gossipMin   = 3

	// pongFromFutureMs is how far another node's clock may be ahead for its pong times to be used.
	pongFromFutureMs = 500

	// gossipFlags are those that are told of others; the rest is between two nodes.
	gossipFlags = wire.FlagPrimary | wire.FlagReplica | wire.FlagMaybeFailed | wire.FlagFailed | wire.FlagNoAddr |
		wire.FlagMigrateTo | wire.FlagNoFailover
	// learnedFlags are those that a node has which gossip brought. That it failed is for this node to find out, or for a
	// FAIL to say: one node's word is not enough.
	learnedFlags = wire.FlagPrimary | wire.FlagReplica | wire.FlagMigrateTo | wire.FlagNoFailover

	anyFailure = wire.FlagMaybeFailed | wire.FlagFailed
)

// header makes a message with this node's header, which tells how things are now: it must wait for the save of what is
// not saved. A message that is sent without waiting is brought back to what is, by sendOn.
func (m *Machine) header(kind wire.Type) *wire.Message {
	msg := &wire.Message{
		Type:   kind,
		Sender: m.me.ID, IP: m.cfg.IP,
		Port: uint16(m.cfg.Port), PPort: uint16(m.cfg.PPort), BusPort: uint16(m.cfg.BusPort),
		Offset: m.data.Offset(),
		Down:   !m.state.ok,
	}
	if m.pausedForFailover() {
		msg.Bits |= wire.Paused
	}
	t := m.self()
	t.fill(msg)
	return msg
}

// fill writes what is told of this node into a header.
func (t *told) fill(msg *wire.Message) {
	msg.CurrentEpoch, msg.ConfigEpoch = t.currentEpoch, t.epoch
	msg.Flags, msg.Slots, msg.Primary = t.flags, t.slots, t.primary
	if !msg.Ext.ShardID.IsZero() {
		msg.Ext.ShardID = t.shard // a primary that seems to be of another's shard is not what this node is, before or after
	}
}

// gossip makes a ping, pong or meet. to is who gets it, nil: not known, or several.
func (m *Machine) gossip(now int64, kind wire.Type, to *Peer, extended bool) *wire.Message {
	msg := m.header(kind)
	m.messages++
	known := len(m.peers)
	wanted := min(max(gossipMin, known/gossipShare), known-2)
	if wanted+len(m.suspects) > 0 {
		msg.Gossip = make([]wire.Gossip, 0, max(wanted, 0)+len(m.suspects))
	}
	fresh := known - 2 // all but this node and the other end
	for tries := 3 * wanted; tries > 0 && len(msg.Gossip) < wanted && fresh > 0; tries-- {
		p := m.peers[m.rand()%uint64(known)]
		if p == m.me || p == to || p.any(wire.FlagMaybeFailed) || p.gossiped == m.messages {
			continue
		}
		if p.any(wire.FlagHandshake|wire.FlagNoAddr) || p.out == 0 && p.Slots == 0 {
			fresh--
			continue
		}
		p.gossiped = m.messages
		fresh--
		msg.Gossip = append(msg.Gossip, gossipOf(p))
	}
	// Every suspicion goes out with every message, so that a majority comes to know of it soon.
	for _, p := range m.suspects {
		if p.any(wire.FlagMaybeFailed) && !p.any(wire.FlagHandshake|wire.FlagNoAddr) {
			msg.Gossip = append(msg.Gossip, gossipOf(p))
		}
	}
	// The flag goes to everybody: Valkey tells its shard and names only to a node that has shown it.
	msg.Bits |= wire.Extensions
	if extended {
		msg.Ext = wire.Ext{
			Hostname: m.cfg.Hostname, Nodename: m.cfg.Nodename, ShardID: m.me.Shard,
			Forgotten: m.forgottenExt(now),
		}
	}
	return msg
}

func gossipOf(p *Peer) wire.Gossip {
	return wire.Gossip{
		ID:           p.ID,
		PingSent:     uint32(p.PingSent / 1000),
		PongReceived: uint32(p.PongAt / 1000),
		IP:           p.IP,
		Port:         uint16(p.Port), PPort: uint16(p.PPort), BusPort: uint16(p.BusPort),
		Flags: p.Flags & gossipFlags,
	}
}

// hearGossip takes what a member says of others.
func (m *Machine) hearGossip(now int64, sender *Peer, entries []wire.Gossip) {
	for i := range entries {
		g := &entries[i]
		p := m.byID[g.ID]
		switch {
		case p == nil && !g.ID.Valid():
			return // one id that is none makes the rest doubtful, too; wire passes over all of them
		case p == nil:
			m.learn(now, g)
		case p != m.me && p != sender && !p.handshake():
			m.hearOf(now, sender, p, g)
		}
	}
}

// hearOf takes what a member says of another one.
func (m *Machine) hearOf(now int64, sender, p *Peer, g *wire.Gossip) {
	healthy := g.Flags&anyFailure == 0
	if sender.votes() {
		if !healthy {
			if p.addReport(sender, now) {
				m.note(Verbose, "Node %s (%s) reported node %s (%s) as not reachable.",
					sender.ID, sender.Nodename, p.ID, p.Nodename)
			}
			m.failIfAgreed(now, p)
		} else if p.dropReport(sender) {
			m.note(Verbose, "Node %s (%s) reported node %s (%s) is back online.",
				sender.ID, sender.Nodename, p.ID, p.Nodename)
		}
	}
	if !healthy {
		return
	}
	if p.PingSent == 0 && !p.any(anyFailure) && len(p.reports) == 0 {
		// Another one's pong is as good as an own one; without this each node would ping all others all the time.
		if at := int64(g.PongReceived) * 1000; at <= now+pongFromFutureMs && at > p.PongAt {
			p.PongAt = at
		}
	}
	// A node without an address gets no suspicion either, since nobody asks it. A wrong one is lost again at the first word.
	if p.any(anyFailure|wire.FlagNoAddr) && g.Flags&wire.FlagNoAddr == 0 {
		m.setAddress(p, address{g.IP, int(g.Port), int(g.PPort), int(g.BusPort)})
	}
}

// learn makes an entry for a node that a member speaks of. It gets its id from there and no handshake: asking at the
// address who is there could join another cluster, if the address has changed hands.
func (m *Machine) learn(now int64, g *wire.Gossip) {
	if g.Flags&wire.FlagNoAddr != 0 || g.IP == "" || g.BusPort == 0 || len(m.peers)-m.handshakes >= maxPeers ||
		m.isForgotten(g.ID, now) {
		return
	}
	p := m.newPeer(g.ID, g.Flags&learnedFlags, now)
	if p.Flags&(wire.FlagPrimary|wire.FlagReplica) != wire.FlagReplica {
		p.Flags = p.Flags&^wire.FlagReplica | wire.FlagPrimary
	}
	p.IP, p.Port, p.PPort, p.BusPort = g.IP, int(g.Port), int(g.PPort), int(g.BusPort)
	m.addPeer(p)
	m.askCheck()
}
