package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

// A primary that is stopped for a while, as by a debugger or a machine that is suspended, is replaced. When it wakes up it
// acknowledges nothing, however early it is asked: what it would take then is lost.
func TestSleeperAcknowledgesNothing(t *testing.T) {
	const limit = 30 * time.Second
	t.Parallel()
	c, err := node.StartCluster(node.ClusterSpec{
		Program: []string{built().cairn, "server"}, Args: []string{"--memory-budget", "64mb"}, Dir: t.TempDir(),
		Primaries: 3, Replicas: 1, Timeout: 1500 * time.Millisecond,
	}, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.AwaitSteady(limit); err != nil {
		t.Fatal(err)
	}
	key := "a key"
	for i := 0; !c.Slots(0).Has(slot.Of([]byte(key))); i++ {
		key = fmt.Sprint("key ", i)
	}
	for round := range 3 {
		sleeper, replicas, err := c.Primary(0)
		if err != nil || len(replicas) != 1 {
			t.Fatal(err, len(replicas))
		}
		// The question waits in the socket until it wakes, so that it is asked before anything else can happen.
		asked := testkit.Dial(t, sleeper.Addr)
		asked.SetTimeout(limit)
		if got := asked.Do("SET", key, "awake").Raw; got != "+OK\r\n" {
			t.Fatalf("round %d: SET: %q", round, got)
		}
		if err := syscall.Kill(sleeper.Pid(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, limit, func() bool { return stopped(sleeper.Pid()) }, "the process stops")
		if err := asked.Send("SET", key, "asleep"); err != nil {
			t.Fatal(err)
		}
		err = c.Await(limit, func() error {
			if got, err := replicas[0].Info("replication", "role"); err != nil || got != "master" {
				return errors.Join(err, fmt.Errorf("the replica is a %q", got))
			}
			return nil
		})
		if err := errors.Join(err, syscall.Kill(sleeper.Pid(), syscall.SIGCONT)); err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			reply, err := asked.Receive()
			if err != nil {
				break // it has become a replica, and ended the connection
			}
			if reply.Raw == "+OK\r\n" {
				t.Fatalf("round %d: write %d after waking was acknowledged", round, i)
			}
			if err := asked.Send("SET", key, fmt.Sprint("late ", i)); err != nil {
				break
			}
		}
		if err := c.AwaitSteady(limit); err != nil {
			t.Fatal(err)
		}
	}
}

// stopped says whether all threads of a process stand still.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		raw, err := os.ReadFile(path)
		if at := bytes.LastIndexByte(raw, ')'); err == nil && (at < 0 || !bytes.HasPrefix(raw[at:], []byte(") T"))) {
			return false
		}
	}
	return err == nil && len(threads) > 0
}
