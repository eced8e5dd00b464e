package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

func TestForgottenStaysForgotten(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.forget(letterID('c'), s.now, 60_000)
	s.deletePeer(s.p('c'))
	if s.owner(25) != nil {
		t.Error("a node that is gone has slots")
	}
	if s.hears('b', 'c', wire.FlagPrimary); s.p('c') != nil {
		t.Error("gossip brought it back")
	}
	msg := sent(s.say('b', s.word('b', wire.Ping)), wire.Pong)[0]
	if f := msg.Ext.Forgotten; len(f) != 1 || f[0].ID != letterID('c') || f[0].Seconds != 60 {
		t.Errorf("told %v", f)
	}
	s.tick(61_000, 'b')
	if s.hears('b', 'c', wire.FlagPrimary); s.p('c') == nil {
		t.Error("still kept away after its time")
	}
}

func TestForgettingSpreads(t *testing.T) {
	forgets := func(s *solo, from byte, ids ...byte) {
		msg := s.word(from, wire.Ping)
		for _, c := range ids {
			msg.Ext.Forgotten = append(msg.Ext.Forgotten, wire.Forgotten{ID: letterID(c), Seconds: 1 << 63})
		}
		s.say(from, msg)
	}
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29", "d 4")
	forgets(s, 'd', 'a', 'b', 'c', 'd', 'x')
	if s.p('c') != nil || s.p('b') == nil || s.p('d') == nil || len(s.forgot) != 1 {
		t.Errorf("%d peers left, %d forgotten", len(s.peers), len(s.forgot))
	}
	if s.forgot[0].until > s.now+maxForgetMs {
		t.Error("forgotten for ever")
	}
}

func TestMetAgain(t *testing.T) {
	w := joined(t, 3)
	gone := w.nodes[2]
	for _, n := range w.nodes[:2] {
		_, effects := n.m.Command(w.now, CmdForget{ID: gone.m.me.ID.String()})
		n.do(effects)
	}
	w.cut[[2]int{2, 0}], w.cut[[2]int{2, 1}] = true, true
	w.run(1000)
	if w.nodes[0].peer(gone) != nil || w.nodes[1].peer(gone) != nil {
		t.Fatal("not forgotten")
	}
	clear(w.cut)
	w.nodes[0].meet(gone)
	w.run(5000)
	if w.nodes[0].peer(gone) == nil {
		t.Error("met again, and still kept away by what was forgotten before")
	}
}
