package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// silent has c say nothing until this node suspects it.
func (s *solo) silent(answer ...byte) {
	s.t.Helper()
	s.tick(2*testTimeout, answer...)
	if !s.p('c').any(wire.FlagMaybeFailed) {
		s.t.Fatalf("c has flags %d after %d ms of silence", s.p('c').Flags, 2*testTimeout)
	}
}

func TestReportsThatCount(t *testing.T) {
	for _, tc := range []struct {
		name string
		by   byte
		want bool
	}{
		{"a primary's with slots", 'b', true},
		{"a primary's without slots", 'e', false},
		{"a replica's", 'f', false},
	} {
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "e 4", "f of b")
		s.silent('b', 'e', 'f')
		effects := s.hears(tc.by, 'c', wire.FlagPrimary|wire.FlagMaybeFailed)
		if s.p('c').failed() != tc.want {
			t.Errorf("%s: failed %v, want %v", tc.name, s.p('c').failed(), tc.want)
		}
		if n := len(sent(effects, wire.Fail)); tc.want != (n == 4) {
			t.Errorf("%s: %d nodes told, want 4", tc.name, n)
		}
	}
}

func TestReportsEnd(t *testing.T) {
	four := []string{"a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39"}
	s := newSolo(t, four...)
	s.hears('b', 'c', wire.FlagMaybeFailed)
	if len(s.p('c').reports) != 1 {
		t.Fatal("no report")
	}
	s.hears('b', 'c', wire.FlagPrimary)
	if len(s.p('c').reports) != 0 {
		t.Error("the report stayed although its author took it back")
	}
	s.hears('b', 'c', wire.FlagMaybeFailed)
	if n := s.reportsOf(s.p('c'), s.now+reportTimeouts*testTimeout); n != 1 {
		t.Errorf("%d reports at the end of their time, want 1", n)
	}
	if n := s.reportsOf(s.p('c'), s.now+reportTimeouts*testTimeout+1); n != 0 {
		t.Errorf("%d reports after their time, want 0", n)
	}
	s.hears('b', 'c', wire.FlagMaybeFailed)
	s.unassignAll(s.p('b'))
	if n := s.reportsOf(s.p('c'), s.now); n != 0 {
		t.Errorf("%d reports of one who lost its slots, want 0", n)
	}
	s.deletePeer(s.p('b'))
	if len(s.p('c').reports) != 0 {
		t.Error("a report stayed after its author was forgotten")
	}
}

func TestAnyDataPutsOffTheSuspicion(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	for range 2 * testTimeout / 1000 {
		s.tick(1000, 'b')
		s.say('c', s.word('c', wire.Publish)) // no pong
	}
	if s.p('c').any(anyFailure) {
		t.Error("suspected although it was heard")
	}
	if s.p('c').PingSent == 0 {
		t.Error("the ping counts as answered")
	}
}

func TestSuspicionEndsWithAPong(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.silent('b')
	s.say('c', s.word('c', wire.Ping))
	if !s.p('c').any(wire.FlagMaybeFailed) {
		t.Error("a ping from it was enough")
	}
	s.say('c', s.word('c', wire.Pong))
	if !s.p('c').any(wire.FlagMaybeFailed) {
		t.Error("a pong on its own link was enough")
	}
	for !s.p('c').outUp {
		s.tick(100, 'b')
	}
	s.pong('c')
	if s.p('c').any(anyFailure) || s.p('c').PingSent != 0 {
		t.Error("still suspected after a pong on this node's link")
	}
}

func TestFailMessage(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	fail := func(from, about byte) {
		msg := s.word(from, wire.Fail)
		msg.Failed = letterID(about)
		s.say(from, msg)
	}
	s.next += 2
	s.in['x'] = s.next
	s.Accepted(s.now, s.next, "10.0.0.x", "10.0.0.a")
	fail('x', 'c')
	if s.p('c').failed() {
		t.Error("a stranger was believed")
	}
	fail('b', 'a')
	if s.me.any(anyFailure) {
		t.Error("this node was marked itself")
	}
	fail('b', 'x')
	fail('b', 'c')
	if !s.p('c').failed() || s.p('c').FailedAt != s.now {
		t.Error("a member was not believed")
	}
}

func TestFailureMarkGoes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state []string
		after int64
		want  bool
	}{
		{"of a replica", []string{"a 1 0-9", "b 2 10-19", "c of b"}, 100, true},
		{"of a primary without slots", []string{"a 1 0-9", "b 2 10-19", "c 3"}, 100, true},
		{"of a primary with slots, soon", []string{"a 1 0-9", "b 2 10-19", "c 3 20-29"}, 2 * testTimeout, false},
		{"of a primary with slots, late", []string{"a 1 0-9", "b 2 10-19", "c 3 20-29"}, 2*testTimeout + 100, true},
	} {
		s := newSolo(t, tc.state...)
		s.setFailed(s.now, s.p('c'))
		s.now += tc.after
		s.pong('c')
		if s.p('c').failed() == tc.want {
			t.Errorf("%s: failed %v after %d ms", tc.name, s.p('c').failed(), tc.after)
		}
	}
}

func TestSuspectsAreToldToAll(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39", "e 5 40-49", "f 6 50-59")
	s.silent('b', 'd', 'e', 'f')
	pongs := sent(s.say('b', s.word('b', wire.Ping)), wire.Pong)
	told := 0
	for _, g := range pongs[0].Gossip {
		switch {
		case g.ID == letterID('c') && g.Flags&wire.FlagMaybeFailed != 0:
			told++
		case g.ID == letterID('a') || g.ID == letterID('b'):
			t.Errorf("gossip about %c for b", g.ID[0])
		}
	}
	if told != 1 || len(pongs[0].Gossip) > gossipMin+1 {
		t.Errorf("the suspicion is told %d times in %d entries", told, len(pongs[0].Gossip))
	}
}

func TestLonePrimaryDecidesAlone(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b of a", "c of a")
	s.tick(2*testTimeout, 'b')
	if !s.p('c').failed() {
		t.Error("nobody else could say so, and it is not marked")
	}
}

func TestMinority(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.tick(1000, 'b', 'c')
	if !s.state.ok {
		t.Fatal("not ok at first")
	}
	s.pong('b')
	s.pong('c')
	heard := max(s.p('b').DataAt, s.p('c').DataAt)
	for s.state.ok {
		s.tick(100)
		if s.now-heard > testTimeout+100 {
			t.Fatalf("still ok %d ms after the last word of the others", s.now-heard)
		}
	}
	left := s.now
	for !s.state.ok && s.now-left < 20_000 {
		s.tick(100, 'b', 'c')
	}
	if since := s.now - s.state.minorityAt; since < testTimeout || since > testTimeout+200 {
		t.Errorf("ok again %d ms after it was in a minority, want %d", since, testTimeout)
	}
}

func TestReplicaOfAMinorityDoesNotJudgeBySilence(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29")
	s.now += testTimeout + 200
	s.check = true
	s.settleSaves(s.settle(s.now))
	if !s.state.ok {
		t.Error("not ok, without a suspicion")
	}
}

func TestStartDelay(t *testing.T) {
	w := newWorld(t, 1)
	n := w.nodes[0]
	n.own(0, 16383)
	from := w.now
	w.until("ok", 20000, func() bool { return n.m.state.ok })
	if w.now-from < startDelayMs {
		t.Errorf("ok %d ms after the start, want not before %d", w.now-from, startDelayMs)
	}
}

func TestCoverage(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-16382")
	s.cfg.FullCoverage = true
	look := func() bool {
		s.check = true
		s.now += 10_000
		s.p('b').DataAt = s.now
		s.settleSaves(s.settle(s.now))
		return s.state.ok
	}
	if look() {
		t.Error("ok with a slot that nobody has")
	}
	s.assign(16383, s.me)
	if !look() {
		t.Error("not ok with all slots")
	}
	s.Configure(s.now, s.cfg)
	s.unassign(16383)
	s.cfg.FullCoverage = false
	if !look() {
		t.Error("not ok although coverage does not matter")
	}
}

func TestOldReportsGo(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	s.hears('b', 'c', wire.FlagMaybeFailed)
	s.unassignAll(s.p('b')) // it takes nothing back any more
	s.tick(2*reportTimeouts*testTimeout, 'b', 'c', 'd')
	if s.p('c').reports != nil {
		t.Errorf("%d reports are kept, and keep c from being heard of by others", len(s.p('c').reports))
	}
}

// A primary that came back is pinged as soon as its mark may go, and not only when its turn comes.
func TestTheMarkGoesWhenItMay(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.silent('b')
	s.hears('b', 'c', wire.FlagMaybeFailed)
	if !s.p('c').failed() {
		t.Fatal("c has not failed")
	}
	s.tick(reportTimeouts*testTimeout, 'b', 'c')
	if !s.p('c').failed() {
		t.Fatal("the mark went too soon")
	}
	s.tick(300, 'b', 'c')
	if s.p('c').failed() {
		t.Error("the mark is there still")
	}
}
