package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

func TestGossipTeaches(t *testing.T) {
	good := wire.Gossip{ID: letterID('x'), IP: "10.0.0.x", Port: 7, BusPort: 17, Flags: wire.FlagReplica | wire.FlagFailed}
	for _, tc := range []struct {
		name   string
		change func(*wire.Gossip)
		want   bool
	}{
		{"a node", func(*wire.Gossip) {}, true},
		{"one without address", func(g *wire.Gossip) { g.Flags |= wire.FlagNoAddr }, false},
		{"one without an IP", func(g *wire.Gossip) { g.IP = "" }, false},
		{"an id that is none", func(g *wire.Gossip) { g.ID[3] = 'X' }, false},
		{"this node", func(g *wire.Gossip) { g.ID = letterID('a') }, false},
	} {
		s := newSolo(t, "a 1 0-9", "b 2 10-19")
		msg := s.word('b', wire.Ping)
		g := good
		tc.change(&g)
		msg.Gossip = []wire.Gossip{g}
		s.say('b', msg)
		p := s.p('x')
		if (p != nil) != tc.want || len(s.peers) != 2+len(find[Save](nil)) && !tc.want {
			t.Errorf("%s: learned %v, want %v", tc.name, p != nil, tc.want)
		}
		if p != nil && (p.any(anyFailure|wire.FlagHandshake) || !p.replica() || p.address() != (address{"10.0.0.x", 7, 0, 17})) {
			t.Errorf("%s: learned %+v", tc.name, p)
		}
		if s.me.any(anyFailure) || s.me.IP != "10.0.0.a" {
			t.Errorf("%s: this node believes it of itself: %+v", tc.name, s.me)
		}
	}
}

func TestBadIDSpoilsTheSection(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	msg := s.word('b', wire.Ping)
	msg.Gossip = []wire.Gossip{
		{ID: wire.ID{1, 2, 3}, IP: "10.0.0.y", Port: 7, BusPort: 17, Flags: wire.FlagPrimary},
		{ID: letterID('x'), IP: "10.0.0.x", Port: 7, BusPort: 17, Flags: wire.FlagPrimary},
	}
	if s.say('b', msg); len(s.peers) != 2 {
		t.Errorf("%d peers", len(s.peers))
	}
}

func TestPongsOfOthersCount(t *testing.T) {
	for _, tc := range []struct {
		name    string
		at      int64 // after now
		prepare func(*Peer)
		want    bool
	}{
		{"newer", 0, func(*Peer) {}, true},
		{"a little ahead", 0, func(*Peer) {}, true},
		{"older", -60_000, func(*Peer) {}, false},
		{"from the future", 2000, func(*Peer) {}, false},
		{"while a ping is unanswered", 0, func(p *Peer) { p.PingSent = 1 }, false},
		{"while one says that it failed", 0, func(p *Peer) { p.addReport(p, startTime+1_000_000) }, false},
	} {
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
		s.now += 1000
		p := s.p('c')
		p.PingSent = 0
		tc.prepare(p)
		before := p.PongAt
		msg := s.word('b', wire.Ping)
		msg.Gossip = []wire.Gossip{{
			ID: letterID('c'), IP: "10.0.0.c", Port: 1, BusPort: 2, Flags: wire.FlagPrimary,
			PongReceived: uint32((s.now + tc.at) / 1000),
		}}
		s.say('b', msg)
		if got := p.PongAt != before; got != tc.want {
			t.Errorf("%s: adopted %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestGossipSize(t *testing.T) {
	for _, tc := range []struct{ nodes, want int }{{2, 0}, {3, 1}, {5, 3}, {20, 3}, {60, 6}} {
		w := newWorld(t, 1)
		m := w.nodes[0].m
		for i := 1; i < tc.nodes; i++ {
			p := m.newPeer(testID(i), wire.FlagPrimary, w.now)
			p.IP, p.BusPort, p.out = "10.0.0.1", 1, LinkID(2*i+1)
			m.addPeer(p)
		}
		most := 0
		for range 20 {
			msg := m.gossip(w.now, wire.Ping, m.byID[testID(1)], true)
			most = max(most, len(msg.Gossip))
			seen := map[wire.ID]bool{m.me.ID: true, testID(1): true}
			for _, g := range msg.Gossip {
				if seen[g.ID] {
					t.Fatalf("%d nodes: %s is told twice, or it is this node or the other end", tc.nodes, g.ID)
				}
				seen[g.ID] = true
			}
		}
		if most != tc.want {
			t.Errorf("%d nodes: at most %d entries, want %d", tc.nodes, most, tc.want)
		}
	}
}

func TestExtensions(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c of b")
	cfg := s.cfg
	cfg.Hostname, cfg.Nodename = "here.example", "A"
	s.Configure(s.now, cfg)
	pong := sent(s.say('b', s.word('b', wire.Ping)), wire.Pong)[0]
	if pong.Bits&wire.Extensions == 0 || pong.Ext.Hostname != "here.example" || pong.Ext.Nodename != "A" ||
		pong.Ext.ShardID != s.me.Shard {
		t.Errorf("told %+v", pong.Ext)
	}
	plain := s.word('b', wire.Ping)
	plain.Bits, plain.Ext = 0, wire.Ext{}
	pong = sent(s.say('b', plain), wire.Pong)[0]
	if pong.Bits&wire.Extensions == 0 || pong.Ext.Hostname != "" || !pong.Ext.ShardID.IsZero() {
		t.Errorf("to a node that does not know extensions: bits %d, %+v", pong.Bits, pong.Ext)
	}
	msg := s.word('b', wire.Ping)
	msg.Ext = wire.Ext{Hostname: "there.example", ShardID: letterID('5')}
	s.say('b', msg)
	if p := s.p('b'); p.Hostname != "there.example" || p.Shard != letterID('5') || s.p('c').Shard != letterID('5') {
		t.Errorf("heard %q and shard %s, its replica's is %s", p.Hostname, p.Shard, s.p('c').Shard)
	}
	s.say('b', plain)
	if p := s.p('b'); p.Hostname != "" || p.Shard != letterID('5') {
		t.Errorf("without extensions: %q, shard %s", p.Hostname, p.Shard)
	}
}

// A ping of a cluster of a thousand, taken and answered.
func BenchmarkPing(b *testing.B) {
	const nodes = 1000
	w := newWorld(nil, 1)
	m := w.nodes[0].m
	for i := 1; i < nodes; i++ {
		p := m.newPeer(testID(i), wire.FlagPrimary, w.now)
		p.IP, p.BusPort, p.out = "10.0.0.1", 1, LinkID(2*i+1)
		m.addPeer(p)
		for s := 16 * i; s < 16*i+16; s++ {
			m.assign(uint16(s), p)
		}
	}
	m.Accepted(w.now, 2, "10.0.0.1", "10.0.0.0")
	msg := m.gossip(w.now, wire.Ping, nil, true)
	p := m.byID[testID(7)]
	msg.Sender, msg.Flags, msg.Slots, msg.Port = p.ID, wire.FlagPrimary, m.collect(p, true), 0
	msg.IP, msg.BusPort = "10.0.0.1", 1
	b.ReportAllocs()
	for b.Loop() {
		m.Step(w.now, 2, msg)
	}
}
