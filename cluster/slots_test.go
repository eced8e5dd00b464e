package cluster

import (
	"math"
	"testing"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

func TestClaims(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state []string
		epoch uint64
		slots *slot.Bitmap
		want  int // slots of b afterwards
	}{
		{"nobody's", []string{"a 1", "b 2"}, 2, rangeOf(0, 9), 10},
		{"nobody's, epoch 0", []string{"a 1", "b 0"}, 0, rangeOf(0, 9), 10},
		{"of a lower epoch", []string{"a 1", "b 2", "c 1 0-9"}, 2, rangeOf(0, 9), 10},
		{"of the same epoch", []string{"a 1", "b 2", "c 2 0-9"}, 2, rangeOf(0, 9), 0},
		{"of a higher epoch", []string{"a 1", "b 2", "c 3 0-9"}, 2, rangeOf(0, 9), 0},
		{"its own, more of them", []string{"a 1", "b 2 0-9"}, 2, rangeOf(0, 19), 20},
		{"its own, fewer of them: kept until somebody claims them", []string{"a 1", "b 2 0-9"}, 2, rangeOf(0, 4), 10},
		{"mine, of a lower epoch", []string{"a 1 0-99", "b 2"}, 2, rangeOf(0, 9), 10},
		{"mine, of a higher epoch", []string{"a 3 0-99", "b 2"}, 2, rangeOf(0, 9), 0},
	} {
		s := newSolo(t, tc.state...)
		s.say('b', s.claims('b', tc.epoch, tc.slots))
		if got := s.owns('b'); got != tc.want {
			t.Errorf("%s: b has %d slots, want %d", tc.name, got, tc.want)
		}
		total := 0
		for _, p := range s.peers {
			if n := s.collect(p, true).Count(); n != p.Slots {
				t.Errorf("%s: %c has %d slots and counts %d", tc.name, p.ID[0], n, p.Slots)
			}
			total += p.Slots
		}
		owned := 0
		for i := range s.slots.owner {
			if s.slots.owner[i] != nil {
				owned++
			}
		}
		if owned != total {
			t.Errorf("%s: %d slots have an owner, the nodes count %d", tc.name, owned, total)
		}
	}
}

func TestSlotThatIsNoLongerClaimedGoesToAnyone(t *testing.T) {
	s := newSolo(t, "a 1", "b 5 0-9", "c 2")
	s.say('c', s.claims('c', 2, rangeOf(0, 4)))
	if s.owns('c') != 0 {
		t.Fatal("a lower epoch took slots that are claimed")
	}
	s.say('b', s.claims('b', 5, rangeOf(5, 9)))
	s.say('c', s.claims('c', 2, rangeOf(0, 4)))
	if s.owns('c') != 5 || s.owns('b') != 5 {
		t.Fatalf("b has %d, c has %d, want 5 each", s.owns('b'), s.owns('c'))
	}
}

func TestSlotIsClaimedAgain(t *testing.T) {
	s := newSolo(t, "a 1", "b 5 0-9", "c 2")
	s.say('b', s.claims('b', 5, rangeOf(5, 9)))
	s.say('b', s.claims('b', 5, rangeOf(0, 9)))
	s.say('c', s.claims('c', 2, rangeOf(0, 4)))
	if s.owns('c') != 0 {
		t.Fatal("the mark stayed after the owner claimed its slots again")
	}
}

func TestOldMessageTakesNothingBack(t *testing.T) {
	s := newSolo(t, "a 1", "b 5 0-9", "c 2")
	s.say('b', s.claims('b', 4, rangeOf(0, 4)))
	if s.slots.noClaim.Count() != 0 {
		t.Fatal("a header of an older epoch marked slots as no longer claimed")
	}
}

func TestLostSlotsWithKeysAreDropped(t *testing.T) {
	s := newSolo(t, "a 1 0-99", "b 2", "c 3 100-199")
	s.data.keys[3] = 7
	s.slots.migrating[3], s.slots.migrating[50] = s.p('b'), s.p('b')
	effects := s.Step(s.now, s.in['b'], s.claims('b', 4, rangeOf(0, 9)))
	drops, saves := find[DropSlots](effects), find[Save](effects)
	if len(drops) != 1 || len(drops[0].Slots) != 1 || drops[0].Slots[0] != 3 {
		t.Fatalf("dropped %v, want slot 3", drops)
	}
	if len(saves) != 1 || drops[0].After != saves[0].Seq {
		t.Fatalf("the drop waits for save %d, asked for are %v", drops[0].After, saves)
	}
	if len(find[Route](effects)) != 1 || find[Route](effects)[0].After != 0 {
		t.Fatal("clients are to be sent away at once")
	}
	if s.slots.migrating[3] != nil || s.slots.migrating[50] == nil {
		t.Fatal("of the slots on their way, the lost one and only that one should be closed")
	}
}

func TestLastSlotLostMakesAReplica(t *testing.T) {
	for _, tc := range []struct {
		name      string
		migration bool
		shard     byte
		claim     *slot.Bitmap
		want      bool
	}{
		{"may migrate", true, 'b', rangeOf(0, 199), true},
		{"may not, and the other has more", false, 'b', rangeOf(0, 199), false},
		{"may not, but the other has just what was here", false, 'b', rangeOf(0, 99), true},
		{"may not, but the other is of this shard", false, 'a', rangeOf(0, 199), true},
	} {
		s := newSolo(t, "a 1 0-99", "b 2 100-199")
		s.cfg.ReplicaMigration = tc.migration
		s.p('b').Shard = letterID(tc.shard)
		s.unassignAll(s.p('b'))
		s.say('b', s.claims('b', 3, tc.claim))
		if got := s.me.replica() && s.me.Primary == s.p('b'); got != tc.want {
			t.Errorf("%s: replica: %v, want %v", tc.name, got, tc.want)
		}
		if follows := find[Follow](s.last); (len(follows) == 1) != tc.want {
			t.Errorf("%s: %d orders to follow", tc.name, len(follows))
		}
	}
}

// A primary that was away misses a failover of its shard and a slot that had gone elsewhere before. Whichever it hears of
// last, it follows who took over.
func TestLastSlotElsewhereFollowsTheShard(t *testing.T) {
	for _, last := range []byte{'b', 'c'} {
		s := newSolo(t, "a 1 0-99", "b 2 100-199", "c of a")
		s.cfg.ReplicaMigration = false
		hear := func(who byte) {
			if who == 'b' {
				s.say('b', s.claims('b', 3, rangeOf(99, 199)))
			} else {
				s.say('c', s.claims('c', 4, rangeOf(0, 98)))
			}
		}
		hear('b' + 'c' - last)
		hear(last)
		if !s.me.replica() || s.me.Primary != s.p('c') {
			t.Errorf("%c last: no replica of the node that took over", last)
		}
	}
}

func TestReplicaFollowsWhoTookOver(t *testing.T) {
	s := newSolo(t, "a of b", "b 1 0-99", "c of b")
	s.say('c', s.claims('c', 2, rangeOf(0, 99)))
	if s.me.Primary != s.p('c') {
		t.Fatal("the sister took over, and is not followed")
	}
	if s.p('b').Slots != 0 || !s.p('c').primary() {
		t.Fatal("roles are wrong")
	}
}

func TestImportingSlotFollowsAFailoverOfItsSource(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c of b", "d 3")
	s.slots.importing[10], s.slots.importing[11] = s.p('b'), s.p('b')
	s.say('d', s.claims('d', 4, rangeOf(11, 11)))
	if s.slots.importing[11] != nil {
		t.Error("the slot went to a third node, and is still awaited")
	}
	s.say('c', s.claims('c', 5, rangeOf(10, 19)))
	if s.slots.importing[10] != s.p('c') {
		t.Error("the source was replaced within its shard, and the slot is not awaited from there")
	}
}

func TestMigratingSlotFollowsAFailoverOfItsTarget(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c of b")
	s.slots.migrating[3] = s.p('b')
	s.say('c', s.claims('c', 5, rangeOf(10, 19)))
	if s.slots.migrating[3] != s.p('c') {
		t.Error("the target was replaced, and the slot still goes to the old one")
	}
}

func TestStaleOwnerIsTold(t *testing.T) {
	s := newSolo(t, "a 1", "b 2", "c 5 0-9", "d of b")
	effects := s.say('b', s.claims('b', 2, rangeOf(0, 4)))
	updates := sent(effects, wire.Update)
	if len(updates) != 1 || updates[0].Update.ID != letterID('c') || updates[0].Update.Epoch != 5 ||
		updates[0].Update.Slots.Count() != 10 {
		t.Fatalf("told %v", updates)
	}
	msg := s.word('d', wire.Ping)
	msg.Slots = rangeOf(0, 4)
	if n := len(sent(s.say('d', msg), wire.Update)); n != 1 {
		t.Errorf("a replica of it was told %d times", n)
	}
	if n := len(sent(s.say('c', s.claims('c', 5, rangeOf(0, 9))), wire.Update)); n != 0 {
		t.Errorf("the owner itself was told %d times", n)
	}
}

func TestUpdateIsAdopted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		about byte
		epoch uint64
		want  bool
	}{
		{"higher epoch", 'c', 5, true},
		{"same epoch", 'c', 3, false},
		{"replica that took over", 'd', 5, true},
		{"unknown node", 'x', 5, false},
		{"this node", 'a', 9, false},
		{"out of reach", 'c', 9 + epochLeap, false},
		{"largest", 'c', math.MaxUint64, false},
	} {
		s := newSolo(t, "a 1", "b 2", "c 3", "d of b")
		msg := s.word('b', wire.Update)
		msg.Update = wire.NodeUpdate{ID: letterID(tc.about), Epoch: tc.epoch, Slots: rangeOf(0, 9)}
		s.say('b', msg)
		if p := s.p(tc.about); (p != nil && p.Slots == 10 && p.Epoch == tc.epoch && p.primary()) != tc.want {
			t.Errorf("%s: %+v, want adopted %v", tc.name, p, tc.want)
		}
	}
}

func TestEpochOutOfReachIsRefused(t *testing.T) {
	for _, epoch := range []uint64{math.MaxUint64, math.MaxUint64 - 1, 4 + epochLeap} {
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3")
		effects := s.say('b', s.claims('b', epoch, rangeOf(0, 19)))
		if s.currentEpoch != 3 || s.p('b').Epoch != 2 || s.owns('a') != 10 {
			t.Errorf("epoch %d: now current %d, b's %d, own slots %d", epoch, s.currentEpoch, s.p('b').Epoch, s.owns('a'))
		}
		if len(find[Note](effects)) == 0 {
			t.Errorf("epoch %d was refused without a note", epoch)
		}
		if len(sent(effects, wire.Pong)) != 1 {
			t.Errorf("epoch %d: no answer", epoch)
		}
	}
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3")
	s.say('b', s.claims('b', 3+epochLeap, rangeOf(0, 19)))
	if s.owns('b') != 20 {
		t.Error("an epoch within reach was refused")
	}
}

func TestPrimaryBecomesReplica(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state []string
		to    byte
		epoch uint64
		slots *slot.Bitmap // of its new primary, in its words
		left  int          // of b
		gets  int          // c
	}{
		{"of one that took over", []string{"a 1", "b 2 0-9", "c of b"}, 'c', 3, rangeOf(0, 9), 0, 10},
		{"of one that took over a part", []string{"a 1", "b 2 0-9", "c of b"}, 'c', 3, rangeOf(0, 4), 0, 5},
		{"of one of another shard", []string{"a 1", "b 2 0-9", "c 3"}, 'c', 3, rangeOf(0, 9), 0, 0},
		{"of one that is not known", []string{"a 1", "b 2 0-9", "c 3"}, 'x', 3, rangeOf(0, 9), 0, 0},
		{"in an old message", []string{"a 1", "b 5 0-9", "c of b"}, 'c', 3, rangeOf(0, 9), 10, 0},
	} {
		s := newSolo(t, tc.state...)
		msg := s.word('b', wire.Ping)
		msg.Flags, msg.Primary, msg.ConfigEpoch, msg.Slots = wire.FlagReplica, letterID(tc.to), tc.epoch, tc.slots
		s.say('b', msg)
		if s.owns('b') != tc.left || s.owns('c') != tc.gets {
			t.Errorf("%s: b has %d and c %d, want %d and %d", tc.name, s.owns('b'), s.owns('c'), tc.left, tc.gets)
		}
		if s.p('b').replica() == (tc.left > 0) {
			t.Errorf("%s: b's role is wrong", tc.name)
		}
		if b, c := s.p('b'), s.p('c'); b.Primary == c && c.Primary == b {
			t.Errorf("%s: each replicates the other", tc.name)
		}
	}
}

func TestReplicaOfAReplicaFollowsItsPrimary(t *testing.T) {
	s := newSolo(t, "a of b", "b 2", "c 3 0-9")
	msg := s.word('b', wire.Ping)
	msg.Flags, msg.Primary, msg.ConfigEpoch, msg.Slots = wire.FlagReplica, letterID('c'), 3, rangeOf(0, 9)
	s.say('b', msg)
	if s.me.Primary != s.p('c') {
		t.Fatal("still follows a replica")
	}
}

func TestSameClaimIsNotComparedTwice(t *testing.T) {
	s := newSolo(t, "a 1", "b 2 0-9")
	msg := s.claims('b', 2, rangeOf(0, 9))
	s.say('b', msg)
	if s.p('b').claimed != msg.Slots || s.p('b').claimedAt != s.slots.version {
		t.Fatal("the claim is not remembered")
	}
	version := s.slots.version
	s.unassign(3)
	if version == s.slots.version || s.agrees(s.p('b'), s.p('b'), msg.Slots) {
		t.Fatal("the table changed, and the claim still counts as compared")
	}
}

func TestOwnBitmapIsShared(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19")
	first := s.header(wire.Ping).Slots
	if s.say('b', s.claims('b', 3, rangeOf(10, 29))); s.header(wire.Ping).Slots != first {
		t.Error("another node's slots changed, and the bitmap was made anew")
	}
	s.assign(100, s.me)
	if got := s.header(wire.Ping).Slots; got == first || got.Count() != 11 || first.Count() != 10 {
		t.Errorf("after a new slot the header has %d, the old one %d", got.Count(), first.Count())
	}
}

// A claim of before a slot was given away comes once more, and does not make the slot its old owner's for good.
func TestOldClaimDoesNotBringASlotBack(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	claims := rangeOf(10, 19)
	claims.Clear(15)
	s.say('b', s.claims('b', 7, claims))
	if !s.unclaimed(15) {
		t.Fatal("slot 15 counts as claimed")
	}
	s.say('b', s.claims('b', 2, rangeOf(10, 19)))
	if !s.unclaimed(15) {
		t.Error("an old claim counts as one under the present epoch")
	}
	for _, m := range sent(s.say('c', s.claims('c', 6, rangeOf(15, 29))), wire.Update) {
		if m.Update.Slots.Has(15) {
			t.Error("c, which has slot 15, is told that b has it under a higher epoch")
		}
	}
	if s.owner(15) != s.p('c') {
		t.Error("c does not get it")
	}
}
