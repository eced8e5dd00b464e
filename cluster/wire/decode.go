package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"cairn/internal/slot"
)

// Length says how long the packet is that begins with head, which must have HeadLength bytes. An error means that no
// packet can begin so, and the stream with it is lost.
func Length(head []byte) (int, error) {
	if len(head) < HeadLength {
		return 0, fmt.Errorf("head of a packet: %d bytes, want %d", len(head), HeadLength)
	}
	if string(head[:4]) != signature {
		return 0, fmt.Errorf("head of a packet: begins with %q, want %q", head[:4], signature)
	}
	n := binary.BigEndian.Uint32(head[atLength:])
	least := uint32(headerLen)
	if binary.BigEndian.Uint16(head[atType:])&lightBit != 0 {
		least = lightLen
	}
	if n < least || n > MaxLength {
		return 0, fmt.Errorf("head of a packet: length %d, want %d to %d", n, least, MaxLength)
	}
	return int(n), nil
}

// IsPublication says whether the packet that begins with head, of which Length has approved, carries a publication: the
// one kind whose size users choose.
func IsPublication(head []byte) bool {
	kind := Type(binary.BigEndian.Uint16(head[atType:]) &^ lightBit)
	return kind == Publish || kind == PublishShard
}

// SenderOf gives the sender's id from the first PrefixLength bytes of a packet, of whose head Length has approved. A light
// packet names none.
func SenderOf(prefix []byte) (id ID, ok bool) {
	if len(prefix) < PrefixLength || binary.BigEndian.Uint16(prefix[atType:])&lightBit != 0 {
		return id, false
	}
	copy(id[:], prefix[atSender:])
	return id, id.Valid()
}

// Decode reads one whole packet, of the length that Length gave. The message keeps nothing of frame. An error means that
// this packet is to be passed over; the next one may be good.
func Decode(frame []byte) (*Message, error) {
	if len(frame) < lightLen {
		return nil, fmt.Errorf("packet: %d bytes, want at least %d", len(frame), lightLen)
	}
	be := binary.BigEndian
	if v := be.Uint16(frame[atVersion:]); v != version {
		return nil, fmt.Errorf("packet: version %d, want %d", v, version)
	}
	kind := be.Uint16(frame[atType:])
	m := &Message{Type: Type(kind &^ lightBit), Light: kind&lightBit != 0}
	if m.Type >= typeCount {
		return nil, fmt.Errorf("packet: type %d, known are 0 to %d", m.Type, typeCount-1)
	}
	if m.Light {
		if m.Type != Publish && m.Type != PublishShard {
			return nil, fmt.Errorf("packet: type %d with a light header", m.Type)
		}
		return m, m.decodePublication(frame[lightLen:])
	}
	if len(frame) < headerLen {
		return nil, fmt.Errorf("packet: %d bytes, want at least %d", len(frame), headerLen)
	}
	if err := m.decodeHeader(frame); err != nil {
		return nil, err
	}
	if err := m.decodeBody(frame, frame[headerLen:]); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Message) decodeHeader(h []byte) (err error) {
	be := binary.BigEndian
	m.Port, m.PPort, m.BusPort = be.Uint16(h[atPort:]), be.Uint16(h[atPPort:]), be.Uint16(h[atBusPort:])
	m.CurrentEpoch, m.ConfigEpoch = be.Uint64(h[atEpoch:]), be.Uint64(h[atConfig:])
	m.Offset = int64(be.Uint64(h[atOffset:]))
	copy(m.Sender[:], h[atSender:])
	m.Slots = (*slot.Bitmap)(bytes.Clone(h[atSlots : atSlots+slotsLen]))
	copy(m.Primary[:], h[atPrimary:])
	m.Flags = Flags(be.Uint16(h[atFlags:]))
	m.Down = h[atState] != 0
	m.Bits = MessageFlags(h[atBits])
	switch {
	case !m.Sender.Valid():
		return fmt.Errorf("packet: sender's id %q, want %d of a-z and 0-9", m.Sender[:], IDLen)
	case !m.Primary.IsZero() && !m.Primary.Valid():
		return fmt.Errorf("packet: primary's id %q, want %d of a-z and 0-9, or zeroes", m.Primary[:], IDLen)
	case m.Offset < 0:
		return fmt.Errorf("packet: offset %d, want 0 or more", m.Offset)
	}
	m.IP, err = decodeIP(h[atIP : atIP+ipLen])
	return err
}

func (m *Message) decodeBody(frame, body []byte) error {
	switch m.Type {
	case Ping, Pong, Meet:
		return m.decodeGossip(body, int(binary.BigEndian.Uint16(frame[atCount:])), int(binary.BigEndian.Uint16(frame[atExtensions:])))
	case Fail:
		if err := wantLength("fail", body, IDLen); err != nil {
			return err
		}
		copy(m.Failed[:], body)
		if !m.Failed.Valid() {
			return fmt.Errorf("packet: id of the failed node %q", m.Failed[:])
		}
		return nil
	case Publish, PublishShard:
		return m.decodePublication(body)
	case Update:
		if err := wantLength("update", body, 8+IDLen+slotsLen); err != nil {
			return err
		}
		m.Update.Epoch = binary.BigEndian.Uint64(body)
		copy(m.Update.ID[:], body[8:])
		if !m.Update.ID.Valid() {
			return fmt.Errorf("packet: id of the updated node %q", m.Update.ID[:])
		}
		m.Update.Slots = (*slot.Bitmap)(bytes.Clone(body[8+IDLen:]))
		return nil
	case Module:
		return m.decodeModule(body)
	default:
		return wantLength("message", body, 0)
	}
}

func wantLength(what string, body []byte, want int) error {
	if len(body) != want {
		return fmt.Errorf("packet: %s with %d bytes after the header, want %d", what, len(body), want)
	}
	return nil
}

func (m *Message) decodePublication(body []byte) error {
	if len(body) < 8 {
		return fmt.Errorf("packet: publication of %d bytes, want at least 8", len(body))
	}
	channel, payload := uint64(binary.BigEndian.Uint32(body)), uint64(binary.BigEndian.Uint32(body[4:]))
	body = body[8:]
	if channel+payload != uint64(len(body)) {
		return fmt.Errorf("packet: publication of %d + %d bytes in %d", channel, payload, len(body))
	}
	body = bytes.Clone(body)
	m.Publication = Publication{Channel: body[:channel:channel], Payload: body[channel:]}
	return nil
}

func (m *Message) decodeModule(body []byte) error {
	if len(body) < moduleFixed {
		return fmt.Errorf("packet: module data of %d bytes, want at least %d", len(body), moduleFixed)
	}
	if n := binary.BigEndian.Uint32(body[8:]); uint64(n) != uint64(len(body)-moduleFixed) {
		return fmt.Errorf("packet: module data of %d bytes in %d", n, len(body)-moduleFixed)
	}
	m.Module = ModuleData{ID: binary.LittleEndian.Uint64(body), Kind: body[12], Data: bytes.Clone(body[moduleFixed:])}
	return nil
}

func (m *Message) decodeGossip(body []byte, entries, extensions int) error {
	if entries*gossipLen > len(body) {
		return fmt.Errorf("packet: %d gossip entries of %d bytes in %d", entries, gossipLen, len(body))
	}
	gossip, rest := body[:entries*gossipLen], body[entries*gossipLen:]
	if err := m.decodeExtensions(rest, extensions); err != nil {
		return err
	}
	if entries == 0 {
		return nil
	}
	m.Gossip = make([]Gossip, entries)
	for i := range m.Gossip {
		if err := m.Gossip[i].decode(gossip[i*gossipLen:][:gossipLen]); err != nil {
			// One entry that makes no sense makes all of them doubtful; the header is another matter.
			m.Gossip = nil
			return nil
		}
	}
	return nil
}

func (g *Gossip) decode(b []byte) (err error) {
	be := binary.BigEndian
	copy(g.ID[:], b)
	if !g.ID.Valid() {
		return fmt.Errorf("gossip: id %q", g.ID[:])
	}
	g.PingSent, g.PongReceived = be.Uint32(b[40:]), be.Uint32(b[44:])
	if g.IP, err = decodeIP(b[48 : 48+ipLen]); err != nil {
		return err
	}
	g.Port, g.BusPort = be.Uint16(b[94:]), be.Uint16(b[96:])
	g.Flags, g.PPort = Flags(be.Uint16(b[98:])), be.Uint16(b[100:])
	return nil
}

func (m *Message) decodeExtensions(b []byte, count int) error {
	if count > 0 && m.Bits&Extensions == 0 {
		return fmt.Errorf("packet: %d extensions, and the flag that tells of them is not set", count)
	}
	for i := range count {
		if len(b) < extHeader {
			return fmt.Errorf("packet: extension %d of %d: %d bytes are left", i+1, count, len(b))
		}
		n := binary.BigEndian.Uint32(b)
		if n < extHeader || n%8 != 0 || uint64(n) > uint64(len(b)) {
			return fmt.Errorf("packet: extension %d of %d: length %d, want a multiple of 8 of at most %d", i+1, count, n, len(b))
		}
		if err := m.Ext.decode(binary.BigEndian.Uint16(b[4:]), b[extHeader:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return wantLength("ping with its extensions", b, 0)
}

func (e *Ext) decode(kind uint16, data []byte) error {
	switch kind {
	case extHostname:
		e.Hostname = decodeText(data, isHostByte)
	case extNodename:
		e.Nodename = decodeText(data, isNameByte)
	case extClientIPv4:
		if extHeader+len(data) < secretLen {
			e.ClientIPv4 = decodeText(data, isAddressByte)
		}
	case extClientIPv6:
		e.ClientIPv6 = decodeText(data, isAddressByte)
	case extForgotten:
		if len(data) != IDLen+8 {
			return fmt.Errorf("packet: forgotten node in %d bytes, want %d", len(data), IDLen+8)
		}
		f := Forgotten{Seconds: binary.BigEndian.Uint64(data[IDLen:])}
		copy(f.ID[:], data)
		if !f.ID.Valid() {
			return fmt.Errorf("packet: id of a forgotten node %q", f.ID[:])
		}
		e.Forgotten = append(e.Forgotten, f)
	case extShard:
		if len(data) != IDLen {
			return fmt.Errorf("packet: shard id in %d bytes, want %d", len(data), IDLen)
		}
		copy(e.ShardID[:], data)
		if !e.ShardID.Valid() {
			return fmt.Errorf("packet: shard id %q", e.ShardID[:])
		}
	default:
		e.Unknown++
	}
	return nil
}
