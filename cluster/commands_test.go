package cluster

import (
	"fmt"
	"slices"
	"testing"

	"cairn/internal/slot"
)

func slotSet(ranges ...slot.Range) (b slot.Bitmap) {
	for _, r := range ranges {
		b.SetRange(r)
	}
	return b
}

func TestSlotCommands(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "d of a")
	w.refused("a", CmdAddSlots{slotSet(slot.Range{First: 150, Last: 250})}, "ERR Slot 150 is already busy")
	w.refused("a", CmdDelSlots{slotSet(slot.Range{First: 190, Last: 250})}, "ERR Slot 200 is already unassigned")
	w.refused("d", CmdAddSlots{slotSet(slot.Range{First: 300, Last: 300})}, "ERR Slots can be added to a master only")
	a := w.nodes["a"]
	answer, effects := a.Command(w.now, CmdAddSlots{slotSet(slot.Range{First: 200, Last: 249})})
	if save := savedIn(effects); answer.After == 0 || answer.After != save.Seq || a.me.Slots != 150 {
		t.Fatalf("answer %+v, save %d, %d slots", answer, save.Seq, a.me.Slots)
	}
	w.do(a, effects)
	w.must("a", CmdDelSlots{slotSet(slot.Range{First: 200, Last: 209})})
	if a.me.Slots != 140 || a.owner(205) != nil {
		t.Fatalf("%d slots", a.me.Slots)
	}
	// Of a slot on its way here nothing is left when it is added.
	a.slots.importing[300] = a.lookup(nameID("b"))
	w.must("a", CmdAddSlots{slotSet(slot.Range{First: 300, Last: 300})})
	if len(a.slots.importing) != 0 {
		t.Fatal("still importing an own slot")
	}
	a.data.keys = 1
	w.refused("a", CmdFlushSlots{}, "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.")
	a.data.keys = 0
	w.must("a", CmdFlushSlots{})
	if a.me.Slots != 0 || a.owner(100) == nil {
		t.Fatalf("%d own slots left", a.me.Slots)
	}
}

func TestSetSlotRefused(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "d of a")
	nobody := nameID("9")
	for _, tc := range []struct {
		c    CmdSetSlot
		text string
	}{
		{CmdSetSlot{100, SlotMigrating, nameID("b")}, "ERR I'm not the owner of hash slot 100"},
		{CmdSetSlot{5, SlotMigrating, nobody}, "ERR I don't know about node " + nobody},
		{CmdSetSlot{5, SlotMigrating, "x"}, "ERR I don't know about node x"},
		{CmdSetSlot{5, SlotMigrating, nameID("d")}, "ERR Target node is not a master"},
		{CmdSetSlot{5, SlotImporting, nameID("b")}, "ERR I'm already the owner of hash slot 5"},
		{CmdSetSlot{100, SlotImporting, nobody}, "ERR I don't know about node " + nobody},
		{CmdSetSlot{100, SlotImporting, nameID("d")}, "ERR Target node is not a master"},
		{CmdSetSlot{100, SlotNode, nobody}, "ERR Unknown node " + nobody},
		{CmdSetSlot{100, SlotNode, nameID("d")}, "ERR Target node is not a master"},
		{CmdSetSlot{16384, SlotStable, ""}, "ERR Invalid or out of range slot"},
	} {
		w.refused("a", tc.c, tc.text)
	}
	w.refused("d", CmdSetSlot{5, SlotStable, ""}, "ERR Please use SETSLOT only with masters.")
	w.nodes["a"].data.slotKeys = map[uint16]int64{5: 1}
	w.refused("a", CmdSetSlot{5, SlotNode, nameID("b")},
		"ERR Can't assign hashslot 5 to a different node while I still hold keys for this hash slot.")
}

// All steps of moving a slot, as tools take them.
func TestSlotMove(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3 200-299")
	a, b := w.nodes["a"], w.nodes["b"]
	a.data.slotKeys = map[uint16]int64{5: 2}
	w.must("b", CmdSetSlot{5, SlotImporting, nameID("a")})
	w.must("a", CmdSetSlot{5, SlotMigrating, nameID("b")})
	if a.slots.migrating[5].ID != b.me.ID || b.slots.importing[5].ID != a.me.ID {
		t.Fatal("not open")
	}
	open := a.View().Nodes[a.View().Myself].Open
	if len(open) != 1 || open[0].Slot != 5 || open[0].Importing {
		t.Fatalf("shown as %+v", open)
	}
	a.data.slotKeys = nil // moved
	w.must("b", CmdSetSlot{5, SlotNode, nameID("b")})
	if b.me.Epoch != 4 || !b.noted("configEpoch updated after importing slot 5") || len(b.slots.importing) != 0 {
		t.Fatalf("epoch %d, notes %q", b.me.Epoch, b.notes)
	}
	// The claim has reached all by itself, and closed the slot at its source.
	for _, n := range w.nodes {
		if n.owner(5).ID != b.me.ID {
			t.Fatalf("node %s: slot 5 is with %s", n.name, n.owner(5).ID)
		}
	}
	if len(a.slots.migrating) != 0 {
		t.Fatal("still migrating a slot of another node")
	}
	w.must("a", CmdSetSlot{5, SlotNode, nameID("b")})
	w.must("c", CmdSetSlot{5, SlotNode, nameID("b")})
	if a.me.Slots != 99 || b.me.Slots != 101 {
		t.Fatalf("%d and %d slots", a.me.Slots, b.me.Slots)
	}
}

func TestSetSlotNode(t *testing.T) {
	t.Run("without import there is no new epoch", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "b 2 100-199")
		w.must("a", CmdSetSlot{500, SlotNode, nameID("a")})
		if a := w.nodes["a"]; a.me.Epoch != 1 || a.me.Slots != 101 {
			t.Fatalf("epoch %d, %d slots", a.me.Epoch, a.me.Slots)
		}
	})
	t.Run("a third node ends an import", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3 200-299")
		w.must("a", CmdSetSlot{150, SlotImporting, nameID("b")})
		w.must("a", CmdSetSlot{150, SlotNode, nameID("b")})
		if len(w.nodes["a"].slots.importing) != 1 {
			t.Fatal("the source's ownership ended the import")
		}
		w.must("a", CmdSetSlot{150, SlotNode, nameID("c")})
		if len(w.nodes["a"].slots.importing) != 0 {
			t.Fatal("still importing")
		}
	})
	t.Run("an import follows the source's place", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3 200-299", "d of b")
		w.must("a", CmdSetSlot{150, SlotImporting, nameID("b")})
		a := w.nodes["a"]
		a.setRolePrimary(a.lookup(nameID("d")))
		w.must("a", CmdSetSlot{150, SlotNode, nameID("d")})
		if from := a.slots.importing[150]; from == nil || from.ID != labID(t, "d") {
			t.Fatalf("importing from %+v", from)
		}
	})
	t.Run("stable", func(t *testing.T) {
		w := newLab(t, "a 1 0-99", "b 2 100-199")
		w.must("a", CmdSetSlot{150, SlotImporting, nameID("b")})
		w.must("a", CmdSetSlot{5, SlotMigrating, nameID("b")})
		w.must("a", CmdSetSlot{150, SlotStable, ""})
		w.must("a", CmdSetSlot{5, SlotStable, ""})
		if a := w.nodes["a"]; len(a.slots.migrating)+len(a.slots.importing) != 0 {
			t.Fatal("still open")
		}
	})
	t.Run("the last slot makes a replica", func(t *testing.T) {
		w := newLab(t, "a 1 7", "b 2 100-199")
		w.must("a", CmdSetSlot{7, SlotNode, nameID("b")})
		a := w.nodes["a"]
		if !a.me.replica() || a.me.Primary.ID != labID(t, "b") || a.me.Shard != a.me.Primary.Shard {
			t.Fatalf("roles %s", w.roles("a"))
		}
		if !slices.Contains(a.done, "follow b") {
			t.Fatalf("did %q", a.done)
		}
	})
	t.Run("not if it holds keys of others", func(t *testing.T) {
		w := newLab(t, "a 1 7", "b 2 100-199")
		w.nodes["a"].data.keys = 3
		w.must("a", CmdSetSlot{7, SlotNode, nameID("b")})
		if w.nodes["a"].me.replica() {
			t.Fatal("its keys would be lost")
		}
	})
	t.Run("not if replicas stay where they are", func(t *testing.T) {
		w := newLab(t, "a 1 7", "b 2 100-199")
		w.nodes["a"].cfg.ReplicaMigration = false
		w.must("a", CmdSetSlot{7, SlotNode, nameID("b")})
		if w.nodes["a"].me.replica() {
			t.Fatal("became a replica")
		}
	})
}

func TestForget(t *testing.T) {
	w := threeShards(t)
	w.refused("a", CmdForget{nameID("9")}, "ERR Unknown node "+nameID("9"))
	w.refused("a", CmdForget{"x"}, "ERR Unknown node x")
	w.refused("a", CmdForget{nameID("a")}, "ERR I tried hard but I can't forget myself...")
	w.refused("d", CmdForget{nameID("a")}, "ERR Can't forget my master!")
	w.deaf["e"] = true
	w.must("a", CmdForget{nameID("e")})
	w.run(5000)
	// Word of it goes round, and telling it again is no mistake.
	for _, name := range []string{"a", "b", "c", "d"} {
		if w.nodes[name].lookup(nameID("e")) != nil {
			t.Fatalf("node %s still knows it", name)
		}
		w.must(name, CmdForget{nameID("e")})
	}
}

func TestReplicate(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199", "c 3", "d of a", "e of a")
	w.refused("c", CmdReplicate{nameID("9")}, "ERR Unknown node "+nameID("9"))
	w.refused("c", CmdReplicate{nameID("c")}, "ERR Can't replicate myself")
	w.refused("c", CmdReplicate{nameID("d")}, "ERR I can only replicate a master, not a replica.")
	const full = "ERR To set a master the node must be empty and without assigned slots."
	w.refused("a", CmdReplicate{nameID("b")}, full)
	w.nodes["c"].data.keys = 1
	w.refused("c", CmdReplicate{nameID("b")}, full)
	w.nodes["c"].data.keys = 0

	w.must("c", CmdReplicate{nameID("b")})
	w.agree(3000, "a:100 b:100 c>b d>a e>a")
	// A replica goes over to another primary, into its shard, whatever data it has.
	w.nodes["d"].data.keys = 10
	w.must("d", CmdReplicate{nameID("b")})
	w.agree(3000, "a:100 b:100 c>b d>b e>a")
	for _, n := range w.nodes {
		if d, b := n.lookup(nameID("d")), n.lookup(nameID("b")); d.Shard != b.Shard {
			t.Fatalf("node %s: replica in shard %s, primary in %s", n.name, d.Shard, b.Shard)
		}
	}
	if d := w.nodes["d"]; d.done[len(d.done)-1] != "follow b" && !slices.Contains(d.done, "follow b") {
		t.Fatalf("did %q", d.done)
	}
	before := w.nodes["d"].saves
	w.must("d", CmdReplicate{nameID("b")}) // as it is
	if w.nodes["d"].saves != before {
		t.Fatal("saved what has not changed")
	}
}

func TestResetOfAReplica(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard %v", hard), func(t *testing.T) {
			w := threeShards(t)
			d := w.nodes["d"]
			d.data.keys, d.done = 5, nil
			id, shard := d.me.ID, d.me.Shard
			d.lastVoteEpoch = 2
			epoch := d.currentEpoch
			w.must("d", CmdReset{Hard: hard})
			if len(d.peers) != 1 || !d.me.primary() || d.me.Slots != 0 || d.View().Assigned != 0 {
				t.Fatalf("roles %s, %d slots assigned", w.roles("d"), d.View().Assigned)
			}
			if d.me.Shard == shard {
				t.Fatal("still in the shard of other data")
			}
			if !slices.Contains(d.done, "flush") || !slices.Contains(d.done, "promote") {
				t.Fatalf("did %q", d.done)
			}
			if hard {
				if d.me.ID == id || d.currentEpoch != 0 || d.lastVoteEpoch != 0 || d.lookup(d.me.ID.String()) != d.me {
					t.Fatalf("id %s, epoch %d, last vote %d", d.me.ID, d.currentEpoch, d.lastVoteEpoch)
				}
			} else if d.me.ID != id || d.currentEpoch != epoch || d.lastVoteEpoch != 2 {
				t.Fatalf("id %s, epoch %d, last vote %d: fell under the same id", d.me.ID, d.currentEpoch, d.lastVoteEpoch)
			}
		})
	}
}

func TestResetOfAPrimary(t *testing.T) {
	w := threeShards(t)
	a := w.nodes["a"]
	a.data.keys = 1
	w.refused("a", CmdReset{}, "ERR CLUSTER RESET can't be called with master nodes containing keys")
	a.data.keys, a.done = 0, nil
	a.slots.migrating[1] = a.lookup(nameID("b"))
	w.must("a", CmdReset{})
	if a.me.Slots != 0 || len(a.peers) != 1 || len(a.slots.migrating) != 0 || slices.Contains(a.done, "flush") {
		t.Fatalf("%d slots, %d nodes, did %q", a.me.Slots, len(a.peers), a.done)
	}
}

func TestEpochCommands(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199")
	if got := w.must("a", CmdBumpEpoch{}); got.Word != "BUMPED" || got.Epoch != 3 || got.After == 0 {
		t.Fatalf("%+v", got)
	}
	if got := w.must("a", CmdBumpEpoch{}); got.Word != "STILL" || got.Epoch != 3 {
		t.Fatalf("%+v", got)
	}
	w.refused("a", CmdSetConfigEpoch{-1}, "ERR Invalid config epoch specified: -1")
	w.refused("a", CmdSetConfigEpoch{5},
		"ERR The user can assign a config epoch only when the node does not know any other node.")
	alone := newLab(t, "f 0")
	alone.must("f", CmdSetConfigEpoch{7})
	if f := alone.nodes["f"]; f.me.Epoch != 7 || f.currentEpoch != 7 {
		t.Fatalf("epoch %d, current %d", f.me.Epoch, f.currentEpoch)
	}
	alone.refused("f", CmdSetConfigEpoch{8}, "ERR Node config epoch is already non-zero")
	if got := alone.must("f", CmdSave{}); got.After == 0 {
		t.Fatal("answered before the save")
	}
}

func TestMeet(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199")
	w.refused("a", CmdMeet{IP: "10.0.0.9", Port: 0, BusPort: 2}, "ERR Invalid node address specified: 10.0.0.9:0")
	w.must("a", CmdMeet{IP: "10.0.0.77", Port: 7777, BusPort: 17777})
	a := w.nodes["a"]
	v := a.View()
	if len(v.Nodes) != 3 {
		t.Fatalf("%d nodes shown", len(v.Nodes))
	}
	var met string
	for _, n := range v.Nodes {
		if n.Port == 7777 {
			met = n.ID
		}
	}
	// Its id is made up: nothing is bound to it, but it can be forgotten.
	w.refused("a", CmdSetSlot{5, SlotMigrating, met}, "ERR I don't know about node "+met)
	w.must("a", CmdForget{met})
	if a.lookup(met) != nil {
		t.Fatal("not forgotten")
	}
}
