package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cairn/internal/datadir"
	"cairn/tools/node"
)

const ttlHelp = `
Writes 2 GB of 1 KB values that live for 60 s, changes the deadline of every second key twice, and waits.
Bars: DBSIZE is 0 within 90 s of the last write; the node's folder is below 20 % of its largest size after 5 minutes;
exactly one expired event came for each key. Then loads a million small keys with a deadline far away:
the idle node takes less than 2 % of a processor.

  go run ./tools/bars ttl
  go run ./tools/bars ttl --scale 0.5     half of the keys; the times stay

The folder includes the log, whose segments of 64 MB weigh more the smaller the scale is: below 0.5 the
bar of the folder says little. repl-backlog-size is 32mb, because by its default the log alone would keep 1 GB.`

const (
	ttlValue     = 1024
	ttlSeconds   = 60
	ttlEmpty     = 90 * time.Second
	ttlFolder    = 5 * time.Minute
	ttlIdleFor   = 30 * time.Second
	ttlIdleParts = 50 // 1/50 of a processor
)

func prepareTTL(f *flag.FlagSet) func(l *lab) error {
	scale := f.Float64("scale", 1, "how much of the 2 GB, and of the million keys")
	return func(l *lab) error {
		if err := l.wantFree(int64(*scale*6*(1<<30)) + 1<<30); err != nil {
			return err
		}
		return measureTTL(l, int(*scale*2*(1<<30)/ttlValue), int(*scale*1_000_000))
	}
}

func measureTTL(l *lab, keys, idleKeys int) error {
	// The log is kept for replicas as well; here the question is the store.
	s, c, err := l.cairn("node", "--notify-keyspace-events", "Ex", "--repl-backlog-size", "32mb")
	if err != nil {
		return err
	}
	defer c.Close()
	events, err := countExpired(s.Addr, keys)
	if err != nil {
		return err
	}
	defer events.conn.Close()
	v := newValues()
	ex := strconv.Itoa(ttlSeconds)
	if err := l.fill(s.Addr, "load", keys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, ttlValue), "EX", ex) }); err != nil {
		return err
	}
	for _, seconds := range []int{2 * ttlSeconds, ttlSeconds} {
		err := l.fill(s.Addr, "change of deadlines", keys/2, func(c *node.Conn, i int) { c.Append("EXPIRE", keyName(2*i), strconv.Itoa(seconds)) })
		if err != nil {
			return err
		}
	}
	if err := watchEmpty(l, s, c, keys, events); err != nil {
		return err
	}
	if err := l.fill(s.Addr, "load of idle keys", idleKeys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), "v", "EX", "100000") }); err != nil {
		return err
	}
	return measureIdleCPU(l, s, idleKeys)
}

func watchEmpty(l *lab, s *server, c *node.Conn, keys int, events *expired) error {
	written := time.Now()
	var peak, size int64
	empty := time.Duration(-1)
	for time.Since(written) < ttlFolder {
		var err error
		if size, err = node.FolderBytes(datadir.Of(s.Dir, "")); err != nil {
			return err
		}
		peak = max(peak, size)
		left, err := c.Int("DBSIZE")
		if err != nil {
			return err
		}
		since := time.Since(written)
		if left == 0 && empty < 0 {
			empty = since
			l.verdict("DBSIZE is 0, after the last write", empty.Round(100*time.Millisecond).String(), "<= 90 s", empty <= ttlEmpty)
		}
		l.progress("%v after the last write: %d keys, folder %s of %s", since.Round(time.Second), left, mb(size), mb(peak))
		if empty >= 0 && size*5 < peak {
			break
		}
		if err := l.pause(500 * time.Millisecond); err != nil {
			return err
		}
	}
	if empty < 0 {
		l.verdict("DBSIZE is 0, after the last write", "never", "<= 90 s", false)
	}
	for _, part := range []string{"store", "log"} {
		n, err := node.FolderBytes(filepath.Join(datadir.Of(s.Dir, ""), part))
		if err != nil {
			return err
		}
		l.figure("  of it the "+part, mb(n))
	}
	l.verdict(fmt.Sprintf("folder after %v, of %s at its peak", time.Since(written).Round(time.Second), mb(peak)), mb(size), "< 20 %", size*5 < peak)
	if err := l.pause(time.Second); err != nil { // the last events are on their way
		return err
	}
	got, twice, err := events.result()
	if err != nil {
		return err
	}
	l.verdict(fmt.Sprintf("keys with an expired event, of %d", keys), strconv.Itoa(got), strconv.Itoa(keys), got == keys)
	l.verdict("keys with a second event", strconv.Itoa(twice), "0", twice == 0)
	return nil
}

// expired counts the events of a subscription.
type expired struct {
	conn *node.Conn
	end  chan error
	seen []bool

	got, twice int
}

const expiredChannel = "__keyevent@0__:expired"

func countExpired(addr string, keys int) (*expired, error) {
	c, err := node.Dial(addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	reply, err := c.Do("SUBSCRIBE", expiredChannel)
	if err == nil && reply.Err() != "" {
		err = errors.New(reply.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("SUBSCRIBE: %w", err)
	}
	c.SetTimeout(time.Hour)
	e := &expired{conn: c, end: make(chan error, 1), seen: make([]bool, keys)}
	go func() { e.end <- e.collect() }() // ends when the connection does
	return e, nil
}

func (e *expired) collect() error {
	for {
		reply, err := e.conn.Receive()
		if err != nil {
			return err
		}
		if len(reply.Elems) == 2 && string(reply.Elems[0].Str) == "pong" {
			return nil
		}
		if len(reply.Elems) != 3 {
			return fmt.Errorf("message of %d elements, want 3", len(reply.Elems))
		}
		text, _ := strings.CutPrefix(string(reply.Elems[2].Str), "key:")
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 || i >= len(e.seen) {
			return fmt.Errorf("expired event for %q, which nobody wrote", reply.Elems[2].Str)
		}
		if e.seen[i] {
			e.twice++
			continue
		}
		e.seen[i] = true
		e.got++
	}
}

// result ends the subscription: what the server sent before the reply to PING has arrived.
func (e *expired) result() (got, twice int, err error) {
	e.conn.Append("PING")
	if err := e.conn.Flush(); err != nil {
		return 0, 0, err
	}
	select {
	case err = <-e.end:
	case <-time.After(30 * time.Second):
		err = errors.New("no reply to PING of the subscriber within 30 s")
	}
	return e.got, e.twice, err
}

func measureIdleCPU(l *lab, s *server, keys int) error {
	l.progress("waiting for the node to become idle")
	if err := l.pause(ttlIdleFor); err != nil {
		return err
	}
	before, err := node.CPU(s.Pid())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.pause(ttlIdleFor); err != nil {
		return err
	}
	after, err := node.CPU(s.Pid())
	if err != nil {
		return err
	}
	used, took := after-before, time.Since(began)
	l.verdict(fmt.Sprintf("processor of an idle node with %d keys with deadlines", keys),
		fmt.Sprintf("%.2f %%", 100*used.Seconds()/took.Seconds()), "< 2 %", used*ttlIdleParts < took)
	return nil
}
