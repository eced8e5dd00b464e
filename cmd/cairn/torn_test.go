package main

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn/internal/resp"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

const (
	tornReads  = 3000 // of each kind; a busy machine does fewer in the time that they have
	tornLeast  = 100
	tornTime   = 20 * time.Second
	tornFields = 200 // of the hash: more than any packed form holds
)

// TestNoTornRead: what one command or transaction wrote is seen as a whole or not at
// all, in one slot, while the log is applied every few milliseconds.
func TestNoTornRead(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), "--apply-interval", "5", "--appendfsync", "no")
	var stop atomic.Bool
	var all sync.WaitGroup
	faults := make(chan error, 16)
	run := func(f func(c *node.Conn, i int) error, until func(i int) bool) {
		all.Go(func() { // ends when until says so
			c, err := node.Dial(n.addr, startLimit)
			if err != nil {
				faults <- err
				return
			}
			defer c.Close()
			for i := 1; !until(i); i++ {
				if err := f(c, i); err != nil {
					faults <- err
					return
				}
			}
		})
	}
	stopped := func(int) bool { return stop.Load() || len(faults) > 0 }
	for id := range 2 {
		run(func(c *node.Conn, i int) error { return writeSet(c, 2*i+id) }, stopped)
		run(func(c *node.Conn, i int) error { return writeTransaction(c, 2*i+id) }, stopped)
	}
	run(writeHash, stopped)
	began := time.Now()
	var readers sync.WaitGroup
	for _, read := range []func(c *node.Conn, i int) error{readMGet, readTransaction, readHash} {
		readers.Add(1)
		run(read, func(i int) bool {
			late := i > tornLeast && time.Since(began) > tornTime
			if i <= tornReads && !late && len(faults) == 0 {
				return false
			}
			readers.Done()
			return true
		})
	}
	finished := make(chan struct{})
	go func() { // ends with the readers, which all end at the first fault
		readers.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case err := <-faults:
		t.Error(err)
	case <-time.After(2 * time.Minute):
		t.Error("the readers did not end")
	}
	stop.Store(true)
	n.mustAnswer(t)
	all.Wait()
	for len(faults) > 0 {
		t.Error(<-faults)
	}
}

// mustAnswer ends the test for a node that hangs, whose clients would hang, too.
func (n *running) mustAnswer(t testing.TB) {
	t.Helper()
	if got := testkit.Dial(t, n.addr).Do("PING").Raw; got != "+PONG\r\n" {
		t.Fatalf("PING: %q", got)
	}
}

func writeSet(c *node.Conn, i int) error {
	v := strconv.Itoa(i)
	_, err := c.Text("MSET", "{t}a", v, "{t}b", v, "{t}c", v)
	return err
}

func writeTransaction(c *node.Conn, i int) error {
	v := strconv.Itoa(-i)
	c.Append("MULTI")
	for _, k := range []string{"{t}a", "{t}b", "{t}c"} {
		c.Append("SET", k, v)
	}
	c.Append("EXEC")
	_, err := execReply(c, 3)
	return err
}

// execReply takes the replies of MULTI, of the commands, and of EXEC, and returns the last.
func execReply(c *node.Conn, commands int) (reply resp.Reply, err error) {
	if err := c.Flush(); err != nil {
		return reply, err
	}
	for range commands + 2 {
		if reply, err = c.Receive(); err != nil {
			return reply, err
		}
		if text := reply.Err(); text != "" {
			return reply, fmt.Errorf("transaction: %s", text)
		}
	}
	return reply, nil
}

// writeHash sets all fields to the same number, and now and then begins anew.
func writeHash(c *node.Conn, i int) error {
	if i%10 == 0 {
		if _, err := c.Int("DEL", "{t}h"); err != nil {
			return err
		}
	}
	args := []string{"HSET", "{t}h"}
	for f := range tornFields {
		args = append(args, "field"+strconv.Itoa(f), strconv.Itoa(i))
	}
	_, err := c.Int(args...)
	return err
}

func readMGet(c *node.Conn, _ int) error {
	reply, err := c.Do("MGET", "{t}a", "{t}b", "{t}c")
	if err != nil {
		return err
	}
	return same("MGET", reply.Elems, 3)
}

func readTransaction(c *node.Conn, _ int) error {
	c.Append("MULTI")
	for _, k := range []string{"{t}c", "{t}a", "{t}b"} {
		c.Append("GET", k)
	}
	c.Append("EXEC")
	reply, err := execReply(c, 3)
	if err != nil {
		return err
	}
	return same("EXEC", reply.Elems, 3)
}

func readHash(c *node.Conn, _ int) error {
	reply, err := c.Do("HGETALL", "{t}h")
	if err != nil || len(reply.Elems) == 0 {
		return err // no hash at the moment
	}
	values := make([]resp.Reply, 0, tornFields)
	for i := 1; i < len(reply.Elems); i += 2 {
		values = append(values, reply.Elems[i])
	}
	return same("HGETALL", values, tornFields)
}

func same(what string, values []resp.Reply, want int) error {
	if len(values) != want {
		return fmt.Errorf("%s: %d values, want %d", what, len(values), want)
	}
	for i, v := range values {
		if v.IsNull() != values[0].IsNull() || string(v.Str) != string(values[0].Str) {
			return fmt.Errorf("%s: torn: value 0 is %q and value %d is %q", what, values[0].Str, i, v.Str)
		}
	}
	return nil
}
