package cluster

import (
	"slices"
	"testing"

	"cairn/internal/slot"
)

// moved runs a SETSLOT as a server does: it is checked, its replicas take it up, then it is done.
func (w *lab) moved(name string, c CmdSetSlot) {
	w.t.Helper()
	if w.must(name, CmdCheckSlot(c)).Replicas {
		w.told(name, c)
	}
	w.must(name, CmdQuickSlot(c))
}

// told has the replicas of a node take its word.
func (w *lab) told(name string, c CmdSetSlot) {
	w.t.Helper()
	for _, r := range w.nodes[name].me.Replicas {
		if other := r.ID.String()[:1]; !w.deaf[other] {
			w.must(other, CmdHeedSlot(c))
		}
	}
}

// openAt is what a node knows of a slot: "5>b" it goes to b, "5<a" it comes from a.
func (w *lab) openAt(name string) (open []string) {
	m := w.nodes[name].Machine
	for s, p := range m.slots.migrating {
		open = append(open, text("%d>%s", s, p.ID.String()[:1]))
	}
	for s, p := range m.slots.importing {
		open = append(open, text("%d<%s", s, p.ID.String()[:1]))
	}
	slices.Sort(open)
	return open
}

func (w *lab) wantOpen(name string, want ...string) {
	w.t.Helper()
	if got := w.openAt(name); !slices.Equal(got, want) {
		w.t.Fatalf("node %s has open slots %q, want %q\n%s", name, got, want, w.dump())
	}
}

// wantOwner waits until all living nodes agree on who has a slot.
func (w *lab) wantOwner(s uint16, want string) {
	w.t.Helper()
	w.until(20_000, text("slot %d is with %s everywhere", s, want), func() bool {
		for _, name := range w.order {
			n := w.nodes[name]
			if p := n.owner(s); !w.deaf[name] && (p == nil || p.ID.String()[:1] != want || n.slots.noClaim.Has(s)) {
				return false
			}
		}
		return true
	})
}

// halfMoved is a cluster in which slot 5 is on its way from a to b; d is a's replica, e is b's.
func halfMoved(t *testing.T) *lab {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a", "e of b")
	w.moved("b", CmdSetSlot{5, SlotImporting, nameID("a")})
	w.moved("a", CmdSetSlot{5, SlotMigrating, nameID("b")})
	return w
}

func TestReplicasHaveTheirPrimarysOpenSlots(t *testing.T) {
	w := halfMoved(t)
	w.wantOpen("d", "5>b")
	w.wantOpen("e", "5<a")
	d := w.nodes["d"]
	v := d.View()
	if len(v.Nodes[v.Myself].Open) != 0 {
		t.Error("a replica shows them in its line, where tools would repair them")
	}
	if to, ok := v.Migrating[5]; !ok || to != v.Find(nameID("b")) {
		t.Errorf("migrating %v", v.Migrating)
	}
	w.run(200) // it is saved soon
	w.start("d", d.last)
	w.wantOpen("d", "5>b")
	w.moved("a", CmdSetSlot{5, SlotStable, ""})
	w.moved("b", CmdSetSlot{5, SlotStable, ""})
	for _, name := range w.order {
		w.wantOpen(name)
	}
}

// A new epoch of a node is known to another when that one has answered a ping with it; asking pings.
func TestAskEpoch(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3 200-299")
	ask := CmdAskEpoch{nameID("b")}
	w.until(10_000, "b has heard of the first epoch", func() bool { return w.must("a", ask).OK })
	w.must("a", CmdBumpEpoch{})
	n := w.nodes["a"]
	if a, effects := n.Command(w.now, ask); a.OK {
		t.Error("b is said to have heard of an epoch that was just made")
	} else {
		w.do(n, effects)
	}
	w.until(50, "b has heard of the new epoch, long before it would be pinged", func() bool { return w.must("a", ask).OK })
	if !w.must("a", CmdAskEpoch{nameID("x")}).OK {
		t.Error("a node that is not known is waited for")
	}
}

func TestCheckChangesNothing(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3 200-299", "d of a")
	for _, tc := range []struct {
		on       string
		c        CmdSetSlot
		replicas bool
	}{
		{"a", CmdSetSlot{5, SlotMigrating, nameID("b")}, true},
		{"b", CmdSetSlot{5, SlotImporting, nameID("a")}, true},
		{"b", CmdSetSlot{5, SlotNode, nameID("b")}, true},
		{"a", CmdSetSlot{5, SlotNode, nameID("b")}, true},
		{"c", CmdSetSlot{5, SlotNode, nameID("b")}, false},
		{"c", CmdSetSlot{5, SlotStable, ""}, false},
	} {
		before := w.nodes[tc.on].saves
		if got := w.must(tc.on, CmdCheckSlot(tc.c)).Replicas; got != tc.replicas {
			t.Errorf("%s: %+v: replicas are to know: %v, want %v", tc.on, tc.c, got, tc.replicas)
		}
		if w.nodes[tc.on].saves != before {
			t.Errorf("%s: %+v was saved", tc.on, tc.c)
		}
		w.wantOpen(tc.on)
	}
	w.refused("a", CmdCheckSlot{100, SlotMigrating, nameID("b")}, "ERR I'm not the owner of hash slot 100")
	w.refused("d", CmdCheckSlot{5, SlotStable, ""}, "ERR Please use SETSLOT only with masters.")
}

func TestMoveGoesOnWhenTheTargetFails(t *testing.T) {
	w := halfMoved(t)
	w.deaf["b"] = true
	w.agree(30_000, "a:5461 c:5461 d>a e:5462")
	w.wantOpen("e", "5<a")
	w.wantOpen("a", "5>e")
	w.wantOpen("d", "5>e")
	w.moved("e", CmdSetSlot{5, SlotNode, nameID("e")})
	w.moved("a", CmdSetSlot{5, SlotNode, nameID("e")})
	w.wantOwner(5, "e")
	for _, name := range []string{"a", "d", "e"} {
		w.wantOpen(name)
	}
	// The one that failed comes back as a replica, and has nothing open either.
	w.deaf["b"] = false
	w.agree(30_000, "a:5460 b>e c:5461 d>a e:5463")
	w.run(3 * labTimeout)
	w.wantOpen("b")
}

// The first slots of an empty primary are on their way when it fails. Nothing is served by it, and still its replica takes
// its place: keys may be there that are nowhere else.
func TestMoveGoesOnWhenAnEmptyTargetFails(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2", "c 3 5461-10922", "f 4 10923-16383", "d of a", "e of b")
	w.moved("b", CmdSetSlot{5, SlotImporting, nameID("a")})
	w.moved("a", CmdSetSlot{5, SlotMigrating, nameID("b")})
	w.nodes["b"].data.keys, w.nodes["e"].data.keys = 3, 3
	w.deaf["b"] = true
	w.agree(30_000, "a:5461 c:5462 d>a e:0 f:5461")
	w.wantOpen("e", "5<a")
	w.wantOpen("a", "5>e")
	// When it comes back it makes no second primary of the shard.
	w.deaf["b"] = false
	w.agree(30_000, "a:5461 b>e c:5462 d>a e:0 f:5461")
	w.moved("e", CmdSetSlot{5, SlotNode, nameID("e")})
	w.wantOwner(5, "e")
}

func TestMoveGoesOnWhenTheSourceFails(t *testing.T) {
	w := halfMoved(t)
	w.deaf["a"] = true
	w.agree(30_000, "b:5462 c:5461 d:5461 e>b")
	w.wantOpen("d", "5>b")
	w.wantOpen("b", "5<d")
	w.wantOpen("e", "5<d")
	w.moved("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.wantOwner(5, "b")
	w.wantOpen("d")
	w.deaf["a"] = false
	w.agree(30_000, "a>d b:5463 c:5461 d:5460 e>b")
	w.run(3 * labTimeout)
	for _, name := range w.order {
		w.wantOpen(name)
	}
}

// The source is told first that the slot is the target's, and the target never: it takes what nobody else claims, when it
// has heard that for long enough.
func TestTargetTakesWhatItsSourceGaveUp(t *testing.T) {
	w := halfMoved(t)
	w.moved("a", CmdSetSlot{5, SlotNode, nameID("b")})
	w.run(labTimeout / 2)
	w.wantOpen("b", "5<a")
	w.wantOwner(5, "b")
	if b := w.nodes["b"]; b.me.Epoch <= 3 || !b.noted("configEpoch updated after importing slot 5") {
		t.Errorf("epoch %d, and it was claimed without a new one", b.me.Epoch)
	}
	w.run(3 * labTimeout)
	for _, name := range w.order {
		w.wantOpen(name)
	}
}

// The same with the target out of reach, or with the slot given to a third node meanwhile: it takes nothing.
func TestTargetTakesNothingThatIsSomebodysOrThatItCannotKnow(t *testing.T) {
	t.Run("a third node has it", func(t *testing.T) {
		w := halfMoved(t)
		w.must("c", CmdSetSlot{5, SlotNode, nameID("c")})
		w.moved("a", CmdSetSlot{5, SlotNode, nameID("c")})
		w.run(4 * labTimeout)
		w.wantOwner(5, "c")
		w.wantOpen("b")
		w.wantOpen("e")
	})
	t.Run("one old header", func(t *testing.T) {
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
		s.setImporting(15, s.p('b'))
		s.say('b', s.claims('b', 2, rangeOf(10, 14)))
		s.tick(s.cfg.NodeTimeout/2, 'c')
		s.say('b', s.claims('b', 2, rangeOf(10, 19)))
		s.tick(s.cfg.NodeTimeout/2, 'b', 'c')
		s.say('b', s.claims('b', 2, rangeOf(10, 14)))
		if s.owner(15) != s.p('b') || s.slots.importing[15] == nil {
			t.Fatal("a header that was under way for long gave the slot away")
		}
	})
	t.Run("no majority", func(t *testing.T) {
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d 4 30-39", "e 5 40-49")
		s.setImporting(15, s.p('b'))
		for range 4 {
			s.say('b', s.claims('b', 2, rangeOf(10, 14)))
			s.tick(s.cfg.NodeTimeout)
		}
		if s.owner(15) == s.me {
			t.Fatal("a node that hears one other of four took a slot")
		}
	})
}

// The target's replica hears of the end of a move, and the target dies before it is done. The replica ends it, whatever the
// source's epoch is.
func TestTargetDiesInTheLastStep(t *testing.T) {
	w := halfMoved(t)
	w.told("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.deaf["b"] = true
	w.agree(30_000, "a:5460 c:5461 d>a e:5463")
	w.wantOpen("e")
	w.wantOpen("a")

	w = halfMoved(t)
	w.must("a", CmdBumpEpoch{})
	w.told("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.deaf["b"] = true
	w.agree(30_000, "a:5460 c:5461 d>a e:5463")
	w.wantOwner(5, "e")
	w.wantOpen("e")
	w.wantOpen("a")
}

// A crash took back what was answered: that the slot has come. It is taken again when the others have been heard, sooner
// than a slot that was only given up.
func TestClaimThatACrashTookBack(t *testing.T) {
	s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29")
	s.cfg.NodeTimeout = 60_000
	a, effects := s.Command(s.now, CmdRecallSlot{15, SlotImporting, letterID('b').String()})
	s.settleSaves(effects)
	if a.Err != nil || s.slots.importing[15] != s.p('b') {
		t.Fatalf("answer %+v", a)
	}
	s.say('b', s.claims('b', 2, rangeOf(10, 14)))
	if s.owner(15) == s.me {
		t.Fatal("taken before the others were heard")
	}
	s.tick(startDelayMs, 'c')
	s.say('b', s.claims('b', 2, rangeOf(10, 14)))
	if s.owner(15) != s.me {
		t.Fatal("not taken again")
	}
}

// It is done, and saved, and nobody but the replica has heard of it when the target dies. The source was told, too.
func TestTargetDiesBeforeItsClaimIsHeard(t *testing.T) {
	w := halfMoved(t)
	w.told("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.deaf["b"] = true
	w.must("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.moved("a", CmdSetSlot{5, SlotNode, nameID("b")})
	w.wantOwner(5, "e")
	w.deaf["b"] = false
	w.agree(30_000, "a:5460 b>e c:5461 d>a e:5463")
	w.run(3 * labTimeout)
	for _, name := range w.order {
		w.wantOpen(name)
	}
}

// The source dies between the two SETSLOT NODE: its replica has heard the target's claim and asks for no vote about it.
func TestSourceDiesInTheLastStep(t *testing.T) {
	for _, first := range []string{"target", "source"} {
		t.Run(first+" was told first", func(t *testing.T) {
			w := halfMoved(t)
			if first == "target" {
				w.moved("b", CmdSetSlot{5, SlotNode, nameID("b")})
			} else {
				w.moved("a", CmdSetSlot{5, SlotNode, nameID("b")})
			}
			w.deaf["a"] = true
			w.agree(30_000, "b:5463 c:5461 d:5460 e>b")
			w.wantOwner(5, "b")
			w.deaf["a"] = false
			w.agree(30_000, "a>d b:5463 c:5461 d:5460 e>b")
			w.run(3 * labTimeout)
			for _, name := range w.order {
				w.wantOpen(name)
			}
		})
	}
}

// A tool has given the slot to the target though keys were left at the source, and broke off: the higher epoch has it, and
// what is left goes.
func TestKeysLeftAtTheSourceGoWithTheSlot(t *testing.T) {
	w := halfMoved(t)
	a := w.nodes["a"]
	a.data.slotKeys = map[uint16]int64{5: 7}
	w.refused("a", CmdSetSlot{5, SlotNode, nameID("b")},
		"ERR Can't assign hashslot 5 to a different node while I still hold keys for this hash slot.")
	w.moved("b", CmdSetSlot{5, SlotNode, nameID("b")})
	w.wantOwner(5, "b")
	if !slices.Contains(a.done, "drop 1") {
		t.Errorf("calls %q, want a drop", a.done)
	}
}

func TestReplicaForgetsWhatItsPrimaryDenies(t *testing.T) {
	w := halfMoved(t)
	// What no entry of the stream takes back: the primary has lost its marks some other way.
	w.nodes["a"].closeSlot(5)
	w.nodes["b"].closeSlot(5)
	w.must("d", CmdHeedSlot{5461, SlotMigrating, nameID("c")})   // b's
	w.must("e", CmdHeedSlot{5462, SlotImporting, nameID("c")})   // its primary's own
	w.must("e", CmdHeedSlot{16384, SlotMigrating, nameID("c")})  // no slot
	w.must("e", CmdHeedSlot{5463, SlotMigrating, nameID("9")})   // nobody
	w.must("e", CmdHeedSlot{5463, SlotMigrating, nameID("b")})   // itself
	w.must("a", CmdHeedSlot{10_923, SlotImporting, nameID("c")}) // a primary is told by nobody
	w.wantOpen("d", "5461>c", "5>b")
	w.wantOpen("e", "5462<c", "5<a")
	w.run(4 * labTimeout)
	w.wantOpen("d", "5>b") // that one may be
	w.wantOpen("e", "5<a")
	w.wantOpen("a")
}

func TestFullSyncClosesAReplicasSlots(t *testing.T) {
	w := halfMoved(t)
	w.must("d", CmdCloseSlots{})
	w.must("a", CmdCloseSlots{}) // a primary's are its own
	w.wantOpen("d")
	w.wantOpen("a", "5>b")
}

func TestNewPrimaryOfAnotherShardHasOtherOpenSlots(t *testing.T) {
	w := halfMoved(t)
	w.must("d", CmdReplicate{nameID("c")})
	w.wantOpen("d")
}

func TestForgottenNodeMovesNothing(t *testing.T) {
	w := halfMoved(t)
	w.must("d", CmdForget{nameID("b")})
	w.wantOpen("d")
}

func TestSlotsFoundAtTheStart(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		w := newLab(t, "a 0 7")
		w.nodes["a"].data.slotKeys = map[uint16]int64{5: 1, 7: 1, 16383: 3}
		w.must("a", CmdTakeFound{})
		if got := w.nodes["a"].me.Slots; got != 3 {
			t.Errorf("%d slots", got)
		}
	})
	t.Run("in company", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "b 2 100-199")
		a := w.nodes["a"]
		a.data.slotKeys = map[uint16]int64{5: 1, 100: 2, 300: 3}
		w.must("a", CmdTakeFound{})
		if a.me.Slots != 100 || a.owner(300) != nil || !a.noted("This node has keys of 2 slots that are not its own") {
			t.Errorf("%d slots, notes %q", a.me.Slots, a.notes)
		}
	})
	t.Run("replica", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "d of a")
		w.nodes["d"].data.slotKeys = map[uint16]int64{300: 1}
		if w.must("d", CmdTakeFound{}); w.nodes["d"].me.Slots != 0 || w.nodes["d"].owner(300) != nil {
			t.Error("a replica took a slot")
		}
	})
}

// TestOpenSlotsAreSavedForGood: whatever is told of slots, what a node saved it comes back with.
func TestOpenSlotsAreSavedForGood(t *testing.T) {
	w := halfMoved(t)
	w.moved("a", CmdSetSlot{6, SlotMigrating, nameID("c")})
	w.run(200)
	for _, name := range w.order {
		before := w.openAt(name)
		w.start(name, w.nodes[name].last)
		w.wantOpen(name, before...)
	}
}

// A tool that repairs a move may end the import by hand and make the target the owner before all keys have come. What the
// source still has is the truth until the slot is finished, or somebody else's.
func TestImportEndedByHandIsUnfinished(t *testing.T) {
	w := halfMoved(t)
	unfinished := func(want bool) {
		t.Helper()
		if v := w.nodes["b"].View(); v.Unfinished.Has(5) != want {
			t.Fatalf("slot 5 is unfinished: %v, want %v", !want, want)
		}
	}
	unfinished(false)
	w.must("b", CmdDelSlots{slotSet(slot.Range{First: 5, Last: 5})})
	unfinished(true)
	w.must("b", CmdAddSlots{slotSet(slot.Range{First: 5, Last: 5})})
	w.must("b", CmdSetSlot{5, SlotStable, ""})
	w.must("b", CmdBumpEpoch{})
	unfinished(true)
	w.must("b", CmdSetSlot{5, SlotNode, nameID("b")})
	unfinished(false)

	w = halfMoved(t)
	w.must("b", CmdSetSlot{5, SlotStable, ""})
	unfinished(true)
	w.moved("b", CmdSetSlot{5, SlotImporting, nameID("a")})
	unfinished(false)
	w.moved("b", CmdSetSlot{5, SlotNode, nameID("b")})
	unfinished(false)

	w = halfMoved(t)
	w.must("b", CmdSetSlot{5, SlotStable, ""})
	w.must("b", CmdSetSlot{5, SlotNode, nameID("c")})
	unfinished(false)
}

// Two nodes of a shard that were both told to take over are both its primaries for a while, and a slot may be moved between
// them. Where it came from the move ends as it does between shards.
func TestSlotMovesWithinAShard(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a")
	a := w.nodes["a"]
	d := a.byID[w.nodes["d"].me.ID]
	a.setRolePrimary(d)
	a.setMigrating(5, d)
	a.setMigrating(6, d)
	var claims slot.Bitmap
	claims.Set(5)
	a.raiseEpoch(d, 9)
	a.claim(w.now, d, 9, &claims)
	if a.owner(5) != d || !a.me.primary() {
		t.Fatalf("slot 5 is with %v, and a is a primary: %v", a.owner(5), a.me.primary())
	}
	w.wantOpen("a", "6>d")
}
