package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// field is one field of INFO.
func field(c *testkit.Conn, name string) string {
	reply, err := c.Try("INFO", "all")
	if err != nil {
		return ""
	}
	for _, l := range strings.Split(reply.Raw, "\r\n") {
		if v, ok := strings.CutPrefix(l, name+":"); ok {
			return v
		}
	}
	return ""
}

// awaitStep waits until the replica has executed all that the primary has written.
func awaitStep(t testing.TB, primary, replica string) {
	t.Helper()
	p, r := testkit.Dial(t, primary), testkit.Dial(t, replica)
	testkit.Eventually(t, 30*time.Second, func() bool {
		return field(r, "master_link_status") == "up" && field(r, "slave_repl_offset") == field(p, "master_repl_offset")
	}, "%s is not in step with %s", replica, primary)
}

// count writes n more numbers.
func count(t testing.TB, c *testkit.Conn, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		if got := c.Do("SET", "n"+strconv.Itoa(i), strconv.Itoa(i)).Raw; got != "+OK\r\n" {
			t.Fatalf("SET: %q", got)
		}
		c.Do("INCR", "total")
	}
}

func has(t testing.TB, addr string, n int) {
	t.Helper()
	c := testkit.Dial(t, addr)
	if got := c.Do("GET", "total").Value; got != strconv.Itoa(n) {
		t.Errorf("%s: total is %v, want %d", addr, got, n)
	}
	if got := c.Do("DBSIZE").Value; got != int64(n+1) {
		t.Errorf("%s: %v keys, want %d", addr, got, n+1)
	}
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// A replica that is killed goes on where it was, and takes over nothing twice.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, "--repl-diskless-sync-delay", "0")
	p := testkit.Dial(t, redis.Addr)
	count(t, p, 0, 100)
	dir := t.TempDir()
	total := 100
	for round := range 4 {
		n := start(t, dir, "--replicaof", "127.0.0.1", strconv.Itoa(redis.Port))
		if round == 0 {
			awaitStep(t, redis.Addr, n.addr) // or else the data has all 50, at offset 0, from where nobody goes on
		}
		count(t, p, total, 50)
		total += 50
		awaitStep(t, redis.Addr, n.addr)
		has(t, n.addr, total)
		n.Signal(syscall.SIGKILL)
		<-n.Done()
		count(t, p, total, 50)
		total += 50
		if got := field(p, "sync_full"); got != "1" {
			t.Errorf("round %d: %s full syncs", round, got)
		}
	}
}

// A redis-server that is started again with its data continues, or sends everything: the replica is right either way.
func TestRestartedPrimary(t *testing.T) {
	t.Parallel()
	for _, saves := range []bool{true, false} {
		port, dir := testkit.FreePort(t), t.TempDir()
		args := []string{"--port", strconv.Itoa(port), "--dir", dir, "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1", "--save", "", "--dbfilename", "x.rdb"}
		addr := "127.0.0.1:" + strconv.Itoa(port)
		redis := testkit.StartProgram(t, testkit.RedisPath(t), args...)
		testkit.WaitPing(t, addr, startLimit)
		n := start(t, t.TempDir(), "--replicaof", "127.0.0.1", strconv.Itoa(port))
		p := testkit.Dial(t, addr)
		count(t, p, 0, 30)
		awaitStep(t, addr, n.addr)
		total := 30
		if saves {
			p.Do("SAVE")
		} else {
			total = 0
		}
		redis.Kill()
		<-redis.Done()
		r := testkit.Dial(t, n.addr)
		testkit.Eventually(t, 10*time.Second, func() bool { return field(r, "master_link_status") == "down" })
		testkit.StartProgram(t, testkit.RedisPath(t), args...)
		testkit.WaitPing(t, addr, startLimit)
		p = testkit.Dial(t, addr)
		count(t, p, total, 10)
		awaitStep(t, addr, n.addr)
		has(t, n.addr, total+10)
	}
}

// Three in a row, and the one in the middle takes over: the last continues, the old primary comes back as its replica
// without a full sync.
func TestChainAndTakeover(t *testing.T) {
	t.Parallel()
	a := start(t, t.TempDir())
	b := start(t, t.TempDir(), "--replicaof", "127.0.0.1", portOf(a.addr))
	c := start(t, t.TempDir(), "--replicaof", "127.0.0.1", portOf(b.addr))
	ca, cb := testkit.Dial(t, a.addr), testkit.Dial(t, b.addr)
	count(t, ca, 0, 200)
	awaitStep(t, a.addr, b.addr)
	awaitStep(t, b.addr, c.addr)
	has(t, c.addr, 200)
	if got := cb.Do("REPLICAOF", "NO", "ONE").Raw; got != "+OK\r\n" {
		t.Fatal(got)
	}
	full := field(cb, "sync_full")
	count(t, cb, 200, 50)
	awaitStep(t, b.addr, c.addr)
	has(t, c.addr, 250)
	if got := ca.Do("REPLICAOF", "127.0.0.1", portOf(b.addr)).Raw; got != "+OK\r\n" {
		t.Fatal(got)
	}
	awaitStep(t, b.addr, a.addr)
	has(t, a.addr, 250)
	if got := field(cb, "sync_full"); got != full {
		t.Errorf("%s full syncs, want %s", got, full)
	}
}

// A primary that took writes which its successor never saw gives them up, names them, and continues.
func TestForkedPrimary(t *testing.T) {
	t.Parallel()
	a := start(t, t.TempDir())
	b := start(t, t.TempDir(), "--replicaof", "127.0.0.1", portOf(a.addr))
	ca, cb := testkit.Dial(t, a.addr), testkit.Dial(t, b.addr)
	count(t, ca, 0, 100)
	awaitStep(t, a.addr, b.addr)
	cb.Do("REPLICAOF", "NO", "ONE")
	count(t, ca, 100, 40) // nobody but a has these
	count(t, cb, 100, 7)
	full := field(cb, "sync_full")
	ca.Do("REPLICAOF", "127.0.0.1", portOf(b.addr))
	awaitStep(t, b.addr, a.addr)
	has(t, a.addr, 107)
	if got := field(cb, "sync_full"); got != full {
		t.Errorf("%s full syncs, want %s", got, full)
	}
	if !strings.Contains(a.Log(), "writes that the primary never saw were discarded entries=") {
		t.Errorf("the log does not name what was discarded")
	}
	a.Signal(syscall.SIGKILL)
	<-a.Done()
}

// A replica that is killed in the midst of the stream executes nothing twice and misses nothing: all commands here add
// to what is there, alone and in transactions.
func TestKilledInTheStream(t *testing.T) {
	t.Parallel()
	redis := testkit.StartRedis(t, "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb")
	stop, written := make(chan struct{}), make(chan int, 1)
	go func() { // ends with stop, below
		c := testkit.Dial(t, redis.Addr)
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				written <- n
				return
			default:
			}
			c.Do("MULTI")
			c.Do("INCR", "total")
			c.Do("HINCRBY", "parts", "f"+strconv.Itoa(n%700), "1")
			c.Do("APPEND", "tail", "x")
			c.Do("EXEC")
			c.Do("INCR", "n"+strconv.Itoa(n%1000))
		}
	}()
	dir := t.TempDir()
	for range 6 {
		n := start(t, dir, "--replicaof", "127.0.0.1", strconv.Itoa(redis.Port))
		r := testkit.Dial(t, n.addr)
		testkit.Eventually(t, 20*time.Second, func() bool { return field(r, "master_link_status") == "up" })
		before := r.Do("GET", "total").Value
		testkit.Eventually(t, 20*time.Second, func() bool { return r.Do("GET", "total").Value != before })
		n.Signal(syscall.SIGKILL)
		<-n.Done()
	}
	n := start(t, dir, "--replicaof", "127.0.0.1", strconv.Itoa(redis.Port))
	close(stop)
	total := <-written
	awaitStep(t, redis.Addr, n.addr)
	p, r := testkit.Dial(t, redis.Addr), testkit.Dial(t, n.addr)
	if got := r.Do("GET", "total").Value; got != strconv.Itoa(total) {
		t.Errorf("total is %v, want %d", got, total)
	}
	if got := r.Do("STRLEN", "tail").Value; got != int64(total) {
		t.Errorf("tail has %v bytes, want %d", got, total)
	}
	for i := range 1000 {
		k, f := "n"+strconv.Itoa(i), "f"+strconv.Itoa(i%700)
		if got, want := r.Do("GET", k).Value, p.Do("GET", k).Value; got != want {
			t.Errorf("%s is %v, want %v", k, got, want)
		}
		if got, want := r.Do("HGET", "parts", f).Value, p.Do("HGET", "parts", f).Value; got != want {
			t.Errorf("%s is %v, want %v", f, got, want)
		}
	}
	if got := field(p, "sync_full"); got != "1" {
		t.Errorf("%s full syncs, want 1", got)
	}
}
