package cluster

import (
	"slices"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// Machine is one node's part in the cluster. One call at a time.
type Machine struct {
	cfg  Config
	data Data
	rand Random

	me         *Peer
	peers      []*Peer // all known, sorted by id, so that nothing depends on the order of a map
	byID       map[wire.ID]*Peer
	outLink    map[LinkID]*Peer
	inLink     map[LinkID]*inbound
	links      LinkID  // last odd number given out
	handshakes int     // how many of peers are not members yet
	replicas   int     // how many of peers have a primary that is known
	suspects   []*Peer // those of which this node alone thinks that they failed; some may be cleared

	currentEpoch  uint64
	lastVoteEpoch uint64

	slots  slotTable
	forgot []forgotten // sorted by id

	state     clusterState
	election  election
	manual    manual
	pauses    pauses
	following followed // what the last Follow said; empty: nothing is followed

	saves   uint64 // last save asked for
	saved   uint64 // last save known to be durable
	must    uint64 // last save that something waits for
	hurry   bool   // somebody waits for it who is not to wait longer than it takes
	unsaved bool   // something changed since the last save was asked for
	savedAt uint64 // tick of the last save
	tell    uint64 // save after which all are told what is saved; 0: none

	told       told     // what may be told of this node: nothing in it can be taken back by a crash
	saving     []toldBy // what may be told when a save that is under way has ended
	reroute    bool     // something changed that Route publishes
	routeAfter uint64   // the save that Route waits for: this node gained something
	check      bool     // the state of the cluster is to be looked at again
	stand      bool     // the election is to be looked at again
	newRole    bool     // this node became a replica, and the others are to be told
	version    uint64   // changes with slots, roles, addresses and flags

	ticks    uint64
	tickedAt int64  // the last one
	messages uint64 // with gossip, made so far
	refused  int64  // when a refused epoch was last noted
	stats    Stats
	effects  []Effect
}

// inbound is a link that a peer opened.
type inbound struct {
	peer     *Peer   // nil until it is known who speaks
	name     wire.ID // whose it is by the last message that named a node that is not known
	remoteIP string
	localIP  string
}

// followed is the address of the primary whose data this node was told to follow.
type followed struct {
	id   wire.ID
	ip   string
	port int
}

// clusterState is whether the cluster is ok, as this node sees it.
type clusterState struct {
	ok         bool
	firstLook  int64 // when it was first evaluated
	minorityAt int64 // when this node last was in a minority
	changedAt  int64
	size       int // primaries with slots; -1: to be counted again
}

// told is what headers say of this node as long as no save is waited for.
type told struct {
	currentEpoch uint64
	epoch        uint64
	flags        wire.Flags
	slots        *slot.Bitmap
	primary      wire.ID
	shard        wire.ID
}

// toldBy is what may be told after a save.
type toldBy struct {
	seq  uint64
	told told
}

// Stats counts messages by type.
type Stats struct {
	Sent     [16]int64
	Received [16]int64
}

// Configure puts another configuration in force.
func (m *Machine) Configure(now int64, cfg Config) []Effect {
	if m.cfg.IP != "" && cfg.IP == "" {
		m.me.IP = "" // the next message tells how others reach it
		m.changed()
	}
	m.cfg = cfg
	m.announce()
	m.askCheck()
	return m.settle(now)
}

// announce brings what the operator set into this node's own entry.
func (m *Machine) announce() {
	p := m.me
	before := *p
	if m.cfg.IP != "" {
		p.IP = m.cfg.IP
	}
	p.Port, p.PPort, p.BusPort = m.cfg.Port, m.cfg.PPort, m.cfg.BusPort
	p.Hostname, p.Nodename = m.cfg.Hostname, m.cfg.Nodename
	p.Flags &^= wire.FlagNoFailover | wire.FlagLight
	if m.cfg.NoFailover {
		p.Flags |= wire.FlagNoFailover
	}
	if m.cfg.LightHeaders {
		p.Flags |= wire.FlagLight
	}
	if before.IP != p.IP || before.Port != p.Port || before.PPort != p.PPort || before.BusPort != p.BusPort ||
		before.Hostname != p.Hostname || before.Nodename != p.Nodename || before.Flags != p.Flags {
		m.changed()
		m.reroute = true
	}
}

// Command does what a person asks.
func (m *Machine) Command(now int64, c Cmd) (Answer, []Effect) {
	a := m.run(now, c)
	return a, m.settle(now)
}

// Persisted says that the save with this number, and all before it, are on disk.
func (m *Machine) Persisted(now int64, seq uint64) []Effect {
	m.saved = max(m.saved, min(seq, m.saves))
	// A message that waited for this save has gone out. What goes out from now on must not take it back, though later
	// changes may wait for a save still.
	for len(m.saving) > 0 && m.saving[0].seq <= m.saved {
		m.told, m.saving = m.saving[0].told, m.saving[1:]
	}
	if m.tell != 0 {
		if m.tell <= m.saved {
			m.tell = 0
		}
		m.broadcastPong(now, false, 0)
	}
	return m.settle(now)
}

// Synced says that the primary's data has arrived, or that the link to it changed: a replica may now be able to stand.
func (m *Machine) Synced(now int64) []Effect {
	m.stand = true
	return m.settle(now)
}

// settle does the work that a call left, and gives the call's effects.
func (m *Machine) settle(now int64) []Effect {
	if m.stand {
		m.stand = false
		m.manualTick(now)
		m.electionTick(now)
	}
	if m.check {
		m.check = false
		m.evaluate(now)
	}
	if m.must > m.saves && (m.hurry || m.saves == m.saved) { // else Persisted brings it here again, with what comes until then
		m.save()
	}
	if m.reroute {
		m.reroute = false
		if m.routeAfter <= m.saved {
			m.routeAfter = 0
		}
		if m.routeAfter == 0 {
			// What was lost is lost now: it comes before whatever else waits for a save.
			m.effects = slices.Insert(m.effects, 0, Effect(Route{}))
		} else {
			m.effects = append(m.effects, Route{After: m.routeAfter})
		}
	}
	if m.must <= m.saved {
		m.told = m.self()
	}
	effects := m.effects
	m.effects = nil
	return effects
}

// self is what may be told of this node when all is saved. A replica tells its primary's epoch and slots.
func (m *Machine) self() told {
	p := m.me
	t := told{currentEpoch: m.currentEpoch, flags: p.Flags, shard: p.Shard}
	if p.replica() && p.Primary != nil {
		t.primary = p.Primary.ID
		p = p.Primary
	}
	t.epoch, t.slots = p.Epoch, m.bitmapOf(p)
	return t
}

// changed marks that something which is saved or shown is not what it was. It is saved soon.
func (m *Machine) changed() {
	m.unsaved = true
	m.version++
}

// afterSave marks what the current call did as so weighty that it is saved at once, and gives the number of that save,
// for what must wait for it.
func (m *Machine) afterSave() uint64 {
	m.changed()
	m.must, m.hurry = m.saves+1, true
	return m.must
}

// Unsaved says that something is not on the disk which a save is to bring there.
func (m *Machine) Unsaved() bool { return m.unsaved || m.saves > m.saved }

// askCheck asks for the state of the cluster to be looked at at the end of the current call: roles, slots or failures
// changed.
func (m *Machine) askCheck() {
	m.check = true
	m.state.size = -1
}

// askElection asks for the election to be looked at at the end of the current call.
func (m *Machine) askElection() { m.stand = true }

// emit adds an effect.
func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }
