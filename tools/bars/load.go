package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const (
	loadConns = 4
	loadBatch = 64 // commands in a pipeline
)

// values makes values that do not compress, and that a reader can tell apart.
type values struct{ filler string }

func newValues() values {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return values{string(b)}
}

// at returns the value number n of the given size, at least 24 bytes.
func (v values) at(n, size int) string {
	head := strconv.Itoa(n) + ":"
	from := n * 7919 % (len(v.filler) - size)
	return head + v.filler[from:from+size-len(head)]
}

// fillPart is what one server is filled with: the commands that add makes for the numbers [0, n).
type fillPart struct {
	addr string
	n    int
	add  func(c *node.Conn, i int)

	next atomic.Int64
}

// fill sends the commands that add makes for the numbers [0, n) on a few
// connections, and wants no error reply.
func (l *lab) fill(addr, what string, n int, add func(c *node.Conn, i int)) error {
	return l.fillAll(what, &fillPart{addr: addr, n: n, add: add})
}

// fillAll fills servers at the same time.
func (l *lab) fillAll(what string, parts ...*fillPart) error {
	var done atomic.Int64
	var wg sync.WaitGroup
	n := 0
	faults := make(chan error, loadConns*len(parts))
	for _, p := range parts {
		n += p.n
		for range loadConns {
			wg.Go(func() { // ends when the numbers do, or with the context
				if err := l.fillOne(p, &done); err != nil {
					faults <- err
				}
			})
		}
	}
	finished := make(chan struct{})
	go func() { // ends with the loaders
		wg.Wait()
		close(finished)
	}()
	began := time.Now()
	for {
		select {
		case <-finished:
			l.endProgress()
			select {
			case err := <-faults:
				return fmt.Errorf("%s: %w", what, err)
			default:
				return l.ctx.Err()
			}
		case <-time.After(200 * time.Millisecond):
			l.progress("%s: %d of %d, %.0f/s", what, done.Load(), n, float64(done.Load())/time.Since(began).Seconds())
		}
	}
}

func (l *lab) fillOne(p *fillPart, done *atomic.Int64) error {
	c, err := node.Dial(p.addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	for l.ctx.Err() == nil {
		first := int(p.next.Add(loadBatch)) - loadBatch
		last := min(first+loadBatch, p.n)
		if first >= p.n {
			return nil
		}
		for i := first; i < last; i++ {
			p.add(c, i)
		}
		if err := c.Flush(); err != nil {
			return err
		}
		for range last - first {
			reply, err := c.Receive()
			if err != nil {
				return err
			}
			if text := reply.Err(); text != "" {
				return errors.New(text)
			}
		}
		done.Add(int64(last - first))
	}
	return nil
}

func keyName(i int) string { return "key:" + strconv.Itoa(i) }
