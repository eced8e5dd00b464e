package cluster

import "maps"

// What DELSLOTS took from another node stays without owner here for a moment, though that node claims it in every header.
//
// redis-cli --cluster fix gives a slot that has keys on two nodes to one of them by DELSLOTS, ADDSLOTS and BUMPEPOCH there, a
// round trip and a save for each. A header of the old owner that comes between the first two makes ADDSLOTS fail ("Slot 5
// is already busy"), and the tool gives up; one under a higher epoch between the last two takes the slot back unnoticed.
// Redis has the same gap, for the milliseconds of its replies; a save on a busy disk takes longer.

// letGoMs is how long: more than the three commands take, and about as long as a header of the old owner would let wait for
// itself anyway.
const letGoMs = 1000

// letGo is from whom a slot was taken, and until when a claim of that epoch is not heeded.
type letGo struct {
	from  *Peer
	epoch uint64
	until int64
}

// forgetLetGo forgets what is over.
func (m *Machine) forgetLetGo(now int64) {
	maps.DeleteFunc(m.slots.letGo, func(_ uint16, l letGo) bool { return now >= l.until })
}

// letGoOf notes that a slot is taken from its owner by hand.
func (m *Machine) letGoOf(now int64, s uint16) {
	if p := m.owner(s); p != m.me {
		m.slots.letGo[s] = letGo{p, p.Epoch, now + letGoMs}
	}
}

// isLetGo says that a claim is what was there before DELSLOTS.
func (m *Machine) isLetGo(now int64, s uint16, p *Peer, epoch uint64) bool {
	l, ok := m.slots.letGo[s]
	return ok && l.from == p && epoch <= l.epoch && now < l.until
}
