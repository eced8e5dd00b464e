package cluster

import (
	"cairn/cluster/wire"
)

// Links: each node opens one to every other, and what it has to say goes there. On a link that another one opened it
// only answers. A peer's entry knows both.

// maxWaiting is how many messages wait for a link that is being opened. Pings do not wait: one is sent anyway.
const maxWaiting = 8

// Accepted says that a peer opened a link. Both addresses are numeric, without port.
func (m *Machine) Accepted(now int64, link LinkID, remoteIP, localIP string) []Effect {
	m.inLink[link] = &inbound{remoteIP: remoteIP, localIP: localIP}
	return m.settle(now)
}

// Connected says that a link which was asked for is open.
func (m *Machine) Connected(now int64, link LinkID, _ string) []Effect {
	p := m.outLink[link]
	if p == nil {
		m.emit(Disconnect{link}) // it was given up meanwhile
		return m.settle(now)
	}
	p.outUp = true
	// A ping that was unanswered on the last link still is: a peer that accepts links and says nothing has failed.
	unanswered := p.PingSent
	if p.any(wire.FlagMeet) {
		m.sendPing(now, p.out, p, wire.Meet, 0)
	} else {
		m.sendPing(now, p.out, p, wire.Ping, 0)
	}
	if unanswered != 0 {
		p.PingSent = unanswered
	}
	waiting := p.waiting
	p.waiting = nil
	for _, s := range waiting {
		m.pass(link, s.Msg, s.After)
	}
	return m.settle(now)
}

// Closed says that a link, of either kind, is gone or could not be opened.
func (m *Machine) Closed(now int64, link LinkID) []Effect {
	if p := m.outLink[link]; p != nil {
		if p.PingSent == 0 && !p.outUp {
			p.PingSent = now // as if a ping had been sent: failure detection counts from it
		}
		m.forgetOut(p)
	}
	if in := m.inLink[link]; in != nil {
		if in.peer != nil && in.peer.in == link {
			in.peer.in = 0
		}
		delete(m.inLink, link)
	}
	return m.settle(now)
}

// openLink asks for the link to a peer.
func (m *Machine) openLink(now int64, p *Peer) {
	m.links += 2
	p.out, p.outAt, p.outUp = m.links, now, false
	m.outLink[p.out] = p
	m.emit(Connect{Link: p.out, IP: p.IP, BusPort: p.BusPort})
}

// dropOut closes the link to a peer. The next tick opens another one.
func (m *Machine) dropOut(p *Peer) {
	if p.out != 0 {
		m.emit(Disconnect{p.out})
		m.forgetOut(p)
	}
}

func (m *Machine) forgetOut(p *Peer) {
	delete(m.outLink, p.out)
	p.out, p.outUp, p.waiting = 0, false, nil
}

// dropIn closes the link that a peer opened.
func (m *Machine) dropIn(p *Peer) {
	if p.in != 0 {
		m.emit(Disconnect{p.in})
		delete(m.inLink, p.in)
		p.in = 0
	}
}

// bind notes who speaks on a link. A peer has one link to here: the newest.
func (m *Machine) bind(link LinkID, in *inbound, p *Peer) {
	if in.peer == p {
		return
	}
	if in.peer != nil && in.peer.in == link {
		in.peer.in = 0
	}
	m.dropIn(p)
	in.peer, p.in = p, link
}

// sendOn sends on a link that is open. What is sent at once may tell of this node only what cannot be taken back by a
// crash; what waits for a save tells how things are.
func (m *Machine) sendOn(link LinkID, msg *wire.Message, after uint64) {
	if after == 0 && !msg.Light {
		m.told.fill(msg)
	}
	m.pass(link, msg, after)
}

func (m *Machine) pass(link LinkID, msg *wire.Message, after uint64) {
	if int(msg.Type) < len(m.stats.Sent) {
		m.stats.Sent[msg.Type]++
	}
	m.emit(Send{Link: link, After: after, Msg: msg})
}

// send sends a message to a peer on the link that this node opened to it. While that is being opened a few messages
// wait; without one the message is lost.
func (m *Machine) send(p *Peer, msg *wire.Message, after uint64) {
	if p.outUp {
		m.sendOn(p.out, msg, after)
		return
	}
	if p.out == 0 || len(p.waiting) >= maxWaiting {
		return
	}
	// Filled now: once it was sent to others a message is not changed any more.
	if after == 0 && !msg.Light {
		m.told.fill(msg)
	}
	p.waiting = append(p.waiting, Send{After: after, Msg: msg})
}

// broadcast sends a message to all members.
func (m *Machine) broadcast(msg *wire.Message, after uint64) {
	for _, p := range m.peers {
		if p != m.me && !p.handshake() {
			m.send(p, msg, after)
		}
	}
}

// broadcastPong tells all members, or only the replicas of this shard, how things are here, without being asked.
func (m *Machine) broadcastPong(now int64, onlyReplicas bool, after uint64) {
	var plain, extended *wire.Message // one for all: what it gossips about is as good for one as for another
	for _, p := range m.peers {
		if p == m.me || p.handshake() || !p.outUp {
			continue
		}
		if onlyReplicas && (!p.replica() || p.Primary == nil || p.Primary != m.me && p.Primary != m.me.Primary) {
			continue
		}
		msg := &plain
		if p.KnowsExt {
			msg = &extended
		}
		if *msg == nil {
			*msg = m.gossip(now, wire.Pong, nil, p.KnowsExt)
		}
		m.sendOn(p.out, *msg, after)
	}
}

// sendPing sends a ping, pong or meet on a link. p is who is at its other end, nil when that is not known. Only a ping
// or meet on a link that this node opened asks for an answer that failure detection waits for.
func (m *Machine) sendPing(now int64, link LinkID, p *Peer, kind wire.Type, bits wire.MessageFlags) {
	extended := bits&wire.Extensions != 0 || p != nil && p.KnowsExt
	if kind != wire.Pong && p != nil && p.out == link {
		if p.PingSent == 0 {
			p.asked = m.me.Epoch
		}
		p.PingSent = now
	}
	m.sendOn(link, m.gossip(now, kind, p, extended), 0)
}

// ping pings a peer on the link that this node opened. On one that is still being opened the ping goes as soon as it is
// open; the time counts from now.
func (m *Machine) ping(now int64, p *Peer) {
	if p.outUp {
		m.sendPing(now, p.out, p, wire.Ping, 0)
	} else {
		p.PingSent = now
	}
}

// address is where a node says, or shows, that it is.
type address struct {
	ip                   string
	port, pport, busPort int
}

func (p *Peer) address() address { return address{p.IP, p.Port, p.PPort, p.BusPort} }

// headerAddress is the address in a header. Without an announced one it is that of the link's other end.
func headerAddress(msg *wire.Message, remoteIP string) address {
	a := address{msg.IP, int(msg.Port), int(msg.PPort), int(msg.BusPort)}
	if a.ip == "" {
		a.ip = remoteIP
	}
	return a
}

// setAddress notes another address of a peer, and makes a new link to there.
func (m *Machine) setAddress(p *Peer, a address) {
	if p.address() == a || a.ip == "" || a.busPort == 0 || p == m.me {
		return
	}
	p.IP, p.Port, p.PPort, p.BusPort = a.ip, a.port, a.pport, a.busPort
	p.Flags &^= wire.FlagNoAddr
	m.dropOut(p)
	m.note(Notice, "Address updated for node %s (%s), now %s:%d", p.ID, p.Nodename, p.IP, p.Port)
	m.changed()
	m.reroute = true
	if m.me.Primary == p && m.following.id == p.ID {
		m.follow(0)
	}
}

// follow has this node's data follow its primary, where that is now. Nothing is said twice. Who ends it (a promotion, an
// unknown primary) clears m.following.
func (m *Machine) follow(after uint64) {
	p := m.me.Primary
	if p == nil || !p.hasAddress() {
		return
	}
	to := followed{p.ID, p.IP, p.Port}
	if m.following != to {
		m.following = to
		m.emit(Follow{After: after, ID: p.ID, IP: p.IP, Port: p.Port})
	}
}
