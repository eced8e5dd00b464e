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

const latencyHelp = `
Others must not notice when somebody does something huge. Two connections ask GET and SET in turn, every
millisecond, one of them in the slot of the huge value. Meanwhile, one after the other: a hash of 2 million fields is
filled by HSETs of 1000; it is deleted; SETBIT sets the last bit of 512 MB; several GB are flushed. After each the others
go on asking for a while, because the work may come later. Bar: no reply later than 100 ms.
The first line is the same without anything huge: what the machine itself costs.

  go run ./tools/bars latency
  go run ./tools/bars latency --gb 1 --fields 200000      quicker
  go run ./tools/bars latency --beside                    and the same on redis-server, for comparison`

const (
	latencyBar = 100 * time.Millisecond
	hsetFields = 1000
	flushValue = 1024
)

type latencyOptions struct {
	gb     float64
	fields int
	tail   time.Duration
	beside bool
}

func prepareLatency(f *flag.FlagSet) func(l *lab) error {
	var o latencyOptions
	f.Float64Var(&o.gb, "gb", 5, "how many `GB` FLUSHALL meets")
	f.IntVar(&o.fields, "fields", 2_000_000, "of the hash")
	f.DurationVar(&o.tail, "tail", 10*time.Second, "how long the others go on asking")
	f.BoolVar(&o.beside, "beside", false, "measure redis-server, too")
	return func(l *lab) error {
		if err := l.wantFree(int64(o.gb*3*(1<<30)) + 4<<30); err != nil {
			return err
		}
		s, c, err := l.cairn("node")
		if err != nil {
			return err
		}
		if err := o.measure(l, "cairn", s, c, true); err != nil || !o.beside {
			return err
		}
		s.Kill()
		if s, c, err = l.redis("redis"); err != nil {
			return err
		}
		return o.measure(l, "redis-server", s, c, false)
	}
}

// asker asks on one connection and remembers the longest reply.
type asker struct {
	key     string
	longest atomic.Int64 // nanoseconds
	count   atomic.Int64
}

func (a *asker) ask(addr string, stop <-chan struct{}) error {
	c, err := node.Dial(addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		args := []string{"GET", a.key}
		if i%2 == 0 {
			args = []string{"SET", a.key, strconv.Itoa(i)}
		}
		began := time.Now()
		reply, err := c.Do(args...)
		took := time.Since(began).Nanoseconds()
		if err != nil {
			return err
		}
		if text := reply.Err(); text != "" {
			return errors.New(text)
		}
		for old := a.longest.Load(); took > old && !a.longest.CompareAndSwap(old, took); old = a.longest.Load() {
		}
		a.count.Add(1)
	}
}

func (o *latencyOptions) measure(l *lab, name string, s *server, c *node.Conn, bar bool) error {
	defer c.Close()
	c.SetTimeout(10 * time.Minute)
	askers := []*asker{{key: "elsewhere"}, {key: "{huge}small"}}
	stop := make(chan struct{})
	faults := make(chan error, len(askers))
	var wg sync.WaitGroup
	for _, a := range askers {
		wg.Go(func() { // ends when stop is closed
			if err := a.ask(s.Addr, stop); err != nil {
				faults <- err
			}
		})
	}
	defer wg.Wait()
	defer close(stop)
	phase := func(what string, f func() error) error {
		for _, a := range askers {
			a.longest.Store(0)
		}
		began := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %s: %w", name, what, err)
		}
		took := time.Since(began)
		if err := l.pause(o.tail); err != nil {
			return err
		}
		if len(faults) > 0 {
			return fmt.Errorf("%s: %s: others: %w", name, what, <-faults)
		}
		for i, where := range []string{"elsewhere", "same slot"} {
			longest := time.Duration(askers[i].longest.Load())
			label := fmt.Sprintf("%s: %s (%v), %s", name, what, took.Round(time.Millisecond), where)
			if bar {
				l.verdict(label, ms(longest), "<= 100 ms", longest <= latencyBar)
			} else {
				l.figure(label, ms(longest))
			}
		}
		return nil
	}
	return o.phases(l, s, c, phase)
}

func (o *latencyOptions) phases(l *lab, s *server, c *node.Conn, phase func(string, func() error) error) error {
	ask := func(args ...string) func() error {
		return func() error {
			reply, err := c.Do(args...)
			if err == nil && reply.Err() != "" {
				err = errors.New(reply.Err())
			}
			return err
		}
	}
	if err := phase("nothing", func() error { return nil }); err != nil {
		return err
	}
	if err := phase(fmt.Sprintf("HSET of %d fields", o.fields), func() error { return o.fillHash(l, c) }); err != nil {
		return err
	}
	if err := phase("its DEL", ask("DEL", "{huge}hash")); err != nil {
		return err
	}
	if err := phase("SETBIT at the end of 512 MB", ask("SETBIT", "{huge}bits", strconv.Itoa(1<<32-1), "1")); err != nil {
		return err
	}
	v := newValues()
	err := l.fill(s.Addr, "load", int(o.gb*(1<<30)/flushValue), func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, flushValue)) })
	if err != nil {
		return err
	}
	return phase(fmt.Sprintf("FLUSHALL of %.1f GB", o.gb), ask("FLUSHALL"))
}

func (o *latencyOptions) fillHash(l *lab, c *node.Conn) error {
	args := make([]string, 2, 2+2*hsetFields)
	args[0], args[1] = "HSET", "{huge}hash"
	for first := 0; first < o.fields; first += hsetFields {
		args = args[:2]
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
	n, err := c.Int("HLEN", "{huge}hash")
	if err == nil && n != int64(o.fields) {
		err = fmt.Errorf("HLEN: %d, want %d", n, o.fields)
	}
	return err
}
