package cluster

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"cairn/internal/invariant"
)

// The simulation runs whole clusters of machines in virtual time: with a network that delays, breaks and parts, disks that
// are slow, fail and forget, processes that crash and stand still, clocks that drift, and operators who make mistakes.
// After each event the rules hold that no fault excuses (sim_rules_test.go); at the end all faults are healed, and the
// nodes must agree soon (sim_end_test.go). One seed gives one run, event for event, so that what failed is replayed by
//
//	go test ./cluster -run 'TestSim$' -sim.seed=17 -sim.seeds=1 -sim.nodes=12 -sim.seconds=120 -sim.trace
//
// Virtual time is in milliseconds from the start of the run.

var (
	simSeed    = flag.Uint64("sim.seed", 1, "first seed")
	simSeeds   = flag.Int("sim.seeds", 0, "how many seeds; 0: as many as the build has time for")
	simNodes   = flag.Int("sim.nodes", 12, "nodes of each cluster")
	simSeconds = flag.Int64("sim.seconds", 120, "virtual seconds of each run")
	simWire    = flag.Int("sim.wire", 1, "percent of the messages that pass the byte format")
	simTrace   = flag.Bool("sim.trace", false, "print what happens")
)

func simChosen(seed uint64) simPlan {
	return simPlan{seed: seed, nodes: *simNodes, length: *simSeconds * 1000, wire: *simWire}
}

func (p simPlan) replay() string {
	return fmt.Sprintf("go test ./cluster -run 'TestSim$' -sim.seed=%d -sim.seeds=1 -sim.nodes=%d -sim.seconds=%d -sim.wire=%d "+
		"-sim.trace", p.seed, p.nodes, p.length/1000, p.wire)
}

func TestSim(t *testing.T) {
	seeds := simLane()
	var log func(string)
	if *simTrace && seeds == 1 {
		log = func(line string) { fmt.Println(line) }
	}
	runs := simCollect{t: t}
	simEach(seeds, func(i int) bool {
		plan := simChosen(*simSeed + uint64(i))
		w := newSimWorld(plan, log)
		w.run()
		return runs.add(w, plan.replay())
	})
	sum := &runs.counts
	t.Log(sum.text())
	if t.Failed() || seeds < 30 || *simNodes != 12 {
		return
	}
	// A simulation in which nothing happens proves nothing.
	if sum.wins < int64(seeds)/2 || sum.crashes < int64(seeds) || sum.manualWins == 0 || sum.cuts < int64(seeds) {
		t.Errorf("too little happened: %s", sum.text())
	}
}

// simCollect takes the results of runs.
type simCollect struct {
	t      *testing.T
	mu     sync.Mutex
	counts simCounts
	failed int
}

// add takes one; false: enough have failed.
func (c *simCollect) add(w *simWorld, replay string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.add(&w.counts)
	if w.failure != nil {
		c.failed++
		c.t.Errorf("seed %d (%s): %v\n%s", w.plan.seed, w.class, w.failure, replay)
	}
	return c.failed < 20
}

// simLane is how many seeds are run: many where checks may cost time, few where each step is slow.
func simLane() int {
	switch {
	case *simSeeds > 0:
		return *simSeeds
	case testing.Short() || simRace:
		return 10
	case invariant.Enabled:
		return 500
	}
	return 60
}

// simEach calls f with 0 to n-1, as many at a time as there are processors, until it gives false.
func simEach(n int, f func(i int) bool) {
	var next atomic.Int64
	var stop atomic.Bool
	var tasks sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		tasks.Go(func() {
			for !stop.Load() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if !f(i) {
					stop.Store(true)
				}
			}
		})
	}
	tasks.Wait()
}

// The same seed gives the same run.
func TestSimIsDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		plan := simChosen(seed)
		plan.length = min(plan.length, 60_000)
		one, two := newSimWorld(plan, nil), newSimWorld(plan, nil)
		one.run()
		two.run()
		if one.trace != two.trace || one.counts != two.counts {
			t.Fatalf("seed %d: two runs differ: trace %x and %x, %s and %s", seed, one.trace, two.trace, one.counts.text(),
				two.counts.text())
		}
		other := plan
		other.seed += 1000
		three := newSimWorld(other, nil)
		three.run()
		if three.trace == one.trace {
			t.Fatalf("seeds %d and %d give the same run", plan.seed, other.seed)
		}
	}
}

// simCounts is what happened in a run.
type simCounts struct {
	events, messages, wins, manualWins, takeovers, crashes, stops, cuts int64
	commands, refused, ioErrors, fulls, healMs, runs, failures, worse   int64
}

func (c *simCounts) add(o *simCounts) {
	for i, p := range o.all() {
		*c.all()[i] += *p
	}
}

func (c *simCounts) all() []*int64 {
	return []*int64{
		&c.events, &c.messages, &c.wins, &c.manualWins, &c.takeovers, &c.crashes, &c.stops, &c.cuts, &c.commands, &c.refused,
		&c.ioErrors, &c.fulls, &c.healMs, &c.runs, &c.failures, &c.worse,
	}
}

func (c *simCounts) text() string {
	return fmt.Sprintf("%d runs, %d events, %d messages, %d elections won (%d by hand), %d takeovers, %d crashes, %d stops, "+
		"%d cuts, %d won by a replica that was behind another, %d commands (%d refused), %d failed saves, %d full syncs, %d failures seen, agreed after %d ms on average",
		c.runs, c.events, c.messages, c.wins, c.manualWins, c.takeovers, c.crashes, c.stops, c.cuts, c.worse, c.commands, c.refused,
		c.ioErrors, c.fulls, c.failures, c.healMs/max(c.runs, 1))
}
