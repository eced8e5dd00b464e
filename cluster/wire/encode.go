package wire

import (
	"encoding/binary"
)

// Append appends the packet.
func Append(dst []byte, m *Message) []byte {
	start := len(dst)
	if m.Light {
		dst = appendLightHeader(dst, m)
	} else {
		dst = appendHeader(dst, m)
	}
	switch m.Type {
	case Ping, Pong, Meet:
		for i := range m.Gossip {
			dst = appendGossip(dst, &m.Gossip[i])
		}
		dst = m.Ext.append(dst)
	case Fail:
		dst = append(dst, m.Failed[:]...)
	case Publish, PublishShard:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Publication.Channel)))
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Publication.Payload)))
		dst = append(dst, m.Publication.Channel...)
		dst = append(dst, m.Publication.Payload...)
	case Update:
		dst = binary.BigEndian.AppendUint64(dst, m.Update.Epoch)
		dst = append(dst, m.Update.ID[:]...)
		dst = appendSlots(dst, m.Update.Slots[:])
	case Module:
		dst = binary.LittleEndian.AppendUint64(dst, m.Module.ID) // opaque: as it came
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Module.Data)))
		dst = append(dst, m.Module.Kind)
		dst = append(dst, m.Module.Data...)
	}
	binary.BigEndian.PutUint32(dst[start+atLength:], uint32(len(dst)-start))
	return dst
}

func appendSlots(dst, bitmap []byte) []byte { return append(dst, bitmap...) }

func appendLightHeader(dst []byte, m *Message) []byte {
	dst = append(dst, signature...)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = append(dst, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Type)|lightBit)
	return append(dst, 0, 0)
}

func appendHeader(dst []byte, m *Message) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerLen)...)
	h := dst[start:]
	copy(h, signature)
	be := binary.BigEndian
	be.PutUint16(h[atVersion:], version)
	be.PutUint16(h[atPort:], m.Port)
	be.PutUint16(h[atType:], uint16(m.Type))
	be.PutUint64(h[atEpoch:], m.CurrentEpoch)
	be.PutUint64(h[atConfig:], m.ConfigEpoch)
	be.PutUint64(h[atOffset:], uint64(m.Offset))
	copy(h[atSender:], m.Sender[:])
	if m.Slots != nil {
		copy(h[atSlots:], m.Slots[:])
	}
	copy(h[atPrimary:], m.Primary[:])
	putIP(h[atIP:atIP+ipLen], m.IP)
	be.PutUint16(h[atPPort:], m.PPort)
	be.PutUint16(h[atBusPort:], m.BusPort)
	be.PutUint16(h[atFlags:], uint16(m.Flags))
	if m.Down {
		h[atState] = 1
	}
	h[atBits] = byte(m.Bits)
	switch m.Type {
	case Ping, Pong, Meet:
		be.PutUint16(h[atCount:], uint16(len(m.Gossip)))
		if n := m.Ext.count(); n > 0 {
			be.PutUint16(h[atExtensions:], uint16(n))
			h[atBits] |= byte(Extensions)
		}
	}
	return dst
}

// putIP writes an address into its field. The last byte stays zero: a longer text is cut.
func putIP(field []byte, ip string) { copy(field[:len(field)-1], ip) }

func appendGossip(dst []byte, g *Gossip) []byte {
	be := binary.BigEndian
	dst = append(dst, g.ID[:]...)
	dst = be.AppendUint32(dst, g.PingSent)
	dst = be.AppendUint32(dst, g.PongReceived)
	at := len(dst)
	dst = append(dst, make([]byte, ipLen)...)
	putIP(dst[at:], g.IP)
	dst = be.AppendUint16(dst, g.Port)
	dst = be.AppendUint16(dst, g.BusPort)
	dst = be.AppendUint16(dst, uint16(g.Flags))
	dst = be.AppendUint16(dst, g.PPort)
	return append(dst, 0, 0)
}

// texts lists the extensions that are text, with their types, in the order of the wire.
func (e *Ext) texts() [4]struct {
	kind uint16
	text *string
} {
	return [4]struct {
		kind uint16
		text *string
	}{{extHostname, &e.Hostname}, {extNodename, &e.Nodename}, {extClientIPv4, &e.ClientIPv4}, {extClientIPv6, &e.ClientIPv6}}
}

func (e *Ext) count() int {
	n := len(e.Forgotten)
	for _, t := range e.texts() {
		if *t.text != "" {
			n++
		}
	}
	if !e.ShardID.IsZero() {
		n++
	}
	return n
}

func (e *Ext) append(dst []byte) []byte {
	for _, t := range e.texts() {
		if *t.text == "" {
			continue
		}
		size := (len(*t.text) + 1 + 7) &^ 7
		dst = appendExtHeader(dst, t.kind, size)
		dst = append(dst, *t.text...)
		dst = append(dst, make([]byte, size-len(*t.text))...)
	}
	for i := range e.Forgotten {
		dst = appendExtHeader(dst, extForgotten, IDLen+8)
		dst = append(dst, e.Forgotten[i].ID[:]...)
		dst = binary.BigEndian.AppendUint64(dst, e.Forgotten[i].Seconds)
	}
	if !e.ShardID.IsZero() {
		dst = appendExtHeader(dst, extShard, IDLen)
		dst = append(dst, e.ShardID[:]...)
	}
	return dst
}

func appendExtHeader(dst []byte, kind uint16, size int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(extHeader+size))
	dst = binary.BigEndian.AppendUint16(dst, kind)
	return append(dst, 0, 0)
}
