package cluster

import (
	"slices"
	"testing"

	"cairn/cluster/wire"
)

func TestManualFailover(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.done, d.done = nil, nil
	a.data.offset, d.data.offset = 120, 100
	w.must("d", CmdFailover{})
	if !a.noted("Manual failover requested by replica") || a.writes {
		t.Fatalf("primary: writes %v, notes %q", a.writes, a.notes)
	}
	if d.manual.offset != 120 || d.manual.ready {
		t.Fatalf("replica waits for offset %d, ready %v", d.manual.offset, d.manual.ready)
	}
	w.run(500)
	if d.me.primary() {
		t.Fatal("took over before it had everything")
	}
	d.data.offset = 120
	w.agree(2000, "a>d b:5462 c:5461 d:5461 e>d")
	if !a.writes {
		t.Fatal("writes stand still for ever")
	}
	// Writes are let in only where they are redirected already.
	resumed := slices.Index(a.done, "resume")
	if resumed < 1 || a.done[resumed-1] != "route" {
		t.Fatalf("primary did %q", a.done)
	}
	if view := a.routes[len(a.routes)-1]; !view.Replica() {
		t.Fatal("clients are not told that this is a replica")
	}
	if !slices.Contains(d.done, "promote") || !d.noted("All master replication stream processed, manual failover can start.") {
		t.Fatalf("replica did %q, notes %q", d.done, d.notes)
	}
}

// A replica that is told of its data stands as soon as all of it is there, not at the next tick.
func TestManualFailoverGoesOnWhenTheDataIsThere(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.data.offset, d.data.offset = 120, 100
	if at := d.Awaited(); at != -1 {
		t.Fatalf("offset %d is awaited before a failover", at)
	}
	w.must("d", CmdFailover{})
	if at := d.Awaited(); at != 120 {
		t.Fatalf("offset %d is awaited, want 120", at)
	}
	if at := a.Awaited(); at != -1 {
		t.Fatalf("the primary awaits offset %d", at)
	}
	d.data.offset = 120
	w.do(d, d.Synced(w.now))
	if !d.election.sent {
		t.Fatalf("not standing: %q", d.notes)
	}
	if at := d.Awaited(); at != -1 {
		t.Fatalf("offset %d is awaited by a replica that stands", at)
	}
}

// A failover right after another one, back and forth, each at the first try and sooner than the pause between
// elections.
func TestManualFailoverAgainAndAgain(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a")
	from, to := "a", "d"
	for range 6 {
		w.must(to, CmdFailover{})
		w.until(1000, to+" took over", func() bool {
			return w.nodes[to].me.primary() && w.nodes[from].me.replica() && w.nodes[from].me.Primary.ID == w.nodes[to].me.ID
		})
		w.run(300)
		from, to = to, from
	}
	if !w.nodes["a"].writes || !w.nodes["d"].writes {
		t.Fatal("writes stand still")
	}
}

// A primary that has not heard yet whose replica it is that asks, as one of Redis right after the replica came back,
// hears it with the request. One that missed the request gets it again.
func TestManualFailoverSoonAfterAReturn(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.detach(a.lookup(nameID("d")))
	w.must("d", CmdFailover{})
	w.until(300, "d took over", d.me.primary) // before it asks again

	w = threeShards(t)
	d = w.nodes["d"]
	w.deaf["a"] = true
	w.must("d", CmdFailover{})
	w.deaf["a"] = false
	w.until(1000, "d took over", d.me.primary)
}

// One that failed leaves nothing behind that would hold up the next.
func TestManualFailoverAfterOneThatFailed(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	w.deaf["b"], w.deaf["c"] = true, true // no votes
	w.must("d", CmdFailover{})
	w.run(300)
	if !d.election.sent {
		t.Fatalf("not standing: %q", d.notes)
	}
	w.run(5200)
	if d.me.primary() || d.manual.deadline != 0 || !d.noted("Manual failover timed out.") {
		t.Fatalf("notes %q", d.notes)
	}
	w.run(6000)
	if !w.nodes["a"].writes {
		t.Fatal("the primary's writes stand still after both gave up")
	}
	w.deaf["b"], w.deaf["c"] = false, false
	w.until(20_000, "well", func() bool { return w.nodes["d"].state.ok && w.nodes["a"].state.ok && w.nodes["b"].state.ok })
	w.must("d", CmdFailover{})
	w.until(1000, "d took over", func() bool { return d.me.primary() })
}

// The offset is told when nothing can be written any more, not when that was asked for.
func TestOffsetIsToldOnlyUnderThePause(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.slowPau = true
	a.data.offset, d.data.offset = 120, 120
	w.must("d", CmdFailover{})
	w.run(1000)
	if d.manual.offset != -1 || d.me.primary() {
		t.Fatalf("replica took offset %d from a primary that still writes", d.manual.offset)
	}
	a.data.offset = 150 // what was under way
	w.do(a, a.Paused(w.now))
	w.deliver()
	if d.manual.offset != 150 {
		t.Fatalf("replica waits for offset %d, want 150", d.manual.offset)
	}
	d.data.offset = 150
	w.until(1000, "took over", func() bool { return d.me.primary() })
}

// The answer to a pause that was lifted again says nothing of the next one.
func TestPauseIsAnsweredByItsOwnAnswer(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.slowPau = true
	d.data.offset = 50 // so that it waits
	w.must("d", CmdFailover{})
	a.endManual()
	w.do(a, a.settle(w.now))
	w.must("d", CmdFailover{})
	w.do(a, a.Paused(w.now)) // of the first
	w.deliver()
	w.run(300)
	if d.manual.offset != -1 {
		t.Fatalf("replica took offset %d", d.manual.offset)
	}
	w.do(a, a.Paused(w.now))
	w.deliver()
	if d.manual.offset != 100 {
		t.Fatalf("replica waits for offset %d", d.manual.offset)
	}
}

func TestManualFailoverOfAReplicaWithoutData(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	a.data.offset, d.data.offset, d.data.up, d.data.since = 0, 0, false, 0
	w.must("d", CmdFailover{})
	w.run(6000)
	if d.me.primary() {
		t.Fatal("a replica without data took over")
	}
	if !a.writes {
		w.run(6000)
		if !a.writes {
			t.Fatal("writes stand still for ever")
		}
	}
}

func TestFailoverRefused(t *testing.T) {
	w := threeShards(t)
	w.refused("a", CmdFailover{}, "ERR You should send CLUSTER FAILOVER to a replica")
	d := w.nodes["d"]
	d.lookup(nameID("a")).Flags |= wire.FlagFailed
	w.refused("d", CmdFailover{}, "ERR Master is down or failed, please use CLUSTER FAILOVER FORCE")
	d.setPrimary(d.me, nil)
	w.refused("d", CmdFailover{Mode: Force}, "ERR I'm a replica but my master is unknown to me")
}

func TestTakeover(t *testing.T) {
	w := threeShards(t)
	w.deaf["b"], w.deaf["c"], w.deaf["a"] = true, true, true
	w.run(8000)
	w.must("d", CmdFailover{Mode: Takeover})
	d := w.nodes["d"]
	if !d.me.primary() || d.me.Slots != 5461 || d.me.Epoch != 4 {
		t.Fatalf("primary %v, %d slots, epoch %d", d.me.primary(), d.me.Slots, d.me.Epoch)
	}
	w.deaf["b"], w.deaf["c"], w.deaf["a"] = false, false, false
	w.agree(30_000, "a>d b:5462 c:5461 d:5461 e>d")
}

// A replica may have the highest epoch from when it was a primary, and its primary the same one: the two claims would differ
// in nothing.
func TestTakeoverIsANewEpoch(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	d.me.Epoch, d.currentEpoch, d.lookup(nameID("a")).Epoch = 7, 7, 7
	w.must("d", CmdFailover{Mode: Takeover})
	if d.me.Epoch != 8 {
		t.Errorf("it claims its primary's slots in epoch %d, which that one has them in", d.me.Epoch)
	}
}

// What the old primary had given away is not claimed: its new owner, not heard of yet, would drop the keys.
func TestTakeoverLeavesWhatWasGivenAway(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	d.slots.noClaim.Set(77)
	d.lookup(nameID("a")).Flags |= wire.FlagFailed
	d.election = election{at: w.now}
	d.electionTick(w.now)
	for _, s := range sentOf(d.settle(w.now), wire.AuthRequest) {
		if s.Msg.Slots.Has(77) || !s.Msg.Slots.Has(78) {
			t.Fatal("asks for a slot that its primary has no more")
		}
	}
	w.command("d", CmdFailover{Mode: Takeover})
	if d.me.Slots != 5460 || d.owner(77) != nil {
		t.Fatalf("%d slots, slot 77 with %v", d.me.Slots, d.owner(77))
	}
}

// A demoted primary stops serving at once, whatever its disk does.
func TestDemotionIsNotHeldUpByTheDisk(t *testing.T) {
	w := newLab(t, "a 1 7", "b 2 100-199")
	_, effects := w.nodes["a"].Command(w.now, CmdSetSlot{7, SlotNode, nameID("b")})
	for _, e := range effects {
		switch e := e.(type) {
		case Route:
			if e.After == 0 {
				return
			}
		case Follow, Promote, DropSlots, Flush:
			t.Fatalf("%T comes before the route", e)
		}
	}
	t.Fatal("no route without waiting")
}

// A claim is durable before it is told or served.
func TestTakeoverIsSavedFirst(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	a, effects := d.Command(w.now, CmdFailover{Mode: Takeover})
	save := savedIn(effects)
	if a.Err != nil || save.State == nil || a.After != save.Seq {
		t.Fatalf("answer %+v, save %d", a, save.Seq)
	}
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			if e.After != save.Seq {
				t.Errorf("message of type %d after save %d, want %d", e.Msg.Type, e.After, save.Seq)
			}
			if e.Msg.Slots.Count() != 5461 || e.Msg.ConfigEpoch != 4 {
				t.Errorf("claims %d slots under epoch %d", e.Msg.Slots.Count(), e.Msg.ConfigEpoch)
			}
		case Promote:
			if e.After != save.Seq {
				t.Errorf("promoted after save %d, want %d", e.After, save.Seq)
			}
		case Route:
			if e.After != save.Seq {
				t.Errorf("routed after save %d, want %d", e.After, save.Seq)
			}
		}
	}
	if me := save.State.Myself(); me.Epoch != 4 || len(me.Slots) != 1 || me.PrimaryID != "" {
		t.Fatalf("saved %+v", me)
	}
}

func TestHandOver(t *testing.T) {
	w := threeShards(t)
	a := w.nodes["a"]
	w.nodes["d"].data.offset, w.nodes["e"].data.offset = 90, 95
	w.run(3000)
	got := w.must("a", CmdHandOver{})
	if !got.OK || got.ID != labID(t, "e") || got.Port != 7004 || got.IP != "10.0.0.5" {
		t.Fatalf("chose %+v", got)
	}
	a.lookup(nameID("e")).Flags |= wire.FlagMaybeFailed
	if got = w.must("a", CmdHandOver{}); got.ID != labID(t, "d") {
		t.Fatalf("chose %+v", got)
	}
	if got = w.must("b", CmdHandOver{}); got.OK {
		t.Fatalf("chose %+v of no replicas", got)
	}
	if got = w.must("d", CmdHandOver{}); got.OK {
		t.Fatal("a replica has nothing to hand over")
	}
	// What the caller then does.
	w.nodes["d"].data.offset = a.data.offset
	w.must("d", CmdFailover{})
	w.until(1000, "handed over", func() bool { return a.me.replica() })
}

// The replica has begun to stand: its primary keeps still until it knows, or for as long as it promised.
func TestPrimaryKeepsStillWhileItsReplicaStands(t *testing.T) {
	w := threeShards(t)
	a, d := w.nodes["a"], w.nodes["d"]
	w.heard = func(m *passage) {
		if m.to == "d" && m.msg.Type == wire.AuthAck {
			m.link = 0 // the votes are lost
		}
	}
	w.must("d", CmdFailover{})
	w.run(6000)
	if d.manual.deadline != 0 {
		t.Fatal("the replica goes on after its time")
	}
	if a.writes {
		t.Fatal("the primary lets writes in before its time is over")
	}
	w.run(4500)
	if !a.writes {
		t.Fatal("the primary's writes stand still longer than it promised")
	}
}
