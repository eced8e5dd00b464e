package cluster

import (
	"slices"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// View is what the machine knows at one moment, for answering clients. Nothing in it changes any more.
type View struct {
	Version uint64
	Nodes   []ViewNode // in the order of their ids, this node and those in handshake included
	Myself  int        // index in Nodes
	Owner   [slot.Count]uint16
	OK      bool // the state of the cluster

	Migrating map[uint16]uint16 // slots on their way from this node, or from its primary: index of the target
	Importing map[uint16]uint16 // slots on their way to this node, or to its primary: index of the source
	// Unfinished are slots that were on their way to this node until somebody ended that by hand, before its last step.
	Unfinished slot.Bitmap

	Size         int // primaries with slots
	CurrentEpoch uint64
	MyEpoch      uint64 // config epoch; a replica's is its primary's
	Assigned     int    // slots that have an owner
	SlotsOK      int    // whose owner is well
	SlotsPFail   int    // whose owner this node suspects
	SlotsFail    int    // whose owner has failed
	Stats        Stats
}

// NoNode stands in View.Owner, and for a primary that is not known, where there is no node.
const NoNode = 1<<16 - 1

// ViewNode is one node of a View: its line, with slots and, for this node, open slots, and what other answers add.
// TLSPort is the port for the other transport than the cluster's.
type ViewNode struct {
	nodesconf.Node
	Primary  uint16   // index in Nodes; NoNode unless it is a replica with a known primary
	Replicas []uint16 // indexes in Nodes
	Offset   int64
	Health   Health
}

// Health is a node's state in CLUSTER SHARDS.
type Health string

// The values of Health.
const (
	Online  Health = "online"
	Failed  Health = "fail"
	Loading Health = "loading" // a replica that has no data yet
)

// Version changes whenever slots, roles, addresses or flags do. Times, offsets and counters may change without it.
func (m *Machine) Version() uint64 { return m.version }

// View takes a picture of the machine.
func (m *Machine) View() *View {
	v := &View{
		Version: m.version, OK: m.state.ok, Size: m.sizeOf(), CurrentEpoch: m.currentEpoch,
		MyEpoch: m.me.Epoch, Stats: m.stats, Nodes: make([]ViewNode, len(m.peers)),
		Migrating: make(map[uint16]uint16, len(m.slots.migrating)),
		Importing: make(map[uint16]uint16, len(m.slots.importing)),
	}
	if m.me.replica() && m.me.Primary != nil {
		v.MyEpoch = m.me.Primary.Epoch
	}
	// First every place, since nodes refer to each other.
	for i, p := range m.peers {
		p.at = int32(i)
	}
	for i, p := range m.peers {
		v.Nodes[i] = m.viewNode(p)
	}
	v.Myself = int(m.me.at)
	if m.me.primary() {
		// A replica's copies are not shown in its line: tools would try to repair them there.
		v.Nodes[v.Myself].Open = m.openSlots()
	}
	m.viewSlots(v)
	v.Unfinished = m.slots.unfinished
	for s, p := range m.slots.migrating {
		v.Migrating[s] = uint16(p.at)
	}
	for s, p := range m.slots.importing {
		v.Importing[s] = uint16(p.at)
	}
	return v
}

func (m *Machine) viewNode(p *Peer) ViewNode {
	n := ViewNode{Node: m.describe(p), Primary: NoNode, Offset: p.Offset}
	if p == m.me {
		n.Offset = m.data.Offset()
	}
	if p.replica() && p.Primary != nil {
		n.Primary = uint16(p.Primary.at)
	}
	for _, r := range p.Replicas {
		n.Replicas = append(n.Replicas, uint16(r.at))
	}
	slices.Sort(n.Replicas) // all nodes show them in one order, whenever they heard of each
	n.Health = health(p, n.Offset)
	return n
}

// health is that of a node whose replication offset is known.
func health(p *Peer, offset int64) Health {
	switch {
	case p.failed():
		return Failed
	case p.replica() && offset == 0:
		return Loading
	}
	return Online
}

// MyHealth is what a View says now of the health of this node, which depends on an offset that no change tells of.
func (m *Machine) MyHealth() Health { return health(m.me, m.data.Offset()) }

// viewSlots fills in who owns what.
func (m *Machine) viewSlots(v *View) {
	for _, run := range m.slots.runsNow() {
		at, n := uint16(NoNode), int(run.Last)-int(run.First)+1
		if p := run.owner; p != nil {
			at = uint16(p.at)
			node := &v.Nodes[at]
			node.Slots = append(node.Slots, run.Range)
			v.Assigned += n
			switch {
			case p.failed():
				v.SlotsFail += n
			case p.any(wire.FlagMaybeFailed):
				v.SlotsPFail += n
			default:
				v.SlotsOK += n
			}
		}
		owners := v.Owner[run.First : int(run.Last)+1]
		owners[0] = at
		for done := 1; done < n; done *= 2 {
			copy(owners[done:], owners[:done])
		}
	}
}

// Replica says that this node is one.
func (v *View) Replica() bool { return v.Nodes[v.Myself].Flags&nodesconf.Replica != 0 }

// Shard gives the index of the primary whose slots this node has the data of: its own, or its primary's. NoNode: a
// replica whose primary is not known.
func (v *View) Shard() uint16 {
	if v.Replica() {
		return v.Nodes[v.Myself].Primary
	}
	return uint16(v.Myself)
}

// Find gives the index of the node with an id, NoNode if there is none.
func (v *View) Find(id string) uint16 {
	low, high := 0, len(v.Nodes)
	for low < high {
		mid := (low + high) / 2
		if v.Nodes[mid].ID < id {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(v.Nodes) && v.Nodes[low].ID == id {
		return uint16(low)
	}
	return NoNode
}
