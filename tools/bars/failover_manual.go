package main

import (
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

const manualHelp = `
A primary gives its role to its replica while six writers write: by CLUSTER FAILOVER; by the same while many keys expire
each second; by SIGTERM of the primary, which is then started again. Bars for each: it works at the first try,
no writer of the shard waits more than 500 ms for an acknowledgement, nothing that was acknowledged is lost, and the old
primary continues without a full sync.

  go run ./tools/bars manual
  go run ./tools/bars manual --quick               one round of each, 5 000 keys expire a second
  go run ./tools/bars manual --beside              and CLUSTER FAILOVER of redis-server, for comparison`

const (
	gapBar      = 500 * time.Millisecond
	manualLimit = 30 * time.Second // an election, when nobody hands over, is to end within it
)

type manualOptions struct {
	rounds  int
	expiry  int // keys a second
	lasting time.Duration
	beside  bool
}

func prepareManual(f *flag.FlagSet) func(l *lab) error {
	var o manualOptions
	f.IntVar(&o.rounds, "rounds", 3, "of each kind")
	f.IntVar(&o.expiry, "expire", 50_000, "keys that expire each second")
	f.DurationVar(&o.lasting, "lasting", 8*time.Second, "how long keys expire")
	f.BoolVar(&o.beside, "beside", false, "measure redis-server, too")
	timeout := timeoutFlag(f)
	quick := f.Bool("quick", false, "one round of each, 5 000 keys expire a second")
	return func(l *lab) error {
		if *quick {
			o.rounds, o.expiry, o.lasting = 1, 5000, 6*time.Second
		}
		if err := l.wantFree(6 << 30); err != nil {
			return err
		}
		sides := []side{l.cairnSide("256mb")}
		if o.beside {
			sides = append(sides, redisSide())
		}
		for _, s := range sides {
			c, err := l.cluster(s, *timeout)
			if err != nil {
				return err
			}
			if err := o.measure(l, s, c); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			c.Close()
		}
		return nil
	}
}

func (o *manualOptions) measure(l *lab, s side, c *node.Cluster) error {
	kinds := []struct {
		name string
		run  func(h *handover) error
	}{
		{"CLUSTER FAILOVER", (*handover).command},
		{fmt.Sprintf("CLUSTER FAILOVER, %d keys/s expire", o.expiry), func(h *handover) error { return h.expiring(o.expiry, o.lasting) }},
		{"SIGTERM", (*handover).terminate},
	}
	if !s.bar {
		kinds = kinds[:2] // a redis-server that is told to end leaves its shard to an election
	}
	v := newValues()
	for k, kind := range kinds {
		var longest time.Duration
		var lost int
		var fulls int64
		for n := range o.rounds {
			h := &handover{lab: l, cluster: c, shard: (n + k) % shards, values: v, name: fmt.Sprintf("manual%d-%d", k, n)}
			if err := h.round(kind.run); err != nil {
				return fmt.Errorf("%s, round %d: %w", kind.name, n+1, err)
			}
			longest = max(longest, h.gap)
			lost += h.lost.lostSafe + h.lost.lostTail
			fulls += h.fulls
			l.progress("%s: %s, round %d: gap %s, %v, %d full syncs", s.name, kind.name, n+1, ms(h.gap), h.lost, h.fulls)
		}
		what := s.name + ": " + kind.name + ", "
		if !s.bar {
			l.figure(what+"longest gap", ms(longest))
			l.figure(what+"full syncs", fmt.Sprint(fulls))
			continue
		}
		l.timed(what+"longest gap", ms(longest), "<= 500 ms", longest <= gapBar)
		l.verdict(what+"lost", fmt.Sprint(lost), "0", lost == 0)
		l.verdict(what+"full syncs", fmt.Sprint(fulls), "0", fulls == 0)
	}
	return nil
}

// handover is one planned change of role.
type handover struct {
	lab     *lab
	cluster *node.Cluster
	shard   int
	values  values
	name    string // of its keys

	old, next *node.Member
	from      time.Time // of what the gap is sought in
	before    int64     // full syncs that the next primary had given

	cpu    [2]time.Duration // of both, at the last look
	behind int64            // bytes

	gap   time.Duration
	lost  losses
	fulls int64
}

func (h *handover) round(change func(h *handover) error) error {
	if h.lab.ctx.Err() != nil {
		return h.lab.ctx.Err()
	}
	load := startLoad(h.cluster, h.name, h.values)
	defer load.close()
	old, replicas, err := h.cluster.Primary(h.shard)
	if err != nil {
		return err
	}
	h.old, h.next = old, replicas[0]
	if h.before, err = h.next.Count("stats", "sync_full"); err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(load.wrote(-1, "", began), h.lab.pause(failoverWarm)); err != nil {
		return err
	}
	h.from = time.Now()
	if err := change(h); err != nil {
		return err
	}
	if err := load.wrote(h.shard, h.old.Addr, h.from); err != nil {
		return err
	}
	if err := errors.Join(h.lab.pause(failoverWarm), load.end()); err != nil {
		return err
	}
	h.gap = load.gap(h.shard, h.from)
	if err := h.cluster.AwaitSteady(clusterLimit); err != nil {
		return fmt.Errorf("%w; %s says:\n%s\n%s says:\n%s", err, h.old.Name, h.old.Output(2<<10), h.next.Name, h.next.Output(2<<10))
	}
	if h.lost, err = load.verify(h.old.Addr); err != nil {
		return err
	}
	after, err := h.next.Count("stats", "sync_full")
	if err != nil {
		return err
	}
	h.fulls = after - h.before
	return digests(h.cluster, h.shard)
}

// command asks the replica to take over, once.
func (h *handover) command() error {
	if err := h.next.OK("CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	return h.served()
}

// served waits until the replica is the primary.
func (h *handover) served() error {
	err := h.cluster.Await(manualLimit, func() error {
		role, err := h.next.Info("replication", "role")
		if err == nil && role != "master" {
			err = fmt.Errorf("%s is a %s", h.next.Name, role)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w; %s says:\n%s\n%s says:\n%s", err, h.old.Name, h.old.Output(2<<10), h.next.Name, h.next.Output(2<<10))
	}
	return err
}

// expiring is command while perSecond keys of the shard expire, for lasting. All of them must be gone in the end.
func (h *handover) expiring(perSecond int, lasting time.Duration) error {
	all := int(float64(perSecond) * lasting.Seconds())
	keys := keysIn(h.cluster.Slots(h.shard), h.name, all)
	first := time.Now().Add(time.Duration(all/15_000)*time.Second + 3*time.Second)
	var late atomic.Int64
	err := h.lab.fill(h.old.Addr, "keys that will expire", all, func(c *node.Conn, i int) {
		due := first.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		c.Append("SET", keys[i], "some value", "PXAT", fmt.Sprint(due.UnixMilli()))
		late.Store(time.Now().UnixNano())
	})
	if err != nil {
		return err
	}
	if over := time.Unix(0, late.Load()).Sub(first); over > 0 {
		return fmt.Errorf("%w: too slow: %d keys took %v longer to load than they live", errMachine, all, over)
	}
	if err := h.lab.pause(time.Until(first)); err != nil {
		return err
	}
	if err := h.cost(0); err != nil {
		return err
	}
	if err := h.watch(first.Add(lasting / 3)); err != nil {
		return err
	}
	if err := h.cost(time.Since(first)); err != nil {
		return err
	}
	h.from = time.Now()
	if err := h.command(); err != nil {
		return err
	}
	if err := h.lab.pause(time.Until(first.Add(lasting))); err != nil {
		return err
	}
	return h.cluster.Await(clusterLimit, func() error { return gone(h.next, keys) })
}

// watch looks until a moment how far the replica is behind.
func (h *handover) watch(until time.Time) error {
	h.behind = 0
	for time.Now().Before(until) {
		at, err := h.old.Count("replication", "master_repl_offset")
		if err != nil {
			return err
		}
		got, err := h.next.Count("replication", "slave_repl_offset")
		if err != nil {
			return err
		}
		h.behind = max(h.behind, at-got)
		if err := h.lab.pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// cost tells how far the replica was behind, and what processor time both have used in a while since the last call.
func (h *handover) cost(while time.Duration) error {
	var cpu [2]time.Duration
	for i, m := range []*node.Member{h.old, h.next} {
		var err error
		if cpu[i], err = node.CPU(m.Pid()); err != nil {
			return err
		}
	}
	if while > 0 {
		part := func(i int) string { return fmt.Sprintf("%.0f%%", 100*(cpu[i]-h.cpu[i]).Seconds()/while.Seconds()) }
		h.lab.figure("  processor while keys expire: primary, replica", part(0)+", "+part(1))
		h.lab.figure("  most that the replica was behind", fmt.Sprintf("%d KB", h.behind>>10))
	}
	h.cpu = cpu
	return nil
}

// gone asks for some of the keys.
func gone(m *node.Member, keys []string) error {
	for i := 0; i < len(keys); i += max(1, len(keys)/100) {
		text, err := m.Text("GET", keys[i])
		if err == nil && text != "" {
			err = fmt.Errorf("%s: %s should have expired", m.Name, keys[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keysIn returns n keys of the slots.
func keysIn(r slot.Range, head string, n int) []string {
	keys := make([]string, 0, n)
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("%s:%d", head, i); r.Has(slot.Of([]byte(key))) {
			keys = append(keys, key)
		}
	}
	return keys
}

// terminate ends the primary as a service manager does, and starts it again.
func (h *handover) terminate() error {
	if err := h.old.Stop(manualLimit); err != nil {
		return fmt.Errorf("%w; its output:\n%s", err, h.old.Output(2<<10))
	}
	if err := h.served(); err != nil {
		return err
	}
	return h.cluster.Restart(h.old, clusterLimit)
}
