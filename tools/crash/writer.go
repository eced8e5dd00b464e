package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const pipelineMax = 20 // commands

// writer is one connection with keys of its own. Its goroutine owns it while a
// round runs, the main one between rounds.
type writer struct {
	id     int
	ops    ops
	keys   []string
	isHash map[string]bool

	have   map[string]value // after the last acknowledged command
	flight []op             // sent and not acknowledged, in order
	sentAt int64            // of flight

	acked int64
	bytes int64 // sent
}

func newWriter(id int, seed uint64, f filler) *writer {
	w := &writer{
		id: id, have: map[string]value{},
		ops: ops{rng: rand.New(rand.NewPCG(seed, uint64(id)+2)), filler: f, writer: id},
	}
	w.keys, w.isHash = allKeys(id)
	return w
}

// round is what the writers of one round share.
type round struct {
	addr    string
	killing atomic.Bool  // from just before the kill on, a broken connection is no fault
	stop    atomic.Bool  // end in order
	pause   sync.RWMutex // a FLUSHALL takes all of it
}

func now() int64 { return time.Now().UnixMilli() }

// run sends pipelines until the connection breaks or the round stops. What it
// returns is a broken promise.
func (w *writer) run(r *round) error {
	c, err := node.Dial(r.addr, 5*time.Second)
	if err != nil {
		return r.judge(err)
	}
	defer c.Close()
	for !r.stop.Load() {
		r.pause.RLock()
		err := w.pipeline(r, c)
		r.pause.RUnlock()
		if err != nil || r.killing.Load() {
			return err
		}
	}
	return nil
}

// judge turns the error of a connection into nil when the process was being killed.
func (r *round) judge(err error) error {
	if r.killing.Load() {
		return nil
	}
	return fmt.Errorf("connection broke, and nobody had killed the node: %w", err)
}

// pipeline sends up to pipelineMax commands at once and takes their replies.
func (w *writer) pipeline(r *round, c *node.Conn) error {
	// The next command is chosen by what the model will hold after those before it.
	after := maps.Clone(w.have)
	w.flight = w.flight[:0]
	var replies []int
	for range 1 + w.ops.rng.IntN(pipelineMax) {
		o := w.ops.next(after)
		for _, k := range o.keys() {
			after[k], _ = o.apply(after[k], 0, 0)
		}
		w.flight = append(w.flight, o)
		replies = append(replies, o.send(c))
	}
	w.bytes += int64(c.Pending())
	w.sentAt = now()
	sent := make(chan error, 1)
	go func() { sent <- c.Flush() }() // ends with the write, at the latest when c is closed
	fault := ""
	all := w.flight
	for i := range all {
		var err error
		if fault, err = w.receive(c, &all[i], replies[i]); err != nil || fault != "" {
			c.Close()
			<-sent
			if fault != "" {
				return fmt.Errorf("%s %s: %s", all[i].verb, all[i].key, fault)
			}
			return r.judge(err)
		}
		w.flight = all[i+1:]
		w.acked++
	}
	if err := <-sent; err != nil {
		return r.judge(err)
	}
	return nil
}

// receive takes the replies of one op. Its effect is in the model when they were right.
func (w *writer) receive(c *node.Conn, o *op, replies int) (fault string, err error) {
	for range replies - 1 { // of a transaction: OK, QUEUED, QUEUED
		reply, err := c.Receive()
		if err != nil {
			return "", err
		}
		if text := reply.Err(); text != "" {
			return "error " + text, nil
		}
	}
	reply, err := c.Receive()
	if err != nil {
		return "", err
	}
	t := now()
	for _, k := range o.keys() {
		next, want := o.apply(w.have[k], w.sentAt, t)
		if fault := checkReply(want, reply); fault != "" {
			return fault, nil
		}
		if want == "" {
			next = o.settle(next, reply)
		}
		w.have[k] = next
	}
	return "", nil
}
