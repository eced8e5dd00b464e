package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"cairn/internal/datadir"
	"cairn/internal/slot"
	"cairn/tools/node"
)

const (
	firstKill   = 50 * time.Millisecond // earliest moment of a kill
	flushEvery  = 12                    // one round in so many has a FLUSHALL
	doubleEvery = 6                     // one restart in so many is killed, too
	stopLimit   = 30 * time.Second
	segment     = 64 << 20 // bytes of a log segment
)

// flushState is how far the FLUSHALL of a round got.
type flushState int

const (
	noFlush flushState = iota
	flushInFlight
	flushDone
)

// crashRun is one call of the program.
type crashRun struct {
	o       *options
	rng     *rand.Rand
	port    int
	proc    *node.Process
	writers []*writer
	stats   stats

	policy  string // of the process that runs
	cluster bool
}

func newRun(o *options) (*crashRun, error) {
	port, err := node.FreePort()
	if err != nil {
		return nil, err
	}
	if err := node.WantFree(o.dir, 4<<30); err != nil {
		return nil, err
	}
	r := &crashRun{o: o, rng: rand.New(rand.NewPCG(o.seed, 0)), port: port, stats: newStats()}
	f := newFiller(o.seed)
	for i := range o.writers {
		r.writers = append(r.writers, newWriter(i, o.seed, f))
	}
	return r, nil
}

// cleanUp removes the folder if it is ours.
func (r *crashRun) cleanUp() {
	if r.o.ownDir {
		_ = os.RemoveAll(r.o.dir) // a rest in a temporary folder harms nobody
	}
}

// all runs the rounds. Whatever it returns, no process is left.
func (r *crashRun) all(ctx context.Context) error {
	defer func() {
		if r.proc != nil {
			r.proc.Kill()
		}
	}()
	c, err := r.start(0)
	if err != nil {
		return err
	}
	defer func() { c.Close() }()
	for n := range r.o.rounds {
		killedAt, flush, err := r.disturb(ctx, c, n)
		c.Close()
		if err != nil {
			return fmt.Errorf("round %d, %s: %w\nits output:\n%s", n+1, r.where(), err, r.proc.Output(2<<10))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		killed := r.where()
		if c, err = r.start(n + 1); err == nil {
			err = r.check(c, killedAt, flush)
		}
		if err != nil {
			return fmt.Errorf("round %d, killed as %s, back as %s: %w", n+1, killed, r.where(), err)
		}
		r.progress(n + 1)
	}
	return r.end(&c)
}

func (r *crashRun) where() string {
	if r.cluster {
		return r.policy + ", cluster"
	}
	return r.policy + ", standalone"
}

// disturb runs the writers for a while and kills the process meanwhile.
func (r *crashRun) disturb(ctx context.Context, c *node.Conn, n int) (killedAt int64, flush flushState, err error) {
	shared := &round{addr: r.proc.Addr}
	faults := make(chan error, len(r.writers))
	var all sync.WaitGroup
	for _, w := range r.writers {
		all.Go(func() { // ends when the connection breaks, at the latest with the process
			if err := w.run(shared); err != nil {
				faults <- fmt.Errorf("writer %d: %w", w.id, err)
			}
		})
	}
	wait := firstKill + time.Duration(r.rng.Int64N(int64(max(r.o.maxWait-firstKill, 1))))
	kill := time.NewTimer(wait)
	defer kill.Stop()
	flushed := make(chan flushState, 1)
	if r.rng.IntN(flushEvery) == 0 {
		after := time.Duration(r.rng.Int64N(int64(wait)))
		go func() { flushed <- r.flush(c, shared, after) }() // ends with the connection
	} else {
		flushed <- noFlush
	}
	select {
	case <-kill.C:
	case <-ctx.Done():
	case err = <-faults:
	case <-r.proc.Done():
		err = node.ErrEnded
	}
	r.stats.noteMemory(r.proc.Pid())
	shared.killing.Store(true)
	r.proc.Kill()
	killedAt = now()
	all.Wait()
	flush = <-flushed
	select {
	case late := <-faults:
		err = errors.Join(err, late)
	default:
	}
	r.stats.killed(r.policy)
	return killedAt, flush, err
}

// flush pauses the writers, sends FLUSHALL and forgets what they knew.
func (r *crashRun) flush(c *node.Conn, shared *round, after time.Duration) flushState {
	time.Sleep(after)
	shared.pause.Lock()
	defer shared.pause.Unlock()
	if shared.killing.Load() {
		return noFlush
	}
	for _, w := range r.writers {
		if len(w.flight) > 0 {
			return noFlush // its connection broke
		}
	}
	reply, err := c.Do("FLUSHALL")
	if err != nil || reply.Err() != "" {
		return flushInFlight
	}
	for _, w := range r.writers {
		clear(w.have)
	}
	return flushDone
}

// start starts the process of round n and waits until it serves.
func (r *crashRun) start(n int) (*node.Conn, error) {
	r.policy = r.o.policies[n%len(r.o.policies)]
	r.cluster = r.o.mode == "cluster" || r.o.mode == "alternate" && n/len(r.o.policies)%2 == 1
	if n > 0 && r.rng.IntN(doubleEvery) == 0 {
		if err := r.spawn(); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(r.rng.Int64N(int64(80 * time.Millisecond)))):
		case <-r.proc.Done():
			return nil, fmt.Errorf("%w; its output:\n%s", node.ErrEnded, r.proc.Output(4<<10))
		}
		r.proc.Kill()
		r.stats.killedTwice(r.policy)
	}
	began := time.Now()
	if err := r.spawn(); err != nil {
		return nil, err
	}
	// A key nobody has: its answer needs the data. A cluster node may want its slots first.
	question := []string{"GET", "nobody-wrote-this"}
	if r.cluster {
		question = []string{"DBSIZE"}
	}
	c, err := r.proc.Ready(r.o.restart, question...)
	if err != nil {
		return nil, err
	}
	r.stats.restarted(r.policy, time.Since(began))
	if r.cluster {
		err = r.ownSlots(c)
	}
	return c, err
}

func (r *crashRun) spawn() (err error) {
	yesNo := map[bool]string{true: "yes", false: "no"}
	args := []string{"--appendfsync", r.policy, "--cluster-enabled", yesNo[r.cluster]}
	if r.o.redis {
		args = append(args, "--appendonly", "yes", "--save", "")
	} else {
		args = append(args, "--memory-budget", r.o.budget, "--repl-backlog-size", r.o.backlog, "--recovery-log-size", r.o.recovery)
	}
	args = append(args, strings.Fields(r.o.extra)...)
	r.proc, err = node.Start(node.Spec{Program: r.o.command, Args: args, Port: r.port, Dir: r.o.dir})
	return err
}

// ownSlots gives the node all slots, the first time, and waits until it serves them.
func (r *crashRun) ownSlots(c *node.Conn) error {
	info := ""
	for end := time.Now().Add(r.o.restart); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if info, err = c.Text("CLUSTER", "INFO"); err != nil {
			return err
		}
		if node.Field(info, "cluster_state") == "ok" {
			return nil
		}
		if node.Field(info, "cluster_slots_assigned") != "16384" {
			if err := addSlots(c); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("cluster state is not ok %v after the start: %q", r.o.restart, info)
}

// addSlots adds the slots that the node does not have yet: one that finds keys has taken theirs by itself.
func addSlots(c *node.Conn) error {
	text, err := c.Text("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	nodes, err := node.ParseNodes(text)
	if err != nil {
		return err
	}
	var have, free slot.Bitmap
	for _, n := range nodes {
		for _, r := range n.Ranges {
			have.SetRange(r)
		}
	}
	for s := range uint16(slot.Count) {
		if !have.Has(s) {
			free.Set(s)
		}
	}
	if free.Count() == 0 {
		return nil
	}
	args := []string{"CLUSTER", "ADDSLOTSRANGE"}
	for _, r := range free.Ranges() {
		args = append(args, strconv.Itoa(int(r.First)), strconv.Itoa(int(r.Last)))
	}
	reply, err := c.Do(args...)
	if err != nil || reply.Err() == "" || strings.Contains(reply.Err(), "already busy") { // it is just taking them
		return err
	}
	return fmt.Errorf("CLUSTER ADDSLOTSRANGE: %s", reply.Err())
}

// check reads everything back.
func (r *crashRun) check(c *node.Conn, killedAt int64, flush flushState) error {
	var reads []map[string]seen
	keys := 0
	for _, w := range r.writers {
		all, err := w.readAll(c)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.kind != absent {
				keys++
			}
		}
		reads = append(reads, all)
		r.stats.keysChecked += int64(len(all))
	}
	if flush == flushInFlight && keys == 0 {
		flush = flushDone
		for _, w := range r.writers {
			clear(w.have)
		}
	}
	if flush == flushDone {
		r.stats.flushes++
	}
	for i, w := range r.writers {
		sent := len(w.flight)
		prefix, err := w.settle(reads[i], killedAt)
		if err != nil {
			return fmt.Errorf("writer %d: %w", w.id, err)
		}
		r.stats.inFlight(r.policy, sent, max(prefix, 0))
	}
	if err := checkCounts(c, r.writers, r.cluster); err != nil {
		return err
	}
	return r.checkLog(c)
}

// checkLog holds the log's folder against its bound.
func (r *crashRun) checkLog(c *node.Conn) error {
	if text, err := c.Text("INFO", "replication"); err == nil {
		if n, err := strconv.ParseInt(node.Field(text, "master_repl_offset"), 10, 64); err == nil {
			r.stats.logOffset = max(r.stats.logOffset, n)
		}
	}
	if r.o.redis {
		return nil
	}
	size, err := node.FolderBytes(filepath.Join(datadir.Of(r.o.dir, ""), "log"))
	if err != nil {
		return err
	}
	r.stats.logPeak = max(r.stats.logPeak, size)
	bound, err := r.logBound()
	if err == nil && size > bound {
		err = fmt.Errorf("log: %d MB on disk, bound is %d MB (backlog %s + recovery log %s + 3 segments of %d MB)",
			size>>20, bound>>20, r.o.backlog, r.o.recovery, segment>>20)
	}
	return err
}

func (r *crashRun) logBound() (int64, error) {
	backlog, err := parseSize(r.o.backlog)
	if err != nil {
		return 0, err
	}
	recovery, err := parseSize(r.o.recovery)
	return backlog + recovery + 3*segment, err
}

// end stops the node in order, and looks once more: an orderly stop loses nothing either.
func (r *crashRun) end(c **node.Conn) error {
	(*c).Close()
	if err := r.proc.Stop(stopLimit); err != nil {
		return fmt.Errorf("orderly stop: %w", err)
	}
	again, err := r.start(r.o.rounds)
	if err != nil {
		return fmt.Errorf("start after an orderly stop: %w", err)
	}
	*c = again
	if err := r.check(again, now(), noFlush); err != nil {
		return fmt.Errorf("after an orderly stop: %w", err)
	}
	if mb := r.logWritten() >> 20; mb < r.o.wantLog {
		return fmt.Errorf("log grew by %d MB, want at least %d MB for the run to prove something", mb, r.o.wantLog)
	}
	return nil
}

// logWritten is the length of the log's stream, or what was sent where the server does not say.
func (r *crashRun) logWritten() int64 {
	if r.stats.logOffset > 0 {
		return r.stats.logOffset
	}
	var sum int64
	for _, w := range r.writers {
		sum += w.bytes
	}
	return sum
}
