package cluster

import (
	"fmt"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
)

func TestEpochCollision(t *testing.T) {
	w := newLab(t, "a 0", "b 0", "c 0", "d 0", "e 0")
	w.run(10_000)
	seen := map[uint64]string{}
	for name, n := range w.nodes {
		if other := seen[n.me.Epoch]; other != "" {
			t.Fatalf("nodes %s and %s have epoch %d", name, other, n.me.Epoch)
		}
		seen[n.me.Epoch] = name
		for _, p := range n.peers {
			if p.Epoch > n.currentEpoch {
				t.Fatalf("node %s: epoch %d above the current one, %d", name, p.Epoch, n.currentEpoch)
			}
		}
	}
	if w.nodes["e"].me.Epoch != 0 {
		t.Fatalf("the largest id moved to epoch %d", w.nodes["e"].me.Epoch)
	}
}

func TestCollisionIsSavedFirst(t *testing.T) {
	w := newLab(t, "a 5 0-99", "b 7 100-199")
	a := w.nodes["a"]
	b := a.lookup(nameID("b"))
	for _, tc := range []struct {
		name  string
		epoch uint64
		flags wire.Flags
		moves bool
	}{
		{"other epoch", 6, wire.FlagPrimary, false},
		{"a replica's", 5, wire.FlagReplica, false},
		{"same", 5, wire.FlagPrimary, true},
	} {
		b.Epoch, b.Flags = tc.epoch, tc.flags
		before := a.me.Epoch
		a.collision(w.now, b)
		save := savedIn(a.settle(w.now))
		if moved := a.me.Epoch != before; moved != tc.moves || moved != (save.State != nil) {
			t.Fatalf("%s: moved %v, saved %v", tc.name, moved, save.State != nil)
		}
		if tc.moves && (a.me.Epoch != 8 || save.State.CurrentEpoch != 8) {
			t.Fatalf("moved to epoch %d, saved %d", a.me.Epoch, save.State.CurrentEpoch)
		}
	}
}

func TestEpochsEnd(t *testing.T) {
	w := newLab(t, "a 1 0-99", "b 2 100-199")
	a := w.nodes["a"]
	a.currentEpoch = lastEpoch
	if a.bumpEpoch() || a.currentEpoch != lastEpoch || a.me.Epoch != 1 {
		t.Fatalf("went on to epoch %d", a.currentEpoch)
	}
}

func TestReplicaMigration(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a", "e of a", "f of b")
	w.run(3000)
	w.deaf["f"] = true // b has no replica any more
	w.agree(30_000, "a:5461 b:5462 c:5461 d>b e>a")
	if d := w.nodes["d"]; !d.noted("Migrating to orphaned master "+nameID("b")) || d.me.Shard != d.me.Primary.Shard {
		t.Fatalf("notes %q", d.notes)
	}
	// The next one would leave a without any.
	w.run(20_000)
	if got := w.roles("e"); got != "a:5461 b:5462 c:5461 d>b e>a" {
		t.Fatalf("roles %s", got)
	}
}

func TestReplicaMigrationIsOff(t *testing.T) {
	for _, off := range []func(*Config){
		func(c *Config) { c.ReplicaMigration = false },
		func(c *Config) { c.MigrationBarrier = 2 },
	} {
		w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a", "e of a", "f of b")
		for _, n := range w.nodes {
			off(&n.cfg)
		}
		w.run(3000)
		w.deaf["f"] = true
		w.run(25_000)
		if got := w.roles("a"); got != "a:5461 b:5462 c:5461 d>a e>a" {
			t.Fatalf("roles %s", got)
		}
	}
}

func TestBecomingAReplicaClosesSlots(t *testing.T) {
	w := newLab(t, "a 1", "b 2 100-199", "c 3 200-299")
	a := w.nodes["a"]
	w.must("a", CmdSetSlot{150, SlotImporting, nameID("b")})
	w.must("a", CmdReplicate{nameID("b")})
	if len(a.slots.importing) != 0 || len(a.last.Myself().Open) != 0 {
		t.Fatal("a replica is importing")
	}
	if me := a.last.Myself(); me.Flags&nodesconf.Replica == 0 || me.PrimaryID != nameID("b") || me.ShardID != nameID("b") {
		t.Fatalf("saved %+v", me)
	}
}

func TestViewOfAReplica(t *testing.T) {
	w := threeShards(t)
	w.nodes["e"].data.offset = 0
	w.run(3000)
	v := w.nodes["d"].View()
	a, e := v.Find(nameID("a")), v.Find(nameID("e"))
	if !v.Replica() || v.Shard() != a || v.Nodes[v.Myself].Primary != a || v.MyEpoch != 1 || v.Find(nameID("9")) != NoNode {
		t.Fatalf("replica %v of %d, epoch %d", v.Replica(), v.Shard(), v.MyEpoch)
	}
	if fmt.Sprint(v.Nodes[a].Slots) != "[0-5460]" || v.Owner[0] != a || v.Owner[5461] == a {
		t.Fatalf("slots of a: %v", v.Nodes[a].Slots)
	}
	if len(v.Nodes[a].Replicas) != 2 || v.Nodes[e].Health != Loading || v.Nodes[a].Health != Online {
		t.Fatalf("replicas %v, health %s, %s", v.Nodes[a].Replicas, v.Nodes[e].Health, v.Nodes[a].Health)
	}
	if v.Assigned != 16384 || v.SlotsOK != 16384 || v.Size != 3 || v.CurrentEpoch != 3 || !v.OK {
		t.Fatalf("%d assigned, %d ok, size %d, epoch %d, ok %v", v.Assigned, v.SlotsOK, v.Size, v.CurrentEpoch, v.OK)
	}
	w.deaf["b"] = true
	w.until(20_000, "b failed", func() bool { return w.nodes["d"].View().SlotsFail == 5462 })
	later := w.nodes["d"].View()
	if later.Version == v.Version || later.OK || later.Nodes[later.Find(nameID("b"))].Health != Failed {
		t.Fatalf("version %d as before %v, ok %v", later.Version, later.Version == v.Version, later.OK)
	}
}
