package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// A real redis-server as replica of a cairn node.

// startRedisReplica starts a redis-server and makes it a replica of the node.
func startRedisReplica(t *testing.T, n *testNode, args ...string) (*testkit.Redis, *testkit.Conn) {
	t.Helper()
	r := testkit.StartRedis(t, args...)
	c := testkit.Dial(t, r.Addr)
	if got := c.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(n.Port)).Raw; got != "+OK\r\n" {
		t.Fatalf("REPLICAOF: %q", got)
	}
	return r, c
}

func awaitLink(t *testing.T, replica *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(replica.Do("INFO", "replication").Raw, "master_link_status:up")
	}, "the link is up")
}

// awaitOffset waits until the replica has executed all that the node has.
func (n *testNode) awaitOffset(t *testing.T, replica *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(replica.Do("INFO", "replication").Raw, fmt.Sprintf("slave_repl_offset:%d\r\n", n.wal.End()))
	}, "the replica has everything")
}

// contents describes all keys of a server, a line each: type, absolute deadline and value.
func contents(t *testing.T, c *testkit.Conn) []string {
	t.Helper()
	var lines []string
	cursor := "0"
	for {
		reply, ok := c.Do("SCAN", cursor, "COUNT", "1000").Value.([]any)
		if !ok {
			t.Fatal("SCAN failed")
		}
		for _, k := range reply[1].([]any) {
			key := k.(string)
			line := fmt.Sprintf("%q %v ", key, c.Do("PEXPIRETIME", key).Value)
			if c.Do("TYPE", key).Value == "hash" {
				var pairs []string
				flat := c.Do("HGETALL", key).Value.([]any)
				for i := 0; i+1 < len(flat); i += 2 {
					pairs = append(pairs, fmt.Sprintf("%q=%q", flat[i], flat[i+1]))
				}
				slices.Sort(pairs)
				line += strings.Join(pairs, " ")
			} else {
				line += fmt.Sprintf("%q", c.Do("GET", key).Value)
			}
			lines = append(lines, line)
		}
		if cursor = reply[0].(string); cursor == "0" {
			slices.Sort(lines)
			return slices.Compact(lines)
		}
	}
}

func compareContents(t *testing.T, want, got []string) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d keys here, %d there", len(want), len(got))
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("differs\nhere  %.200s\nthere %.200s", want[i], got[i])
		}
	}
}

// fill writes n keys of all kinds there are: short, long and very long strings, numbers, small and large hashes, some
// with a time.
func fill(t *testing.T, c *testkit.Conn, prefix string, n int) {
	t.Helper()
	for i := range n {
		key := fmt.Sprintf("%s:%d", prefix, i)
		switch i % 7 {
		case 0:
			c.Do("SET", key, strconv.Itoa(i))
		case 1:
			c.Do("SET", key, strings.Repeat("long", i), "PX", "1000000")
		case 2:
			c.Do("HSET", key, "f", "v", "g", strconv.Itoa(i), "bin\x00\xff", "\r\n")
		case 3:
			args := []string{"HSET", key}
			for j := range 600 {
				args = append(args, fmt.Sprintf("field%d", j), strconv.Itoa(i*j))
			}
			c.Do(args...)
			c.Do("EXPIRE", key, "5000")
		case 4:
			c.Do("INCRBYFLOAT", key, "1.5")
		case 5:
			c.Do("SETRANGE", key, "100000", "end")
		case 6:
			c.Do("MULTI")
			c.Do("SETBIT", key, "1000", "1")
			c.Do("APPEND", key, "tail")
			c.Do("DEL", key+"gone")
			c.Do("EXEC")
		}
	}
}

func testRedisReplica(t *testing.T) {
	n := startServer(t, "repl-ping-replica-period 1")
	c := n.dial(t)
	fill(t, c, "before", 350)
	_, r := startRedisReplica(t, n)
	fill(t, c, "during", 70)
	awaitLink(t, r)
	fill(t, c, "after", 70)
	c.Do("DEL", "before:3")
	c.Do("HDEL", "before:2", "f")
	c.Do("PEXPIRE", "before:0", "1")
	testkit.Eventually(t, 10*time.Second, func() bool { return c.Do("GET", "before:0").Raw == "$-1\r\n" }, "expired")
	if got := c.Do("WAIT", "1", "50000").Raw; got != ":1\r\n" {
		t.Fatalf("WAIT: %q", got)
	}
	compareContents(t, contents(t, c), contents(t, r))
	if full := n.primary.Full.Load(); full != 1 {
		t.Errorf("%d full syncs", full)
	}

	// A link that breaks goes on where it was.
	partial := n.primary.PartialOK.Load()
	c.Do("CLIENT", "KILL", "TYPE", "replica")
	fill(t, c, "behind its back", 70)
	testkit.Eventually(t, 20*time.Second, func() bool { return n.primary.PartialOK.Load() > partial }, "a partial resync")
	if got := c.Do("WAIT", "1", "50000").Raw; got != ":1\r\n" {
		t.Fatalf("WAIT after the partial resync: %q", got)
	}
	n.awaitOffset(t, r)
	compareContents(t, contents(t, c), contents(t, r))
	if full := n.primary.Full.Load(); full != 1 {
		t.Errorf("%d full syncs after the link broke", full)
	}
	c.Do("FLUSHALL")
	n.awaitOffset(t, r)
	if got := r.Do("DBSIZE").Raw; got != ":0\r\n" {
		t.Errorf("after FLUSHALL: %q", got)
	}
}

func TestRedisFollows(t *testing.T) { testRedisReplica(t) }

// TestRedisFollowsOther is the same with another version, named by CAIRN_TEST_REDIS_OTHER.
func TestRedisFollowsOther(t *testing.T) {
	path := os.Getenv("CAIRN_TEST_REDIS_OTHER")
	if path == "" {
		t.Skip("CAIRN_TEST_REDIS_OTHER names no other redis-server")
	}
	t.Setenv("CAIRN_TEST_REDIS", path)
	testRedisReplica(t)
}

// TestToolsTakeTheDataSet: redis-cli --rdb writes a file that redis-server starts from.
func TestToolsTakeTheDataSet(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli")
	}
	n := startServer(t)
	c := n.dial(t)
	fill(t, c, "k", 140)
	dir := t.TempDir()
	file := filepath.Join(dir, "dump.rdb")
	for _, args := range [][]string{{"--rdb", file}, {"--functions-rdb", filepath.Join(dir, "functions.rdb")}} {
		if out, err := exec.Command(cli, append([]string{"-p", strconv.Itoa(n.Port)}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("redis-cli %s: %v\n%s", args[0], err, out)
		}
	}
	r := testkit.StartRedis(t, "--dir", dir)
	compareContents(t, contents(t, c), contents(t, testkit.Dial(t, r.Addr)))
}

// TestSyncWithLength: a replica that announces nothing gets the length first, and then the stream.
func TestSyncWithLength(t *testing.T) {
	n := startServer(t, "repl-ping-replica-period 3600")
	c := n.dial(t)
	fill(t, c, "k", 140)
	stream := replicaOf(t, n.Addr)
	c.Do("SET", "mark", "1")
	for _, want := range []string{"SELECT 0", "SET mark 1"} {
		if got, err := readCommand(stream); err != nil || strings.Join(got, " ") != want {
			t.Errorf("stream: %q, %v, want %q", got, err, want)
		}
	}
}

// TestSlowReplicaCostsNoMemory: the log goes from the disk to a replica that hardly reads, and nothing piles up.
func TestSlowReplicaCostsNoMemory(t *testing.T) {
	n := startServer(t, "repl-timeout 3600")
	h := n.attach(t, "7001")
	c := n.dial(t)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	value := strings.Repeat("x", 100_000)
	const rounds = 1000
	for range rounds {
		c.Do("SET", "k", value)
	}
	if _, err := h.rd.Discard(1000); err != nil {
		t.Fatal(err)
	}
	if after := heap(); after > before+48<<20 {
		t.Errorf("the heap grew from %d to %d bytes while a replica did not read %d", before, after, rounds*len(value))
	}
	if n.primary.Len() != 1 {
		t.Fatal("the replica was given up")
	}
}
