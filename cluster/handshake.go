package cluster

import "cairn/cluster/wire"

// How a node becomes a member: one meets the other, both ask who is there, and put the answer into the table.

// startHandshake has this node meet whoever is at an address. One that is being met already is not met twice. False: the
// address is none.
func (m *Machine) startHandshake(now int64, ip string, port, busPort int) bool {
	const maxPort = 65535
	if ip == "" || port <= 0 || port > maxPort || busPort <= 0 || busPort > maxPort {
		return false
	}
	if !m.meeting(ip, port, busPort) {
		p := m.newPeer(m.rand.id(), wire.FlagHandshake|wire.FlagMeet, now)
		p.IP, p.Port, p.BusPort = ip, port, busPort
		m.addPeer(p)
	}
	return true
}

// meeting says that a handshake with this address is under way.
func (m *Machine) meeting(ip string, port, busPort int) bool {
	if m.handshakes == 0 {
		return false
	}
	for _, p := range m.peers {
		if p.handshake() && p.IP == ip && p.Port == port && p.BusPort == busPort {
			return true
		}
	}
	return false
}

// introduce begins the other half of a handshake: a stranger wants to meet this node, which asks back at the stranger's
// address before it believes anything.
func (m *Machine) introduce(now int64, at arrival, msg *wire.Message) {
	a := headerAddress(msg, at.in.remoteIP)
	if at.in.peer != nil || a.ip == "" || a.busPort == 0 || m.handshakes >= maxHandshakes ||
		m.meeting(a.ip, a.port, a.busPort) {
		return
	}
	p := m.newPeer(m.rand.id(), wire.FlagHandshake, now)
	p.IP, p.Port, p.PPort, p.BusPort = a.ip, a.port, a.pport, a.busPort
	m.addPeer(p)
	m.bind(at.link, at.in, p)
}

// completeHandshake takes the answer of a node in handshake. It is false if that was a node which is a member already: the
// entry for the handshake is gone then.
func (m *Machine) completeHandshake(now int64, p, sender *Peer, msg *wire.Message) bool {
	if sender != nil || !msg.Sender.Valid() {
		if sender != nil && sender != m.me {
			m.note(Verbose, "Handshake: we already know node %s (%s), updating the address if needed.", sender.ID,
				sender.Nodename)
			m.setAddress(sender, headerAddress(msg, p.IP))
		}
		// The link that it opened is the member's and stays.
		if in := m.inLink[p.in]; in != nil {
			in.peer, p.in = nil, 0
		}
		m.deletePeer(p)
		return false
	}
	if len(m.peers)-m.handshakes >= maxPeers {
		m.deletePeer(p)
		return false
	}
	m.renamePeer(p, msg.Sender)
	m.handshakes--
	m.remember(p.ID)
	p.Flags &^= wire.FlagHandshake | wire.FlagMeet
	p.Flags |= msg.Flags & (wire.FlagPrimary | wire.FlagReplica)
	if p.Flags&(wire.FlagPrimary|wire.FlagReplica) != wire.FlagReplica {
		p.Flags = p.Flags&^wire.FlagReplica | wire.FlagPrimary
	}
	p.met, p.DataAt = true, now
	m.note(Debug, "Handshake with node %s completed.", p.ID)
	m.reroute = true
	m.askCheck()
	return true
}

// discoverAddress learns this node's own address from the end at which others reach it: from a meet always, so that it
// can be corrected, otherwise only when none is known.
func (m *Machine) discoverAddress(in *inbound, msg *wire.Message) {
	if m.cfg.IP != "" || in.localIP == "" || in.localIP == m.me.IP || msg.Type != wire.Meet && m.me.IP != "" {
		return
	}
	m.me.IP = in.localIP
	m.note(Notice, "IP address for this node updated to %s", m.me.IP)
	m.changed()
	m.reroute = true
}
