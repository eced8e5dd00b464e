package cluster

import "cairn/cluster/wire"

// What time brings: links to open, pings to send, silence to notice.

const (
	ticksPerSecond = 10

	// randomPings is how many nodes are drawn each second; of these the one that was silent longest is pinged.
	randomPings = 5

	// handshakeMinMs is how long a node in handshake has at least to answer.
	handshakeMinMs = 1000
)

// Tick is to be called ten times a second.
func (m *Machine) Tick(now int64) []Effect {
	m.wake(now)
	m.ticks, m.tickedAt = m.ticks+1, now
	m.tickLinks(now)
	if m.ticks%ticksPerSecond == 0 {
		m.dropForgotten(now)
		m.dropReports(now)
		m.pingLongestSilent(now)
	}
	m.tickPeers(now)
	if m.me.replica() && m.following.id.IsZero() {
		m.follow(0) // its address is known by now, perhaps
	}
	m.tellRole(now)
	m.manualTick(now)
	if m.me.replica() {
		m.stand = false
		m.electionTick(now)
		if most, may := m.mayMigrate(); may {
			m.replicaMigrationTick(now, most)
		}
	}
	if !m.state.ok || m.me.primary() {
		m.check = true
	}
	m.saveLazily()
	return m.settle(now)
}

// tickLinks ends handshakes that took too long and opens the links that are missing.
func (m *Machine) tickLinks(now int64) {
	patience := max(m.cfg.NodeTimeout, handshakeMinMs)
	for i := 0; i < len(m.peers); {
		p := m.peers[i]
		if p.handshake() && now-p.Created > patience {
			m.deletePeer(p)
			continue // the next one has its place now
		}
		if p != m.me && p.out == 0 && p.hasAddress() {
			m.openLink(now, p)
		}
		i++
	}
	still := m.suspects[:0]
	for _, p := range m.suspects {
		if p.any(wire.FlagMaybeFailed) {
			still = append(still, p)
		}
	}
	clear(m.suspects[len(still):])
	m.suspects = still
}

// pingLongestSilent pings one node a second, whatever it was heard last: most are pinged this way, and their pongs spread
// by gossip.
func (m *Machine) pingLongestSilent(now int64) {
	var silent *Peer
	for range randomPings {
		p := m.peers[m.rand()%uint64(len(m.peers))]
		if p == m.me || !p.outUp || p.PingSent != 0 || p.handshake() {
			continue
		}
		if silent == nil || p.PongAt < silent.PongAt {
			silent = p
		}
	}
	if silent != nil {
		m.ping(now, silent)
	}
}

// tickPeers looks at each member: is it to be pinged, is its link dead, has it failed?
func (m *Machine) tickPeers(now int64) {
	interval := m.cfg.PingInterval
	if interval == 0 {
		interval = m.cfg.NodeTimeout / 2
	}
	deciding := m.me.votes()
	for _, p := range m.peers {
		if p == m.me || p.any(wire.FlagHandshake|wire.FlagNoAddr) {
			continue
		}
		unanswered, silence := now-p.PingSent, now-p.DataAt
		if p.out != 0 && p.PingSent != 0 && now-p.outAt > m.cfg.NodeTimeout &&
			unanswered > m.cfg.NodeTimeout/2 && (silence > m.cfg.NodeTimeout/2 || unanswered > m.cfg.NodeTimeout) {
			m.dropOut(p) // perhaps only the link is dead, which shows although the peer's own link is well
		}
		switch {
		case p.out != 0 && p.PingSent == 0 && (now-p.PongAt > interval || deciding && p.votes() && now-p.DataAt > interval):
			m.ping(now, p) // those who decide hear each other themselves, see reaches
		case p.outUp && p.PingSent == 0 && p.failed() && m.mayClear(now, p) && !m.mayClear(p.PongAt, p):
			m.ping(now, p) // it answers, perhaps, and has had the mark for long enough
		case p.outUp && m.manual.asker == p && m.pausedForFailover():
			m.ping(now, p) // it waits for this node's offset
		case p.PingSent != 0 && min(unanswered, silence) > m.cfg.NodeTimeout && !p.any(anyFailure):
			m.suspect(now, p)
		}
	}
}

// mayMigrate says whether this replica may leave for a primary that has none: there is such a primary, and no primary has
// more healthy replicas than this one's, which has at least two. It gives their number.
func (m *Machine) mayMigrate() (most int, may bool) {
	if !m.cfg.ReplicaMigration || m.me.Primary == nil {
		return 0, false
	}
	orphans, mine := 0, 0
	for _, p := range m.peers {
		if !p.primary() || p.any(wire.FlagFailed|wire.FlagNoAddr|wire.FlagHandshake) {
			continue
		}
		n := p.healthyReplicas()
		if n == 0 && p.Slots > 0 && p.any(wire.FlagMigrateTo) {
			orphans++
		}
		most = max(most, n)
		if p == m.me.Primary {
			mine = n
		}
	}
	return most, orphans > 0 && most >= 2 && mine == most
}
