package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

func TestAddressOfAPing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*wire.Message)
		kind   wire.Type
		want   address
	}{
		{"the same", func(*wire.Message) {}, wire.Ping, address{"10.0.0.b", 7098, 0, 17098}},
		{"other ports", func(m *wire.Message) { m.Port, m.BusPort = 1, 2 }, wire.Ping, address{"10.0.0.b", 1, 0, 2}},
		{"announced", func(m *wire.Message) { m.IP = "192.0.2.1" }, wire.Ping, address{"192.0.2.1", 7098, 0, 17098}},
		{
			"no bus port", func(m *wire.Message) { m.IP, m.BusPort = "192.0.2.1", 0 }, wire.Ping,
			address{"10.0.0.b", 7098, 0, 17098},
		},
		{"in a pong", func(m *wire.Message) { m.IP = "192.0.2.1" }, wire.Pong, address{"10.0.0.b", 7098, 0, 17098}},
		{"in a meet", func(m *wire.Message) { m.IP = "192.0.2.1" }, wire.Meet, address{"10.0.0.b", 7098, 0, 17098}},
	} {
		s := newSolo(t, "a 1 0-9", "b 2 10-19")
		before, out := s.p('b').address(), s.p('b').out
		msg := s.word('b', tc.kind)
		tc.change(msg)
		s.say('b', msg)
		if got := s.p('b').address(); got != tc.want {
			t.Errorf("%s: at %v, want %v", tc.name, got, tc.want)
		}
		if moved := s.p('b').out != out; moved != (tc.want != before) {
			t.Errorf("%s: link dropped: %v", tc.name, moved)
		}
	}
}

func TestPrimaryThatMovedIsFollowed(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19")
	s.tick(100, 'b')
	if s.following.ip != "10.0.0.b" {
		t.Fatal("not followed at first")
	}
	msg := s.word('b', wire.Ping)
	msg.IP = "192.0.2.1"
	if follows := find[Follow](s.say('b', msg)); len(follows) != 1 || follows[0].IP != "192.0.2.1" {
		t.Errorf("followed: %v", follows)
	}
	if follows := find[Follow](s.say('b', msg)); len(follows) != 0 {
		t.Errorf("followed once more: %v", follows)
	}
}

func TestAnotherNodeAnswers(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	effects := s.settleSaves(s.Step(s.now, s.p('b').out, s.word('c', wire.Pong)))
	if p := s.p('b'); !p.any(wire.FlagNoAddr) || p.address() != (address{}) || p.out != 0 || len(find[Disconnect](effects)) != 1 {
		t.Fatalf("b is now %+v", s.p('b'))
	}
	s.tick(300, 'c')
	if s.p('b').out != 0 {
		t.Error("connected to nowhere")
	}
	s.say('b', s.word('b', wire.Ping)) // on the link that it opened
	if p := s.p('b'); p.any(wire.FlagNoAddr) || p.address().busPort != 17098 {
		t.Errorf("its own ping brought no address: %+v", p)
	}
}

func TestSenderMustBeTheLinks(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	msg := s.word('c', wire.Fail)
	msg.Failed = letterID('c')
	s.settleSaves(s.Step(s.now, s.p('b').out, msg))
	if s.p('c').failed() {
		t.Error("b's link spoke for c")
	}
	effects := s.say('b', msg)
	if s.p('c').failed() || len(find[Disconnect](effects)) != 1 {
		t.Error("a link that was b's became c's")
	}
	if s.p('b').in != 0 || s.inLink[s.in['b']] != nil {
		t.Error("the link is still there")
	}
}

func TestNewerLinkOfAPeerReplacesTheOlder(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	old := s.in['b']
	s.Accepted(s.now, 900, "10.0.0.b", "10.0.0.a")
	if d := find[Disconnect](s.Step(s.now, 900, s.word('b', wire.Ping))); len(d) != 1 || d[0].Link != old {
		t.Errorf("closed %v, want %d", d, old)
	}
	s.Closed(s.now, old)
	if s.p('b').in != 900 {
		t.Errorf("b speaks on link %d, want 900", s.p('b').in)
	}
}

func TestDeadLinkIsReplaced(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	first := s.p('c').out
	s.tick(2*testTimeout, 'b')
	if s.p('c').out == first {
		t.Fatal("a link on which nothing comes is kept")
	}
	asked := s.p('c').PingSent
	if asked == 0 || s.now-asked < testTimeout {
		t.Errorf("the unanswered ping counts from %d ms ago only", s.now-asked)
	}
}

func TestUnreachablePeerIsSuspected(t *testing.T) {
	w := joined(t, 3)
	dead := w.nodes[2]
	dead.stop()
	for _, n := range w.nodes[:2] {
		n.peer(dead).PingSent = 0 // as if no ping had been under way
	}
	w.until("suspected by all", 3*testTimeout, func() bool {
		return w.all(func(n *node) bool { return n.flags(dead)&anyFailure != 0 })
	})
}

func TestGossipMovesOnlyThoseThatFailed(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	msg := s.word('b', wire.Ping)
	msg.Gossip = []wire.Gossip{{ID: letterID('c'), IP: "192.0.2.1", Port: 1, BusPort: 2, Flags: wire.FlagPrimary}}
	s.say('b', msg)
	if s.p('c').IP != "10.0.0.c" {
		t.Error("a healthy node was moved")
	}
	s.setFailed(s.now, s.p('c'))
	msg.Gossip[0].Flags |= wire.FlagMaybeFailed
	s.say('b', msg)
	if s.p('c').IP != "10.0.0.c" {
		t.Error("moved by one who cannot reach it either")
	}
	msg.Gossip[0].Flags = wire.FlagPrimary
	s.say('b', msg)
	if s.p('c').IP != "192.0.2.1" || s.p('c').out != 0 {
		t.Error("not moved")
	}
}

func TestMessagesWaitForTheLink(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	s.dropOut(s.p('b'))
	s.now += 100
	link := find[Connect](s.Tick(s.now))[0].Link
	for range 2 * maxWaiting {
		s.send(s.p('b'), s.header(wire.AuthAck), 0)
	}
	effects := s.Connected(s.now, link, "")
	if n := len(sent(effects, wire.AuthAck)); n != maxWaiting {
		t.Errorf("%d messages waited, want %d", n, maxWaiting)
	}
	if first := find[Send](effects)[0].Msg.Type; first != wire.Ping {
		t.Errorf("the first message is of type %d, want a ping", first)
	}
}

// What is told at once must be on disk; what is not goes out with the save.
func TestNothingIsToldBeforeItIsSaved(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	s.me.Epoch, s.currentEpoch = 7, 7
	s.assign(100, s.me)
	after := s.afterSave()
	s.broadcastPong(s.now, false, after)
	effects := s.settle(s.now)
	waiting := find[Send](effects)
	if len(waiting) != 1 || waiting[0].After != after || waiting[0].Msg.ConfigEpoch != 7 ||
		!waiting[0].Msg.Slots.Has(100) {
		t.Fatalf("what waits: %+v", waiting)
	}
	for range 2 { // also later, as long as the disk is slow
		s.now += 100
		pong := sent(s.Step(s.now, s.in['b'], s.word('b', wire.Ping)), wire.Pong)[0]
		if pong.ConfigEpoch != 1 || pong.CurrentEpoch != 2 || pong.Slots.Has(100) {
			t.Fatalf("told before it was saved: epoch %d of %d, slot %v", pong.ConfigEpoch, pong.CurrentEpoch,
				pong.Slots.Has(100))
		}
	}
	s.Persisted(s.now, find[Save](effects)[0].Seq)
	pong := sent(s.Step(s.now, s.in['b'], s.word('b', wire.Ping)), wire.Pong)[0]
	if pong.ConfigEpoch != 7 || pong.CurrentEpoch != 7 || !pong.Slots.Has(100) {
		t.Error("saved, and not told")
	}
}

func TestCurrentEpochIsSavedBeforeItIsTold(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	msg := s.word('b', wire.Ping)
	msg.CurrentEpoch = 9
	effects := s.Step(s.now, s.in['b'], msg)
	saves := find[Save](effects)
	if len(saves) != 1 || saves[0].State.CurrentEpoch != 9 {
		t.Fatalf("saves %v", saves)
	}
	if pong := sent(effects, wire.Pong)[0]; pong.CurrentEpoch != 2 {
		t.Errorf("told %d before it was saved", pong.CurrentEpoch)
	}
}
