package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// Two of five are cut off. What one of them tells of the others' pongs, by a clock that is ahead, must not let the other
// one go on serving: it hears nothing of them itself.
func TestMinorityIsNotKeptByAnotherClock(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39", "e 5 40-49")
	if !s.state.ok {
		t.Fatal("not ok at first")
	}
	for cut := s.now; s.state.ok; {
		if s.now-cut > testTimeout+200 {
			t.Fatalf("ok %d ms after the cut", s.now-cut)
		}
		s.tick(100, 'b')
		msg := s.word('b', wire.Ping)
		for _, c := range []byte("cde") {
			msg.Gossip = append(msg.Gossip, wire.Gossip{
				ID: letterID(c), IP: "10.0.0." + string(c), Port: 7000 + uint16(c), BusPort: 17000 + uint16(c),
				Flags: wire.FlagPrimary, PongReceived: uint32((s.now + pongFromFutureMs) / 1000),
			})
		}
		s.say('b', msg)
	}
}

// Those who decide ping each other, though gossip tells that all are well.
func TestPrimariesHearEachOtherThemselves(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d of b")
	pinged := map[byte]bool{}
	for end := s.now + testTimeout; s.now < end; {
		for _, c := range []byte("bcd") {
			s.p(c).PongAt = s.now
		}
		s.tick(100)
		for _, c := range []byte("bc") {
			if s.p(c).PingSent != 0 {
				pinged[c] = true
				s.pong(c)
			}
		}
	}
	if !pinged['b'] || !pinged['c'] {
		t.Errorf("pinged in a node timeout: %v", pinged)
	}
}

// A link on which nothing is answered is made anew, though the peer is heard on its own link.
func TestDeadLinkOfAPeerThatIsWell(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	first := s.p('b').out
	for begun := s.now; s.p('b').out == first; {
		if s.now-begun > 3*testTimeout {
			t.Fatal("the dead link is still in use")
		}
		s.tick(100, 'c')
		s.say('b', s.word('b', wire.Ping))
	}
	if s.p('b').any(anyFailure) {
		t.Error("b counts as failed")
	}
}

// A primary that was stopped in the middle of everything does not take what waited for it meanwhile for signs of life: it
// serves again when it has looked around for a while.
func TestSleeperDoesNotTrustOldNews(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	if !s.state.ok {
		t.Fatal("not ok at first")
	}
	s.now += 10 * testTimeout
	for _, c := range []byte("bc") {
		s.say(c, s.word(c, wire.Ping))
	}
	if s.state.ok {
		t.Error("ok right after it woke")
	}
	woke := s.now
	for !s.state.ok {
		if s.tick(100, 'b', 'c'); s.now-woke > 2*rejoinMaxMs {
			t.Fatal("never ok again")
		}
	}
	if s.now-woke < min(testTimeout, rejoinMaxMs) {
		t.Errorf("ok %d ms after it woke", s.now-woke)
	}
}
