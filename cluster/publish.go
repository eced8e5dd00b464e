package cluster

import "cairn/cluster/wire"

// Messages of clients to channels, on their way through the cluster.

// publish sends a message to the other nodes, or to those of this shard. Peers that understand it get it with the short
// header.
func (m *Machine) publish(now int64, c CmdPublish) {
	kind := wire.Publish
	if c.Shard {
		kind = wire.PublishShard
	}
	var full, light *wire.Message
	for _, p := range m.peers {
		if p == m.me || p.handshake() || p.out == 0 || c.Shard && p.Shard != m.me.Shard {
			continue
		}
		msg := &full
		if m.mayBeLight(now, p) {
			msg = &light
		}
		if *msg == nil {
			*msg = m.publication(kind, msg == &light, c)
		}
		m.send(p, *msg, 0)
	}
}

// mayBeLight says whether a peer understands the short header, which it does on a link on which it heard a full one of a
// node that it knows; else it closes the link. That it knows this node cannot be seen, and comes after this node knows it
// while they meet. Within a node timeout each has pinged the other, and a handshake is over.
func (m *Machine) mayBeLight(now int64, p *Peer) bool {
	return m.cfg.LightHeaders && p.any(wire.FlagLight) && p.outUp && now-p.outAt >= m.cfg.NodeTimeout
}

func (m *Machine) publication(kind wire.Type, light bool, c CmdPublish) *wire.Message {
	msg := &wire.Message{Type: kind, Light: light}
	if !light {
		msg = m.header(kind)
	}
	msg.Publication = wire.Publication{Channel: c.Channel, Payload: c.Payload}
	return msg
}

// deliver hands on what a member published.
func (m *Machine) deliver(msg *wire.Message) {
	m.emit(Deliver{
		Shard:   msg.Type == wire.PublishShard,
		Channel: msg.Publication.Channel,
		Payload: msg.Publication.Payload,
	})
}
