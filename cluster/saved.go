package cluster

import (
	"fmt"
	"slices"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// What outlives the process: how a Machine comes out of a State, and goes into one.

// New makes the machine of a node from its saved state: at least a node flagged as itself. Nothing is sent before the
// first call with a time. It is an error if the state makes no sense; the text says what does not.
func New(cfg Config, data Data, rand Random, saved *State, now int64) (*Machine, error) {
	m := &Machine{
		cfg: cfg, data: data, rand: rand,
		byID: make(map[wire.ID]*Peer), outLink: make(map[LinkID]*Peer), inLink: make(map[LinkID]*inbound),
		slots: slotTable{
			migrating: make(map[uint16]*Peer), importing: make(map[uint16]*Peer), doubted: make(map[uint16]int64),
			taken: make(map[uint16]takenFrom), sentUnder: make(map[uint16]uint64), letGo: make(map[uint16]letGo), version: 1,
		},
		currentEpoch: saved.CurrentEpoch, lastVoteEpoch: saved.LastVoteEpoch,
		links: 1, // so that the first number given out is 3: 0 means none, and 1 looks like a mistake
	}
	m.state.size = -1
	m.manual.offset = -1
	for i := range saved.Nodes {
		if err := m.loadPeer(&saved.Nodes[i], now); err != nil {
			return nil, err
		}
	}
	if m.me == nil {
		return nil, fmt.Errorf("saved state: none of the %d nodes has the flag myself", len(saved.Nodes))
	}
	for i := range saved.Nodes {
		if err := m.loadTies(&saved.Nodes[i], now); err != nil {
			return nil, err
		}
	}
	for _, p := range m.peers {
		// A replica's shard is its primary's; a file in which it is another one was written in the middle of a change.
		if p.replica() && p.Primary != nil {
			p.Shard, p.Epoch = p.Primary.Shard, 0
		}
		m.currentEpoch = max(m.currentEpoch, p.Epoch)
	}
	if m.me.replica() && m.me.Slots > 0 {
		return nil, fmt.Errorf("saved state: node %s is a replica and owns %d slots", m.me.ID, m.me.Slots)
	}
	m.loadTaken()
	m.announce()
	m.askCheck()
	m.told = m.self()
	return m, nil
}

// loadPeer makes the entry of a node.
func (m *Machine) loadPeer(n *nodesconf.Node, now int64) error {
	id, ok := wire.ParseID(n.ID)
	if !ok {
		return fmt.Errorf("saved state: %.60q is not a node id", n.ID)
	}
	if m.byID[id] != nil {
		return fmt.Errorf("saved state: node %s is there twice", id)
	}
	p := m.newPeer(id, loadedFlags(n.Flags), now)
	if n.ShardID != "" {
		if p.Shard, ok = wire.ParseID(n.ShardID); !ok {
			return fmt.Errorf("saved state: node %s: %.60q is not a shard id", id, n.ShardID)
		}
	}
	p.IP, p.Port, p.PPort, p.BusPort = n.IP, n.Port, n.TLSPort, n.BusPort
	p.Hostname, p.Nodename, p.Epoch = n.Hostname, n.Name, n.Epoch
	if n.Flags&nodesconf.Myself != 0 {
		if m.me != nil {
			return fmt.Errorf("saved state: nodes %s and %s both have the flag myself", m.me.ID, id)
		}
		p.Flags &^= wire.FlagMaybeFailed | wire.FlagFailed | wire.FlagNoAddr
		m.me = p
	} else {
		// The times of a past life say nothing; a ping that was unanswered then counts from now on.
		if n.PingSent != 0 {
			p.PingSent = now
		}
		if n.PongAt != 0 {
			p.PongAt = now
		}
		if p.failed() {
			p.FailedAt = now
		}
		if p.any(wire.FlagMaybeFailed) {
			m.suspects = append(m.suspects, p)
		}
	}
	m.addPeer(p)
	return nil
}

// loadTies brings in what a line says of other nodes, after all nodes are there.
func (m *Machine) loadTies(n *nodesconf.Node, now int64) error {
	p := m.lookup(n.ID)
	if n.PrimaryID != "" {
		primary, err := m.loadReferred(n.PrimaryID, now)
		if err != nil {
			return err
		}
		if primary != p {
			m.setPrimary(p, primary)
		}
	}
	for _, r := range n.Slots {
		for s := int(r.First); s <= int(r.Last); s++ {
			if s >= slot.Count {
				return fmt.Errorf("saved state: node %s: slot %d outside [0, %d)", n.ID, s, slot.Count)
			}
			m.assign(uint16(s), p)
		}
	}
	for _, o := range n.Open {
		peer, err := m.loadReferred(o.Peer, now)
		switch {
		case err != nil:
			return err
		case o.Slot >= slot.Count:
			return fmt.Errorf("saved state: node %s: slot %d outside [0, %d)", n.ID, o.Slot, slot.Count)
		case o.Importing:
			m.slots.importing[o.Slot] = peer
		default:
			m.slots.migrating[o.Slot] = peer
		}
	}
	return nil
}

// loadReferred gives a node that another one's line names. One that has no line of its own is made, without an address.
func (m *Machine) loadReferred(text string, now int64) (*Peer, error) {
	id, ok := wire.ParseID(text)
	if !ok {
		return nil, fmt.Errorf("saved state: %.60q is not a node id", text)
	}
	p := m.byID[id]
	if p == nil {
		p = m.newPeer(id, wire.FlagPrimary|wire.FlagNoAddr, now)
		m.addPeer(p)
	}
	return p, nil
}

// flagPair is a flag as a State has it, and as a Peer does.
type flagPair struct {
	saved nodesconf.Flags
	flag  wire.Flags
}

func flagPairs() [8]flagPair {
	return [8]flagPair{
		{nodesconf.Myself, wire.FlagMyself},
		{nodesconf.Primary, wire.FlagPrimary},
		{nodesconf.Replica, wire.FlagReplica},
		{nodesconf.MaybeFailed, wire.FlagMaybeFailed},
		{nodesconf.Failed, wire.FlagFailed},
		{nodesconf.Handshake, wire.FlagHandshake},
		{nodesconf.NoAddr, wire.FlagNoAddr},
		{nodesconf.NoFailover, wire.FlagNoFailover},
	}
}

func loadedFlags(f nodesconf.Flags) (flags wire.Flags) {
	for _, pair := range flagPairs() {
		if f&pair.saved != 0 {
			flags |= pair.flag
		}
	}
	return flags &^ wire.FlagHandshake // never saved, so not of this file's making
}

func savedFlags(f wire.Flags) (flags nodesconf.Flags) {
	for _, pair := range flagPairs() {
		if f&pair.flag != 0 {
			flags |= pair.saved
		}
	}
	return flags
}

// save asks for everything to be made durable.
func (m *Machine) save() {
	m.saves++
	m.effects = append(m.effects, Save{Seq: m.saves, State: m.snapshot(), Soon: !m.hurry})
	m.unsaved, m.hurry, m.savedAt = false, false, m.ticks
	m.saving = append(m.saving, toldBy{m.saves, m.self()})
}

// saveLazily saves what may be lost in a crash without harm: addresses, suspicions, what other nodes will tell again. The
// more nodes, the larger the file and the rarer the save; and there is never more than one of them under way.
func (m *Machine) saveLazily() {
	if m.unsaved && m.saves == m.saved && m.ticks-m.savedAt >= uint64(len(m.peers)/peersPerTick) {
		m.save()
	}
}

// peersPerTick is how many peers let a lazy save wait for one tick.
const peersPerTick = 100

// snapshot makes the State. Nodes in handshake are not part of it.
func (m *Machine) snapshot() *State {
	s := &State{
		Nodes:        make([]nodesconf.Node, 0, len(m.peers)-m.handshakes),
		CurrentEpoch: m.currentEpoch, LastVoteEpoch: m.lastVoteEpoch,
	}
	for _, p := range m.peers {
		if p.handshake() {
			continue
		}
		p.at = int32(len(s.Nodes))
		s.Nodes = append(s.Nodes, m.describe(p))
	}
	for _, run := range m.slots.runsNow() {
		if run.owner != nil {
			n := &s.Nodes[run.owner.at]
			n.Slots = append(n.Slots, run.Range)
		}
	}
	s.Nodes[m.me.at].Open = append(m.openSlots(), m.takenSlots()...)
	return s
}

// describe gives a peer's line, without its slots.
func (m *Machine) describe(p *Peer) nodesconf.Node {
	n := nodesconf.Node{
		ID: p.ID.String(), IP: p.IP, Port: p.Port, TLSPort: p.PPort, BusPort: p.BusPort,
		Hostname: p.Hostname, ShardID: p.Shard.String(), Name: p.Nodename, Flags: savedFlags(p.Flags),
		PingSent: p.PingSent, PongAt: p.PongAt, Epoch: p.Epoch, Connected: p == m.me || p.out != 0,
	}
	if p.replica() && p.Primary != nil {
		n.PrimaryID, n.Epoch = p.Primary.ID.String(), p.Primary.Epoch
	}
	return n
}

// openSlots lists the slots on their way from or to this node, or its primary, in their order. Of a slot that is both, only that it
// leaves is told, as in Redis.
func (m *Machine) openSlots() (open []nodesconf.OpenSlot) {
	for s, p := range m.slots.migrating {
		open = append(open, nodesconf.OpenSlot{Slot: s, Peer: p.ID.String()})
	}
	for s, p := range m.slots.importing {
		if m.slots.migrating[s] == nil {
			open = append(open, nodesconf.OpenSlot{Slot: s, Importing: true, Peer: p.ID.String()})
		}
	}
	slices.SortFunc(open, compareOpen)
	return open
}

func compareOpen(a, b nodesconf.OpenSlot) int { return int(a.Slot) - int(b.Slot) }
