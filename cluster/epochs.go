package cluster

import (
	"bytes"
	"fmt"
	"math"

	"cairn/cluster/wire"
)

// Two kinds of epochs order what happens in a cluster. The current epoch is the cluster's clock: it rises with each
// election and each claim made without one, and every node takes over the largest it hears of. A primary's config epoch
// is the value of that clock when it got its slots; of two claims of one slot the larger config epoch wins.

// lastEpoch is never reached by counting; a node that hears of it or of more has heard nonsense.
const lastEpoch = math.MaxUint64 - 1

// nextEpoch raises the current epoch by one. It gives false when there is no further one.
func (m *Machine) nextEpoch() bool {
	if m.currentEpoch >= lastEpoch {
		m.note(Warning, "currentEpoch %d cannot be raised any more", m.currentEpoch)
		return false
	}
	m.currentEpoch++
	return true
}

// topEpoch is the largest epoch that this node knows of.
func (m *Machine) topEpoch() uint64 {
	top := m.currentEpoch
	for _, p := range m.peers {
		top = max(top, p.Epoch)
	}
	return top
}

// bumpEpoch gives this node a config epoch above all others, without asking anybody, unless it has the largest one
// already. Two nodes that do so at the same time end up with the same epoch, which collision repairs; nothing repairs
// that a failover elsewhere may lose against it. So it is done only when a person has a slot moved, or says so.
func (m *Machine) bumpEpoch() bool {
	if m.me.Epoch != 0 && m.me.Epoch == m.topEpoch() {
		return false
	}
	return m.newEpoch()
}

// newEpoch gives this node a config epoch above all others, and above its own.
func (m *Machine) newEpoch() bool {
	m.currentEpoch = m.topEpoch()
	if !m.nextEpoch() {
		return false
	}
	m.me.Epoch = m.currentEpoch
	m.afterSave()
	m.note(Notice, "New configEpoch set to %d", m.me.Epoch)
	return true
}

// collision gives this primary another config epoch when another primary has the same one. Of the two, the one with the
// smaller id moves, so that of any number of them exactly one stays, and in the end all are different. Slots play no
// part: what two nodes without slots agree on today, they would claim slots with tomorrow.
func (m *Machine) collision(_ int64, sender *Peer) {
	if sender == nil || sender == m.me || sender.Epoch != m.me.Epoch ||
		!sender.primary() || !m.me.primary() ||
		!before(m.me.ID, sender.ID) {
		return
	}
	if !m.nextEpoch() {
		return
	}
	m.me.Epoch = m.currentEpoch
	m.afterSave()
	m.note(Verbose, "WARNING: configEpoch collision with node %s (%s). configEpoch set to %d",
		sender.ID, sender.Nodename, m.me.Epoch)
}

// text is fmt.Sprintf, for reasons and errors that people read.
func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// before orders ids. The order is that of their text, as everywhere in a cluster.
func before(a, b wire.ID) bool { return bytes.Compare(a[:], b[:]) < 0 }
