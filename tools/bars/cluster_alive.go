package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const aliveHelp = `
A cluster must not take a busy node for a dead one. Three primaries with a replica each, node timeout 2 s; everything
happens at the first: a hash of 2 million fields is filled and deleted, 5 GB are written, which compactions follow, its replica
forgets everything and fetches it anew, FLUSHALL. Meanwhile PING is sent to that primary and its replica every millisecond,
and every node is asked whom it suspects. Bars: nobody suspects anybody, no PING is answered later than 250 ms. A primary
that has nothing to do is pinged as well: it shows what the machine itself costs.

  go run ./tools/bars alive
  go run ./tools/bars alive --quick                0.1 GB, 200 000 fields`

const (
	pingBar    = 250 * time.Millisecond
	askEvery   = 50 * time.Millisecond
	aliveValue = 4096
	aliveTags  = 512
)

type aliveOptions struct {
	gb     float64
	fields int
	tail   time.Duration
}

func prepareAlive(f *flag.FlagSet) func(l *lab) error {
	var o aliveOptions
	f.Float64Var(&o.gb, "gb", 5, "how many `GB` are written and flushed")
	f.IntVar(&o.fields, "fields", 2_000_000, "of the hash")
	f.DurationVar(&o.tail, "tail", 5*time.Second, "how long others go on asking after each")
	timeout := timeoutFlag(f)
	quick := f.Bool("quick", false, "0.1 GB, 200 000 fields")
	return func(l *lab) error {
		if *quick {
			o.gb, o.fields, o.tail = 0.1, 200_000, time.Second
		}
		if err := l.wantFree(int64(o.gb*6*(1<<30)) + 4<<30); err != nil {
			return err
		}
		c, err := l.cluster(l.cairnSide("512mb"), *timeout)
		if err != nil {
			return err
		}
		return o.measure(l, c)
	}
}

// pulse is who answers, and who suspects whom.
type pulse struct {
	stop    chan struct{}
	all     sync.WaitGroup
	longest []atomic.Int64 // nanoseconds, of the nodes pinged
	faults  chan error

	mu     sync.Mutex
	flags  map[string]int // "node-1 of node-0: fail?" and how often
	looked atomic.Int64
}

func startPulse(c *node.Cluster, pinged []*node.Member) *pulse {
	p := &pulse{stop: make(chan struct{}), longest: make([]atomic.Int64, len(pinged)), flags: map[string]int{}}
	p.faults = make(chan error, len(pinged)+len(c.Members))
	run := func(f func() error) {
		p.all.Go(func() { // ends when stop is closed
			if err := f(); err != nil {
				p.faults <- err
			}
		})
	}
	for i, m := range pinged {
		run(func() error { return p.ping(m.Addr, &p.longest[i]) })
	}
	names := map[string]string{}
	for _, m := range c.Members {
		names[m.ID] = m.Name
	}
	for _, m := range c.Members {
		run(func() error { return p.look(m.Name, m.Addr, names) })
	}
	return p
}

func (p *pulse) end() {
	close(p.stop)
	p.all.Wait()
}

func (p *pulse) ping(addr string, longest *atomic.Int64) error {
	c, err := node.Dial(addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return nil
		case <-tick.C:
		}
		began := time.Now()
		reply, err := c.Do("PING")
		if err != nil {
			return fmt.Errorf("PING: %w", err)
		}
		if text := reply.Err(); text != "" {
			return fmt.Errorf("PING: %s", text)
		}
		if took := time.Since(began).Nanoseconds(); took > longest.Load() { // nobody else raises it
			longest.Store(took)
		}
	}
}

// look asks a node whom it suspects.
func (p *pulse) look(name, addr string, names map[string]string) error {
	c, err := node.Dial(addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return nil
		case <-tick.C:
		}
		text, err := c.Text("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		nodes, err := node.ParseNodes(text)
		if err != nil {
			return err
		}
		p.looked.Add(1)
		for _, n := range nodes {
			if n.Failing() {
				p.mu.Lock()
				p.flags[fmt.Sprintf("%s of %s: %s", name, names[n.ID], n.Flags)]++
				p.mu.Unlock()
			}
		}
	}
}

// take returns what was seen since the last call.
func (p *pulse) take() (longest []time.Duration, flags map[string]int) {
	for i := range p.longest {
		longest = append(longest, time.Duration(p.longest[i].Swap(0)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	flags, p.flags = p.flags, map[string]int{}
	return longest, flags
}

func (o *aliveOptions) measure(l *lab, c *node.Cluster) error {
	primary, replicas, err := c.Primary(0)
	if err != nil {
		return err
	}
	other, _, err := c.Primary(1)
	if err != nil {
		return err
	}
	p := startPulse(c, []*node.Member{primary, replicas[0], other})
	defer p.end()
	conn, err := node.Dial(primary.Addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetTimeout(10 * time.Minute)
	huge := "{" + tagIn(c.Slots(0), "huge", 0) + "}hash"
	phases := []struct {
		name string
		run  func() error
	}{
		{"nothing", func() error { return nil }},
		{fmt.Sprintf("HSET of %d fields", o.fields), func() error { return o.fillHash(l, conn, huge) }},
		{"its DEL", func() error { _, err := conn.Int("DEL", huge); return err }},
		{fmt.Sprintf("%.1f GB written, compactions", o.gb), func() error { return o.fill(l, c, primary) }},
		{"full sync of it", func() error { return o.fullSync(c, primary, replicas[0]) }},
		{"FLUSHALL of it", func() error { _, err := conn.Text("FLUSHALL"); return err }},
	}
	for _, phase := range phases {
		p.take()
		began := time.Now()
		err := phase.run()
		took := time.Since(began).Round(time.Millisecond)
		if err = errors.Join(err, l.pause(o.tail)); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		if len(p.faults) > 0 {
			return fmt.Errorf("%s: %w", phase.name, <-p.faults)
		}
		longest, flags := p.take()
		for i, role := range []string{"primary", "replica"} {
			what := fmt.Sprintf("%s (%v): longest PING, %s", phase.name, took, role)
			l.timed(what, ms(longest[i]), "< 250 ms", longest[i] < pingBar)
		}
		l.figure(phase.name+": a primary that has nothing to do", ms(longest[2])) // what the machine costs
		l.timed(phase.name+": who suspects whom", fmt.Sprint(len(flags)), "0", len(flags) == 0)
		for text, n := range flags {
			l.figure("  "+text, strconv.Itoa(n)+" times")
		}
	}
	return c.AwaitSteady(clusterLimit)
}

func (o *aliveOptions) fillHash(l *lab, c *node.Conn, key string) error {
	for first := 0; first < o.fields; first += hsetFields {
		args := append(make([]string, 0, 2+2*hsetFields), "HSET", key)
		for i := first; i < min(first+hsetFields, o.fields); i++ {
			args = append(args, "field:"+strconv.Itoa(i), "value:"+strconv.Itoa(i))
		}
		if _, err := c.Int(args...); err != nil {
			return err
		}
		l.progress("HSET: %d of %d fields", first, o.fields)
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
	}
	return nil
}

// fill writes to slots of the first shard, and a quarter of the keys once more in no order, so that there is something to
// compact.
func (o *aliveOptions) fill(l *lab, c *node.Cluster, primary *node.Member) error {
	tags := make([]string, aliveTags)
	for i := range tags {
		tags[i] = "{" + tagIn(c.Slots(0), "fill", i) + "}"
	}
	v := newValues()
	keys := int(o.gb * (1 << 30) / aliveValue)
	again := keys / 4
	return l.fill(primary.Addr, "load", keys+again, func(conn *node.Conn, i int) {
		k := i
		if i >= keys {
			k = (i * 7919) % keys
		}
		conn.Append("SET", tags[k%aliveTags]+strconv.Itoa(k), v.at(i, aliveValue))
	})
}

// fullSync makes the replica forget everything and fetch it anew.
func (o *aliveOptions) fullSync(c *node.Cluster, primary, replica *node.Member) error {
	before, err := primary.Count("stats", "sync_full")
	if err != nil {
		return err
	}
	host, port := "127.0.0.1", primary.Addr[len("127.0.0.1:"):]
	if err := errors.Join(replica.OK("CLUSTER", "RESET", "SOFT"), replica.OK("CLUSTER", "MEET", host, port)); err != nil {
		return err
	}
	if err := c.Await(clusterLimit, func() error { return replica.OK("CLUSTER", "REPLICATE", primary.ID) }); err != nil {
		return err
	}
	if err := c.Await(readyLimit, func() error { return c.InStep(0) }); err != nil {
		return err
	}
	after, err := primary.Count("stats", "sync_full")
	if err == nil && after-before != 1 {
		err = fmt.Errorf("%d full syncs, want 1", after-before)
	}
	return err
}
