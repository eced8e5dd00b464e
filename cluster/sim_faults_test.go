package cluster

import "cairn/cluster/wire"

// What goes wrong.

// simQuietMs is the last part of a run, in which all is long over.
const simQuietMs = 10_000

// simPart is the cut in force.
type simPart struct {
	serial int
	whole  bool // both directions, and side tells who is where
	since  int64
	side   []bool
}

func (w *simWorld) startFaults() {
	w.later(3000, w.nextFault)
	w.later(4000, w.nextCommand)
}

// end is when faults end.
func (w *simWorld) faultsEnd() int64 { return w.plan.length*6/10 - 1000 }

func (w *simWorld) nextFault() {
	if w.calm || w.now > w.faultsEnd() {
		return
	}
	n := w.nodes[w.faults.IntN(len(w.nodes))]
	switch w.faults.IntN(16) {
	case 0, 1, 2, 3:
		w.crashOne(n)
	case 4, 5:
		w.stop(n)
	case 6, 7, 8:
		w.part1()
	case 9:
		w.breakLinks(n, 30, false)
	case 10:
		w.breakLinks(n, 30, true)
	case 11:
		w.jump(n)
	case 12:
		n.disk.slow = 5000
		w.later(w.faults.Int64N(10_000), func() { n.disk.slow = 0 })
	case 13:
		n.disk.failNext = true
		w.later(500+w.faults.Int64N(5000), func() { w.restart(n) })
	case 14:
		w.setDrift(n, w.faults.Int64N(101)-50)
	case 15:
		// Two primaries go at once, and their replicas stand at once.
		for range 2 {
			if p := w.pickPrimary(); p != nil {
				w.crashOne(p)
			}
		}
	}
	w.later(200+w.faults.Int64N(3*w.timeout), w.nextFault)
}

func (w *simWorld) alive() (n int) {
	for _, o := range w.nodes {
		if o.up() {
			n++
		}
	}
	return n
}

func (w *simWorld) pickPrimary() *simNode {
	first := w.faults.IntN(len(w.nodes))
	for i := range w.nodes {
		if n := w.nodes[(first+i)%len(w.nodes)]; n.up() && n.m.me.votes() {
			return n
		}
	}
	return nil
}

func (w *simWorld) crashOne(n *simNode) {
	if n.m == nil || w.alive()*2 <= len(w.nodes) {
		return
	}
	n.crash(w.faults.IntN(3) == 0)
	if w.faults.IntN(5) == 0 {
		w.later(1, func() {
			if n.m == nil && !w.calm {
				w.giveIP(n)
				w.note(n, "has the address %s now", n.ip)
			}
		})
	}
	n.clockOff += w.faults.Int64N(2001) - 1000
	wait := 50 + w.faults.Int64N(2*w.timeout)
	if w.faults.IntN(3) == 0 {
		wait += 4 * w.timeout
	}
	w.later(wait, func() { w.restart(n) })
}

// afterVote is the worst moment for a voter to crash, and to come back at once.
func (w *simWorld) afterVote(n *simNode) {
	if w.calm || w.plan.quiet || w.faults.IntN(8) != 0 {
		return
	}
	life := n.life
	w.later(w.faults.Int64N(20), func() {
		if n.life == life && n.m != nil && !w.calm {
			n.crash(false)
			w.later(20+w.faults.Int64N(100), func() { w.restart(n) })
		}
	})
}

func (w *simWorld) restart(n *simNode) {
	if n.m == nil && !n.never {
		n.disturbed = w.now
		n.start()
		w.note(n, "starts, life %d", n.life)
	}
}

func (w *simWorld) stop(n *simNode) {
	if !n.up() {
		return
	}
	w.counts.stops++
	ms := 100 + w.faults.Int64N(3*w.timeout)
	if w.faults.IntN(5) == 0 {
		ms = 10 * w.timeout
	}
	w.note(n, "stands still for %d ms", ms)
	n.stopped = true
	life := n.life
	w.later(ms, func() {
		if n.life == life {
			w.resume(n)
		}
	})
}

func (w *simWorld) resume(n *simNode) {
	if !n.stopped || n.m == nil {
		return
	}
	w.note(n, "goes on")
	n.stopped, n.disturbed = false, w.now
	parked := n.parked
	n.parked = nil
	for _, e := range parked {
		if e.kind == simAccept {
			w.accept(e.conn, n)
			continue
		}
		e.at = w.now
		w.events.push(e)
	}
}

func (w *simWorld) jump(n *simNode) {
	ms := []int64{500, w.timeout, 10 * w.timeout, 3_600_000}[w.faults.IntN(4)]
	w.note(n, "its clock jumps %d ms ahead", ms)
	n.clockOff += ms
	n.disturbed = w.now
}

// setDrift lets a clock go on from where it is at another speed.
func (w *simWorld) setDrift(n *simNode, drift int64) {
	before := n.clock()
	n.drift = drift
	n.clockOff += before - n.clock()
	n.disturbed = w.now
}

// part1 cuts the network for a while, in one of several shapes.
func (w *simWorld) part1() {
	if w.part.side != nil {
		return
	}
	w.counts.cuts++
	n := len(w.nodes)
	side := make([]bool, n)
	for i := range side {
		side[i] = w.faults.IntN(2) == 0
	}
	shape := w.faults.IntN(5)
	bridge := -1
	switch shape {
	case 0:
		clear(side)
		side[w.faults.IntN(n)] = true // one is alone
	case 1:
		bridge = w.faults.IntN(n) // one reaches both sides
	}
	oneWay := shape == 2
	w.part = simPart{serial: w.part.serial + 1, whole: bridge < 0 && !oneWay, since: w.now, side: side}
	w.cutOff = make([]bool, n*n)
	for i := range n {
		for j := range n {
			w.cutOff[i*n+j] = side[i] != side[j] && i != bridge && j != bridge && (!oneWay || side[i])
		}
	}
	ms := 100 + w.faults.Int64N(3*w.timeout)
	if w.faults.IntN(4) == 0 {
		ms += 3 * w.timeout
	}
	w.note(nil, "cut %v for %d ms (shape %d, bridge %d)", side, ms, shape, bridge)
	serial := w.part.serial
	w.later(ms, func() {
		if w.part.serial == serial {
			w.join()
		}
	})
}

// join ends the cut.
func (w *simWorld) join() {
	if w.part.side == nil {
		return
	}
	w.note(nil, "the cut ends")
	for _, n := range w.nodes {
		if w.closedByCut(n) {
			n.outAt, n.outLife = w.now, n.life
		}
	}
	w.part = simPart{serial: w.part.serial}
	w.cutOff = nil
	w.release()
}

// heal ends all faults.
func (w *simWorld) heal() {
	if w.failure != nil {
		return
	}
	w.note(nil, "all faults end")
	w.calm, w.healedAt = true, w.now
	for _, n := range w.nodes {
		if n.m != nil {
			w.healedEpoch = max(w.healedEpoch, n.m.currentEpoch)
		}
	}
	w.later(w.plan.length-w.now-simQuietMs, func() { w.quietFrom = w.counts.messages })
	w.join()
	for _, n := range w.nodes {
		n.disk.slow, n.disk.failNext = 0, false
		w.setDrift(n, 0)
		w.resume(n)
		w.restart(n)
	}
	w.later(500, w.look)
}

// nonsense is what a mad node says in place of a message: all that the byte format lets through.
func (w *simWorld) nonsense(n *simNode, msg *wire.Message) *wire.Message {
	bad := *msg
	r := w.mad
	someone := func() wire.ID {
		switch r.IntN(6) {
		case 0:
			return simID(r)
		case 1:
			return wire.ID{}
		}
		o := w.nodes[r.IntN(len(w.nodes))]
		return o.ids[len(o.ids)-1]
	}
	epoch := func() uint64 {
		return []uint64{0, 1, msg.CurrentEpoch, msg.CurrentEpoch + 1, msg.CurrentEpoch + 1000, ^uint64(0), 1 << 40}[r.IntN(7)]
	}
	switch r.IntN(9) {
	case 0:
		bad.CurrentEpoch = epoch()
	case 1:
		bad.ConfigEpoch = epoch()
	case 2:
		bad.Primary = someone()
	case 3:
		bad.Flags = wire.Flags(r.Uint32())
	case 4:
		bad.Type, bad.Failed = wire.Fail, someone()
	case 5:
		bad.Type = wire.Update
		bad.Update = wire.NodeUpdate{Epoch: epoch(), ID: someone(), Slots: msg.Slots}
	case 6:
		bad.Gossip = append([]wire.Gossip(nil), msg.Gossip...)
		for range r.IntN(5) {
			o := w.nodes[r.IntN(len(w.nodes))]
			bad.Gossip = append(bad.Gossip, wire.Gossip{
				ID: someone(), IP: o.ip, Port: uint16(o.port), BusPort: uint16(o.busPort()), Flags: wire.Flags(r.Uint32()),
				PongReceived: r.Uint32(),
			})
		}
	case 7:
		bad.Type = wire.AuthRequest
		bad.Bits |= wire.ForceAck
	case 8:
		bad.Type = []wire.Type{wire.AuthAck, wire.ManualStart, wire.Meet, wire.Pong, wire.Ping}[r.IntN(5)]
		bad.Sender = someone()
	}
	return &bad
}
