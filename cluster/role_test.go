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
