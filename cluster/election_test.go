package cluster

import (
	"testing"

	"cairn/cluster/wire"
)

// three primaries, one of them with two replicas.
func threeShards(t *testing.T) *lab {
	return newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a", "e of a")
}

func TestElectionReplacesAFailedPrimary(t *testing.T) {
	w := threeShards(t)
	w.nodes["d"].data.offset, w.nodes["e"].data.offset = 90, 95 // e is the better one
	w.run(2000)
	w.deaf["a"] = true
	w.agree(30_000, "b:5462 c:5461 d>e e:5461")
	e := w.nodes["e"]
	if !e.noted("Failover election won: I'm the new master.") || !e.noted("Start of election delayed for") {
		t.Fatalf("notes: %q", e.notes)
	}
	if e.me.Epoch <= 3 || e.me.Epoch != e.currentEpoch {
		t.Fatalf("config epoch %d, current %d", e.me.Epoch, e.currentEpoch)
	}
	// The old primary comes back and follows.
	w.deaf["a"] = false
	w.agree(30_000, "a>e b:5462 c:5461 d>e e:5461")
}

func TestElectionOfAReplicaThatNeverSynced(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a")
	d := w.nodes["d"]
	d.cfg.ValidityFactor = 0 // any age
	d.data.up, d.data.since = false, 0
	w.deaf["a"] = true
	w.run(40_000)
	if d.me.primary() {
		t.Fatal("a replica without data replaced its primary")
	}
	if !d.noted("Currently unable to failover: Disconnected from master") {
		t.Fatalf("notes: %q", d.notes)
	}
	// By hand it may.
	w.must("d", CmdFailover{Mode: Force})
	w.agree(5000, "b:5462 c:5461 d:5461")
}

func TestElectionWithOldData(t *testing.T) {
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383", "d of a")
	d := w.nodes["d"]
	d.data.up, d.data.since = false, w.now-10_000-11*labTimeout-60_000
	w.deaf["a"] = true
	w.run(40_000)
	if d.me.primary() {
		t.Fatal("a replica with old data replaced its primary")
	}
}

// request is what a replica asks with, as it arrives.
func request(from *resident, epoch, configEpoch uint64, bits wire.MessageFlags) *wire.Message {
	msg := from.header(wire.AuthRequest)
	msg.CurrentEpoch, msg.ConfigEpoch, msg.Bits = epoch, configEpoch, bits
	return msg
}

func TestVoteIsGivenOnceInAnEpochOverAllLives(t *testing.T) {
	w := threeShards(t)
	b, d, e := w.nodes["b"], w.nodes["d"], w.nodes["e"]
	ask := func(from *resident, epoch uint64) []Send {
		n := w.nodes["b"]
		n.currentEpoch = max(n.currentEpoch, epoch)
		n.voteRequest(w.now, n.lookup(from.me.ID.String()), request(from, epoch, 1, wire.ForceAck))
		effects := n.settle(w.now)
		granted := sentOf(effects, wire.AuthAck)
		if s := savedIn(effects); s.State != nil {
			n.last = s.State
			for _, g := range granted {
				if g.After != s.Seq || g.Msg.CurrentEpoch != epoch {
					t.Fatalf("vote of epoch %d after save %d, want epoch %d after %d", g.Msg.CurrentEpoch, g.After, epoch, s.Seq)
				}
			}
			if s.State.LastVoteEpoch != epoch {
				t.Fatalf("saved vote of epoch %d, want %d", s.State.LastVoteEpoch, epoch)
			}
		} else if len(granted) > 0 {
			t.Fatal("a vote without a save")
		}
		return granted
	}
	if len(ask(d, 10)) != 1 {
		t.Fatalf("no vote: %q", b.notes)
	}
	if len(ask(e, 10)) != 0 || len(ask(d, 10)) != 0 {
		t.Fatal("voted twice in an epoch")
	}
	// Another life.
	w.start("b", b.last)
	w.run(4000)
	if len(ask(e, 10)) != 0 {
		t.Fatal("voted twice in an epoch, in two lives")
	}
	if len(ask(e, 9)) != 0 {
		t.Fatal("voted in an epoch that is over")
	}
	if len(ask(e, 11)) != 1 {
		t.Fatalf("no vote in a new epoch: %q", w.nodes["b"].notes)
	}
}

func TestVoteIsDenied(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(w *lab, b *resident)
		from string
		bits wire.MessageFlags
		cfg  uint64 // config epoch that the request carries
		why  string // "" is granted
	}{
		{name: "failed primary", set: func(w *lab, b *resident) { b.lookup(nameID("a")).Flags |= wire.FlagFailed }, from: "d", cfg: 1},
		{name: "primary up", from: "d", cfg: 1, why: "its master is up"},
		{name: "forced", from: "d", bits: wire.ForceAck, cfg: 1},
		{name: "not a replica", from: "c", bits: wire.ForceAck, cfg: 3, why: "it is a master node"},
		{name: "old slots", from: "d", bits: wire.ForceAck, cfg: 0, why: "slot 0 epoch (1) > reqEpoch (0)"},
		{
			name: "unknown primary", set: func(w *lab, b *resident) { b.setPrimary(b.lookup(nameID("d")), nil) },
			from: "d", bits: wire.ForceAck, cfg: 1, why: "I don't know its master",
		},
		{
			name: "voted a moment ago", set: func(w *lab, b *resident) {
				a := b.lookup(nameID("a"))
				a.Flags |= wire.FlagFailed
				a.VotedAt = w.now - 1
			},
			from: "d", cfg: 1, why: "can't vote about this master before 3999 milliseconds",
		},
		{
			name: "voted a moment ago, forced", set: func(w *lab, b *resident) { b.lookup(nameID("a")).VotedAt = w.now - 1 },
			from: "d", bits: wire.ForceAck, cfg: 1,
		},
		{
			name: "slot no longer claimed", set: func(w *lab, b *resident) {
				for s := range uint16(5461) {
					b.slots.noClaim.Set(s)
				}
			},
			from: "d", bits: wire.ForceAck, cfg: 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := threeShards(t)
			b := w.nodes["b"]
			if tc.set != nil {
				tc.set(w, b)
			}
			b.notes = nil
			sender := b.lookup(nameID(tc.from))
			b.voteRequest(w.now, sender, request(w.nodes[tc.from], b.currentEpoch, tc.cfg, tc.bits))
			effects := b.settle(w.now)
			if got := len(sentOf(effects, wire.AuthAck)); (got == 1) != (tc.why == "") {
				t.Fatalf("%d votes, want refusal %q", got, tc.why)
			}
			w.do(b, effects)
			want := "Failover auth denied to " + sender.ID.String() + " (): " + tc.why
			if tc.why != "" && !b.noted(want) {
				t.Fatalf("notes %q, want %q", b.notes, want)
			}
		})
	}
}

func TestVotesAreCountedOnceEach(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	d.lookup(nameID("a")).Flags |= wire.FlagFailed
	d.election = election{at: w.now, sent: true, epoch: 9}
	d.currentEpoch = 9
	ack := func(from string, epoch uint64) {
		msg := w.nodes[from].header(wire.AuthAck)
		msg.CurrentEpoch = epoch
		d.voteGranted(w.now, d.lookup(nameID(from)), msg)
		w.do(d, d.settle(w.now))
	}
	ack("b", 9)
	ack("b", 9)  // twice
	ack("c", 8)  // for an election before
	ack("c", 10) // for one that this is not
	ack("e", 9)  // from a replica
	if d.me.primary() || len(d.election.voters) != 1 {
		t.Fatalf("%d votes counted, want 1", len(d.election.voters))
	}
	ack("c", 9)
	if !d.me.primary() || d.me.Epoch != 9 || d.me.Slots != 5461 {
		t.Fatalf("primary %v, epoch %d, slots %d", d.me.primary(), d.me.Epoch, d.me.Slots)
	}
}

// A candidate that won must not help another candidate of the same epoch.
func TestWinnerHasNoVoteLeft(t *testing.T) {
	w := threeShards(t)
	w.nodes["d"].data.offset = 200
	w.deaf["a"] = true
	w.until(30_000, "d is a primary", func() bool { return w.nodes["d"].me.primary() })
	d := w.nodes["d"]
	if d.lastVoteEpoch != d.me.Epoch {
		t.Fatalf("last vote in epoch %d, won in %d", d.lastVoteEpoch, d.me.Epoch)
	}
}

func TestRank(t *testing.T) {
	w := newLab(t, "a 1 0-16383", "b of a", "c of a", "d of a")
	c := w.nodes["c"]
	b, d := c.lookup(nameID("b")), c.lookup(nameID("d"))
	c.data.offset = 50
	for _, tc := range []struct {
		b, d  int64
		flags wire.Flags // of d
		want  int
	}{
		{b: 40, d: 40, want: 0},
		{b: 50, d: 50, want: 1}, // b has the smaller id
		{b: 60, d: 60, want: 2},
		{b: 40, d: 60, want: 1},
		{b: 40, d: 60, flags: wire.FlagNoFailover, want: 0},
		{b: 40, d: 60, flags: wire.FlagFailed, want: 0},
	} {
		b.Offset, d.Offset, d.Flags = tc.b, tc.d, wire.FlagReplica|tc.flags
		if got := c.rank(); got != tc.want {
			t.Errorf("offsets %d, %d: rank %d, want %d", tc.b, tc.d, got, tc.want)
		}
	}
	// The delay follows the rank both ways, not into the past.
	b.Offset, d.Offset, d.Flags = 60, 60, wire.FlagReplica
	c.planElection(w.now, false)
	at := c.election.at
	b.Offset = 40
	c.rerank(w.now)
	if c.election.at != at-1000 || c.election.rank != 1 {
		t.Fatalf("moved by %d ms to rank %d", c.election.at-at, c.election.rank)
	}
	b.Offset = 60
	c.rerank(w.now)
	if c.election.at != at {
		t.Fatalf("moved by %d ms", c.election.at-at)
	}
	b.Offset, d.Offset = 40, 40
	c.rerank(at)
	if c.election.at < at {
		t.Fatalf("moved %d ms into the past", at-c.election.at)
	}
}

func TestVoteRequestIsSavedFirst(t *testing.T) {
	w := threeShards(t)
	d := w.nodes["d"]
	d.lookup(nameID("a")).Flags |= wire.FlagFailed
	before := d.currentEpoch
	d.election = election{at: w.now}
	d.electionTick(w.now)
	effects := d.settle(w.now)
	asked, save := sentOf(effects, wire.AuthRequest), savedIn(effects)
	if len(asked) != 4 || save.State == nil {
		t.Fatalf("%d requests, save %v", len(asked), save.State != nil)
	}
	for _, s := range asked {
		if s.After != save.Seq || s.Msg.CurrentEpoch != before+1 || s.Msg.Bits&wire.ForceAck != 0 {
			t.Fatalf("request of epoch %d after save %d, bits %x", s.Msg.CurrentEpoch, s.After, s.Msg.Bits)
		}
	}
	if save.State.CurrentEpoch != before+1 {
		t.Fatalf("saved epoch %d, want %d", save.State.CurrentEpoch, before+1)
	}
}

// A slot came to the primary while its replica was asking for votes: both have the same epoch then, and neither's claim is
// the stronger one.
func TestElectionIsHeldAgainWhenThePrimaryHasItsEpoch(t *testing.T) {
	s := newSolo(t, "a of b", "b 2 0-9", "c 3 20-29", "d 4 30-39")
	s.data.linkUp, s.data.since = true, s.now
	s.order(CmdFailover{Force})
	epoch := s.election.epoch
	if epoch == 0 {
		t.Fatal("no votes were asked for")
	}
	s.say('b', s.claims('b', epoch, rangeOf(0, 9)))
	grant := func(epoch uint64) {
		for _, c := range []byte{'c', 'd'} {
			msg := s.word(c, wire.AuthAck)
			msg.CurrentEpoch = epoch
			s.say(c, msg)
		}
	}
	grant(epoch)
	if s.me.primary() {
		t.Fatalf("took over in epoch %d, which its primary has", epoch)
	}
	s.tick(200, 'b', 'c', 'd')
	if s.election.epoch <= epoch {
		t.Fatalf("votes of epoch %d are asked for, after those of %d", s.election.epoch, epoch)
	}
	grant(s.election.epoch)
	if !s.me.primary() || s.me.Epoch <= epoch {
		t.Fatalf("primary %v, epoch %d", s.me.primary(), s.me.Epoch)
	}
}
