package wire_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/cluster/wire"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

var capture = flag.Bool("capture", false, "write the packets that a real server sends to testdata, under its version")

// peer is a node that consists of a listener and what a test says.
type peer struct {
	t    *testing.T
	id   wire.ID
	l    net.Listener
	in   net.Conn // the last link that the server opened
	seen map[string][]byte
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &peer{t: t, l: l, seen: map[string][]byte{}}
	p.id, _ = wire.ParseID(strings.Repeat("c", wire.IDLen))
	return p
}

func (p *peer) message(kind wire.Type) *wire.Message {
	return &wire.Message{
		Type: kind, Sender: p.id, Slots: &slot.Bitmap{}, Port: 7000, BusPort: uint16(p.l.Addr().(*net.TCPAddr).Port),
		IP: "127.0.0.1", Flags: wire.FlagPrimary | wire.FlagMyself, Bits: wire.Extensions,
	}
}

func (p *peer) send(c net.Conn, m *wire.Message) {
	p.t.Helper()
	if _, err := c.Write(wire.Append(nil, m)); err != nil {
		p.t.Fatal(err)
	}
}

// read gives the next packet of a connection, and keeps the first of each kind.
func (p *peer) read(c net.Conn) (*wire.Message, []byte) {
	p.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	head := make([]byte, wire.HeadLength)
	if _, err := io.ReadFull(c, head); err != nil {
		p.t.Fatal(err)
	}
	n, err := wire.Length(head)
	if err != nil {
		p.t.Fatal(err)
	}
	frame := make([]byte, n)
	copy(frame, head)
	if _, err := io.ReadFull(c, frame[len(head):]); err != nil {
		p.t.Fatal(err)
	}
	m, err := wire.Decode(frame)
	if err != nil {
		p.t.Fatalf("a real packet of %d bytes: %v", n, err)
	}
	if again := wire.Append(nil, m); !bytes.Equal(again, frame) {
		p.t.Errorf("a real %s comes back as other bytes:\n%s", m.Type.Name(), difference(frame, again))
	}
	name := m.Type.Name()
	if len(m.Gossip) > 0 {
		name += "-gossip"
	}
	if p.seen[name] == nil {
		p.seen[name] = frame
	}
	return m, frame
}

func difference(a, b []byte) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d bytes, and %d", len(a), len(b))
	}
	var out strings.Builder
	for i := range a {
		if a[i] != b[i] {
			fmt.Fprintf(&out, "at %d: %#x, and %#x\n", i, a[i], b[i])
		}
	}
	return out.String()
}

// accept waits for the server's link, and answers its pings until it has sent a message of the type.
func (p *peer) await(kind wire.Type) *wire.Message {
	p.t.Helper()
	for {
		if p.in == nil {
			c, err := p.l.Accept()
			if err != nil {
				p.t.Fatal(err)
			}
			p.in = c
			p.t.Cleanup(func() { c.Close() })
		}
		m, _ := p.read(p.in)
		if m.Type == wire.Ping || m.Type == wire.Meet {
			p.send(p.in, p.message(wire.Pong))
		}
		if m.Type == kind {
			return m
		}
	}
}

// TestRealServer speaks to a real server as a peer made by hand. Every packet that it sends must decode, and come back as the
// same bytes.
func TestRealServer(t *testing.T) {
	server := testkit.StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
	client := testkit.Dial(t, server.Addr)
	client.Do("CLUSTER", "ADDSLOTSRANGE", "0", "100", "200", "16000")
	client.Do("CLUSTER", "SET-CONFIG-EPOCH", "5")
	// 7.2 and later tell names; an older server refuses these.
	client.Do("CONFIG", "SET", "cluster-announce-hostname", "host.example")
	client.Do("CONFIG", "SET", "cluster-announce-human-nodename", "the-name")

	p := newPeer(t)
	out, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(server.Port+10000))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.send(out, p.message(wire.Meet))
	pong, _ := p.read(out)
	if pong.Type != wire.Pong || pong.Port != uint16(server.Port) || pong.ConfigEpoch != 5 || !pong.Slots.Has(100) || pong.Slots.Has(101) {
		t.Errorf("the answer to a meet is a %s of port %d, epoch %d", pong.Type.Name(), pong.Port, pong.ConfigEpoch)
	}
	if want := strings.TrimSpace(client.Do("CLUSTER", "MYID").Value.(string)); pong.Sender.String() != want {
		t.Errorf("sender %s, want %s", pong.Sender, want)
	}
	p.await(wire.Ping) // its link to here is up: it knows this peer
	testkit.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(client.Do("CLUSTER", "NODES").Raw, p.id.String())
	}, "the server knows the peer")

	client.Do("PUBLISH", "chan", "hello")
	if m := p.await(wire.Publish); string(m.Publication.Channel) != "chan" || string(m.Publication.Payload) != "hello" {
		t.Errorf("publication %q", m.Publication)
	}
	p.send(out, p.update(pong.Sender))
	p.await(wire.Update)
	// A third node, learned by gossip of a member, is gossiped about as soon as there is a link to it. It says nothing.
	mute := newPeer(t)
	ping := p.message(wire.Ping)
	third := wire.Gossip{ID: wire.ID([]byte(strings.Repeat("d", wire.IDLen))), IP: "127.0.0.1", Port: 1, BusPort: mute.message(0).BusPort, Flags: wire.FlagPrimary}
	ping.Gossip = []wire.Gossip{third}
	for told := false; !told; {
		p.send(out, ping)
		m, _ := p.read(out)
		for _, g := range m.Gossip { // of this peer too: older servers tell a node of itself
			if g.ID == third.ID {
				third.PingSent, told = g.PingSent, true
				if g != third {
					t.Errorf("gossip %+v, want %+v", g, third)
				}
			}
		}
	}
	if *capture {
		p.keep(node(client.Do("INFO", "server").Raw))
	}
}

// update claims slots with an older epoch than the server's, which makes it tell its own.
func (p *peer) update(wire.ID) *wire.Message {
	m := p.message(wire.Ping)
	m.Slots.SetRange(slot.Range{First: 0, Last: 10})
	return m
}

func node(info string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func (p *peer) keep(version string) {
	for name, frame := range p.seen {
		text := hex.EncodeToString(frame)
		var lines strings.Builder
		for len(text) > 0 {
			n := min(len(text), 128)
			lines.WriteString(text[:n] + "\n")
			text = text[n:]
		}
		if err := os.WriteFile(filepath.Join("testdata", version+"-"+name+".hex"), []byte(lines.String()), 0o644); err != nil {
			p.t.Error(err)
		}
	}
}

// TestKeptPackets decodes packets of real servers that were kept by -capture.
func TestKeptPackets(t *testing.T) {
	for name, frame := range kept(t) {
		n, err := wire.Length(frame)
		if err != nil || n != len(frame) {
			t.Errorf("%s: length %d, %v, want %d", name, n, err, len(frame))
		}
		m, err := wire.Decode(frame)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(name, "-"+m.Type.Name()) {
			t.Errorf("%s: type %s", name, m.Type.Name())
		}
		if again := wire.Append(nil, m); !bytes.Equal(again, frame) {
			t.Errorf("%s: comes back as other bytes:\n%s", name, difference(frame, again))
		}
		if strings.HasPrefix(name, "7.2") && m.Type == wire.Ping && (m.Ext.Hostname != "host.example" || m.Ext.Nodename != "the-name" || m.Ext.ShardID.IsZero()) {
			t.Errorf("%s: extensions %+v", name, m.Ext)
		}
	}
}

func kept(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(names) < 6 {
		t.Fatalf("%d files in testdata, %v", len(names), err)
	}
	frames := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		frames[filepath.Base(name)] = frame
	}
	return frames
}

// FuzzReal is FuzzDecode from real packets.
func FuzzReal(f *testing.F) {
	for _, frame := range kept(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) >= wire.HeadLength {
			if _, err := wire.Length(frame); err == nil {
				wire.IsPublication(frame)
				wire.SenderOf(frame)
			}
		}
		if m, err := wire.Decode(frame); err == nil {
			if _, err := wire.Decode(wire.Append(nil, m)); err != nil {
				t.Fatalf("what was decoded is not taken back: %v", err)
			}
		}
	})
}
