package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// Two nodes that swap their addresses lose each other's. Somebody who knows better brings them together again.
func TestLostAddressIsLearntAgain(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.loseAddress(s.p('c'))
	if s.p('c').IP != "" || !s.p('c').any(wire.FlagNoAddr) {
		t.Fatalf("still at %q", s.p('c').IP)
	}
	msg := s.word('b', wire.Ping)
	msg.Gossip = []wire.Gossip{{ID: letterID('c'), IP: "10.9.9.9", Port: 7001, BusPort: 17001, Flags: wire.FlagPrimary}}
	s.say('b', msg)
	if p := s.p('c'); p.IP != "10.9.9.9" || p.BusPort != 17001 || p.any(wire.FlagNoAddr) {
		t.Errorf("at %q, bus port %d, flags %d", p.IP, p.BusPort, p.Flags)
	}
}

// An announced address that is taken back is not shown any more: what others see takes its place.
func TestAnnouncedAddressIsTakenBack(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	cfg := s.cfg
	cfg.IP = "10.7.7.7"
	s.settleSaves(s.Configure(s.now, cfg))
	if s.me.IP != "10.7.7.7" {
		t.Fatalf("announced as %q", s.me.IP)
	}
	cfg.IP = ""
	s.settleSaves(s.Configure(s.now, cfg))
	if s.me.IP != "" {
		t.Fatalf("still %q", s.me.IP)
	}
}
