package cluster

import (
	"slices"

	"cairn/cluster/wire"
)

// How a node comes to count as failed: one node suspects it, a majority of the primaries with slots does, all are told.

// reportTimeouts is for how many node timeouts a report counts, and for how many a primary that failed and came back
// keeps the mark if nobody took over.
const reportTimeouts = 2

// addReport notes that by says that p failed; true: it did not before.
func (p *Peer) addReport(by *Peer, now int64) bool {
	for i := range p.reports {
		if p.reports[i].by == by {
			p.reports[i].at = now
			return false
		}
	}
	p.reports = append(p.reports, report{by, now})
	return true
}

// dropReport takes back what by said; true: it had said it.
func (p *Peer) dropReport(by *Peer) bool {
	for i := range p.reports {
		if p.reports[i].by == by {
			p.reports = slices.Delete(p.reports, i, i+1)
			if len(p.reports) == 0 {
				p.reports = nil
			}
			return true
		}
	}
	return false
}

// reportsOf drops what is too old to count, and counts those whose word has weight still: a report outlives neither its
// time nor its author's slots.
func (m *Machine) reportsOf(p *Peer, now int64) (n int) {
	oldest := now - reportTimeouts*m.cfg.NodeTimeout
	p.reports = slices.DeleteFunc(p.reports, func(r report) bool { return r.at < oldest })
	if len(p.reports) == 0 {
		p.reports = nil
	}
	for i := range p.reports {
		if p.reports[i].by.votes() {
			n++
		}
	}
	return n
}

// dropReports drops what is too old to count, also of nodes that nobody asks about any more: as long as there are reports of
// a node, what others tell of its pongs is not believed, and it is pinged more often than need be.
func (m *Machine) dropReports(now int64) {
	for _, p := range m.peers {
		if len(p.reports) > 0 {
			m.reportsOf(p, now)
		}
	}
}

// suspect notes that a node does not answer.
func (m *Machine) suspect(now int64, p *Peer) {
	p.Flags |= wire.FlagMaybeFailed
	m.suspects = append(m.suspects, p)
	m.note(Debug, "*** NODE %s possibly failing", p.ID)
	m.changed()
	m.askCheck()
	if m.me.votes() {
		// The others' reports may be there already, or this node may be all that decides.
		m.failIfAgreed(now, p)
	}
}

// failIfAgreed marks a node as failed if this node suspects it and a majority says so.
func (m *Machine) failIfAgreed(now int64, p *Peer) {
	if !p.any(wire.FlagMaybeFailed) || p.failed() {
		return
	}
	agreed := m.reportsOf(p, now)
	if m.me.votes() {
		agreed++
	}
	if agreed < m.quorum() {
		return
	}
	m.note(Notice, "Marking node %s (%s) as failing (quorum reached).", p.ID, p.Nodename)
	m.setFailed(now, p)
	msg := m.header(wire.Fail)
	msg.Failed = p.ID
	m.broadcast(msg, 0)
}

func (m *Machine) setFailed(now int64, p *Peer) {
	p.Flags = p.Flags&^wire.FlagMaybeFailed | wire.FlagFailed
	p.FailedAt = now
	m.changed()
	m.askCheck()
	m.askElection() // it may be this node's primary
}

// hearFail takes a member's word that a majority agreed.
func (m *Machine) hearFail(now int64, sender *Peer, id wire.ID) {
	p := m.byID[id]
	if p == nil || p == m.me || p.failed() || p.handshake() {
		return
	}
	m.note(Notice, "FAIL message received from %s (%s) about %s (%s)", sender.ID, sender.Nodename, p.ID, p.Nodename)
	m.setFailed(now, p)
}

// answered notes a pong on the link that this node opened: the only proof that a node is well.
func (m *Machine) answered(now int64, p *Peer) {
	if p.PingSent != 0 {
		p.heard = max(p.heard, p.asked)
	}
	p.PongAt, p.PingSent = now, 0
	switch {
	case p.any(wire.FlagMaybeFailed):
		p.Flags &^= wire.FlagMaybeFailed
		m.changed()
		m.askCheck()
	case p.failed():
		m.clearFailed(now, p)
	}
}

// clearFailed takes the mark from a node that can be reached again. A primary with slots keeps it for a while: a replica
// may be about to take over, and must not be stopped half way by its return.
func (m *Machine) clearFailed(now int64, p *Peer) {
	switch {
	case p.replica():
		m.note(Notice, "Clear FAIL state for node %s (%s):replica is reachable again.", p.ID, p.Nodename)
	case p.Slots == 0:
		m.note(Notice, "Clear FAIL state for node %s (%s):master without slots is reachable again.", p.ID, p.Nodename)
	case m.mayClear(now, p):
		m.note(Notice, "Clear FAIL state for node %s (%s): is reachable again and nobody is serving its slots after "+
			"some time.", p.ID, p.Nodename)
	default:
		return
	}
	p.Flags &^= wire.FlagFailed
	m.changed()
	m.askCheck()
}

// mayClear says that a primary with slots has had the mark for so long that nobody takes over any more.
func (m *Machine) mayClear(now int64, p *Peer) bool {
	return now-p.FailedAt > reportTimeouts*m.cfg.NodeTimeout
}
