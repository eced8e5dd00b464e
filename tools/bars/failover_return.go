package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"cairn/tools/node"
)

const returnHelp = `
A primary is killed with SIGKILL, its replica takes over, and the old primary comes back as a replica. In one half of the
rounds the writers have stopped and WAIT has answered before the kill: then it must continue without a full sync. In the
other half they write all the time: then at most one full sync a round. The new primary's sync_full
counts; the data of both must be equal in the end.

  go run ./tools/bars return
  go run ./tools/bars return --quick               two rounds of each`

func prepareReturn(f *flag.FlagSet) func(l *lab) error {
	rounds := f.Int("rounds", 6, "of each kind")
	timeout := timeoutFlag(f)
	quick := f.Bool("quick", false, "two rounds of each")
	return func(l *lab) error {
		if *quick {
			*rounds = 2
		}
		if err := l.wantFree(4 << 30); err != nil {
			return err
		}
		c, err := l.cluster(l.cairnSide("256mb"), *timeout)
		if err != nil {
			return err
		}
		return measureReturn(l, c, *rounds)
	}
}

func measureReturn(l *lab, c *node.Cluster, rounds int) error {
	v := newValues()
	var quiet, loaded, worst int64
	for n := range 2 * rounds {
		idle := n%2 == 0
		fulls, err := returnOnce(l, c, n, idle, v)
		if err != nil {
			return fmt.Errorf("round %d, writers stopped before the kill: %v: %w", n+1, idle, err)
		}
		if idle {
			quiet += fulls
		} else {
			loaded += fulls
			worst = max(worst, fulls)
		}
		l.progress("round %d of %d, writers stopped before the kill: %v: %d full syncs", n+1, 2*rounds, idle, fulls)
	}
	l.verdict(fmt.Sprintf("full syncs in %d returns, writers stopped before", rounds), fmt.Sprint(quiet), "0", quiet == 0)
	l.verdict(fmt.Sprintf("most full syncs in one of %d returns under load", rounds), fmt.Sprint(worst), "<= 1", worst <= 1)
	l.figure("full syncs in all returns under load (aim: 0)", fmt.Sprint(loaded))
	return nil
}

// returnOnce kills the primary of a shard and brings it back. idle: with all written things at the replica, and nobody
// writing until it is back.
func returnOnce(l *lab, c *node.Cluster, n int, idle bool, v values) (fulls int64, err error) {
	shard := n % shards
	load := startLoad(c, fmt.Sprint("return", n), v)
	defer load.close()
	victim, _, err := c.Primary(shard)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := errors.Join(load.wrote(-1, "", began), l.pause(failoverWarm)); err != nil {
		return 0, err
	}
	if idle {
		if err := load.end(); err != nil {
			return 0, err
		}
		if err := load.settled(shard); err != nil {
			return 0, err
		}
	}
	killed := time.Now()
	victim.Kill()
	if idle {
		err = c.Await(clusterLimit, func() error { _, _, err := c.Primary(shard); return err })
	} else {
		err = errors.Join(load.wrote(shard, victim.Addr, killed), l.pause(failoverWarm/2))
	}
	if err != nil {
		return 0, err
	}
	fulls, err = comeBack(c, shard, victim, func() error {
		if idle {
			return nil
		}
		return intoLoad(l, c, load, victim) // nobody writes when the data is compared
	})
	if err != nil {
		return 0, err
	}
	lost, err := load.verify(victim.Addr)
	if err == nil && lost.lostSafe > 0 {
		err = fmt.Errorf("lost: %v", lost)
	}
	return fulls, err
}

// intoLoad lets the writers go on until a node has been back among them for a moment.
func intoLoad(l *lab, c *node.Cluster, load *clusterLoad, m *node.Member) error {
	err := c.Await(clusterLimit, func() error {
		link, err := m.Info("replication", "master_link_status")
		if err == nil && link != "up" {
			err = fmt.Errorf("%s: master_link_status is %q; its output:\n%s", m.Name, link, m.Output(2<<10))
		}
		return err
	})
	return errors.Join(err, l.pause(failoverWarm/2), load.end())
}

// settled asks with WAIT, on the connections of the shard's writers, until a replica has all that they wrote.
func (l *clusterLoad) settled(shard int) error {
	for _, w := range l.writers {
		if w.shard != shard {
			continue
		}
		replies, _, err := w.router.Try(w.key(0), []string{"WAIT", "1", "10000"})
		if err != nil {
			return err
		}
		if replies[0].Int < 1 {
			return fmt.Errorf("writer %s: WAIT 1 answered %d in 10 s", w.tag, replies[0].Int)
		}
	}
	return nil
}
