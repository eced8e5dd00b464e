package cluster

import "cairn/cluster/wire"

// LinkID names a connection of the bus. Links that the machine asks for have odd numbers, which it chooses; links that
// the driver accepts have even ones.
type LinkID uint64

// Effect is one thing that the driver is to do: one of the types below. Effects are carried out in their order, but for
// those that wait for a save.
type Effect interface{ effect() }

// Send sends a message. A link that is not there any more is passed over.
type Send struct {
	Link  LinkID
	After uint64 // the save it waits for; 0: none
	Msg   *wire.Message
}

// Connect opens a link to a peer's bus port. Connected or Closed answers it.
type Connect struct {
	Link    LinkID
	IP      string
	BusPort int
}

// Disconnect closes a link. No Closed answers it.
type Disconnect struct{ Link LinkID }

// Save makes State durable, then calls Persisted(Seq). A later save holds all that an earlier one does, so earlier ones
// that have not begun may be left out; Persisted(Seq) then stands for them too.
type Save struct {
	Seq   uint64
	State *State
	Soon  bool // no client, vote or failover waits for it: it may wait a little, so that more is saved at once
}

// Route publishes what clients may do here: slots, role or state of the cluster have changed (Machine.View has them).
// It is done before what follows it is, and before the command that caused it is answered.
type Route struct{ After uint64 }

// Follow makes this node a replica of the node at this address, or of another one than before.
type Follow struct {
	After uint64
	ID    wire.ID
	IP    string
	Port  int
}

// Unfollow ends replication without becoming a primary in the stream's sense: the primary's address is not known.
type Unfollow struct{}

// Promote makes this node a primary, with all data it has and a new history of its stream.
type Promote struct{ After uint64 }

// Pause stops writes until Resume, at most until Until: nothing enters the log, so that the offset stands still. When that
// is so, Machine.Paused is to be called, once for each Pause.
type Pause struct{ Until int64 }

// Resume ends a Pause.
type Resume struct{}

// DropSlots says that the slots went to a node with a higher epoch while this one, their primary, had keys in them. The
// keys are to go, slot by slot in the background, unless the slot is regained meanwhile.
type DropSlots struct {
	After uint64
	Slots []uint16
}

// Flush says that all data goes: CLUSTER RESET of a replica.
type Flush struct{ After uint64 }

// Deliver hands a message that a peer published to the subscribers here.
type Deliver struct {
	Shard   bool
	Channel []byte
	Payload []byte
}

// Note is a line for the node's log.
type Note struct {
	Level Level
	Text  string
}

// Level is how loud a Note is.
type Level uint8

// Levels of a Note.
const (
	Debug Level = iota
	Verbose
	Notice
	Warning
)

func (Send) effect()       {}
func (Connect) effect()    {}
func (Disconnect) effect() {}
func (Save) effect()       {}
func (Route) effect()      {}
func (Follow) effect()     {}
func (Unfollow) effect()   {}
func (Promote) effect()    {}
func (Pause) effect()      {}
func (Resume) effect()     {}
func (DropSlots) effect()  {}
func (Flush) effect()      {}
func (Deliver) effect()    {}
func (Note) effect()       {}
