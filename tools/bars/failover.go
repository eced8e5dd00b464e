package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"cairn/tools/node"
)

const failoverHelp = `
Three primaries with a replica each, node timeout 2 s, six writers that follow MOVED and connect again. Kills the
primary of one shard after the other with SIGKILL, and takes the time until every writer of the shard has an
acknowledgement again. Then reads back all that was acknowledged, starts the node again, and waits until it follows. Kills of
cairn and of redis-server take turns. Bars: median 4.2 s, at most 6 s, median not above redis-server's; of writes
that WAIT 1 answered for none is lost, of others only the last of each writer.

  go run ./tools/bars failover
  go run ./tools/bars failover --quick             three kills, cairn alone`

const (
	failoverMedian = 4200 * time.Millisecond
	failoverMax    = 6 * time.Second
	failoverWarm   = time.Second // of load before a kill, and after the failover
)

func prepareFailover(f *flag.FlagSet) func(l *lab) error {
	kills := f.Int("kills", 10, "of each server")
	beside := f.Bool("beside", true, "kill redis-server, too")
	timeout := timeoutFlag(f)
	quick := f.Bool("quick", false, "three kills, cairn alone")
	return func(l *lab) error {
		if *quick {
			*kills, *beside = 3, false
		}
		if err := l.wantFree(4 << 30); err != nil {
			return err
		}
		sides := []side{l.cairnSide("256mb")}
		if *beside {
			sides = append(sides, redisSide())
		}
		return measureFailover(l, sides, *timeout, *kills)
	}
}

// failoverRun is the kills of one server.
type failoverRun struct {
	side
	cluster *node.Cluster
	outages []time.Duration
	sum     losses
	fulls   int64 // full syncs of nodes that came back
}

func measureFailover(l *lab, sides []side, timeout time.Duration, kills int) error {
	var runs []*failoverRun
	for _, s := range sides {
		c, err := l.cluster(s, timeout)
		if err != nil {
			return err
		}
		runs = append(runs, &failoverRun{side: s, cluster: c})
	}
	v := newValues()
	for n := range kills {
		for _, r := range runs {
			if err := r.kill(l, n, v); err != nil {
				return fmt.Errorf("%s, kill %d: %w", r.name, n+1, err)
			}
			l.progress("%s: kill %d of %d: writes again after %s; %v", r.name, n+1, kills, ms(r.outages[n]), r.sum)
		}
	}
	for _, r := range runs {
		r.report(l, runs)
	}
	return l.ctx.Err()
}

// kill kills the primary of a shard under load, and brings it back.
func (r *failoverRun) kill(l *lab, n int, v values) error {
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	shard := n % shards
	load := startLoad(r.cluster, fmt.Sprint("kill", n), v)
	defer load.close()
	victim, _, err := r.cluster.Primary(shard)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(load.wrote(-1, "", began), l.pause(failoverWarm)); err != nil {
		return err
	}
	killed := time.Now()
	victim.Kill()
	if err := errors.Join(load.wrote(shard, victim.Addr, killed), l.pause(failoverWarm/2), load.end()); err != nil {
		return err
	}
	r.outages = append(r.outages, load.outage(shard, victim.Addr, killed))
	lost, err := load.verify(victim.Addr)
	r.sum.add(lost)
	if err != nil {
		return err
	}
	fulls, err := comeBack(r.cluster, shard, victim, func() error { return nil })
	r.fulls += fulls
	if err != nil {
		return err
	}
	again, err := load.verify(victim.Addr)
	if err == nil && again != lost {
		err = fmt.Errorf("after the return of %s: %v; before it: %v", victim.Name, again, lost)
	}
	return err
}

// comeBack starts a killed primary again, does something meanwhile, waits until all is well, and wants the data of the shard
// equal. It returns how many full syncs that took.
func comeBack(c *node.Cluster, shard int, m *node.Member, meanwhile func() error) (fulls int64, err error) {
	successor, _, err := c.Primary(shard)
	if err != nil {
		return 0, err
	}
	before, err := successor.Count("stats", "sync_full")
	if err != nil {
		return 0, err
	}
	if err := c.Restart(m, clusterLimit); err != nil {
		return 0, err
	}
	if err := meanwhile(); err != nil {
		return 0, err
	}
	if err := c.AwaitSteady(clusterLimit); err != nil {
		return 0, fmt.Errorf("after the return of %s: %w; its output:\n%s", m.Name, err, m.Output(2<<10))
	}
	after, err := successor.Count("stats", "sync_full")
	if err != nil {
		return 0, err
	}
	return after - before, digests(c, shard)
}

func (r *failoverRun) report(l *lab, all []*failoverRun) {
	median, longest := medianTime(r.outages), slices.Max(r.outages)
	timed, verdict := l.timed, l.verdict
	if !r.bar {
		timed = func(what, measured, _ string, _ bool) { l.figure(what, measured) }
		verdict = timed
	}
	timed(fmt.Sprintf("%s: writes again, median of %d kills", r.name, len(r.outages)), ms(median), "<= 4.2 s", median <= failoverMedian)
	timed(r.name+": writes again, longest", ms(longest), "<= 6 s", longest <= failoverMax)
	verdict(fmt.Sprintf("%s: lost of %d with WAIT 1", r.name, r.sum.safe), fmt.Sprint(r.sum.lostSafe), "0", r.sum.lostSafe == 0)
	l.figure(fmt.Sprintf("%s: lost of %d without, all of them the last", r.name, r.sum.acked-r.sum.safe), fmt.Sprint(r.sum.lostTail))
	l.figure(r.name+": full syncs of killed primaries that came back", fmt.Sprint(r.fulls))
	for _, other := range all {
		if r.bar && !other.bar {
			theirs := medianTime(other.outages)
			l.timed("median beside "+other.name, ms(median), "<= "+ms(theirs), median <= theirs)
		}
	}
}

func medianTime(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
