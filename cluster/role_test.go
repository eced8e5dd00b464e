package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// A node comes back with an old table: b is its replica there. In truth c took over from it, and b from c. When c says so,
// the table must not have the three follow each other in a circle.
func TestNoCircleOfReplicas(t *testing.T) {
	s := newSolo(t, "a of c", "b of a", "c 3 0-9")
	msg := s.word('c', wire.Ping)
	msg.Flags, msg.Primary, msg.ConfigEpoch, msg.CurrentEpoch = wire.FlagReplica, letterID('b'), 4, 4
	s.say('c', msg)
	if b, c := s.p('b'), s.p('c'); !b.primary() || c.Primary != b || s.me.Primary != b {
		t.Errorf("b is a primary: %v; c follows %v; a follows %v", b.primary(), c.Primary, s.me.Primary)
	}
}

// A node that becomes a replica of another empty one tells its new role when it is saved, and its new shard no sooner: as a
// primary of that shard with a higher epoch it would make the other one its own replica.
func TestShardIsToldWithTheRole(t *testing.T) {
	s := newSolo(t, "a 6", "b 5", "c 3 20-29")
	a, effects := s.Command(s.now, CmdReplicate{letterID('b').String()})
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	answer := func() *wire.Message {
		t.Helper()
		msg := s.word('b', wire.Ping)
		msg.Bits |= wire.Extensions
		pongs := sent(s.Step(s.now, s.in['b'], msg), wire.Pong)
		if len(pongs) == 0 {
			t.Fatal("no answer")
		}
		return pongs[0]
	}
	if pong := answer(); !pong.Primary.IsZero() || pong.Ext.ShardID == s.p('b').Shard {
		t.Errorf("before the save: replica of %q, shard %s", pong.Primary, pong.Ext.ShardID)
	}
	s.settleSaves(effects)
	if pong := answer(); pong.Primary != letterID('b') || pong.Ext.ShardID != s.p('b').Shard {
		t.Errorf("after the save: replica of %q, shard %s", pong.Primary, pong.Ext.ShardID)
	}
}
