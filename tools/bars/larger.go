package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/internal/resp"
	"cairn/tools/node"
)

const largerHelp = `
A cluster that is larger than its memory: three primaries with a replica each, data of four times the sum of all budgets.
In one run slots move, a primary is killed and comes back, and a replica fetches everything anew, while clients read at random and
write. Prints the time of replies that 99 of 100 reads stay below, for each, and the memory of the nodes. Bars: no node takes
more than its budget and 10 % of it; of what was loaded nothing is lost, nor of what WAIT 1 answered for.

  go run ./tools/bars larger
  go run ./tools/bars larger --data 1              data of the sum of all budgets`

const (
	largerValue = 4096
	largerTags  = 512 // in a shard
	readerPause = time.Millisecond
	// largerReaders read everything back at the end.
	largerReaders = 2 * shards
)

type largerOptions struct {
	budget int
	times  float64
	slots  int
}

func prepareLarger(f *flag.FlagSet) func(l *lab) error {
	var o largerOptions
	f.IntVar(&o.budget, "budget", 64, "memory-budget of each node, in `MB`")
	f.Float64Var(&o.times, "data", 4, "how many `times` the sum of all budgets")
	f.IntVar(&o.slots, "slots", 1000, "how many `slots` move")
	timeout := f.Duration("node-timeout", 15*time.Second, "cluster-node-timeout; six busy nodes on one machine wait for their turn")
	return func(l *lab) error {
		size := int64(o.times * float64(2*shards*o.budget<<20))
		if err := l.wantFree(6*size + 4<<30); err != nil {
			return err
		}
		c, err := l.cluster(l.cairnSide(strconv.Itoa(o.budget)+"mb"), *timeout)
		if err != nil {
			return err
		}
		d := &largerData{c: c, v: newValues(), keys: int(size/largerValue) / shards * shards}
		return o.measure(l, c, d)
	}
}

// largerData is what was loaded: key i is in shard i%shards.
type largerData struct {
	c    *node.Cluster
	v    values
	keys int
	tags [shards][largerTags]string
}

func (d *largerData) key(i int) string {
	return d.tags[i%shards][i/shards%largerTags] + strconv.Itoa(i)
}

func (d *largerData) fill(l *lab) error {
	var parts []*fillPart
	for k := range d.tags {
		for i := range d.tags[k] {
			d.tags[k][i] = "{" + tagIn(d.c.Slots(k), "larger", i) + "}"
		}
		p, _, err := d.c.Primary(k)
		if err != nil {
			return err
		}
		parts = append(parts, &fillPart{addr: p.Addr, n: d.keys / shards, add: func(conn *node.Conn, i int) {
			n := i*shards + k
			conn.Append("SET", d.key(n), d.v.at(n, largerValue))
		}})
	}
	if err := l.fillAll("load", parts...); err != nil {
		return err
	}
	return d.c.AwaitSteady(readyLimit)
}

// verify reads everything back, the keys of a tag with one MGET: a node reads many names in the order in which they lie on
// disk. Readers share the tags of all shards.
func (d *largerData) verify(l *lab) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var tasks sync.WaitGroup
	var next, read atomic.Int64
	faults := make(chan error, largerReaders)
	for range largerReaders {
		tasks.Go(func() { // ends with the tags, or with the context
			if err := d.verifyTags(ctx, &next, &read); err != nil {
				faults <- err
				cancel()
			}
		})
	}
	finished := make(chan struct{})
	go func() { // ends with the readers
		tasks.Wait()
		close(finished)
	}()
	for began := time.Now(); ; {
		select {
		case <-time.After(200 * time.Millisecond):
			l.progress("read back: %d of %d, %.0f/s", read.Load(), d.keys, float64(read.Load())/time.Since(began).Seconds())
			continue
		case <-finished:
		}
		select {
		case err := <-faults:
			return err
		default:
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		if n := int(read.Load()); n != d.keys {
			return fmt.Errorf("%d of %d keys were read back", n, d.keys)
		}
		l.figure("read back in", time.Since(began).Round(time.Millisecond).String())
		return nil
	}
}

// verifyTags reads tag after tag, of which next is the number of the next one.
func (d *largerData) verifyTags(ctx context.Context, next, read *atomic.Int64) error {
	r := node.NewRouter(d.c.Addrs(), clusterLimit)
	defer r.Close()
	for ctx.Err() == nil {
		t := int(next.Add(1)) - 1
		if t >= shards*largerTags {
			return nil
		}
		n, err := d.verifyTag(ctx, r, t%shards, t/shards)
		if err != nil {
			return err
		}
		read.Add(int64(n))
	}
	return nil
}

// verifyTag reads the keys of a tag and says how many there are.
func (d *largerData) verifyTag(ctx context.Context, r *node.Router, shard, tag int) (keys int, err error) {
	var numbers []int
	args := []string{"MGET"}
	for i := shard + shards*tag; i < d.keys; i += shards * largerTags {
		numbers = append(numbers, i)
		args = append(args, d.key(i))
	}
	if len(numbers) == 0 {
		return 0, nil
	}
	for began := time.Now(); time.Since(began) < readyLimit && ctx.Err() == nil; time.Sleep(retryPause) {
		var replies []resp.Reply
		var addr string
		if replies, addr, err = r.Try(args[1], args); err != nil {
			continue // a move or a failover that the router has to learn of
		}
		got := replies[0]
		if text := got.Err(); text != "" || len(got.Elems) != len(numbers) {
			return 0, fmt.Errorf("MGET of %d keys from %s at %s: %d values %s", len(numbers), args[1], addr, len(got.Elems), text)
		}
		for n, i := range numbers {
			if e := got.Elems[n]; string(e.Str) != d.v.at(i, largerValue) {
				return 0, fmt.Errorf("%s at %s: wrong value %.40q (%d bytes)", d.key(i), addr, e.Str, len(e.Str))
			}
		}
		return len(numbers), nil
	}
	return 0, errors.Join(err, ctx.Err())
}

// reader reads keys at random from all shards but one at a time, and remembers how long the replies took.
type reader struct {
	d    *largerData
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	took  []time.Duration
	fails int // tries that a failover or a move sent elsewhere
	wrong error
}

func startReader(d *largerData) *reader {
	r := &reader{d: d, stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

func (r *reader) run() {
	defer close(r.done)
	router := node.NewRouter(r.d.c.Addrs(), 20*time.Second)
	defer router.Close()
	for n := 0; ; n++ {
		select {
		case <-r.stop:
			return
		case <-time.After(readerPause):
		}
		i := n * 7919 % r.d.keys
		began := time.Now()
		replies, addr, err := router.Try(r.d.key(i), []string{"GET", r.d.key(i)})
		took := time.Since(began)
		r.mu.Lock()
		switch {
		case err != nil:
			r.fails++
		case string(replies[0].Str) != r.d.v.at(i, largerValue):
			r.wrong = fmt.Errorf("%s at %s: wrong value %.40q: %s", r.d.key(i), addr, replies[0].Str, replies[0].Err())
		default:
			r.took = append(r.took, took)
		}
		r.mu.Unlock()
	}
}

// take returns what 99 of 100 reads stayed below since the last call, and the longest.
func (r *reader) take() (p99, longest time.Duration, n, fails int, wrong error) {
	r.mu.Lock()
	took := r.took
	fails, wrong = r.fails, r.wrong
	r.took, r.fails = nil, 0
	r.mu.Unlock()
	if len(took) == 0 {
		return 0, 0, 0, fails, wrong
	}
	slices.Sort(took)
	return took[len(took)*99/100], took[len(took)-1], len(took), fails, wrong
}

func (r *reader) end() {
	close(r.stop)
	<-r.done
}

func (o *largerOptions) measure(l *lab, c *node.Cluster, d *largerData) error {
	if err := d.fill(l); err != nil {
		return err
	}
	l.figure("loaded", fmt.Sprintf("%d keys, %s", d.keys, mb(int64(d.keys)*largerValue)))
	peaks := &peakWatch{l: l, c: c, budget: int64(o.budget) << 20}
	peaks.note("load")
	load := startLoad(c, "larger", d.v)
	defer load.close()
	r := startReader(d)
	defer r.end()
	killed := ""
	for _, phase := range []struct {
		name string
		run  func() error
	}{
		{"nothing else", func() error { return l.pause(5 * time.Second) }},
		{"slots move", func() error { return o.reshard(l, c) }},
		{"slots move back", func() error { return o.reshard(l, c) }},
		{"failover", func() (err error) { killed, err = failOver(l, c, load, 2, peaks); return err }},
		{"full sync", func() error { return o.fullSync(l, c) }},
	} {
		r.take()
		began := time.Now()
		if err := phase.run(); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		p99, longest, n, fails, wrong := r.take()
		if wrong != nil {
			return fmt.Errorf("%s: %w", phase.name, wrong)
		}
		l.figure(fmt.Sprintf("%s (%v, %d reads): p99 of GET", phase.name, time.Since(began).Round(time.Millisecond), n), ms(p99))
		l.figure("  longest; tries sent elsewhere", fmt.Sprintf("%s; %d", ms(longest), fails))
		peaks.note(phase.name)
		l.figure("  most memory of a node so far", mb(peaks.most))
	}
	if err := errors.Join(load.end(), c.AwaitSteady(readyLimit)); err != nil {
		return err
	}
	peaks.report()
	lost, err := load.verify(killed)
	if err != nil {
		return err
	}
	l.verdict(fmt.Sprintf("lost of %d writes with WAIT 1", lost.safe), strconv.Itoa(lost.lostSafe), "0", lost.lostSafe == 0)
	l.figure(fmt.Sprintf("lost of %d without, all of them the last", lost.acked-lost.safe), strconv.Itoa(lost.lostTail))
	if err := d.verify(l); err != nil {
		return err
	}
	l.verdict(fmt.Sprintf("lost of %d keys that were loaded", d.keys), "0", "0", true)
	for k := range shards {
		l.progress("digests of shard %d of %d", k+1, shards)
		if err := digests(c, k); err != nil {
			return err
		}
	}
	return nil
}

func (o *largerOptions) reshard(l *lab, c *node.Cluster) error {
	from, to, err := slotEnds(c, 0)
	if err != nil {
		return err
	}
	before, err := from.Mine()
	if err != nil {
		return err
	}
	tool, err := node.StartReshard(from, to, o.slots, 100)
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began := time.Now()
	for moving := true; moving; {
		select {
		case <-l.ctx.Done():
			tool.Kill()
			return l.ctx.Err()
		case <-tool.Done():
			moving = false
		case <-tick.C:
			if now, err := from.Mine(); err == nil {
				l.progress("slots moved: %d of %d, %v", before.Slots-now.Slots, o.slots, time.Since(began).Round(time.Second))
			}
		}
	}
	if err := tool.Wait(readyLimit); err != nil {
		return err
	}
	return c.Await(clusterLimit, func() error { return node.Content(to.Addr, clusterLimit) })
}

// failOver kills the primary of a shard and brings it back.
func failOver(l *lab, c *node.Cluster, load *clusterLoad, shard int, peaks *peakWatch) (killed string, err error) {
	victim, _, err := c.Primary(shard)
	if err != nil {
		return "", err
	}
	peaks.note("before the kill")
	at := time.Now()
	victim.Kill()
	if err := load.wrote(shard, victim.Addr, at); err != nil {
		return victim.Addr, err
	}
	if err := c.Restart(victim, readyLimit); err != nil {
		return victim.Addr, err
	}
	return victim.Addr, awaitLink(l, c, victim)
}

// fullSync lets the replica of the second shard fetch everything anew, while writes go on.
func (o *largerOptions) fullSync(l *lab, c *node.Cluster) error {
	primary, replicas, err := c.Primary(1)
	if err != nil {
		return err
	}
	replica := replicas[0]
	if err := errors.Join(replica.OK("CLUSTER", "RESET", "SOFT"), replica.OK("CLUSTER", "MEET", "127.0.0.1", primary.Addr[len("127.0.0.1:"):])); err != nil {
		return err
	}
	if err := c.Await(clusterLimit, func() error { return replica.OK("CLUSTER", "REPLICATE", primary.ID) }); err != nil {
		return err
	}
	return awaitLink(l, c, replica)
}

// awaitLink waits until a replica follows its primary.
func awaitLink(l *lab, c *node.Cluster, replica *node.Member) error {
	began := time.Now()
	return c.Await(readyLimit, func() error {
		link, err := replica.Info("replication", "master_link_status")
		if err == nil && link != "up" {
			err = fmt.Errorf("%s: master_link_status is %q", replica.Name, link)
			l.progress("%s: its link is not up, %v", replica.Name, time.Since(began).Round(time.Second))
		}
		return err
	})
}

// peakWatch keeps the most memory that each node took, over restarts.
type peakWatch struct {
	l      *lab
	c      *node.Cluster
	budget int64
	most   int64
	which  string
}

func (w *peakWatch) note(phase string) {
	for _, m := range w.c.Members {
		peak, err := node.Peak(m.Pid())
		if err == nil && peak > w.most { // a node that does not run has none
			w.most, w.which = peak, m.Name+", "+phase
		}
	}
}

func (w *peakWatch) report() {
	bar := w.budget * 11 / 10
	w.l.timed("peak memory ("+w.which+")", mb(w.most), "<= "+mb(bar), w.most <= bar)
}
