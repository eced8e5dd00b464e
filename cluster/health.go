package cluster

import (
	"cairn/internal/slot"
)

// Whether the cluster is ok, as this node sees it. A node serves clients only while it is.

const (
	// startDelayMs is how long a primary waits after its start before it serves: the others may have replaced it.
	startDelayMs = 2000
	// A primary that was in a minority waits for the node timeout, within these bounds, before it serves again.
	rejoinMinMs = 500
	rejoinMaxMs = 5000
	// patienceMinMs is the least silence that puts a node out of reach: some ticks, however short the node timeout.
	patienceMinMs = 500
)

// evaluate looks at the state of the cluster.
func (m *Machine) evaluate(now int64) {
	s := &m.state
	if s.firstLook == 0 {
		s.firstLook = now
	}
	if m.me.primary() && !s.ok && now-s.firstLook < startDelayMs {
		return
	}
	ok := !m.cfg.FullCoverage || m.covered()
	if !m.inMajority(now) {
		ok = false
		s.minorityAt = now
	}
	if ok == s.ok {
		return
	}
	delay := min(max(m.cfg.NodeTimeout, rejoinMinMs), rejoinMaxMs)
	if ok && m.me.primary() && now-s.minorityAt < delay {
		return
	}
	s.ok, s.changedAt = ok, now
	m.reroute = true
	m.version++
	if ok {
		m.note(Notice, "Cluster state changed: ok")
	} else {
		m.note(Warning, "Cluster state changed: fail")
	}
}

// inMajority says that enough of those who decide are within reach.
func (m *Machine) inMajority(now int64) bool {
	reachable := 0
	for _, p := range m.peers {
		if p.votes() && m.reaches(now, p) {
			reachable++
		}
	}
	return reachable >= m.quorum()
}

// wake looks at the state first of all when this process has not run for a while. What comes now may have waited in the
// system's buffers since before another node took over, and must not pass for a sign of life of today.
func (m *Machine) wake(now int64) {
	if m.tickedAt != 0 && now-m.tickedAt > m.patience() {
		m.evaluate(now)
	}
}

// reaches says that a node is within reach. A suspicion comes up to a timeout and a half after the last word, because the
// ping that goes unanswered is sent half a timeout after it; by then a majority may have voted for another primary. So a
// primary, which must not serve in a minority, counts a node only for about a timeout after it was last heard. What others
// tell of pongs does not count: their clocks may be ahead.
func (m *Machine) reaches(now int64, p *Peer) bool {
	if p.any(anyFailure) {
		return false
	}
	return p == m.me || !m.me.primary() || now-p.DataAt <= m.patience()
}

// patience is for how long a healthy node may be silent: a node timeout, or more if pings are sent more rarely than twice
// in it.
func (m *Machine) patience() int64 {
	half := m.cfg.NodeTimeout / 2
	return max(half+max(half, m.cfg.PingInterval), patienceMinMs)
}

// covered says that every slot has an owner that has not failed. An owner that one node alone suspects is good enough.
func (m *Machine) covered() bool {
	n := 0
	for _, p := range m.peers {
		if !p.failed() {
			n += p.Slots
		}
	}
	return n == slot.Count
}
