package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// What must be so soon after all faults have ended: all nodes say the same of all nodes, every slot that has an owner has
// one that runs, and the cluster is ok.

// look looks each half second whether all agree.
func (w *simWorld) look() {
	if w.failure != nil {
		return
	}
	if (w.now-w.healedAt)/500%10 == 1 {
		w.repair()
	}
	if w.disagreement() == "" {
		if w.agreedAt == 0 {
			w.agreedAt = w.now
			w.note(nil, "all agree")
		}
	} else {
		w.agreedAt = 0
	}
	w.later(500, w.look)
}

func (w *simWorld) atEnd() {
	if w.failure != nil || w.class == simMad {
		return
	}
	if w.agreedAt == 0 {
		w.fail("agreement", "%d ms after the faults: %s", w.now-w.healedAt, w.disagreement())
		return
	}
	w.counts.healMs = w.agreedAt - w.healedAt
	for _, n := range w.nodes {
		if n.m == nil {
			continue
		}
		w.checkTies(n)
		w.checkMemory(n)
		if open := n.marks(); len(open) > 0 && w.class != simMembers {
			w.fail("open slots", "node %s: all moves have ended, and %v", n.name, open)
		}
		if rounds := int64(n.m.currentEpoch) - int64(w.healedEpoch); rounds > 10 && w.class == simStrict {
			w.fail("storm", "node %s: %d epochs since the faults ended", n.name, rounds)
		}
	}
	// Each node pings each other one twice in a node timeout at most, and is answered.
	n := int64(len(w.nodes))
	most := n * (2*(n-1)*simQuietMs/(w.timeout/2) + 10*simQuietMs/1000)
	if got := w.counts.messages - w.quietFrom; got > most && w.class != simMembers {
		w.fail("storm", "%d messages in the last %d ms, %d are allowed", got, simQuietMs, most)
	}
}

// checkTies looks at replicas, shards and open slots at the end.
func (w *simWorld) checkTies(n *simNode) {
	m := n.m
	for _, p := range m.peers {
		if p.replica() && (p.Primary == nil || !p.Primary.primary()) {
			w.fail("ties", "node %s: the primary of replica %s is none", n.name, p.ID)
		}
		if p.replica() && p.Primary != nil && p.Shard != p.Primary.Shard {
			w.fail("ties", "node %s: replica %s is of another shard than its primary", n.name, p.ID)
		}
	}
	shard := m.me // whose slots these are
	if m.me.replica() {
		shard = m.me.Primary
	}
	for s := range m.slots.migrating {
		if m.owner(s) != shard {
			w.fail("open slots", "node %s has slot %d migrating, and not the slot", n.name, s)
		}
	}
	for s := range m.slots.importing {
		if m.owner(s) == shard {
			w.fail("open slots", "node %s has slot %d importing, and the slot", n.name, s)
		}
	}
	for _, p := range m.peers {
		if c := n.conns[p.out]; p != m.me && !p.handshake() && n.w.nodes[n.w.rules.node[p.ID]].m != nil && (c == nil || c.dead) {
			w.fail("links", "node %s has no link to %s, or one that is dead", n.name, p.ID)
		}
	}
	if m.me.replica() && !n.data.up {
		if p := n.data.source(); p != nil && p.data.primary {
			return // synchronizing
		}
		w.fail("ties", "node %s is a replica, and follows %q", n.name, n.data.target)
	}
}

// disagreement says what two nodes see differently; "": nothing.
func (w *simWorld) disagreement() string {
	var first *simNode
	var want uint64
	addresses := map[string]wire.ID{}
	for _, n := range w.nodes {
		m := n.m
		if m == nil {
			continue
		}
		if !m.state.ok && m.covered() {
			return fmt.Sprintf("node %s sees the cluster as failed", n.name)
		}
		if m.me.any(anyFailure) {
			return fmt.Sprintf("node %s has the flags %x of itself", n.name, m.me.Flags)
		}
		got := w.digest(m)
		if first == nil {
			first, want = n, got
		}
		if got != want {
			if w.big {
				return fmt.Sprintf("nodes %s and %s differ", first.name, n.name)
			}
			return simDifference(first, n)
		}
	}
	if first == nil {
		return "no node runs"
	}
	for _, p := range first.m.peers {
		at, known := w.rules.node[p.ID]
		switch {
		case !known || w.nodes[at].m == nil || w.nodes[at].m.me.ID != p.ID:
			if w.class != simMembers {
				return fmt.Sprintf("node %s does not run and is not failed", p.ID)
			}
			if p.Slots > 0 {
				return fmt.Sprintf("slots of %s, which is gone", p.ID)
			}
			continue
		case p.any(anyFailure | wire.FlagNoAddr):
			return fmt.Sprintf("%s is seen as failed", w.nodes[at].name)
		}
		if other, twice := addresses[simAddress(p.IP, p.BusPort)]; twice && p != first.m.me {
			return fmt.Sprintf("nodes %s and %s have one address", other, p.ID)
		}
		if p != first.m.me {
			addresses[simAddress(p.IP, p.BusPort)] = p.ID
		}
	}
	return ""
}

var simHashSeed = maphash.MakeSeed()

// digest is the picture in a number.
func (w *simWorld) digest(m *Machine) uint64 {
	h := uint64(len(m.peers) - m.handshakes)
	mix := func(v uint64) {
		h = (h ^ v) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	key := func(p *Peer) uint64 {
		if p == nil {
			return 0
		}
		return binary.LittleEndian.Uint64(p.ID[:]) // hex digits: 32 bits of chance
	}
	for _, p := range m.peers {
		if p.handshake() {
			continue
		}
		ip := p.IP
		if p == m.me {
			ip = w.nodes[w.rules.node[p.ID]].ip
		}
		mix(key(p))
		mix(uint64(p.Flags & simSeenFlags))
		mix(maphash.String(simHashSeed, ip))
		mix(uint64(p.BusPort))
		mix(uint64(p.Slots))
		if p.replica() {
			mix(key(p.Primary))
		} else {
			mix(w.seenEpoch(p))
		}
	}
	var last *Peer
	for s, p := range &m.slots.owner {
		if p != last || s == 0 {
			mix(uint64(s))
			mix(key(p))
			last = p
		}
	}
	return h
}

// seenEpoch is the config epoch that all nodes must know alike of a node. A replica's is its primary's. Whoever heard that,
// and not of the reset behind which the node is a primary without slots and with its own lower epoch again, keeps the
// higher one, as with Redis: it protects no slot, and ends with the next claim.
func (w *simWorld) seenEpoch(p *Peer) uint64 {
	if p.replica() || w.class == simMembers && p.Slots == 0 {
		return 0
	}
	return p.Epoch
}

// simSeenFlags are those that all nodes must see alike.
const simSeenFlags = wire.FlagPrimary | wire.FlagReplica | wire.FlagFailed | wire.FlagNoAddr | wire.FlagNoFailover

// picture is what a machine says of all nodes, but for times and links.
func (w *simWorld) picture(m *Machine) []byte {
	var b bytes.Buffer
	for _, p := range m.peers {
		if p.handshake() {
			continue
		}
		w.line(&b, p, p == m.me)
	}
	for from := 0; from < slot.Count; {
		owner, end := m.slots.owner[from], from+1
		for end < slot.Count && m.slots.owner[end] == owner {
			end++
		}
		if owner != nil {
			fmt.Fprintf(&b, "%d-%d %s\n", from, end-1, owner.ID[:8])
		}
		from = end
	}
	return b.Bytes()
}

// line is one node's line. A node without extensions does not tell its shard. A node does not see its own address, unless
// it is told which to announce, or met.
func (w *simWorld) line(b *bytes.Buffer, p *Peer, self bool) {
	b.Write(p.ID[:])
	flags := p.Flags & simSeenFlags
	epoch, primary := w.seenEpoch(p), "-"
	if p.replica() && p.Primary != nil {
		primary = p.Primary.ID.String()
	}
	ip := p.IP
	if self {
		ip = w.nodes[w.rules.node[p.ID]].ip
	}
	fmt.Fprintf(b, " %s@%d %x %s %d %d\n", ip, p.BusPort, flags, primary, epoch, p.Slots)
}

func simDifference(a, b *simNode) string {
	one := bytes.Split(a.w.picture(a.m), []byte("\n"))
	two := bytes.Split(b.w.picture(b.m), []byte("\n"))
	for i := range one {
		if i >= len(two) || !slices.Equal(one[i], two[i]) {
			other := []byte("nothing")
			if i < len(two) {
				other = two[i]
			}
			return fmt.Sprintf("nodes %s and %s differ: %q and %q", a.name, b.name, one[i], other)
		}
	}
	return fmt.Sprintf("nodes %s and %s differ in length", a.name, b.name)
}
