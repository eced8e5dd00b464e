package cluster

import "cairn/cluster/wire"

// A replica can leave its primary, which has others, for a primary that has lost all of its own. So a cluster with a
// few replicas more than it needs stands several failures in a row, if there is time between them.

// orphanDelay is how long a primary must be without replicas before one moves to it: after a failover its own replicas
// need a moment to say that they follow the new one.
const orphanDelay = 5000

// replicaMigrationTick moves this replica to an orphaned primary if it is its turn. most is the number of replicas in
// good health that the richest primary has; the caller has seen that it is two at least, that this node's primary has
// as many, and that there is an orphan.
func (m *Machine) replicaMigrationTick(now int64, most int) {
	mine := m.me.Primary
	if !m.state.ok || mine == nil || !m.me.replica() || !m.cfg.ReplicaMigration {
		return
	}
	healthy := 0
	for _, r := range mine.Replicas {
		if !r.any(wire.FlagFailed | wire.FlagMaybeFailed) {
			healthy++
		}
	}
	if healthy <= m.cfg.MigrationBarrier {
		return
	}
	// All replicas look for the same one to move, so that not all of them do: the smallest id of all that are with a
	// primary of the richest. In the moment of a change their views differ and two may move, which does little harm.
	target, mover := (*Peer)(nil), m.me
	for _, p := range m.peers {
		if !p.primary() {
			p.OrphanedAt = 0
			continue
		}
		alive := p.healthyReplicas()
		if alive > 0 || p.failed() || p.Flags&wire.FlagMigrateTo == 0 {
			p.OrphanedAt = 0
		} else {
			if target == nil && p.Slots > 0 {
				target = p
			}
			if p.OrphanedAt == 0 {
				p.OrphanedAt = now
			}
		}
		if alive != most {
			continue
		}
		for _, r := range p.Replicas {
			if before(r.ID, mover.ID) {
				mover = r
			}
		}
	}
	if target == nil || mover != m.me || now-target.OrphanedAt <= orphanDelay {
		return
	}
	m.note(Notice, "Migrating to orphaned master %s", target.ID)
	m.becomeReplicaOf(now, target)
}
