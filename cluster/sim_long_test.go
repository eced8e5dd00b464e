package cluster

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"

	"cairn/cluster/nodesconf"
)

// A cluster of a thousand nodes: it meets, loses fifty nodes, and is cut in half. This takes many minutes, so it runs only
// when it is asked for.

var (
	simLong      = flag.Bool("sim.long", false, "run the large cluster, too")
	simLongNodes = flag.Int("sim.long.nodes", 1000, "its nodes")
	simLongCuts  = flag.Bool("sim.long.cuts", false, "only the cuts, of nodes that know each other")
)

const simLongTimeout = 15_000

func TestSimLong(t *testing.T) {
	if !*simLong {
		t.Skip("only with -sim.long")
	}
	begun := time.Now()
	w := newSimLong(*simSeed, *simLongNodes)
	w.run()
	report := func(what string, ms int64) {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		t.Logf("%s after %d ms of virtual time; at %d ms, %d events, %d messages, %v of real time, %d MiB in use, %d MiB of the system",
			what, ms, w.now, w.counts.events, w.counts.messages, time.Since(begun).Round(time.Second), mem.HeapAlloc>>20,
			mem.Sys>>20)
	}
	wait := func(what string, atMost int64, done func() bool) {
		t.Helper()
		from := w.now
		for !done() {
			if w.now-from >= atMost || w.failure != nil {
				t.Fatalf("%s: not after %d ms: %s (%v)", what, w.now-from, w.disagreement(), w.failure)
			}
			w.until(w.now + 500)
		}
		report(what, w.now-from)
	}
	agree := func() bool { return w.now > 0 && w.sameTable(false) }

	half := len(w.nodes) / 2
	if *simLongCuts {
		wait("all are well", 3*simLongTimeout, agree)
	} else {
		simMeetAndFail(t, w, wait, agree)
	}
	// In half: neither side has a majority. Then two thirds to one third: the larger side replaces primaries.
	for _, cut := range []struct {
		what string
		mine func(primary int) bool
	}{
		{"cut in half", func(primary int) bool { return primary%2 == 0 }},
		{"cut in three", func(primary int) bool { return primary%3 != 0 }},
	} {
		w.split(half, cut.mine)
		w.until(w.now + 2*simLongTimeout)
		report(cut.what, 2*simLongTimeout)
		w.join()
		wait(cut.what+", healed", 3*simLongTimeout, agree)
	}
}

// simMeetAndFail has all nodes meet, the second half of them replicate the first, and some of those fail and come back.
func simMeetAndFail(t *testing.T, w *simWorld, wait func(what string, atMost int64, done func() bool), agree func() bool) {
	t.Helper()
	half := len(w.nodes) / 2
	// All meet the first one.
	for _, n := range w.nodes[1:] {
		n.command(CmdMeet{w.nodes[0].ip, w.nodes[0].port, w.nodes[0].busPort()})
	}
	wait("all know all", 3*simLongTimeout, agree)
	for i, n := range w.nodes[half:] {
		if a := n.command(CmdReplicate{w.nodes[i].m.me.ID.String()}); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	wait("all know who replicates whom", 3*simLongTimeout, agree)

	dead := max(1, len(w.nodes)/20)
	for _, n := range w.nodes[half : half+dead] {
		n.crash(true)
	}
	wait("all know who failed", 2*simLongTimeout+5000, func() bool { return w.failedSeen() == dead*(len(w.nodes)-dead) })
	for _, n := range w.nodes[half : half+dead] {
		w.restart(n)
	}
	wait("all agree again", 3*simLongTimeout, agree)
}

// newSimLong makes nodes that do not know each other; half of them have slots.
func newSimLong(seed uint64, nodes int) *simWorld {
	w := newSimWorld(simPlan{seed: seed, nodes: nodes, class: simStrict, quiet: true}, nil)
	w.timeout, w.latency, w.tail, w.big = simLongTimeout, 1, 0, true
	half := nodes / 2
	for i, n := range w.nodes {
		n.cfg.NodeTimeout, n.old = simLongTimeout, false
		mine := n.disk.state.Nodes[i]
		mine.Epoch, mine.Slots, mine.PrimaryID, mine.Flags = uint64(i+1), nil, "", nodesconf.Myself|nodesconf.Primary
		mine.ShardID = mine.ID
		if i < half {
			mine.Slots = simShare(i, half)
		}
		n.data.primary = true
		n.disk.state = &State{Nodes: []nodesconf.Node{mine}, CurrentEpoch: uint64(i + 1)}
	}
	if *simLongCuts {
		w.acquaint(half)
	}
	return w
}

// acquaint has all nodes know all, and the others replicate the primaries.
func (w *simWorld) acquaint(primaries int) {
	all := make([]nodesconf.Node, len(w.nodes))
	for i, n := range w.nodes {
		all[i] = n.disk.state.Nodes[0]
		all[i].Flags, all[i].Connected = nodesconf.Primary, true
		if i >= primaries {
			p := &all[i%primaries]
			all[i].Flags, all[i].PrimaryID, all[i].ShardID, all[i].Epoch = nodesconf.Replica, p.ID, p.ShardID, 0
		}
	}
	for i, n := range w.nodes {
		s := &State{Nodes: slices.Clone(all), CurrentEpoch: uint64(primaries)}
		s.Nodes[i].Flags |= nodesconf.Myself
		n.disk.state, n.data.primary = s, i < primaries
		n.data.history = simHistory{id: 1 + i%primaries}
	}
	w.histories = primaries
}

// sameTable says that all running nodes have the same table, of all nodes.
func (w *simWorld) sameTable(failedToo bool) bool {
	first := uint64(0)
	for i, n := range w.nodes {
		if n.m == nil || len(n.m.peers) != len(w.nodes) || n.m.handshakes > 0 || !n.m.state.ok {
			return false
		}
		d := w.digest(n.m)
		if i == 0 {
			first = d
		}
		if d != first {
			return false
		}
	}
	return failedToo || w.failedSeen() == 0
}

// failedSeen counts how often a node is marked as failed in the tables of those that run.
func (w *simWorld) failedSeen() (sum int) {
	for _, n := range w.nodes {
		if n.m == nil {
			continue
		}
		for _, p := range n.m.peers {
			if p.failed() {
				sum++
			}
		}
	}
	return sum
}

// split cuts the network in two: the primaries that are on one side, and on the other one their replicas.
func (w *simWorld) split(primaries int, mine func(primary int) bool) {
	n := len(w.nodes)
	w.cutOff = make([]bool, n*n)
	side := make([]bool, n)
	for i := range n {
		side[i] = mine(i%primaries) == (i < primaries)
	}
	for i := range n {
		for j := range n {
			w.cutOff[i*n+j] = side[i] != side[j]
		}
	}
	w.part = simPart{serial: w.part.serial + 1, whole: true, since: w.now, side: side}
}
