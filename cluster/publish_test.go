package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

func TestPublish(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c of a", "d 3")
	s.cfg.LightHeaders = true
	s.p('b').Flags |= wire.FlagLight
	opened := s.now
	for _, tc := range []struct {
		shard       bool
		full, light int
		age         int64 // of the link with b, ms
	}{{false, 2, 1, s.cfg.NodeTimeout}, {true, 1, 0, s.cfg.NodeTimeout}, {false, 3, 0, s.cfg.NodeTimeout - 1}} {
		s.p('b').outAt = opened - tc.age
		_, effects := s.Command(s.now, CmdPublish{Shard: tc.shard, Channel: []byte("c"), Payload: []byte("p")})
		full, light := 0, 0
		for _, e := range find[Send](effects) {
			if string(e.Msg.Publication.Channel) != "c" || string(e.Msg.Publication.Payload) != "p" {
				t.Errorf("sent %+v", e.Msg.Publication)
			}
			if e.Msg.Light {
				light++
			} else {
				full++
			}
		}
		if full != tc.full || light != tc.light {
			t.Errorf("shard %v: %d full and %d light, want %d and %d", tc.shard, full, light, tc.full, tc.light)
		}
	}
}

func TestDeliver(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	msg := s.word('b', wire.PublishShard)
	msg.Publication.Channel, msg.Publication.Payload = []byte("c"), []byte("p")
	d := find[Deliver](s.say('b', msg))
	if len(d) != 1 || !d[0].Shard || string(d[0].Channel) != "c" || string(d[0].Payload) != "p" {
		t.Errorf("delivered %v", d)
	}
	light := &wire.Message{Type: wire.Publish, Light: true}
	s.now += 50
	if d := find[Deliver](s.say('b', light)); len(d) != 1 || d[0].Shard || s.p('b').DataAt != s.now {
		t.Errorf("of a short header: %v", d)
	}
	// A link on which c said its name before it was known here.
	s.Accepted(s.now, 800, "10.0.0.c", "")
	s.Step(s.now, 800, s.word('c', wire.Ping))
	s.addPeer(s.newPeer(letterID('c'), wire.FlagPrimary, s.now))
	if d := find[Deliver](s.Step(s.now, 800, light)); len(d) != 1 || s.p('c').in != 800 {
		t.Errorf("of a node that was met meanwhile: %v", d)
	}
	s.Accepted(s.now, 900, "10.0.0.x", "")
	effects := s.Step(s.now, 900, light)
	if len(find[Deliver](effects)) != 0 || len(find[Disconnect](effects)) != 1 {
		t.Error("a short header of nobody was not refused")
	}
}
