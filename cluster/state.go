package cluster

import (
	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// State is what must outlive the process: what nodes.conf holds. It is immutable.
type State = nodesconf.File

// Peer is what this node knows of a member, itself included.
type Peer struct {
	ID       wire.ID
	Shard    wire.ID
	Flags    wire.Flags
	Epoch    uint64 // config epoch
	Primary  *Peer  // of a replica; nil: not known
	Replicas []*Peer
	Slots    int // how many it owns

	IP       string
	Port     int
	PPort    int
	BusPort  int
	Hostname string
	Nodename string

	PingSent   int64 // 0: none is unanswered
	PongAt     int64
	DataAt     int64 // when it was last heard, on any link
	Created    int64
	FailedAt   int64
	VotedAt    int64  // when this node voted for a replica of it
	gaveAt     int64  // when this node was last told to give it a slot; 0: never
	asked      uint64 // config epoch of this node in the ping that is unanswered
	heard      uint64 // that it has heard: it answered a ping with it
	OrphanedAt int64
	Offset     int64
	OffsetAt   int64
	KnowsExt   bool         // understands extensions, as far as is known
	met        bool         // came by a handshake, not by gossip
	changed    uint64       // version of the slot table in which its slots last changed
	claimed    *slot.Bitmap // what it last claimed, when the table agreed with all of it
	claimedAt  uint64       // version of the slot table then
	gossiped   uint64       // number of the message that last told of it
	at         int32        // its place in the State that is being made
	reports    []report     // of failure, by others
	waiting    []Send       // what is to go when the link is open; few
	out        LinkID       // 0: none
	outAt      int64        // when it was asked for
	outUp      bool         // connected
	in         LinkID       // last link on which it was heard, that it opened; 0: none
}

// report is one primary's word that a node has failed.
type report struct {
	by *Peer
	at int64
}

// any says that one of these flags is set.
func (p *Peer) any(f wire.Flags) bool { return p.Flags&f != 0 }

// primary says that it is one, with or without slots.
func (p *Peer) primary() bool { return p.Flags&wire.FlagPrimary != 0 }

// replica says that it is one, also if its primary is not known.
func (p *Peer) replica() bool { return p.Flags&wire.FlagReplica != 0 }

// failed says that the cluster agreed on it.
func (p *Peer) failed() bool { return p.Flags&wire.FlagFailed != 0 }

// handshake says that it is not a member yet, and that its id is made up.
func (p *Peer) handshake() bool { return p.Flags&wire.FlagHandshake != 0 }

// hasAddress says that there is one to connect to.
func (p *Peer) hasAddress() bool { return p.IP != "" && p.BusPort != 0 && p.Flags&wire.FlagNoAddr == 0 }
