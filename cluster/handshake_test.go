package cluster

import (
	"fmt"
	"testing"

	"cairn/cluster/wire"
)

func TestHandshakeEnds(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.m.startHandshake(w.now, "10.0.0.9", 7009, 17009) // nobody is there
	if n.m.handshakes != 1 || len(n.m.snapshot().Nodes) != 1 {
		t.Fatal("a node in handshake is counted, and not saved")
	}
	w.run(testTimeout)
	if n.m.handshakes != 1 {
		t.Error("given up before its time")
	}
	w.run(200)
	if n.m.handshakes != 0 || len(n.m.peers) != 1 || len(n.m.outLink) != 0 {
		t.Errorf("%d in handshake, %d peers, %d links after its time", n.m.handshakes, len(n.m.peers), len(n.m.outLink))
	}
}

func TestMeetIsSaidUntilItIsAnswered(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	s.startHandshake(s.now, "10.0.0.x", 7007, 17007)
	// Each link is lost before an answer comes.
	for range 3 {
		s.now += 100
		connects := find[Connect](s.Tick(s.now))
		if len(connects) != 1 || connects[0].IP != "10.0.0.x" || connects[0].BusPort != 17007 {
			t.Fatalf("connects to %v", connects)
		}
		if meets := sent(s.Connected(s.now, connects[0].Link, ""), wire.Meet); len(meets) != 1 {
			t.Fatalf("%d times met; a ping makes nobody a member", len(meets))
		}
		s.Closed(s.now, connects[0].Link)
	}
	s.now += 100
	link := find[Connect](s.Tick(s.now))[0].Link
	s.Connected(s.now, link, "")
	s.Step(s.now, link, s.word('x', wire.Pong))
	if p := s.p('x'); p == nil || p.any(wire.FlagMeet|wire.FlagHandshake) || !p.primary() || p.out != link {
		t.Fatalf("after the answer: %+v", p)
	}
	s.Closed(s.now, link)
	s.now += 100
	link = find[Connect](s.Tick(s.now))[0].Link
	if effects := s.Connected(s.now, link, ""); len(sent(effects, wire.Meet)) != 0 || len(sent(effects, wire.Ping)) != 1 {
		t.Error("a member is met again")
	}
}

func TestMeetOfAMember(t *testing.T) {
	w := joined(t, 3)
	w.nodes[0].meet(w.nodes[1])
	w.nodes[1].meet(w.nodes[1]) // itself
	w.run(1000)
	for _, n := range w.nodes {
		if n.m.handshakes != 0 || len(n.m.peers) != 3 {
			t.Errorf("node %d: %d in handshake, %d peers", n.at, n.m.handshakes, len(n.m.peers))
		}
		for _, other := range w.nodes {
			if other != n && (!n.peer(other).outUp || n.peer(other).any(anyFailure|wire.FlagNoAddr)) {
				t.Errorf("node %d has lost %d", n.at, other.at)
			}
		}
	}
}

func TestStrangersAreBounded(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	for i := range 3 * maxHandshakes {
		link := LinkID(10_000 + 2*i)
		s.Accepted(s.now, link, fmt.Sprintf("10.1.%d.%d", i/250, i%250), "10.0.0.a")
		msg := s.word('x', wire.Meet)
		if pongs := sent(s.Step(s.now, link, msg), wire.Pong); len(pongs) != 1 {
			t.Fatalf("stranger %d got %d answers", i, len(pongs))
		}
		s.Step(s.now, link, msg) // says it again
	}
	if s.handshakes != maxHandshakes || len(s.peers) != maxHandshakes+2 {
		t.Errorf("%d in handshake, want %d; %d peers", s.handshakes, maxHandshakes, len(s.peers))
	}
	s.tick(testTimeout+200, 'b')
	if s.handshakes != 0 || len(s.peers) != 2 || len(s.inLink) > 2*maxHandshakes+2 {
		t.Errorf("%d in handshake, %d peers, %d links later", s.handshakes, len(s.peers), len(s.inLink))
	}
}

func TestStrangersWords(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.next += 2
	s.in['x'] = s.next
	s.Accepted(s.now, s.next, "10.0.0.x", "10.0.0.a")
	for kind := wire.Ping; kind <= wire.PublishShard; kind++ {
		if kind == wire.Meet {
			continue
		}
		msg := s.claims('x', 9, rangeOf(0, 29))
		msg.Type, msg.Failed = kind, letterID('c')
		msg.Update = wire.NodeUpdate{ID: letterID('b'), Epoch: 9, Slots: rangeOf(0, 29)}
		msg.Gossip = []wire.Gossip{{ID: letterID('y'), IP: "10.0.0.y", Port: 1, BusPort: 2, Flags: wire.FlagPrimary}}
		msg.Ext.Forgotten = []wire.Forgotten{{ID: letterID('c'), Seconds: 60}}
		effects := s.say('x', msg)
		if answers := find[Send](effects); (len(answers) == 1) != (kind == wire.Ping) {
			t.Errorf("type %d: %d answers", kind, len(answers))
		}
		if len(find[Deliver](effects)) != 0 {
			t.Errorf("type %d was delivered", kind)
		}
	}
	if s.currentEpoch != 3 || s.owns('a') != 10 || s.owns('b') != 10 || len(s.peers) != 3 || s.p('c').any(anyFailure) {
		t.Error("a stranger changed something")
	}
}

func TestOwnAddressIsFound(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	s.Accepted(s.now, 900, "10.0.0.b", "192.0.2.7")
	s.Step(s.now, 900, s.word('b', wire.Ping))
	if s.me.IP != "10.0.0.a" {
		t.Errorf("a ping moved this node to %s", s.me.IP)
	}
	s.Step(s.now, 900, s.word('b', wire.Meet))
	if s.me.IP != "192.0.2.7" {
		t.Errorf("after a meet this node is at %s", s.me.IP)
	}
	cfg := s.cfg
	cfg.IP = "198.51.100.1"
	s.Configure(s.now, cfg)
	s.Step(s.now, 900, s.word('b', wire.Meet))
	if s.me.IP != "198.51.100.1" || s.header(wire.Ping).IP != "198.51.100.1" {
		t.Errorf("announced address was replaced by %s", s.me.IP)
	}
}
