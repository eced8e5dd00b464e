package cluster

import "cairn/cluster/wire"

// A manual failover changes primary and replica without losing a write:
//
//	replica                                   primary
//	CLUSTER FAILOVER
//	       ──── Pong, ManualStart ─────────▶  Pause
//	                                          (writes stand still: Paused)
//	       ◀─── Ping, Paused, offset ───────
//	reaches that offset
//	asks for votes with ForceAck ──────────▶  votes too
//	wins, claims the slots ────────────────▶  becomes its replica, Resume
//
// Either side gives up at its deadline. The offset that the primary tells must be the last one: so it is told only when
// the pause is in force, not when it was asked for.

// pauseFactor times the deadline is how long a primary keeps still at the most.
const pauseFactor = 2

// askPause is after how long a replica asks again that the primary keep still, ms.
const askPause = 500

// manual is a manual failover in progress, on either side of it.
type manual struct {
	deadline int64 // 0: none
	ready    bool  // on a replica: it may stand
	offset   int64 // on a replica: to reach before it stands; -1: not known yet
	askAgain int64 // on a replica: when it asks the primary once more; 0: it does not

	asker *Peer // on a primary: the replica that asked
	until int64 // on a primary: when the pause ends by itself; 0: none
	held  bool  // on a primary: the pause is in force
}

// pauses counts the Pause effects of this life. The answer to an earlier one must not be taken for that to the last:
// between them a Resume lets writes in.
type pauses struct {
	asked   uint64
	inForce uint64 // those that Paused has answered
}

// manualReady says that a manual failover of this replica may ask for votes now.
func (m *Machine) manualReady(now int64) bool {
	return m.manual.ready && m.manual.deadline != 0 && now <= m.manual.deadline
}

// pausedForFailover says that this primary's writes stand still, which all its headers are to tell.
func (m *Machine) pausedForFailover() bool { return m.manual.until != 0 && m.manual.held }

// startFailover begins a manual failover on the side of the replica.
func (m *Machine) startFailover(now int64, mode FailoverMode) error {
	p := m.me.Primary
	switch {
	case !m.me.replica():
		return refuse("You should send CLUSTER FAILOVER to a replica")
	case p == nil:
		return refuse("I'm a replica but my master is unknown to me")
	case mode == Coordinated && (p.failed() || !p.outUp):
		return refuse("Master is down or failed, please use CLUSTER FAILOVER FORCE")
	}
	m.endManual()
	switch mode {
	case Takeover:
		m.note(Notice, "Taking over the master (user request).")
		// The highest epoch may be this node's own, from when it was a primary, and the other one's at the same time.
		m.newEpoch()
		m.takeOver(now)
		return nil
	case Force:
		m.note(Notice, "Forced failover user request accepted.")
		m.manual = manual{deadline: now + m.cfg.ManualTimeout, offset: -1, ready: true}
		m.askElection()
	default:
		m.note(Notice, "Manual failover user request accepted.")
		m.manual = manual{deadline: now + m.cfg.ManualTimeout, offset: -1}
		m.askToPause(now)
	}
	return nil
}

// askToPause asks the primary to keep its writes still. It passes over the request of a node that it does not know as
// its replica yet, which this one may just have become, so it is told first.
func (m *Machine) askToPause(now int64) {
	p := m.me.Primary
	if p.outUp {
		m.sendPing(now, p.out, p, wire.Pong, 0)
	}
	m.send(p, m.header(wire.ManualStart), 0)
	m.manual.askAgain = now + askPause
}

// manualStart begins a manual failover on the side of the primary: a replica has asked for it. When one is going on for
// it already, its pause is only made longer: to lift it for a moment would let writes in behind the told offset.
func (m *Machine) manualStart(now int64, sender *Peer) {
	if sender == nil || !m.me.primary() || sender.Primary != m.me {
		return
	}
	held := m.pausedForFailover()
	if f := &m.manual; f.asker == sender && f.until-now >= m.cfg.ManualTimeout {
		// It asks again, and the pause lasts long enough, whether it is in force already or not.
		f.deadline = now + m.cfg.ManualTimeout
		if held {
			m.tellPaused(now)
		}
		return
	}
	m.manual = manual{
		deadline: now + m.cfg.ManualTimeout,
		until:    now + pauseFactor*m.cfg.ManualTimeout,
		asker:    sender,
		offset:   -1,
		held:     held,
	}
	m.note(Warning, "Manual failover requested by replica %s (%s).", sender.ID, sender.Nodename)
	m.pauses.asked++
	m.emit(Pause{Until: m.manual.until})
	if held {
		m.tellPaused(now)
	}
}

// Paused says that a Pause is in force: no write is under way, and none will enter the log. Only then the offset at
// which this primary stands can be told to the replica that waits for it. Each Pause is answered once, in their order.
func (m *Machine) Paused(now int64) []Effect {
	p := &m.pauses
	p.inForce = min(p.inForce+1, p.asked)
	if p.inForce == p.asked && m.manual.until != 0 && !m.manual.held {
		m.manual.held = true
		m.tellPaused(now)
	}
	return m.settle(now)
}

// tellPaused tells the replica at once where the stream stands still; the tick repeats it.
func (m *Machine) tellPaused(now int64) {
	if m.manual.asker != nil {
		m.ping(now, m.manual.asker)
	}
}

// manualPaused takes the offset at which the primary of this replica stands still. The largest one counts: an earlier
// one can only be from an earlier pause.
func (m *Machine) manualPaused(now int64, sender *Peer, msg *wire.Message) {
	f := &m.manual
	if f.deadline == 0 || f.ready || f.asker != nil || sender == nil || sender != m.me.Primary || msg.Offset <= f.offset {
		return
	}
	f.offset = msg.Offset
	m.note(Notice, "Received replication offset for paused master manual failover: %d", f.offset)
	m.askElection()
}

// Awaited is the offset that this replica's data must reach before its manual failover goes on; -1: none is awaited. Synced,
// called when it is there, goes on at once, the next tick in any case.
func (m *Machine) Awaited() int64 {
	if f := &m.manual; f.deadline == 0 || f.ready || !m.me.replica() {
		return -1
	}
	return m.manual.offset
}

// manualTick gives up a manual failover whose time is over, and lets a replica stand that has reached the offset.
func (m *Machine) manualTick(now int64) {
	f := &m.manual
	if f.deadline == 0 {
		return
	}
	if now > f.deadline {
		m.note(Warning, "Manual failover timed out.")
		m.endManual()
		return
	}
	if f.offset < 0 && f.askAgain != 0 && now >= f.askAgain && m.me.Primary != nil {
		m.askToPause(now)
	}
	if !m.me.replica() || f.ready || f.offset < 0 || f.offset != m.data.Offset() {
		return
	}
	// A stream that never came, and stands at 0, is not one that has been followed to its end.
	if up, since := m.data.PrimaryLink(); !up && since == 0 {
		return
	}
	f.ready = true
	m.note(Notice, "All master replication stream processed, manual failover can start.")
	m.askElection()
}

// endManual ends a manual failover, however it went. Votes that were asked for in its name are void: they were given
// without asking whether the primary is up. Clients go on, under the routes of now: they are published first.
func (m *Machine) endManual() {
	if m.manual.until != 0 {
		m.emit(Route{After: m.routeAfter})
		m.emit(Resume{})
	}
	m.manual = manual{offset: -1}
	if m.election.manual {
		m.election = election{}
	}
}

// handOver chooses the replica that is to take over from this primary, because it is about to stop. A machine cannot
// make it start: a replica of Redis's does so only when it is told CLUSTER FAILOVER, by whoever drives this machine.
func (m *Machine) handOver() Answer {
	if !m.me.primary() || m.me.Slots == 0 {
		return Answer{}
	}
	best := m.manual.asker // at it already
	if best == nil {
		best = m.bestReplica()
	}
	if best == nil {
		return Answer{}
	}
	return Answer{OK: true, ID: best.ID, IP: best.IP, Port: best.Port}
}

// bestReplica is the one with most of the stream, of those that can be reached and are allowed to stand.
func (m *Machine) bestReplica() *Peer {
	const out = wire.FlagNoFailover | wire.FlagFailed | wire.FlagMaybeFailed | wire.FlagNoAddr | wire.FlagHandshake
	var best *Peer
	for _, r := range m.me.Replicas {
		if r.any(out) || !r.outUp || r.IP == "" {
			continue
		}
		if r.Offset == 0 && m.data.Offset() != 0 {
			continue // its first synchronization is not done
		}
		if best == nil || r.Offset > best.Offset || r.Offset == best.Offset && before(r.ID, best.ID) {
			best = r
		}
	}
	return best
}
