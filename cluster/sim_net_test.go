package cluster

import (
	"fmt"

	"cairn/cluster/wire"
)

// The network: links between nodes, which keep their order, and cuts between nodes, for each direction of its own. What
// is sent into a cut waits, as TCP has it, and comes when the cut ends, if the link is there still.

// simStalledGossip is how many entries of a message's gossip are kept in a cut of a large cluster.
const simStalledGossip = 8

// simReleaseMs is how long it takes in a large cluster until all that waited for the end of a cut has come.
const simReleaseMs = 2000

// simConn is a link. Side 0 opened it.
type simConn struct {
	node    [2]int32
	life    [2]int32
	link    [2]LinkID
	last    [2]int64 // when the last thing that a side sent arrives
	stalled [2][]simEvent
	gone    [2]bool // the side has closed it, or knows that it is closed
	held    [2]bool // what the side says waits
	open    bool
	dead    bool // whatever goes in is lost, and nobody is told
}

func (w *simWorld) cut(from, to int32) bool {
	return w.cutOff != nil && w.cutOff[int(from)*len(w.nodes)+int(to)]
}

// delay is how long something takes from one node to another.
func (w *simWorld) delay() int64 {
	d := w.latency/2 + w.net.Int64N(w.latency+1)
	if w.calm {
		return 1 + d
	}
	switch r := w.net.IntN(1000); {
	case r < w.tail:
		d += w.net.Int64N(2 * w.timeout)
	case r < 10*w.tail:
		d += w.net.Int64N(100)
	}
	return 1 + d
}

// throw sends an event to the other side of a link, behind what was sent before.
func (w *simWorld) throw(c *simConn, side uint8, kind simKind, msg *wire.Message) {
	if c.dead {
		return
	}
	at := max(c.last[side], w.now+w.delay())
	c.last[side] = at
	w.events.push(simEvent{at: at, kind: kind, conn: c, side: side, node: -1, msg: msg})
}

// arrive takes an event at the other end of its link.
func (w *simWorld) arrive(e simEvent) {
	c, other := e.conn, 1-e.side
	if c.dead {
		return
	}
	if w.cut(c.node[e.side], c.node[other]) || c.held[e.side] || len(c.stalled[e.side]) > 0 {
		if len(c.stalled[e.side]) == 0 {
			w.stalled = append(w.stalled, c)
		}
		if w.big && e.msg != nil && len(e.msg.Gossip) > simStalledGossip {
			less := *e.msg // of a thousand nodes, half a million messages wait at a time
			less.Gossip = append([]wire.Gossip(nil), less.Gossip[len(less.Gossip)-simStalledGossip:]...)
			e.msg = &less
		}
		c.stalled[e.side] = append(c.stalled[e.side], e)
		return
	}
	n := w.nodes[c.node[other]]
	if e.kind == simAccept {
		w.accept(c, n)
		return
	}
	if c.gone[other] {
		if e.kind == simConnected && !n.dark {
			w.throw(c, other, simClosed, nil) // it was given up meanwhile
		}
		return
	}
	if n.life != c.life[other] || n.m == nil {
		// Another process, or none: it says that there is no such link, unless the machine is off.
		if !n.dark && e.kind == simMessage {
			w.throw(c, other, simClosed, nil)
		}
		return
	}
	if n.stopped {
		n.parked = append(n.parked, e)
		return
	}
	switch e.kind {
	case simConnected:
		c.open = true
		w.mark(e.kind, n, uint64(c.link[0]))
		n.feed(func(now int64) []Effect { return n.m.Connected(now, c.link[0], n.ip) })
	case simClosed:
		c.gone[other] = true
		delete(n.conns, c.link[other])
		w.mark(e.kind, n, uint64(c.link[other]))
		n.feed(func(now int64) []Effect { return n.m.Closed(now, c.link[other]) })
	case simMessage:
		n.hear(c, other, e.msg)
	}
}

// release lets go what waited for the end of a cut.
func (w *simWorld) release() {
	held := w.stalled
	w.stalled = nil
	for _, c := range held {
		for side := range c.stalled {
			if len(c.stalled[side]) == 0 {
				continue
			}
			if w.cut(c.node[side], c.node[1-side]) || c.held[side] {
				w.stalled = append(w.stalled, c)
				continue
			}
			for _, e := range c.stalled[side] {
				e.at = max(c.last[side], w.now+w.delay())
				if w.big {
					e.at += w.net.Int64N(simReleaseMs) // or their answers would all be under way at once
				}
				c.last[side] = e.at
				w.events.push(e)
			}
			c.stalled[side] = nil
		}
	}
}

// dial begins to open a link.
func (w *simWorld) dial(n *simNode, e Connect) {
	c := &simConn{node: [2]int32{n.at, -1}, life: [2]int32{n.life, 0}, link: [2]LinkID{e.Link, 0}}
	n.conns[e.Link] = c
	to, ok := w.address[simAddress(e.IP, e.BusPort)]
	if !ok {
		w.later(w.delay()+500, func() { w.end(c, 0) })
		return
	}
	c.node[1] = to
	w.throw(c, 0, simAccept, nil)
	w.later(max(w.timeout, 1000), func() {
		if !c.open {
			w.end(c, 0)
		}
	})
}

// end ends a link on one of its sides.
func (w *simWorld) end(c *simConn, side uint8) {
	if c.gone[side] || c.link[side] == 0 {
		return
	}
	n := w.nodes[c.node[side]]
	if n.life != c.life[side] || n.m == nil {
		return
	}
	if n.stopped {
		w.later(100, func() { w.end(c, side) })
		return
	}
	c.gone[side] = true
	delete(n.conns, c.link[side])
	n.feed(func(now int64) []Effect { return n.m.Closed(now, c.link[side]) })
}

// probe ends a link on one of its sides when nobody has answered TCP's questions for a while.
func (w *simWorld) probe(c *simConn, side uint8) {
	w.later(4*w.timeout+1000, func() { w.end(c, side) })
}

// accept takes a link at the node that it leads to.
func (w *simWorld) accept(c *simConn, n *simNode) {
	from := w.nodes[c.node[0]]
	if c.gone[0] || from.life != c.life[0] {
		return
	}
	if n.dark {
		w.later(1000, func() { w.throw(c, 0, simAccept, nil) }) // no answer; it is asked again, until the dialler gives up
		return
	}
	if n.m == nil || w.address[simAddress(n.ip, n.busPort())] != n.at {
		w.later(w.delay(), func() { w.end(c, 0) })
		return
	}
	if n.stopped {
		n.parked = append(n.parked, simEvent{kind: simAccept, conn: c, node: -1})
		return
	}
	n.lastIn += 2
	c.link[1], c.life[1] = n.lastIn, n.life
	n.conns[n.lastIn] = c
	w.mark(simAccept, n, uint64(n.lastIn))
	n.feed(func(now int64) []Effect { return n.m.Accepted(now, c.link[1], from.ip, n.ip) })
	w.throw(c, 1, simConnected, nil)
}

// hangUp closes a link from one side.
func (w *simWorld) hangUp(n *simNode, link LinkID) {
	c := n.conns[link]
	if c == nil {
		return
	}
	delete(n.conns, link)
	side := uint8(0)
	if link%2 == 0 {
		side = 1
	}
	c.gone[side] = true
	if c.open || side == 1 {
		w.throw(c, side, simClosed, nil)
	}
}

// breakLinks ends some of the links of a node: either both ends hear of it, or none (then a link is dead).
func (w *simWorld) breakLinks(n *simNode, percent int, silently bool) {
	for _, c := range n.sortedConns() {
		if w.faults.IntN(100) >= percent {
			continue
		}
		if silently {
			c.dead = true
			w.probe(c, 0)
			w.probe(c, 1)
			continue
		}
		for side := range uint8(2) {
			if c.node[1] >= 0 {
				w.throw(c, side, simClosed, nil)
			}
		}
	}
}

func simAddress(ip string, port int) string { return fmt.Sprintf("%s@%d", ip, port) }

// outgoing is what becomes of a message on its way: some pass the byte format, a node of an older version has no
// extensions, and a mad node says what it likes.
func (w *simWorld) outgoing(n *simNode, c *simConn, side uint8, msg *wire.Message) *wire.Message {
	to := w.nodes[c.node[1-side]]
	if n.old || to.old {
		plain := *msg
		plain.Ext, plain.Bits = wire.Ext{}, plain.Bits&^wire.Extensions
		msg = &plain
	}
	if n.mad && w.mad.IntN(5) == 0 {
		if bad, err := wire.Decode(wire.Append(nil, w.nonsense(n, msg))); err == nil {
			return bad // the rest is refused before a machine sees it
		}
	}
	if w.plan.wire > 0 && w.net.IntN(100) < w.plan.wire {
		decoded, err := wire.Decode(wire.Append(nil, msg))
		if err != nil {
			w.fail("wire", "message of type %s does not pass the byte format: %v", msg.Type.Name(), err)
			return msg
		}
		msg = decoded
	}
	return msg
}
