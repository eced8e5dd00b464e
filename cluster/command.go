package cluster

import (
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// Cmd is something that a person or a tool asks of the node: one of the types below.
type Cmd interface{ cmd() }

// CmdMeet is CLUSTER MEET. IP is numeric.
type CmdMeet struct {
	IP      string
	Port    int
	BusPort int
}

// CmdForget is CLUSTER FORGET.
type CmdForget struct{ ID string }

// CmdReplicate is CLUSTER REPLICATE.
type CmdReplicate struct{ ID string }

// CmdFailover is CLUSTER FAILOVER.
type CmdFailover struct{ Mode FailoverMode }

// FailoverMode says how much is waited for.
type FailoverMode uint8

// The modes.
const (
	Coordinated FailoverMode = iota // the primary pauses, nothing is lost
	Force                           // without the primary, with the votes
	Takeover                        // without anybody
)

// CmdAddSlots is ADDSLOTS and ADDSLOTSRANGE; the slots are checked to be free.
type CmdAddSlots struct{ Slots slot.Bitmap }

// CmdDelSlots is DELSLOTS and DELSLOTSRANGE.
type CmdDelSlots struct{ Slots slot.Bitmap }

// CmdFlushSlots is CLUSTER FLUSHSLOTS.
type CmdFlushSlots struct{}

// CmdSetSlot is CLUSTER SETSLOT.
type CmdSetSlot struct {
	Slot   uint16
	Action SlotAction
	ID     string
}

// CmdCheckSlot asks what a CmdSetSlot would be answered, and changes nothing. Answer.Replicas says whether this node's
// replicas are to know of it before it is done.
type CmdCheckSlot CmdSetSlot

// CmdAskEpoch asks whether a member has heard this node's config epoch, and pings it if not: Answer.OK.
type CmdAskEpoch struct{ ID string }

// CmdQuickSlot is a CmdSetSlot whose answer need not wait for the disk, unless this node claims by it what was not on its
// way here: the node's log has it, and a start takes it from there, or the cluster tells it anew.
type CmdQuickSlot CmdSetSlot

// CmdRecallSlot opens a slot again, as SETSLOT IMPORTING does, when this node starts: it was answered that the slot is its
// own, and a crash took that back. It takes the slot as soon as it has looked around, if nobody else has it.
type CmdRecallSlot CmdSetSlot

// CmdHeedSlot is a SETSLOT that this replica's primary is about to do, and has checked. Nor does it wait for the disk.
type CmdHeedSlot CmdSetSlot

// SlotAction is what SETSLOT does.
type SlotAction uint8

// The actions.
const (
	SlotStable SlotAction = iota
	SlotMigrating
	SlotImporting
	SlotNode
)

// CmdCloseSlots ends what a replica knows of slots that are on their way from and to its primary: the data changes to
// another state of the primary's, and which slots are open in it the primary tells anew.
type CmdCloseSlots struct{}

// CmdTakeFound is for the start, when the data is open: a node that knows no other takes the slots that it has keys of and
// nobody owns.
type CmdTakeFound struct{}

// CmdBumpEpoch is CLUSTER BUMPEPOCH. Answer.Word is BUMPED or STILL.
type CmdBumpEpoch struct{}

// CmdSetConfigEpoch is CLUSTER SET-CONFIG-EPOCH.
type CmdSetConfigEpoch struct{ Epoch int64 }

// CmdReset is CLUSTER RESET.
type CmdReset struct{ Hard bool }

// CmdSave is CLUSTER SAVECONFIG.
type CmdSave struct{}

// CmdPublish sends a message to the other nodes, or to those of this shard.
type CmdPublish struct {
	Shard   bool
	Channel []byte
	Payload []byte
}

// CmdHandOver chooses the replica that is to take over, because this primary is about to stop. Answer.OK says that there
// is one; the caller sends it CLUSTER FAILOVER.
type CmdHandOver struct{}

func (CmdMeet) cmd()           {}
func (CmdForget) cmd()         {}
func (CmdReplicate) cmd()      {}
func (CmdFailover) cmd()       {}
func (CmdAddSlots) cmd()       {}
func (CmdDelSlots) cmd()       {}
func (CmdFlushSlots) cmd()     {}
func (CmdSetSlot) cmd()        {}
func (CmdCheckSlot) cmd()      {}
func (CmdAskEpoch) cmd()       {}
func (CmdQuickSlot) cmd()      {}
func (CmdRecallSlot) cmd()     {}
func (CmdHeedSlot) cmd()       {}
func (CmdCloseSlots) cmd()     {}
func (CmdTakeFound) cmd()      {}
func (CmdBumpEpoch) cmd()      {}
func (CmdSetConfigEpoch) cmd() {}
func (CmdReset) cmd()          {}
func (CmdSave) cmd()           {}
func (CmdPublish) cmd()        {}
func (CmdHandOver) cmd()       {}

// Answer is what a command gives beside its effects.
type Answer struct {
	Err   error  // with Redis's text, the "ERR " in front included; nil: done
	Word  string // BUMPED or STILL
	Epoch uint64 // of BUMPEPOCH
	OK    bool
	// Replicas is of CmdCheckSlot.
	Replicas bool
	// ID, IP and Port name the replica that HandOver chose: it is to be sent CLUSTER FAILOVER.
	ID   wire.ID
	IP   string
	Port int
	// After is a save that the answer waits for; 0: none. It comes after the effects are carried out.
	After uint64
}
