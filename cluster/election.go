package cluster

import (
	"slices"

	"cairn/cluster/wire"
)

// An election is how a replica becomes a primary with the others' consent. The replica raises the current epoch, asks
// all primaries, and has won when more than half of those with slots have given it their one vote of that epoch.
//
//	primary FAIL ──▶ planned ──▶ asked ──▶ won ──▶ takeover (roles.go)
//	                 500 ms + up to 500 ms     │
//	                 + 1 s per better replica  └──▶ expired ──▶ planned again
//
// What must never happen is that two replicas win in one epoch, over whatever crashes. So a vote, and the epoch in
// which votes are asked for, are durable before anybody hears of them; and a candidate spends its own vote of that
// epoch too: it is a primary itself when it has won, and could otherwise help a second candidate of the same epoch
// over the line.

// Times of an election, in milliseconds.
const (
	electionSpread  = 500  // chance in the delay, so that two replicas rarely ask at once
	electionDelay   = 500  // lets the news of the failure reach the voters
	electionPerRank = 1000 // head start of each replica that has more of the stream
	electionMinimum = 2000 // for votes to come in
	electionRetell  = 10_000
	electionQuiet   = 5000 // after a failure, in which reasons for not standing are not worth a line
)

// election is a replica's attempt to replace its primary.
type election struct {
	at     int64 // when votes are asked for; 0: none planned
	rank   int
	manual bool // planned by a manual failover, whose votes count for nothing else
	sent   bool
	epoch  uint64  // in which votes were asked for
	voters []*Peer // who gave theirs

	whyNot string // last reason given for not standing
	toldAt int64
}

// electionTimeout is how long votes may take.
func (m *Machine) electionTimeout() int64 { return max(2*m.cfg.NodeTimeout, electionMinimum) }

// electionTick takes a replica's election one step further, if it should stand at all.
func (m *Machine) electionTick(now int64) {
	manual := m.manualReady(now)
	if !m.mayStand(manual) {
		m.election.whyNot = ""
		return
	}
	if !manual && !m.fresh(now) {
		m.cannot(now, "Disconnected from master for longer than allowed. "+
			"Please check the 'cluster-replica-validity-factor' configuration option.")
		return
	}
	e := &m.election
	if m.electionDue(now, manual) {
		m.planElection(now, manual)
		if !manual {
			return
		}
	}
	if !e.sent && !manual {
		m.rerank(now)
	}
	switch {
	case now < e.at:
		m.cannot(now, "Waiting the delay before I can start a new failover.")
	case now-e.at > m.electionTimeout():
		m.cannot(now, "Failover attempt expired.")
	case !e.sent:
		m.askVotes(manual)
	case len(e.voters) >= m.quorum():
		m.winElection(now)
	default:
		m.cannot(now, "Waiting for votes, but majority still not reached.")
	}
}

// mayStand says that this is a replica with a primary to replace. A primary without slots is replaced only by hand:
// nothing is served by it that could be saved; unless slots are on their way to it, whose keys may be with it alone.
func (m *Machine) mayStand(manual bool) bool {
	p := m.me.Primary
	if !m.me.replica() || p == nil {
		return false
	}
	return manual || p.failed() && (p.Slots > 0 || len(m.slots.importing) > 0) && !m.cfg.NoFailover
}

// fresh says that this replica's data is not too old to be put in the primary's place by a machine. A replica that
// never had all data of its primary has nothing to offer, whatever age is allowed.
func (m *Machine) fresh(now int64) bool {
	up, since := m.data.PrimaryLink()
	if !up && since == 0 {
		return false
	}
	if m.cfg.ValidityFactor == 0 {
		return true
	}
	// The time in which the failure was found is nobody's fault.
	age := now - since
	if age > m.cfg.NodeTimeout {
		age -= m.cfg.NodeTimeout
	}
	return age <= m.cfg.ReplicaPingPeriod+m.cfg.NodeTimeout*m.cfg.ValidityFactor
}

// electionDue says that an attempt is to be planned: there was none, or the last one is long over. A manual failover
// does not wait for the end of what was planned without it, nor for a pause after what has failed: its own time is
// short.
func (m *Machine) electionDue(now int64, manual bool) bool {
	e := &m.election
	over := now - e.at
	if e.at == 0 || over > 2*m.electionTimeout() {
		return true
	}
	return manual && (over > m.electionTimeout() || !e.manual && !e.sent)
}

// planElection sets the time at which votes are asked for, and tells the sister replicas how far this one is, so that
// the best one can be first.
func (m *Machine) planElection(now int64, manual bool) {
	e := election{manual: manual, at: now, whyNot: m.election.whyNot, toldAt: m.election.toldAt}
	if !manual {
		e.rank = m.rank()
		e.at += electionDelay + int64(m.rand()%electionSpread) + int64(e.rank)*electionPerRank
	}
	m.election = e
	m.note(Notice, "Start of election delayed for %d milliseconds (rank #%d, offset %d).",
		e.at-now, e.rank, m.data.Offset())
	m.broadcastPong(now, true, 0)
}

// rank counts the sister replicas that should be first: they have more of the stream, or as much and the smaller id, so
// that not two of them have the same rank. One that has failed, or may not stand, is waited for in vain.
func (m *Machine) rank() int {
	const out = wire.FlagNoFailover | wire.FlagFailed
	rank, mine := 0, m.data.Offset()
	for _, r := range m.me.Primary.Replicas {
		if r == m.me || r.any(out) {
			continue
		}
		if r.Offset > mine || r.Offset == mine && before(r.ID, m.me.ID) {
			rank++
		}
	}
	return rank
}

// rerank moves the planned time when news of other replicas changed the rank, in either direction, but never into the
// past, where the attempt would be over before it began.
func (m *Machine) rerank(now int64) {
	e := &m.election
	rank := m.rank()
	if rank == e.rank {
		return
	}
	added := int64(rank-e.rank) * electionPerRank
	e.at, e.rank = max(e.at+added, now), rank
	m.note(Notice, "Replica rank updated to #%d, added %d milliseconds of delay.", rank, added)
}

// askVotes begins an epoch and asks for its votes. The epoch is on disk before the question leaves: asked twice, in two
// lives, it could be won twice.
func (m *Machine) askVotes(manual bool) {
	e := &m.election
	if len(m.slots.importing) > 0 && !m.nextEpoch() {
		return // the primary may have taken this one with a slot that came to it, and failed before anybody heard
	}
	if !m.nextEpoch() {
		return
	}
	e.epoch, e.sent = m.currentEpoch, true
	m.lastVoteEpoch = m.currentEpoch
	m.note(Notice, "Starting a failover election for epoch %d.", e.epoch)
	after := m.afterSave()
	msg := m.header(wire.AuthRequest)
	// Slots that the primary has given away without this node knowing to whom are not asked for, and not taken.
	msg.Slots = m.collect(m.me.Primary, false)
	for s := range m.slots.taken {
		msg.Slots.Clear(s) // the source may claim it still in a higher epoch, so nobody would vote; the win's is higher again
	}
	if manual {
		msg.Bits |= wire.ForceAck
	}
	m.broadcast(msg, after)
	m.askCheck()
}

// winElection makes this node the primary, in the epoch that was voted on. If its primary has come to that epoch by itself
// meanwhile, the claim would not be stronger than the primary's, and chance would tell who of the two stays: another epoch
// is asked for.
func (m *Machine) winElection(now int64) {
	if p := m.me.Primary; p.Epoch >= m.election.epoch {
		m.note(Notice, "Failover election won for epoch %d, but %s (%s) has epoch %d by now. Asking again.",
			m.election.epoch, p.ID, p.Nodename, p.Epoch)
		m.election = election{}
		return
	}
	m.note(Notice, "Failover election won: I'm the new master.")
	if m.me.Epoch < m.election.epoch {
		m.me.Epoch = m.election.epoch
		m.note(Notice, "configEpoch set to %d after successful failover", m.me.Epoch)
	}
	m.takeOver(now)
}

// voteGranted takes a vote. It counts if it is for the very epoch that was asked for, and from a primary with slots
// that has not been counted: a voter's header carries the epoch in which it voted.
func (m *Machine) voteGranted(now int64, sender *Peer, msg *wire.Message) {
	e := &m.election
	if sender == nil || !e.sent || msg.CurrentEpoch != e.epoch ||
		!sender.primary() || sender.Slots == 0 || slices.Contains(e.voters, sender) {
		return
	}
	e.voters = append(e.voters, sender)
	m.askElection()
}

// voteRequest answers a replica that asks for this primary's vote. A refusal is silence.
func (m *Machine) voteRequest(now int64, sender *Peer, msg *wire.Message) {
	if sender == nil {
		return
	}
	// The paused primary keeps still for as long as it promised when its replica has begun to stand: the win may be
	// on its way, and what was written now would be lost.
	forced := msg.Bits&wire.ForceAck != 0
	if forced && m.manual.asker == sender {
		m.manual.deadline = m.manual.until
	}
	if !m.me.primary() || m.me.Slots == 0 {
		return
	}
	if why := m.denyVote(now, sender, msg, forced); why != "" {
		m.note(Warning, "Failover auth denied to %s (%s): %s", sender.ID, sender.Nodename, why)
		return
	}
	m.lastVoteEpoch = m.currentEpoch
	sender.Primary.VotedAt = now
	after := m.afterSave()
	m.send(sender, m.header(wire.AuthAck), after)
	m.note(Notice, "Failover auth granted to %s (%s) for epoch %d", sender.ID, sender.Nodename, m.currentEpoch)
}

// denyVote says why a vote is not given; "": it is.
func (m *Machine) denyVote(now int64, sender *Peer, msg *wire.Message, forced bool) string {
	p := sender.Primary
	switch {
	case msg.CurrentEpoch < m.currentEpoch:
		return text("reqEpoch (%d) < curEpoch(%d)", msg.CurrentEpoch, m.currentEpoch)
	case msg.CurrentEpoch > m.currentEpoch:
		// Its header has raised ours, unless it was refused as absurd.
		return text("reqEpoch (%d) > curEpoch(%d)", msg.CurrentEpoch, m.currentEpoch)
	case m.lastVoteEpoch >= m.currentEpoch:
		return text("already voted for epoch %d", m.currentEpoch)
	case !sender.replica():
		return "it is a master node"
	case p == nil:
		return "I don't know its master"
	case !p.failed() && !forced:
		return "its master is up"
	}
	// This pause only smooths elections that a machine began. What a person asks for need not wait for it, so that one
	// manual failover can follow another.
	if wait := 2*m.cfg.NodeTimeout - (now - p.VotedAt); wait > 0 && !forced {
		return text("can't vote about this master before %d milliseconds", wait)
	}
	if msg.Slots == nil {
		return ""
	}
	for _, r := range msg.Slots.Ranges() {
		for s := int(r.First); s <= int(r.Last); s++ {
			owner := m.owner(uint16(s))
			if owner != nil && owner.Epoch > msg.ConfigEpoch && !m.slots.noClaim.Has(uint16(s)) {
				return text("slot %d epoch (%d) > reqEpoch (%d)", s, owner.Epoch, msg.ConfigEpoch)
			}
		}
	}
	return ""
}

// cannot notes why this replica does not stand, or not yet: when the reason is new, or old and still true after a
// while.
func (m *Machine) cannot(now int64, why string) {
	e := &m.election
	if e.whyNot == why && now-e.toldAt < electionRetell {
		return
	}
	e.whyNot = why
	if p := m.me.Primary; p.failed() && now-p.FailedAt < m.cfg.NodeTimeout+electionQuiet {
		return
	}
	e.toldAt = now
	m.note(Notice, "Currently unable to failover: %s", why)
	if e.sent {
		m.note(Notice, "Needed quorum: %d. Number of votes received so far: %d", m.quorum(), len(e.voters))
	}
}
