package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const restartHelp = `
Loads values of 1 KB, kills the node with SIGKILL, starts it again, and takes the time from the start of the
process to the first right reply to GET. Three times; the longest counts. Then runs INCR on ten keys for a while,
which grows the log but not the data, and does it once more. Bar: 2 s, at any size.

  go run ./tools/bars restart --gb 1
  go run ./tools/bars restart --gb 10      needs about 30 GB of disk`

const (
	restartBar   = 2 * time.Second
	restartKills = 3
	restartValue = 1024 // bytes
	incrKeys     = 10
)

func prepareRestart(f *flag.FlagSet) func(l *lab) error {
	gb := f.Float64("gb", 1, "how many `GB` to load")
	incr := f.Duration("incr", time.Minute, "how long INCR runs on ten keys")
	return func(l *lab) error { return measureRestart(l, int(*gb*(1<<30)/restartValue), *incr) }
}

func measureRestart(l *lab, keys int, incr time.Duration) error {
	if err := l.wantFree(3*int64(keys)*restartValue + 2<<30); err != nil {
		return err
	}
	s, c, err := l.cairn("node")
	if err != nil {
		return err
	}
	c.Close()
	v := newValues()
	began := time.Now()
	err = l.fill(s.Addr, "load", keys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, restartValue)) })
	if err != nil {
		return err
	}
	l.figure(fmt.Sprintf("load of %d keys", keys), fmt.Sprintf("%.0f/s", float64(keys)/time.Since(began).Seconds()))
	var longest time.Duration
	said := ""
	for i := range restartKills {
		n := (i*31 + 17) % keys
		took, err := l.killAndStart(s, []string{"GET", keyName(n)}, func(text string) bool { return text == v.at(n, restartValue) })
		if err != nil {
			return err
		}
		if took > longest {
			longest, said = took, openedLine(s)
		}
		// The next kill finds a log again.
		if err := l.fill(s.Addr, "overwrite", min(keys, 50_000), func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, restartValue)) }); err != nil {
			return err
		}
	}
	l.verdict(fmt.Sprintf("first right reply after kill -9, %d MB of values", int64(keys)*restartValue>>20), ms(longest), "<= 2 s", longest <= restartBar)
	fmt.Printf("  its log: %s\n", said)
	return measureIncr(l, s, incr)
}

// openedLine is what the node itself says of its start.
func openedLine(s *server) (found string) {
	for line := range strings.Lines(s.Output(16 << 10)) {
		if _, text, ok := strings.Cut(line, "Data opened: "); ok {
			found = strings.TrimRight(text, "\n")
		}
	}
	return found
}

func measureIncr(l *lab, s *server, d time.Duration) error {
	counts, err := l.incr(s.Addr, d)
	if err != nil {
		return err
	}
	var sum int64
	for i := range counts {
		sum += counts[i].Load()
	}
	least := counts[0].Load()
	took, err := l.killAndStart(s, []string{"GET", "counter:0"}, func(text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && n >= least
	})
	if err != nil {
		return err
	}
	c, err := node.Dial(s.Addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range counts {
		text, err := c.Text("GET", "counter:"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n != counts[i].Load() {
			return fmt.Errorf("counter:%d is %q after kill -9, want %d: all were acknowledged", i, text, counts[i].Load())
		}
	}
	l.verdict(fmt.Sprintf("the same after %v of INCR on ten keys (%d)", d, sum), ms(took), "<= 2 s", took <= restartBar)
	fmt.Printf("  its log: %s\n", openedLine(s))
	return nil
}

// incr sends INCR on ten keys, each owned by one connection, and returns how many
// of each were acknowledged.
func (l *lab) incr(addr string, d time.Duration) (*[incrKeys]atomic.Int64, error) {
	var counts [incrKeys]atomic.Int64
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	faults := make(chan error, incrKeys)
	for k := range incrKeys {
		wg.Go(func() { // ends with the time or the context
			c, err := node.Dial(addr, 5*time.Second)
			if err != nil {
				faults <- err
				return
			}
			defer c.Close()
			for time.Now().Before(end) && l.ctx.Err() == nil {
				if err := incrBatch(c, "counter:"+strconv.Itoa(k), &counts[k]); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	for time.Now().Before(end) && l.ctx.Err() == nil && len(faults) == 0 {
		l.progress("INCR: %v left, %d on the first key", time.Until(end).Round(time.Second), counts[0].Load())
		_ = l.pause(min(200*time.Millisecond, time.Until(end))) // the loop asks
	}
	wg.Wait()
	select {
	case err := <-faults:
		return nil, err
	default:
		return &counts, l.ctx.Err()
	}
}

func incrBatch(c *node.Conn, key string, count *atomic.Int64) error {
	for range loadBatch {
		c.Append("INCR", key)
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for range loadBatch {
		reply, err := c.Receive()
		if err != nil {
			return err
		}
		if text := reply.Err(); text != "" {
			return errors.New(text)
		}
		count.Store(reply.Int)
	}
	return nil
}
