package cluster

import (
	"cairn/cluster/wire"
)

// More of the rules of sim_rules_test.go.

// closedByCut says that a cut which is about to end has put a primary into a minority, and that it has noticed.
func (w *simWorld) closedByCut(n *simNode) bool {
	if !n.up() || !n.m.me.votes() || n.m.state.ok {
		return false
	}
	reached, cut := w.reachedInCut(n)
	return cut && reached < n.m.quorum()
}

// checkRejoin looks at a primary that takes a write: one that was in a minority waits for a while first.
func (w *simWorld) checkRejoin(n *simNode) {
	if n.outAt == 0 || n.outLife != n.life || n.disturbed > n.outAt || n.promotedAt > n.outAt {
		return
	}
	delay := min(max(w.timeout, rejoinMinMs), rejoinMaxMs)
	if since := w.now - n.outAt; since < delay-delay/16-200 { // a fast clock, the last look before the end
		w.fail("rejoin", "node %s writes %d ms after the end of the cut that had it in a minority; %d ms are to pass", n.name,
			since, delay)
	}
}

// checkHeard looks at a node that has heard another one's claim under a higher epoch.
func (w *simWorld) checkHeard(n *simNode, link LinkID, msg *wire.Message) {
	m := n.m
	if msg.Type > wire.Meet || msg.Slots == nil || !msg.Primary.IsZero() || msg.ConfigEpoch <= m.me.Epoch || w.class == simMad ||
		w.big || !m.me.primary() {
		return
	}
	p := m.outLink[link]
	if in := m.inLink[link]; in != nil {
		p = in.peer
	}
	if p == nil || p == m.me || p.ID != msg.Sender || p.handshake() {
		return // passed over, or the link is closed
	}
	for i := range simHot {
		if s := simHotSlot(i); msg.Slots.Has(s) && m.owner(s) == m.me {
			w.fail("vacated", "node %s, epoch %d, keeps slot %d, which %s claims in epoch %d", n.name, m.me.Epoch, s, p.ID,
				msg.ConfigEpoch)
		}
	}
}

// checkServes looks at a primary that takes a write to a slot: it must have it, and if not, be about to say so. What it
// gained a moment before, and waits for the disk, holds that up.
func (w *simWorld) checkServes(n *simNode, i int) {
	if !n.owns(i) && !n.queue.busy && n.disk.saving == nil && w.bug == "" {
		w.fail("vacated", "node %s takes a write to slot %d, which it does not have", n.name, simHotSlot(i))
	}
}

// checkDrop looks at keys that are about to be dropped.
func (w *simWorld) checkDrop(n *simNode, i int) {
	if n.data.keys[i] == 0 || w.class == simMad {
		return
	}
	s := simHotSlot(i)
	if simHas(n.disk.state, s) {
		w.fail("keys", "node %s drops the keys of slot %d, and has the slot on disk", n.name, s)
	}
	for _, o := range w.nodes {
		if o != n && (o.m != nil && o.owns(i) || simHas(o.disk.state, s)) {
			return
		}
	}
	w.fail("keys", "node %s drops %d keys of slot %d, which no other node has", n.name, n.data.keys[i], s)
}

// simHas says that a state gives its node a slot.
func simHas(s *State, slot uint16) bool {
	for _, r := range s.Myself().Slots {
		if slot >= r.First && slot <= r.Last {
			return true
		}
	}
	return false
}

// simHeld is how much of what can grow a node keeps.
type simHeld struct{ in, out, waiting, reports, suspects, saving, voters, forgot, sends int }

func simHeldBy(n *simNode) (h simHeld) {
	m := n.m
	for _, p := range m.peers {
		h.waiting += len(p.waiting)
		h.reports += len(p.reports)
	}
	h.in, h.out, h.suspects, h.saving = len(m.inLink), len(m.outLink), len(m.suspects), len(m.saving)
	h.voters, h.forgot, h.sends = len(m.election.voters), len(m.forgot), len(n.held)
	return h
}

// checkMemory looks at what a node keeps at the end, when all is quiet.
func (w *simWorld) checkMemory(n *simNode) {
	known, h := len(n.m.peers), simHeldBy(n)
	if h.in > 2*known || h.out > known || h.waiting > 0 || h.suspects > 0 || h.saving > 1 || h.voters > known ||
		h.reports > 0 || h.forgot > 2*known || h.sends > known {
		w.fail("memory", "node %s knows %d nodes, and keeps %+v", n.name, known, h)
	}
}

// checkBest counts the elections that a machine began and a replica won that was behind another one which could have
// stood, too. That is no failure: who is first to be heard wins.
func (w *simWorld) checkBest(n *simNode, b *simBefore) {
	if b.byHand || b.primary == nil || w.part.side != nil {
		return
	}
	for _, o := range w.nodes {
		if o != n && o.up() && o.m.me.replica() && o.m.me.Primary != nil && o.m.me.Primary.ID == b.primary.ID &&
			!o.data.incomplete && o.data.history.id == n.data.history.id && o.data.offset > n.data.offset {
			w.counts.worse++
			return
		}
	}
}
