package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// came is a target that has just taken slot 15 from b, which does not know yet.
func came(t *testing.T) *solo {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.order(CmdSetSlot{15, SlotImporting, letterID('b').String()})
	s.order(CmdSetSlot{15, SlotNode, letterID('a').String()})
	s.data.keys[15] = 7
	return s
}

func (s *solo) order(c Cmd) {
	s.t.Helper()
	a, effects := s.Command(s.now, c)
	if a.Err != nil {
		s.t.Fatal(a.Err)
	}
	s.settleSaves(effects)
}

func TestEachImportIsANewEpoch(t *testing.T) {
	s := newSolo(t, "a 5 0-9", "b 2 10-19", "c 3 20-29")
	s.order(CmdSetSlot{15, SlotImporting, letterID('b').String()})
	s.order(CmdSetSlot{15, SlotNode, letterID('a').String()})
	if s.me.Epoch != 6 {
		t.Fatalf("epoch %d, want 6, although it had the highest before: the same epoch would stand for two sets of slots", s.me.Epoch)
	}
	a, _ := s.Command(s.now, CmdBumpEpoch{})
	if a.Word != "STILL" {
		t.Errorf("BUMPEPOCH answers %s for a node that has the highest epoch", a.Word)
	}
}

func TestWhatCameIsNotGivenBack(t *testing.T) {
	s := came(t)
	mine := s.me.Epoch
	// Another slot comes to b, or its epoch was the same and it was its turn to move.
	effects := s.say('b', s.claims('b', mine+3, rangeOf(10, 19)))
	if s.owner(15) != s.me || len(find[DropSlots](effects)) > 0 {
		t.Fatalf("the slot is %s's, and its keys go: %v", s.owner(15).ID, find[DropSlots](effects))
	}
	if s.me.Epoch <= mine+3 {
		t.Fatalf("it claims the slot in epoch %d, b in %d", s.me.Epoch, mine+3)
	}
	told := sent(effects, wire.Pong)
	if len(told) == 0 || told[len(told)-1].ConfigEpoch != s.me.Epoch || !told[len(told)-1].Slots.Has(15) {
		t.Error("nobody is told at once")
	}
	// From here on b knows, though a claim of its last epoch may be on its way still.
	s.say('b', s.claims('b', mine+9, rangeOf(10, 14)))
	if s.me.Epoch <= mine+9 {
		t.Errorf("epoch %d: a claim of b's in epoch %d would take the slot", s.me.Epoch, mine+9)
	}
	if len(s.slots.taken) != 0 {
		t.Errorf("still kept in mind: %v", s.slots.taken)
	}
	s.say('b', s.claims('b', s.me.Epoch+1, rangeOf(10, 19)))
	if s.owner(15) != s.p('b') {
		t.Error("a claim in a higher epoch does not count any more")
	}
}

// The replica of the source took over before it had heard.
func TestWhatCameIsNotGivenBackToTheSourcesShard(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d of b")
	s.order(CmdSetSlot{15, SlotImporting, letterID('b').String()})
	s.order(CmdSetSlot{15, SlotNode, letterID('a').String()})
	s.say('d', s.claims('d', s.me.Epoch+1, rangeOf(10, 19)))
	if s.owner(15) != s.me || s.owner(14) != s.p('d') {
		t.Errorf("slot 15 is %s's, slot 14 %s's", s.owner(15).ID, s.owner(14).ID)
	}
}

func TestWhatCameGoesToAThirdShardByEpochs(t *testing.T) {
	s := came(t)
	s.say('c', s.claims('c', s.me.Epoch+1, rangeOf(15, 29)))
	if s.owner(15) != s.p('c') {
		t.Error("the slot is not the one's with the highest epoch")
	}
}

func TestWhatCameGoesBackWhenItIsToldTo(t *testing.T) {
	s := came(t)
	s.order(CmdSetSlot{15, SlotMigrating, letterID('b').String()})
	s.say('b', s.claims('b', s.me.Epoch+1, rangeOf(10, 19)))
	if s.owner(15) != s.p('b') {
		t.Error("the slot that was sent back is kept")
	}
}

// Two that both think the slot has come to them end some time.
func TestTwoThatBothTookASlotEnd(t *testing.T) {
	s := came(t)
	for range 2 * takenAgain {
		s.say('b', s.claims('b', s.me.Epoch+1, rangeOf(10, 19)))
	}
	if s.owner(15) != s.p('b') {
		t.Errorf("still in epoch %d", s.me.Epoch)
	}
}

// The source got a new epoch and is told nothing; the target's claim ends the move all the same, when all keys are there.
func TestSourceYieldsWhatIsOnItsWay(t *testing.T) {
	s := newSolo(t, "a 9 0-9", "b 2 10-19", "c 3 20-29")
	s.order(CmdSetSlot{5, SlotMigrating, letterID('b').String()})
	claim := rangeOf(10, 19)
	claim.Set(5)
	s.data.keys[5] = 1
	s.say('b', s.claims('b', 4, claim))
	if s.owner(5) != s.me {
		t.Fatal("a slot with keys was given away to a lower epoch")
	}
	s.data.keys[5] = 0
	s.say('c', s.claims('c', 5, rangeOf(5, 5)))
	if s.owner(5) != s.me {
		t.Fatal("it was given to a node that it is not on its way to")
	}
	s.say('b', s.claims('b', 3, claim))
	if s.owner(5) != s.me {
		t.Fatal("an old claim took it")
	}
	s.say('b', s.claims('b', 4, claim))
	if s.owner(5) != s.p('b') {
		t.Error("it is kept, although it has arrived")
	}
}

func TestWhatCameIsRememberedOverARestart(t *testing.T) {
	s := came(t)
	m, err := New(s.cfg, s.data, s.rand, s.snapshot(), s.now)
	if err != nil {
		t.Fatal(err)
	}
	p := m.byID[letterID('b')]
	if !m.isBack(15, p) || m.slots.importing[15] != nil {
		t.Errorf("taken %v, importing %v", m.slots.taken, m.slots.importing)
	}
	v := s.View()
	if open := v.Nodes[v.Myself].Open; len(open) != 0 {
		t.Errorf("CLUSTER NODES shows %v", open)
	}
}

// Slots go back one by one to where they came from, before the two have heard all of each other. A claim of the first one
// that comes back is not answered by a higher epoch, which would stand against the next one; whether the first is on its way
// still, or the tool has ended its move and not begun the next.
func TestSlotsGoBackOneByOne(t *testing.T) {
	for _, last := range []SlotAction{SlotMigrating, SlotNode} {
		slotsGoBack(t, last)
	}
}

func slotsGoBack(t *testing.T, last SlotAction) {
	t.Helper()
	s := came(t)
	s.order(CmdSetSlot{16, SlotImporting, letterID('b').String()})
	s.order(CmdSetSlot{16, SlotNode, letterID('a').String()})
	delete(s.data.keys, 15)
	s.order(CmdSetSlot{15, SlotMigrating, letterID('b').String()})
	if last == SlotNode {
		s.order(CmdSetSlot{15, SlotNode, letterID('b').String()})
	}
	mine := s.me.Epoch
	claims := rangeOf(10, 19)
	claims.Clear(16)
	effects := s.say('b', s.claims('b', mine+1, claims))
	if got := s.owner(15); got == s.me {
		t.Error("slot 15 is not b's again")
	}
	if s.owner(16) != s.me {
		t.Error("slot 16 is not this node's any more")
	}
	for _, m := range sent(effects, wire.Pong) {
		if m.Slots.Has(15) && m.ConfigEpoch > mine {
			t.Errorf("slot 15, which b has claimed, is claimed in epoch %d", m.ConfigEpoch)
		}
	}
	if s.me.Epoch != mine {
		t.Errorf("epoch %d, want %d as before: b may be taking slot 16 in %d", s.me.Epoch, mine, mine+1)
	}
}

// A slot goes there and back before its first claim there was heard: older headers of that node do not have it either.
func TestSlotThatWentThereAndBackAtOnce(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.order(CmdSetSlot{5, SlotMigrating, letterID('b').String()})
	s.order(CmdSetSlot{5, SlotNode, letterID('b').String()})
	s.order(CmdSetSlot{5, SlotImporting, letterID('b').String()})
	s.order(CmdSetSlot{5, SlotNode, letterID('a').String()})
	s.data.keys[5] = 7
	s.say('b', s.claims('b', 2, rangeOf(10, 19)))
	late := rangeOf(10, 19)
	late.Set(5)
	effects := s.say('b', s.claims('b', s.me.Epoch+3, late))
	if s.owner(5) != s.me || len(find[DropSlots](effects)) > 0 {
		t.Fatalf("the slot is %s's, and its keys go: %v", s.owner(5).ID, find[DropSlots](effects))
	}
	s.say('b', s.claims('b', s.p('b').Epoch, rangeOf(10, 19)))
	if len(s.slots.taken)+len(s.slots.given) != 0 {
		t.Errorf("b has claimed it and knows that it is gone: taken %v, given %v", s.slots.taken, s.slots.given)
	}
}

// Slots that come while a save is under way are saved together, and told together.
func TestSlotsThatComeFastAreSavedAndToldTogether(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	quick := func(sl uint16) []Effect {
		t.Helper()
		s.order(CmdSetSlot{sl, SlotImporting, letterID('b').String()})
		a, effects := s.Command(s.now, CmdQuickSlot{sl, SlotNode, letterID('a').String()})
		if a.Err != nil || a.After != 0 {
			t.Fatalf("%v, and it waits for save %d", a.Err, a.After)
		}
		return effects
	}
	first := find[Save](quick(10))
	if len(first) != 1 || !first[0].Soon {
		t.Fatalf("saves of the first slot: %v", first)
	}
	s.slots.importing[11], s.slots.importing[12] = s.p('b'), s.p('b')
	for sl := range uint16(2) {
		_, effects := s.Command(s.now, CmdQuickSlot{11 + sl, SlotNode, letterID('a').String()})
		if n := len(find[Save](effects)); n != 0 {
			t.Errorf("slot %d: %d saves while one is under way", 11+sl, n)
		}
		if n := len(sent(effects, wire.Pong)); n != 0 {
			t.Errorf("slot %d: %d pongs before it is saved", 11+sl, n)
		}
	}
	claimed := func(effects []Effect) string {
		t.Helper()
		told := sent(effects, wire.Pong)
		if len(told) != 2 {
			t.Fatalf("%d pongs for 2 peers", len(told))
		}
		text := ""
		for sl := uint16(10); sl <= 12; sl++ {
			if told[0].Slots.Has(sl) {
				text += string('a' + rune(sl-10))
			}
		}
		return text
	}
	effects := s.Persisted(s.now, first[0].Seq)
	if got := claimed(effects); got != "a" {
		t.Errorf("claimed when the first is saved: %s", got)
	}
	second := find[Save](effects)
	if len(second) != 1 {
		t.Fatalf("%d saves follow", len(second))
	}
	if got := claimed(s.Persisted(s.now, second[0].Seq)); got != "abc" {
		t.Errorf("claimed when all are saved: %s", got)
	}
	// A command that waits for its save has it asked for at once, though one is under way.
	s.slots.importing[13] = s.p('b')
	s.Command(s.now, CmdQuickSlot{13, SlotNode, letterID('a').String()})
	_, effects = s.Command(s.now, CmdSave{})
	if saves := find[Save](effects); len(saves) != 1 || saves[0].Soon {
		t.Errorf("saves of CLUSTER SAVECONFIG: %v", saves)
	}
}

// A replica that has heard in the stream that a slot came keeps to that while headers of its primary may be older, so that
// it has the slot when it takes over; and no longer.
func TestReplicaHasItsPrimarysWord(t *testing.T) {
	w := halfMoved(t)
	w.must("e", CmdHeedSlot{5, SlotNode, nameID("b")}) // b itself has yet to be told
	e := w.nodes["e"].Machine
	has := func() bool { return e.owner(5) == e.me.Primary && !e.slots.noClaim.Has(5) }
	for range 5 {
		if w.run(labTimeout / 6); !has() {
			t.Fatal("a header that may be older than the word takes the slot away")
		}
	}
	if w.run(4 * labTimeout); has() {
		t.Error("the primary denies it, and is not believed")
	}
}

// The word is about its primary's headers. Who else has the slot in the table, and does not claim it any more, is not told
// to others as its owner: under its present epoch that would be a claim that nobody ever made.
func TestWordIsNotAboutOthersHeaders(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	s.order(CmdHeedSlot{25, SlotNode, letterID('b').String()})
	s.say('c', s.claims('c', 5, rangeOf(20, 29))) // old, of before c gave the slot away
	if s.owner(25) != s.p('c') || !s.hasWord(s.now, 25) {
		t.Fatal("slot 25 is not c's, or there is no word that it came")
	}
	claims := rangeOf(20, 29)
	claims.Clear(25)
	s.say('c', s.claims('c', 6, claims))
	for _, m := range sent(s.say('d', s.claims('d', 4, rangeOf(25, 39))), wire.Update) {
		if m.Update.Slots.Has(25) {
			t.Error("d is told that c has slot 25, which c does not claim")
		}
	}
	if s.owner(25) == s.p('c') {
		t.Error("the slot is not free for who claims it")
	}
}

// A slot came, and went back at once. The primary says of the second move no more than that it has ended; the replica takes
// the claim of who has the slot again.
func TestReplicaHearsThatASlotWentBack(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	s.order(CmdHeedSlot{25, SlotImporting, letterID('c').String()})
	s.order(CmdHeedSlot{25, SlotNode, letterID('b').String()})
	s.say('c', s.claims('c', 6, rangeOf(20, 29)))
	if s.owner(25) != s.p('b') {
		t.Fatal("what came was given back to a claim that may be old")
	}
	s.order(CmdHeedSlot{25, SlotMigrating, letterID('c').String()})
	s.order(CmdHeedSlot{Slot: 25, Action: SlotStable})
	s.say('c', s.claims('c', 7, rangeOf(20, 29)))
	if s.owner(25) != s.p('c') {
		t.Error("this node would claim the slot if it took over, and c would drop the keys")
	}
}

// A header with the slot in a new epoch takes the place of the word: what comes after it in that epoch is not older.
func TestHeaderTakesThePlaceOfTheWord(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	s.order(CmdHeedSlot{25, SlotImporting, letterID('c').String()})
	s.order(CmdHeedSlot{25, SlotNode, letterID('b').String()})
	s.say('b', s.claims('b', 2, rangeOf(10, 19)))
	if s.owner(25) != s.p('b') || s.unclaimed(25) {
		t.Fatal("a header that may be older than the word takes the slot away")
	}
	claims := rangeOf(10, 19)
	claims.Set(25)
	s.say('b', s.claims('b', 5, claims))
	s.say('b', s.claims('b', 2, rangeOf(10, 19)))
	if s.unclaimed(25) {
		t.Fatal("an older header takes the slot away")
	}
	s.say('b', s.claims('b', 6, rangeOf(10, 19)))
	if !s.unclaimed(25) {
		t.Error("the primary has given the slot away, and this node would claim it if it took over")
	}
}

// What a replica knows by word alone it does not tell as its primary's claim.
func TestWordIsNotToldAsAClaim(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 10-19", "c 3 20-29", "d 4 30-39")
	s.order(CmdHeedSlot{25, SlotImporting, letterID('c').String()})
	s.order(CmdHeedSlot{25, SlotNode, letterID('b').String()})
	s.say('b', s.claims('b', 7, rangeOf(10, 19))) // it has lost the slot, and got another epoch
	for _, m := range sent(s.say('d', s.claims('d', 6, rangeOf(25, 39))), wire.Update) {
		if m.Update.Slots.Has(25) {
			t.Error("d is told that b claims slot 25 in epoch 7")
		}
	}
}
