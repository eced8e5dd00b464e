package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"cairn/internal/slot"
)

func id(c byte) (id ID) {
	copy(id[:], bytes.Repeat([]byte{c}, IDLen))
	return id
}

// example gives a message of each type, with every field in use.
func example(kind Type) *Message {
	m := &Message{
		Type: kind, Port: 7000, PPort: 7100, BusPort: 17000, CurrentEpoch: 1 << 40, ConfigEpoch: 7, Offset: 1 << 50,
		Sender: id('a'), Primary: id('b'), IP: "10.0.0.1", Flags: FlagReplica | FlagMyself, Down: true, Bits: Paused | ForceAck,
		Slots: &slot.Bitmap{},
	}
	m.Slots.SetRange(slot.Range{First: 5, Last: 1000})
	switch kind {
	case Ping, Pong, Meet:
		m.Bits |= Extensions
		m.Gossip = []Gossip{
			{ID: id('c'), PingSent: 1, PongReceived: 2, IP: "::1", Port: 1, BusPort: 2, PPort: 3, Flags: FlagPrimary},
			{ID: id('d'), PongReceived: 9, IP: "192.168.100.200", Port: 65535, BusPort: 65534, Flags: FlagReplica | FlagFailed},
		}
		m.Ext = Ext{
			Hostname: "host.example", Nodename: "the-7", ClientIPv4: "1.2.3.4", ClientIPv6: "fe80::1",
			ShardID: id('e'), Forgotten: []Forgotten{{ID: id('f'), Seconds: 60}, {ID: id('0'), Seconds: 1}},
		}
	case Fail:
		m.Failed = id('9')
	case Publish, PublishShard:
		m.Publication = Publication{Channel: []byte("chan"), Payload: []byte("hello\x00there")}
	case Update:
		m.Update = NodeUpdate{Epoch: 3, ID: id('8'), Slots: m.Slots}
	case Module:
		m.Module = ModuleData{ID: 77, Kind: 3, Data: []byte("data")}
	}
	return m
}

// TestEveryFieldComesBack sends each type through both directions.
func TestEveryFieldComesBack(t *testing.T) {
	for kind := Ping; kind < typeCount; kind++ {
		want := example(kind)
		frame := Append(nil, want)
		if n, err := Length(frame); err != nil || n != len(frame) {
			t.Fatalf("type %d: Length = %d, %v, want %d", kind, n, err, len(frame))
		}
		got, err := Decode(frame)
		if err != nil {
			t.Fatalf("type %d: %v", kind, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("type %d:\n got %+v\nwant %+v", kind, got, want)
		}
	}
	light := &Message{Type: Publish, Light: true, Publication: Publication{Channel: []byte("chan"), Payload: []byte("hello")}}
	frame := Append(nil, light)
	if len(frame) != 33 {
		t.Errorf("light publication is %d bytes, Valkey's is 33", len(frame))
	}
	got, err := Decode(frame)
	if err != nil || !reflect.DeepEqual(got, light) {
		t.Errorf("light publication: %+v, %v", got, err)
	}
}

// TestLengthsOnTheWire compares with what real servers send.
func TestLengthsOnTheWire(t *testing.T) {
	ext := func(e Ext) int { return len(Append(nil, &Message{Ext: e})) - headerLen }
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"auth request", len(Append(nil, &Message{Type: AuthRequest})), 2256},
		{"fail", len(Append(nil, &Message{Type: Fail})), 2296},
		{"update", len(Append(nil, &Message{Type: Update, Update: NodeUpdate{Slots: &slot.Bitmap{}}})), 4352},
		{"publish", len(Append(nil, &Message{Type: Publish})), 2264},
		{"module", len(Append(nil, &Message{Type: Module})), 2269},
		{"gossip", len(Append(nil, &Message{Gossip: make([]Gossip, 3)})), 2256 + 3*104},
		{"hostname of 12", ext(Ext{Hostname: "host.example"}), 24},
		{"hostname of 7", ext(Ext{Hostname: "1234567"}), 16},
		{"hostname of 8", ext(Ext{Hostname: "12345678"}), 24},
		{"shard", ext(Ext{ShardID: id('a')}), 48},
		{"forgotten", ext(Ext{Forgotten: make([]Forgotten, 2)}), 112},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.what, c.got, c.want)
		}
	}
}

// TestRefusals breaks a good packet in one place at a time.
func TestRefusals(t *testing.T) {
	be := binary.BigEndian
	ping := Append(nil, example(Ping))
	ext := headerLen + 2*gossipLen
	for _, c := range []struct {
		what   string
		change func(b []byte) []byte
		text   string
	}{
		{"version", func(b []byte) []byte { be.PutUint16(b[atVersion:], 2); return b }, "version 2, want 1"},
		{"type", func(b []byte) []byte { be.PutUint16(b[atType:], 11); return b }, "type 11, known are 0 to 10"},
		{"light ping", func(b []byte) []byte { be.PutUint16(b[atType:], 0x8000); return b }, "light header"},
		{"too many entries", func(b []byte) []byte { be.PutUint16(b[atCount:], 60000); return b }, "60000 gossip entries"},
		{"an entry less", func(b []byte) []byte { be.PutUint16(b[atCount:], 1); return b }, "extension"},
		{"one extension more", func(b []byte) []byte { be.PutUint16(b[atExtensions:], 8); return b }, "extension 8 of 8"},
		{"extensions without flag", func(b []byte) []byte { b[atBits] = 0; return b }, "flag"},
		{"extension of 0 bytes", func(b []byte) []byte { be.PutUint32(b[ext:], 0); return b }, "length 0"},
		{"extension of odd length", func(b []byte) []byte { be.PutUint32(b[ext:], 23); return b }, "length 23"},
		{"extension of 65536+24", func(b []byte) []byte { be.PutUint32(b[ext:], 65536+24); return b }, "length 65560"},
		{"trailing bytes", func(b []byte) []byte { return append(b, 0) }, "after the header"},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }, "extension"},
		{"sender", func(b []byte) []byte { b[atSender] = 'A'; return b }, "sender's id"},
		{"address without end", func(b []byte) []byte { copy(b[atIP:], strings.Repeat("1", ipLen)); return b }, "does not end"},
		{"address with a blank", func(b []byte) []byte { b[atIP] = ' '; return b }, "has the byte"},
	} {
		_, err := Decode(c.change(bytes.Clone(ping)))
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want an error with %q", c.what, err, c.text)
		}
	}
	for _, n := range []uint32{0, 15, 2255, MaxLength + 1, 1<<32 - 1} {
		head := bytes.Clone(ping[:HeadLength])
		be.PutUint32(head[atLength:], n)
		if _, err := Length(head); err == nil {
			t.Errorf("a packet of %d bytes is taken", n)
		}
	}
}

// TestDoubtfulGossip: one bad entry takes all of them along, and the header stays.
func TestDoubtfulGossip(t *testing.T) {
	frame := Append(nil, example(Ping))
	frame[headerLen+gossipLen] = '\n'
	m, err := Decode(frame)
	if err != nil || m.Gossip != nil || m.Ext.Hostname == "" {
		t.Fatalf("%+v, %v", m, err)
	}
}

// TestExtensionLengths: whatever length an extension claims, the reader stays inside the packet.
func TestExtensionLengths(t *testing.T) {
	frame := Append(nil, example(Ping))
	at := headerLen + 2*gossipLen
	for low := range uint32(1 << 16) {
		for _, high := range []uint32{0, 1, 0xffff} {
			binary.BigEndian.PutUint32(frame[at:], high<<16|low)
			_, err := Decode(frame) // a panic is what this looks for
			if err == nil && high > 0 {
				t.Fatalf("length %d is taken", high<<16|low)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for kind := Ping; kind < typeCount; kind++ {
		f.Add(Append(nil, example(kind)))
	}
	f.Add(Append(nil, &Message{Type: Publish, Light: true}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) >= HeadLength {
			_, _ = Length(frame) // must not panic
		}
		m, err := Decode(frame)
		if err != nil {
			return
		}
		again, err := Decode(Append(nil, m))
		if err != nil {
			t.Fatalf("what was decoded is not taken back: %v", err)
		}
		m.Ext.Unknown = 0
		if m.Ext.count() == 0 {
			m.Bits, again.Bits = m.Bits&^Extensions, again.Bits&^Extensions
		}
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("\n got %+v\nwant %+v", again, m)
		}
	})
}

// TestRandomBytes is the fuzz target for those who only run tests.
func TestRandomBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		frame := Append(nil, example(Type(rng.IntN(int(typeCount)))))
		for range 1 + rng.IntN(4) {
			frame[rng.IntN(len(frame))] = byte(rng.Uint32())
		}
		_, _ = Decode(frame[:rng.IntN(len(frame)+1)]) // must not panic
	}
}

func BenchmarkDecodePing(b *testing.B) {
	frame := Append(nil, example(Ping))
	for b.Loop() {
		if _, err := Decode(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendPing(b *testing.B) {
	m := example(Ping)
	var buf []byte
	for b.Loop() {
		buf = Append(buf[:0], m)
	}
}
