package nodesconf

import (
	"strconv"

	"cairn/internal/slot"
)

// IDLen is the length of a node id and of a shard id: hex digits, lower case.
const IDLen = 40

// Flags is what a node is, as far as the writer of the file knew.
type Flags uint16

// The flags, in the order in which they are written.
const (
	Myself Flags = 1 << iota
	Primary
	Replica
	MaybeFailed
	Failed
	Handshake
	NoAddr
	NoFailover
)

// flagName is the word for a flag.
type flagName struct {
	flag Flags
	word string
}

func flagNames() [8]flagName {
	return [8]flagName{
		{Myself, "myself"},
		{Primary, "master"},
		{Replica, "slave"},
		{MaybeFailed, "fail?"},
		{Failed, "fail"},
		{Handshake, "handshake"},
		{NoAddr, "noaddr"},
		{NoFailover, "nofailover"},
	}
}

// Append appends the words, "noflags" when there are none.
func (f Flags) Append(dst []byte) []byte {
	at := len(dst)
	for _, n := range flagNames() {
		if f&n.flag != 0 {
			if len(dst) > at {
				dst = append(dst, ',')
			}
			dst = append(dst, n.word...)
		}
	}
	if len(dst) == at {
		dst = append(dst, "noflags"...)
	}
	return dst
}

// OpenSlot is a slot on its way from or to the node that wrote the file.
type OpenSlot struct {
	Slot      uint16
	Importing bool   // arriving; otherwise leaving
	Peer      string // id of the other node
}

// Node is one line.
type Node struct {
	ID        string
	IP        string // "" when not known
	Port      int    // of plain connections
	TLSPort   int    // 0: none
	BusPort   int
	Hostname  string
	ShardID   string // "" in older files
	Name      string // for people
	Flags     Flags
	PrimaryID string // of a replica
	PingSent  int64
	PongAt    int64
	Epoch     uint64
	Connected bool
	Slots     []slot.Range
	Open      []OpenSlot
}

// File is all of it.
type File struct {
	Nodes         []Node
	CurrentEpoch  uint64
	LastVoteEpoch uint64
}

// Myself gives the node that wrote the file.
func (f *File) Myself() *Node {
	for i := range f.Nodes {
		if f.Nodes[i].Flags&Myself != 0 {
			return &f.Nodes[i]
		}
	}
	return nil
}

// Append appends the file's text.
func (f *File) Append(dst []byte) []byte {
	for i := range f.Nodes {
		dst = f.Nodes[i].AppendStored(dst)
		dst = append(dst, '\n')
	}
	dst = append(dst, "vars currentEpoch "...)
	dst = strconv.AppendUint(dst, f.CurrentEpoch, 10)
	dst = append(dst, " lastVoteEpoch "...)
	dst = strconv.AppendUint(dst, f.LastVoteEpoch, 10)
	return append(dst, '\n')
}

// AppendStored appends the node's line as it stands in the file, without its end.
func (n *Node) AppendStored(dst []byte) []byte { return n.append(dst, true) }

// AppendShown appends the node's line as CLUSTER NODES shows it: without the auxiliary fields.
func (n *Node) AppendShown(dst []byte) []byte { return n.append(dst, false) }

func (n *Node) append(dst []byte, stored bool) []byte {
	dst = append(dst, n.ID...)
	dst = append(dst, ' ')
	dst = append(dst, n.IP...)
	dst = append(dst, ':')
	dst = strconv.AppendInt(dst, int64(n.Port), 10)
	dst = append(dst, '@')
	dst = strconv.AppendInt(dst, int64(n.BusPort), 10)
	if n.Hostname != "" || stored {
		dst = append(dst, ',')
		dst = append(dst, n.Hostname...)
	}
	if stored {
		dst = n.appendAux(dst)
	}
	dst = append(dst, ' ')
	dst = n.Flags.Append(dst)
	dst = append(dst, ' ')
	if n.PrimaryID == "" {
		dst = append(dst, '-')
	}
	dst = append(dst, n.PrimaryID...)
	for _, v := range [2]int64{n.PingSent, n.PongAt} {
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, v, 10)
	}
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, n.Epoch, 10)
	if n.Connected {
		dst = append(dst, " connected"...)
	} else {
		dst = append(dst, " disconnected"...)
	}
	for _, r := range n.Slots {
		dst = append(dst, ' ')
		dst = r.Append(dst)
	}
	for _, o := range n.Open {
		dst = o.append(dst)
	}
	return dst
}

// appendAux appends the auxiliary fields in Redis's order.
func (n *Node) appendAux(dst []byte) []byte {
	dst = append(dst, ",tls-port="...)
	dst = strconv.AppendInt(dst, int64(n.TLSPort), 10)
	if n.Name != "" {
		dst = append(append(dst, ",nodename="...), n.Name...)
	}
	if n.ShardID != "" {
		dst = append(append(dst, ",shard-id="...), n.ShardID...)
	}
	return dst
}

func (o *OpenSlot) append(dst []byte) []byte {
	dst = append(dst, " ["...)
	dst = strconv.AppendUint(dst, uint64(o.Slot), 10)
	if o.Importing {
		dst = append(dst, "-<-"...)
	} else {
		dst = append(dst, "->-"...)
	}
	dst = append(dst, o.Peer...)
	return append(dst, ']')
}
