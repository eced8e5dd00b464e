package cluster

import (
	"math"

	"cairn/cluster/wire"
)

// What comes from other nodes: who speaks, whether it may be believed, and to which part of the machine it goes.

const (
	// epochLeap is how far above this node's an epoch may be. Epochs rise by one at a time, so a larger step is an error or
	// an attack; adopted once it would spread to all and leave no epoch to move to.
	epochLeap = 1 << 32
	// refusalNoteMs is the time between two notes of refused epochs.
	refusalNoteMs = 10000
)

// Step takes a message that came on a link. The message is the machine's from then on.
func (m *Machine) Step(now int64, link LinkID, msg *wire.Message) []Effect {
	m.wake(now)
	m.receive(now, link, msg)
	return m.settle(now)
}

// arrival is where a message came: on one of both kinds of links.
type arrival struct {
	link LinkID
	out  *Peer    // whose link this node opened
	in   *inbound // the link that a peer opened
}

func (m *Machine) receive(now int64, link LinkID, msg *wire.Message) {
	if int(msg.Type) < len(m.stats.Received) {
		m.stats.Received[msg.Type]++
	}
	at := arrival{link, m.outLink[link], m.inLink[link]}
	if at.out == nil && at.in == nil {
		return // closed meanwhile
	}
	if msg.Light {
		m.receiveLight(now, at, msg)
		return
	}
	sender, ok := m.identify(at, msg)
	if !ok {
		return
	}
	sane := false
	if sender != nil && sender != m.me {
		sender.DataAt = now
		sane = m.hearHeader(now, sender, msg)
	}
	switch msg.Type {
	case wire.Ping, wire.Pong, wire.Meet:
		m.exchange(now, at, sender, msg, sane)
		return
	}
	if sender == nil || sender == m.me {
		if msg.Type == wire.Fail {
			m.note(Notice, "Ignoring FAIL message from unknown node %s about %s", msg.Sender, msg.Failed)
		}
		return
	}
	switch msg.Type {
	case wire.Fail:
		m.hearFail(now, sender, msg.Failed)
	case wire.Publish, wire.PublishShard:
		m.deliver(msg)
	case wire.AuthRequest:
		if sane {
			m.voteRequest(now, sender, msg)
		}
	case wire.AuthAck:
		if sane {
			m.voteGranted(now, sender, msg)
		}
	case wire.Update:
		if sane {
			m.hearUpdate(now, sender, &msg.Update)
		}
	case wire.ManualStart:
		if m.me.primary() && sender.Primary == m.me {
			m.manualStart(now, sender)
		}
	}
}

// receiveLight takes a message with the short header, which says nothing of its sender. It is believed on a link whose
// other end is known, be it that the node became known after it said its name there.
func (m *Machine) receiveLight(now int64, at arrival, msg *wire.Message) {
	p := at.out
	if at.in != nil {
		if named := m.byID[at.in.name]; at.in.peer == nil && named != nil && named != m.me && !named.handshake() {
			m.bind(at.link, at.in, named)
		}
		p = at.in.peer
	}
	if p == nil || p.handshake() {
		m.hangUp(at)
		return
	}
	p.DataAt = now
	if msg.Type == wire.Publish || msg.Type == wire.PublishShard {
		m.deliver(msg)
	}
}

// hangUp closes the link that a message came on.
func (m *Machine) hangUp(at arrival) {
	if at.out != nil {
		m.dropOut(at.out)
		return
	}
	if p := at.in.peer; p != nil && p.in == at.link {
		p.in = 0
	}
	delete(m.inLink, at.link)
	m.emit(Disconnect{at.link})
}

// identify finds the member that sent a message; nil: a stranger. Not ok: the message contradicts what is known of its
// link, and nothing in it counts.
func (m *Machine) identify(at arrival, msg *wire.Message) (sender *Peer, ok bool) {
	if p := at.out; p != nil && !p.handshake() {
		if p.ID == msg.Sender {
			return p, true
		}
		if msg.Type <= wire.Meet {
			m.loseAddress(p)
		}
		return nil, false
	}
	if at.in != nil && at.in.peer != nil && !at.in.peer.handshake() {
		if at.in.peer.ID == msg.Sender {
			return at.in.peer, true
		}
		m.hangUp(at)
		return nil, false
	}
	sender = m.byID[msg.Sender]
	if sender == nil || sender.handshake() {
		if at.in != nil {
			at.in.name = msg.Sender
		}
		return nil, true
	}
	if at.in != nil && sender != m.me {
		m.bind(at.link, at.in, sender)
	}
	return sender, true
}

// loseAddress notes that another node answers at a member's address. It is connected to again when somebody tells where
// it is.
func (m *Machine) loseAddress(p *Peer) {
	m.note(Debug, "PONG contains mismatching sender ID. About node %s having flags %d", p.ID, p.Flags)
	m.dropOut(p)
	p.Flags |= wire.FlagNoAddr
	p.IP, p.Port, p.PPort, p.BusPort = "", 0, 0, 0
	m.changed()
	m.reroute = true
}

// tooFar says that an epoch is out of reach, and is not to be adopted.
func (m *Machine) tooFar(now int64, sender *Peer, epoch uint64) bool {
	if epoch <= m.currentEpoch || epoch != math.MaxUint64 && epoch-m.currentEpoch <= epochLeap {
		return false
	}
	if m.refused == 0 || now-m.refused >= refusalNoteMs {
		m.refused = now
		m.note(Warning, "Refusing epoch %d told by node %s (%s): the current epoch is %d", epoch, sender.ID,
			sender.Nodename, m.currentEpoch)
	}
	return true
}

// raiseCurrentEpoch adopts a higher epoch of the cluster. It is saved at once, because this node votes and stands by it,
// and until it is saved headers tell the old one.
func (m *Machine) raiseCurrentEpoch(epoch uint64) {
	if epoch > m.currentEpoch {
		m.currentEpoch = epoch
		m.afterSave()
	}
}

// raiseEpoch notes a higher epoch of a primary's slots. That of a primary with slots is saved at once: it is what a
// stale claim to them is measured by.
func (m *Machine) raiseEpoch(p *Peer, epoch uint64) {
	if epoch <= p.Epoch {
		return
	}
	p.Epoch = epoch
	m.raiseCurrentEpoch(epoch)
	if p.votes() {
		m.afterSave()
	} else {
		m.changed()
	}
}

// hearHeader takes what every header says. It is false if the header's epochs are out of reach: then nothing that
// depends on epochs is believed.
func (m *Machine) hearHeader(now int64, sender *Peer, msg *wire.Message) bool {
	if m.tooFar(now, sender, msg.CurrentEpoch) || m.tooFar(now, sender, msg.ConfigEpoch) {
		return false
	}
	m.raiseCurrentEpoch(msg.CurrentEpoch)
	if msg.Primary.IsZero() {
		m.raiseEpoch(sender, msg.ConfigEpoch) // a replica's header has its primary's
	}
	if (sender.Offset == 0) != (msg.Offset == 0) {
		m.version++ // a replica without data is not shown to clients
	}
	sender.Offset, sender.OffsetAt = msg.Offset, now
	if msg.Bits&wire.Paused != 0 && m.me.Primary == sender {
		m.manualPaused(now, sender, msg)
	}
	return true
}

// exchange takes a ping, pong or meet.
func (m *Machine) exchange(now int64, at arrival, sender *Peer, msg *wire.Message, sane bool) {
	if sender != nil {
		sender.KnowsExt = msg.Bits&wire.Extensions != 0
	}
	if msg.Type != wire.Pong {
		if at.in != nil {
			m.discoverAddress(at.in, msg)
			if sender == nil && msg.Type == wire.Meet {
				m.introduce(now, at, msg)
			}
		}
		m.sendPing(now, at.link, sender, wire.Pong, msg.Bits)
	}
	if at.out != nil && at.out.handshake() {
		if msg.Type != wire.Pong || !m.completeHandshake(now, at.out, sender, msg) {
			return
		}
		sender = at.out
		sane = m.hearHeader(now, sender, msg)
	}
	if sender == nil || sender == m.me {
		return
	}
	m.hearFlags(sender, msg)
	if msg.Type == wire.Ping && at.in != nil {
		m.setAddress(sender, headerAddress(msg, at.in.remoteIP))
	}
	if msg.Type == wire.Pong && at.out != nil {
		m.answered(now, sender)
	}
	if sane {
		m.hearConfig(now, sender, msg)
	}
	m.hearGossip(now, sender, msg.Gossip)
	m.hearExt(now, sender, msg)
}

// hearFlags takes from a header's flags what changes without a change of role.
func (m *Machine) hearFlags(sender *Peer, msg *wire.Message) {
	const dynamic = wire.FlagNoFailover | wire.FlagLight
	flags := sender.Flags&^(dynamic|wire.FlagMeet) | msg.Flags&dynamic
	if flags != sender.Flags {
		sender.Flags = flags
		m.changed()
	}
}

// hearConfig takes what a member says of roles, epochs and slots.
func (m *Machine) hearConfig(now int64, sender *Peer, msg *wire.Message) {
	m.hearRole(sender, msg)
	m.leaveReplica(now)
	m.hearSlots(now, sender, msg)
	if m.me.primary() && sender.primary() && msg.Primary.IsZero() && msg.ConfigEpoch == m.me.Epoch {
		m.collision(now, sender)
	}
}

// hearSlots compares the slots in a header with the table.
func (m *Machine) hearSlots(now int64, sender *Peer, msg *wire.Message) {
	p := sender
	if sender.replica() {
		p = sender.Primary
	}
	if p == nil || msg.Slots == nil || sender.primary() != msg.Primary.IsZero() || p != sender && p.ID != msg.Primary {
		return // not the slots of the primary that the table has
	}
	if sender.primary() && len(m.slots.migrating)+len(m.slots.importing) > 0 {
		m.retarget(sender, msg.ConfigEpoch) // who took over may have no slots to claim
		m.hearOpen(now, sender, msg)
	}
	sends, agrees := m.sendsTo(now, sender), m.agrees(sender, p, msg.Slots)
	if !agrees && sender.primary() {
		m.claim(now, sender, msg.ConfigEpoch, msg.Slots)
	}
	if sender.primary() && msg.ConfigEpoch >= sender.Epoch {
		m.hearTaken(now, sender, msg, sends)
	}
	if !agrees {
		m.tellOwner(sender, msg.ConfigEpoch, msg.Slots)
		return
	}
	// Two primaries of one shard without slots: one of them is left over from a failover. It holds nothing, or no more than
	// what was on its way to it, which the other one has, too.
	if me := m.me; me.primary() && sender.primary() && me.Slots == 0 && sender.Slots == 0 && me.Shard == sender.Shard &&
		me.Epoch < sender.Epoch && (m.data.Keys() == 0 || len(m.slots.importing) > 0) {
		m.becomeReplicaOf(now, sender)
	}
}

// hearExt takes a message's extensions. What is missing is not so any more.
func (m *Machine) hearExt(now int64, sender *Peer, msg *wire.Message) {
	e := &msg.Ext
	if sender.Hostname != e.Hostname || sender.Nodename != e.Nodename {
		sender.Hostname, sender.Nodename = e.Hostname, e.Nodename
		m.changed()
		m.reroute = true
	}
	// A replica is of its primary's shard, whatever it thinks: it may not have heard yet. So a change of shard reaches it
	// through its primary.
	if sender.Primary != nil {
		m.setShard(sender, sender.Primary.Shard)
	} else if e.ShardID.Valid() {
		m.setShard(sender, e.ShardID)
	}
	m.hearForgotten(now, sender, e.Forgotten)
}
