package wire

import "cairn/internal/slot"

// IDLen is the length of a node's id: hex digits, lower case.
const IDLen = 40

// ID names a node, or a shard.
type ID [IDLen]byte

// IsZero says that there is no id.
func (id ID) IsZero() bool { return id == ID{} }

// String is the id's text.
func (id ID) String() string { return string(id[:]) }

// Type says what a message is.
type Type uint16

// The types, by their numbers on the wire.
const (
	Ping Type = iota
	Pong
	Meet
	Fail
	Publish
	AuthRequest
	AuthAck
	Update
	ManualStart
	Module
	PublishShard
	typeCount
)

// Flags is what a node is, as told in headers and gossip.
type Flags uint16

// The flags, by their bits on the wire.
const (
	FlagPrimary Flags = 1 << iota
	FlagReplica
	FlagMaybeFailed // one node's suspicion
	FlagFailed      // agreed
	FlagMyself
	FlagHandshake
	FlagNoAddr
	FlagMeet
	FlagMigrateTo
	FlagNoFailover
	FlagExtensions // Valkey: knows extensions; local knowledge
	FlagLight      // Valkey: takes light headers
)

// MessageFlags is the header's bits about the message itself.
type MessageFlags uint8

// Bits of MessageFlags.
const (
	Paused     MessageFlags = 1 << iota // a primary has paused its writes for a manual failover
	ForceAck                            // vote although the primary is up
	Extensions                          // extensions follow, or are understood
)

// Message is one packet. Fields that its type does not have are zero.
type Message struct {
	Type  Type
	Light bool // has the short header: Type, Publication, and nothing else

	Port    uint16 // of clients, for the transport that the cluster runs on
	PPort   uint16 // of clients, for the other transport; 0: none
	BusPort uint16

	CurrentEpoch uint64
	ConfigEpoch  uint64 // a replica tells its primary's
	Offset       int64  // of replication: produced, or processed by a replica
	Sender       ID
	Slots        *slot.Bitmap // a replica tells its primary's; shared, never changed; not nil in a decoded full message
	Primary      ID           // zero: the sender is a primary
	IP           string       // "" unless announced
	Flags        Flags
	Down         bool // the sender sees the cluster as failed
	Bits         MessageFlags

	Gossip []Gossip // ping, pong, meet
	Ext    Ext      // ping, pong, meet

	Failed      ID          // fail
	Publication Publication // publish, publish to shard
	Update      NodeUpdate  // update
	Module      ModuleData  // module
}

// Gossip is what a message tells of a third node.
type Gossip struct {
	ID           ID
	PingSent     uint32 // Unix seconds
	PongReceived uint32 // Unix seconds
	IP           string
	Port         uint16
	BusPort      uint16
	PPort        uint16
	Flags        Flags
}

// Ext is the extensions of a ping, pong or meet. What is empty is not sent.
type Ext struct {
	Hostname   string
	Nodename   string // for people
	ClientIPv4 string // Valkey
	ClientIPv6 string // Valkey
	ShardID    ID
	Forgotten  []Forgotten
	Unknown    int // extensions of types not known here, when decoded
}

// Forgotten tells that a node was forgotten and is not to be learned again for a while.
type Forgotten struct {
	ID      ID
	Seconds uint64
}

// Publication is a message on a channel.
type Publication struct {
	Channel []byte
	Payload []byte
}

// NodeUpdate tells a node with old news who has these slots.
type NodeUpdate struct {
	Epoch uint64
	ID    ID
	Slots *slot.Bitmap
}

// ModuleData is what modules of Redis say to each other. It is counted, and carried nowhere.
type ModuleData struct {
	ID   uint64
	Kind uint8
	Data []byte
}

// Name is the word for a type in statistics, "" for one that is not known.
func (t Type) Name() string {
	names := [...]string{
		"ping", "pong", "meet", "fail", "publish", "auth-req", "auth-ack", "update", "mfstart", "module", "publishshard",
	}
	if int(t) >= len(names) {
		return ""
	}
	return names[t]
}
