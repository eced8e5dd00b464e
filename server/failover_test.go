package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/internal/testkit"
)

func roleIs(t *testing.T, c *testkit.Conn, role string) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool { return infoField(t, c, "replication", "role") == role }, "role %s", role)
}

func noFailover(t *testing.T, c *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		return infoField(t, c, "replication", "master_failover_state") == "no-failover"
	}, "the failover is over")
}

// The role goes to a replica and back, of whichever program, and both have everything without a second full sync.
func TestFailover(t *testing.T) {
	t.Parallel()
	a := startServer(t)
	ca := a.dial(t)
	b := startServer(t)
	redis := startRedis(t)
	for name, other := range map[string]struct {
		c    *testkit.Conn
		port int
	}{"cairn": {b.dial(t), b.Port}, "redis": {testkit.Dial(t, redis.Addr), redis.Port}} {
		rnd := rand.New(rand.NewPCG(7, 7))
		scribble(t, ca, rnd, 300)
		follows(t, other.c, a.Port)
		inStep(t, ca, other.c)
		full := infoField(t, ca, "stats", "sync_full")
		if got := ca.Do("FAILOVER", "TO", "127.0.0.1", strconv.Itoa(other.port), "TIMEOUT", "50000").Raw; got != "+OK\r\n" {
			t.Fatalf("%s: %q", name, got)
		}
		roleIs(t, other.c, "master")
		roleIs(t, ca, "slave")
		noFailover(t, ca)
		scribble(t, other.c, rnd, 300)
		sameContent(t, other.c, ca)
		if got := ca.Do("SET", "a", "b").Raw; !strings.HasPrefix(got, "-READONLY") {
			t.Errorf("%s: a write to the former primary: %q", name, got)
		}
		if got := other.c.Do("FAILOVER").Raw; got != "+OK\r\n" {
			t.Fatalf("%s: back: %q", name, got)
		}
		roleIs(t, ca, "master")
		roleIs(t, other.c, "slave")
		noFailover(t, other.c)
		scribble(t, ca, rnd, 300)
		sameContent(t, ca, other.c)
		if got := infoField(t, ca, "stats", "sync_full"); got != full {
			t.Errorf("%s: %s full syncs, want %s", name, got, full)
		}
		other.c.Do("REPLICAOF", "NO", "ONE")
		testkit.Eventually(t, 20*time.Second, func() bool { return infoField(t, ca, "replication", "connected_slaves") == "0" })
	}
}

// While a failover holds writes back, what nobody waits for is handed over all the same: replicas have to have it before writes
// can go on. With appendfsync always nothing else does that, and they get what is synced.
func TestPauseReleasesTheEndOfTheLog(t *testing.T) {
	n := startServer(t, "appendfsync always")
	end, err := n.appendControl("ping")
	if err != nil {
		t.Fatal(err)
	}
	if n.wal.Synced() >= end {
		t.Fatal("somebody waited for it")
	}
	(&clusterNode{s: n.Server}).Pause(0)
	testkit.Eventually(t, 10*time.Second, func() bool { return n.wal.Synced() >= end })
}

// What clients were answered is there after any number of failovers, and those who wait meanwhile go on.
func TestFailoverUnderWrites(t *testing.T) {
	t.Parallel()
	a, b := startServer(t), startServer(t)
	nodes := []*testkit.Conn{a.dial(t), b.dial(t)}
	follows(t, nodes[1], a.Port)
	inStep(t, nodes[0], nodes[1])
	stop := make(chan struct{})
	var writers sync.WaitGroup
	acked := make([]int, 4)
	for w := range acked {
		writers.Go(func() {
			conns := []*testkit.Conn{a.dial(t), b.dial(t)}
			at := 0
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch got := conns[at].Do("SET", fmt.Sprint("w", w), strconv.Itoa(acked[w]+1)).Raw; {
				case got == "+OK\r\n":
					acked[w]++
				case strings.HasPrefix(got, "-READONLY"):
					at = 1 - at
				default:
					t.Errorf("SET: %q", got)
					return
				}
			}
		})
	}
	for round := range 4 {
		if got := nodes[round%2].Do("FAILOVER").Raw; got != "+OK\r\n" {
			t.Fatalf("round %d: %q", round, got)
		}
		roleIs(t, nodes[1-round%2], "master")
		noFailover(t, nodes[round%2])
		testkit.Eventually(t, 20*time.Second, func() bool {
			return infoField(t, nodes[round%2], "replication", "master_link_status") == "up"
		}, "the link is up")
	}
	close(stop)
	writers.Wait()
	for w, n := range acked {
		if got := nodes[0].Do("GET", fmt.Sprint("w", w)).Value; got != strconv.Itoa(n) && n > 0 {
			t.Errorf("writer %d: %v is there, %d was acknowledged", w, got, n)
		}
	}
}

// A replica that cannot follow: ABORT and TIMEOUT give writes back.
func TestFailoverGivenUp(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	c.Do("SET", "a", "1")
	n.attach(t, "7777") // it acknowledges nothing
	for _, how := range []string{"abort", "timeout"} {
		args := []string{"FAILOVER"}
		if how == "timeout" {
			args = append(args, "TIMEOUT", "300")
		}
		if got := c.Do(args...).Raw; got != "+OK\r\n" {
			t.Fatalf("%s: %q", how, got)
		}
		if how == "abort" {
			for cmd, want := range map[string]string{
				"FAILOVER":              "-ERR FAILOVER already in progress.\r\n",
				"REPLICAOF 127.0.0.1 1": "-ERR REPLICAOF not allowed while failing over.\r\n",
			} {
				if got := c.Do(strings.Fields(cmd)...).Raw; got != want {
					t.Errorf("%s: %q", cmd, got)
				}
			}
			if got := infoField(t, c, "replication", "master_failover_state"); got != "waiting-for-sync" {
				t.Errorf("state %q", got)
			}
			if got := c.Do("FAILOVER", "ABORT").Raw; got != "+OK\r\n" {
				t.Errorf("ABORT: %q", got)
			}
		}
		noFailover(t, c)
		if got := c.Do("SET", "a", how).Raw; got != "+OK\r\n" {
			t.Errorf("%s: a write afterwards: %q", how, got)
		}
		if got := infoField(t, c, "replication", "role"); got != "master" {
			t.Errorf("%s: role %q", how, got)
		}
	}
}

// What is refused is refused in Redis's words.
func TestFailoverRefusals(t *testing.T) {
	t.Parallel()
	n, redis := startServer(t), startRedis(t)
	c, r := n.dial(t), testkit.Dial(t, redis.Addr)
	cases := []string{
		"FAILOVER", "FAILOVER ABORT", "FAILOVER ABORT NOW", "FAILOVER TO", "FAILOVER TO 127.0.0.1", "FAILOVER TO 127.0.0.1 x",
		"FAILOVER TIMEOUT 0", "FAILOVER TIMEOUT -1", "FAILOVER TIMEOUT x", "FAILOVER TIMEOUT 5 TIMEOUT 6", "FAILOVER FORCE FORCE",
		"FAILOVER FORCE", "FAILOVER TO 127.0.0.1 1 FORCE", "FAILOVER TO 127.0.0.1 1 TO 127.0.0.1 2",
	}
	ask := func() {
		t.Helper()
		for _, cmd := range cases {
			if got, want := c.Do(strings.Fields(cmd)...).Raw, r.Do(strings.Fields(cmd)...).Raw; got != want {
				t.Errorf("%s: %q, Redis says %q", cmd, got, want)
			}
		}
	}
	ask()
	// With replicas, that are in no step with anybody.
	cases = slices.DeleteFunc(cases, func(s string) bool { return s == "FAILOVER" })
	for _, addr := range []int{n.Port, redis.Port} {
		o := testkit.StartRedis(t)
		oc := testkit.Dial(t, o.Addr)
		follows(t, oc, addr)
		awaitLink(t, oc)
	}
	ask()
	follows(t, c, testkit.FreePort(t))
	follows(t, r, testkit.FreePort(t))
	ask()
}
