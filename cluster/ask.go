package cluster

import "cairn/cluster/wire"

// Questions that change nothing.

// LinkPeer is the node behind a link; false while it is not known, or in handshake.
func (m *Machine) LinkPeer(link LinkID) (wire.ID, bool) {
	p := m.outLink[link]
	if in := m.inLink[link]; in != nil {
		p = in.peer
	}
	if p == nil || p.handshake() {
		return wire.ID{}, false
	}
	return p.ID, true
}

// FailureReports counts the nodes that say of another one that it has failed; false if it is not known.
func (m *Machine) FailureReports(id string, now int64) (int, bool) {
	p := m.lookup(id)
	if p == nil {
		return 0, false
	}
	return m.reportsOf(p, now), true
}

// Knows says whether a node is a member.
func (m *Machine) Knows(id wire.ID) bool {
	p := m.byID[id]
	return p != nil && !p.handshake()
}
