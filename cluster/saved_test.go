package cluster

import (
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/internal/slot"
)

func TestStateComesBack(t *testing.T) {
	w := joined(t, 3)
	n := w.nodes[0]
	n.m.slots.migrating[3] = n.peer(w.nodes[1])
	n.m.slots.importing[16000] = n.peer(w.nodes[2])
	n.m.lastVoteEpoch = 2
	n.m.setPrimary(n.peer(w.nodes[2]), n.peer(w.nodes[1]))
	before := string(n.m.snapshot().Append(nil))
	parsed, err := nodesconf.Parse([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(n.m.cfg, &n.data, n.random, parsed, w.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.peers { // what does not come back
		old := n.m.byID[p.ID]
		p.out, p.PingSent, p.PongAt = old.out, old.PingSent, old.PongAt
	}
	if after := string(m.snapshot().Append(nil)); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
}

func TestStateWithoutSense(t *testing.T) {
	id := func(c byte) string { return letterID(c).String() }
	me := nodesconf.Node{ID: id('a'), Flags: nodesconf.Myself | nodesconf.Primary}
	for name, nodes := range map[string][]nodesconf.Node{
		"empty":                {},
		"not itself":           {{ID: id('b'), Flags: nodesconf.Primary}},
		"itself twice":         {me, {ID: id('b'), Flags: nodesconf.Myself}},
		"a node twice":         {me, me},
		"an id that is none":   {me, {ID: "b"}},
		"a shard that is none": {me, {ID: id('b'), ShardID: "x"}},
		"a slot too many":      {me, {ID: id('b'), Slots: []slot.Range{{First: 0, Last: slot.Count}}}},
		"an open slot":         {{ID: id('a'), Flags: nodesconf.Myself, Open: []nodesconf.OpenSlot{{Slot: slot.Count, Peer: id('b')}}}},
		"a replica with slots": {{
			ID: id('a'), Flags: nodesconf.Myself | nodesconf.Replica, Slots: []slot.Range{{First: 0, Last: 1}},
		}},
	} {
		w := newWorld(t, 1)
		if _, err := New(testConfig(0), &w.nodes[0].data, w.nodes[0].random, &State{Nodes: nodes}, 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMissingPrimaryIsMade(t *testing.T) {
	w := newWorld(t, 1)
	m, err := New(testConfig(0), &w.nodes[0].data, w.nodes[0].random, &State{Nodes: []nodesconf.Node{{
		ID: letterID('a').String(), Flags: nodesconf.Myself | nodesconf.Replica, PrimaryID: letterID('b').String(),
	}}}, startTime)
	if err != nil {
		t.Fatal(err)
	}
	if m.me.Primary == nil || m.me.Primary.hasAddress() || m.me.Shard != m.me.Primary.Shard {
		t.Errorf("this node is %+v", m.me)
	}
}

// A save of what may be lost waits for the one before it, and for ever more ticks as the cluster grows.
func TestLazySavesAreFew(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	saves := 0
	var seq uint64
	for i := range 10 {
		s.now += 100
		s.changed()
		for _, e := range find[Save](s.Tick(s.now)) {
			saves++
			seq = e.Seq
		}
		if i == 4 {
			s.Persisted(s.now, seq)
		}
	}
	if saves != 2 {
		t.Errorf("%d saves in ten ticks with a disk that took five, want 2", saves)
	}
}
