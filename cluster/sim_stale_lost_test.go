package cluster

// Claims that a crash took back. A target may answer SETSLOT NODE when its log has it, and save it later. A kill leaves what
// the log has, a power cut does not, and what is left depends on how much is gone, and on what the source was told:
//
//	target has the slot coming   source was told   the target takes the slot again: nothing is to be done
//	target has the slot coming   it was not        the slot is open at both ends, and the source has it
//	target knows nothing         it was not        the source has it, and may have it open
//	target knows nothing         source was told   nobody has it, and no node can know that somebody should
//
// In the last case no key can be left at the target either: keys come after IMPORTING in its log. In all but the first a tool
// is to go over the cluster, as it is after any kill in the middle of a move; so here one does, over these slots alone.

// simArrival is a SETSLOT NODE that the slot's new owner answered.
type simArrival struct {
	by   *simNode
	life int32
}

// simFixMs is how long after a start the tool comes.
const simFixMs = 300

// restarted looks what a node that starts has lost of its claims.
func (s *simStale) restarted(n *simNode) {
	for hot := range simHot {
		c, known := s.claims[hot]
		if !known || c.by != n || c.life == n.life || simHas(n.disk.state, simHotSlot(hot)) {
			continue
		}
		s.w.note(n, "has lost its claim of slot %d", simHotSlot(hot))
		delete(s.claims, hot)
		s.lost[hot] = true
		s.after(simFixMs, func() { s.fix(hot) })
	}
}

// fix is the tool. It waits until all nodes are there, and for a move of the slot that is under way.
func (s *simStale) fix(hot int) {
	w, slot := s.w, simHotSlot(hot)
	owner := s.holder(hot)
	moving := len(s.hops) > 0 && s.hops[0].slot == hot && s.hops[0].step > 0 && owner != nil
	for _, n := range w.nodes {
		moving = moving || !n.up()
	}
	if moving && w.now < simStaleEnd {
		s.after(simFixMs, func() { s.fix(hot) })
		return
	}
	if !s.lost[hot] {
		return // it was moved again
	}
	delete(s.lost, hot)
	coming := false
	for _, n := range w.nodes {
		if n.m == nil || !n.m.me.primary() {
			continue
		}
		c, open := n.marks()[slot]
		switch {
		case open && owner != nil:
			w.closeMark(n, slot, c)
		case open && c.Action == SlotImporting:
			coming = true
		}
	}
	if owner == nil && !coming {
		w.coverSlot(hot)
	}
}
