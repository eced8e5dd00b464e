package cluster

import (
	"bytes"
	"slices"

	"cairn/cluster/wire"
)

// Nodes that were forgotten. For a while gossip does not bring them back: the nodes that have not forgotten them yet
// still speak of them. An operator's MEET does.

const (
	// maxForgotten is how many are kept in mind; the one that ends first makes room.
	maxForgotten = 16384
	// maxForgottenTold is how many of them one message tells.
	maxForgottenTold = 1024
	// maxForgetMs is the longest that another node's word makes this one forget: thirty days.
	maxForgetMs = 30 * 24 * 3600 * 1000
)

// forgotten is a node that is not to be learned again before a time.
type forgotten struct {
	id    wire.ID
	until int64
}

// forget notes that a node is forgotten for ttl milliseconds. It stays in the table if it is there.
func (m *Machine) forget(id wire.ID, now, ttl int64) {
	m.dropForgotten(now)
	f := forgotten{id, now + min(max(ttl, 0), maxForgetMs)}
	i, found := m.placeForgotten(&id)
	if found {
		m.forgot[i] = f
		return
	}
	if len(m.forgot) >= maxForgotten {
		first := 0
		for j := range m.forgot {
			if m.forgot[j].until < m.forgot[first].until {
				first = j
			}
		}
		m.forgot = slices.Delete(m.forgot, first, first+1)
		i, _ = m.placeForgotten(&id)
	}
	m.forgot = slices.Insert(m.forgot, i, f)
}

func (m *Machine) placeForgotten(id *wire.ID) (int, bool) {
	return slices.BinarySearchFunc(m.forgot, id, func(f forgotten, id *wire.ID) int {
		return bytes.Compare(f.id[:], id[:])
	})
}

// isForgotten says whether gossip may not bring a node back yet.
func (m *Machine) isForgotten(id wire.ID, now int64) bool {
	if len(m.forgot) == 0 {
		return false
	}
	i, found := m.placeForgotten(&id)
	return found && m.forgot[i].until > now
}

// dropForgotten ends what is over.
func (m *Machine) dropForgotten(now int64) {
	m.forgot = slices.DeleteFunc(m.forgot, func(f forgotten) bool { return f.until <= now })
}

// forgottenExt is what pings tell of the forgotten.
func (m *Machine) forgottenExt(now int64) (told []wire.Forgotten) {
	for _, f := range m.forgot {
		if left := (f.until - now) / 1000; left > 0 && len(told) < maxForgottenTold {
			told = append(told, wire.Forgotten{ID: f.id, Seconds: uint64(left)})
		}
	}
	return told
}

// hearForgotten forgets what another member was told to forget. This node's own primary stays: its replica has no other
// source of data, and an operator says so to the replica itself.
func (m *Machine) hearForgotten(now int64, sender *Peer, told []wire.Forgotten) {
	for i := range told {
		f := &told[i]
		p := m.byID[f.ID]
		if p == nil || p == m.me || p == m.me.Primary || p == sender || p.handshake() {
			continue
		}
		left := int64(min(f.Seconds, maxForgetMs/1000)) * 1000
		// Whoever was met after it was forgotten is wanted again. All nodes are taken to forget for the same time.
		if p.met && p.Created > now-(m.cfg.BlacklistTTL-left) {
			continue
		}
		m.forget(f.ID, now, left)
		m.deletePeer(p)
	}
}

// remember ends the time in which a node is kept away.
func (m *Machine) remember(id wire.ID) {
	if i, found := m.placeForgotten(&id); found {
		m.forgot = slices.Delete(m.forgot, i, i+1)
	}
}
