package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/replication"
)

// A node as a replica: of a real redis-server, and of other nodes.

// infoField is one field of INFO, "" when it is not there.
func infoField(t testing.TB, c *testkit.Conn, section, name string) string {
	t.Helper()
	reply := c.Do("INFO", section)
	for _, l := range strings.Split(reply.Raw, "\r\n") {
		if v, ok := strings.CutPrefix(l, name+":"); ok {
			return v
		}
	}
	return ""
}

// inStep waits until replica has all that primary has written.
func inStep(t testing.TB, primary, replica *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		return infoField(t, replica, "replication", "master_link_status") == "up" &&
			infoField(t, replica, "replication", "slave_repl_offset") == infoField(t, primary, "replication", "master_repl_offset")
	}, "the replica is not in step")
}

// content is all keys of a server with their values and deadlines, as text.
func content(t testing.TB, c *testkit.Conn) string {
	t.Helper()
	names, _ := c.Do("KEYS", "*").Value.([]any)
	var lines []string
	for _, n := range names {
		key := n.(string)
		if strings.HasPrefix(key, "short") {
			continue // it may go between one look and the next
		}
		read := []string{"GET", key}
		sorted := false
		if strings.HasPrefix(c.Do("TYPE", key).Raw, "+hash") {
			read, sorted = []string{"HGETALL", key}, true
		}
		value := c.Do(read...).Value
		if pairs, ok := value.([]any); ok && sorted {
			var fields []string
			for i := 0; i+1 < len(pairs); i += 2 {
				fields = append(fields, fmt.Sprintf("%v=%v", pairs[i], pairs[i+1]))
			}
			slices.Sort(fields)
			value = fields
		}
		lines = append(lines, fmt.Sprintf("%s %v %s", key, value, strings.TrimSpace(c.Do("PEXPIRETIME", key).Raw)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sameContent waits until both are in step and compares all of it.
func sameContent(t testing.TB, primary, replica *testkit.Conn) {
	t.Helper()
	inStep(t, primary, replica)
	want, got := content(t, primary), content(t, replica)
	if want != got {
		w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
		for i := range min(len(w), len(g)) {
			if w[i] != g[i] {
				t.Fatalf("the replica has %d keys, the primary %d; first difference:\n%.200s\n%.200s", len(g), len(w), g[i], w[i])
			}
		}
		t.Fatalf("the replica has %d keys, the primary %d", len(g), len(w))
	}
}

// scribble writes of every kind.
func scribble(t testing.TB, c *testkit.Conn, r *rand.Rand, n int) {
	t.Helper()
	for range n {
		k := "k" + strconv.Itoa(r.IntN(200))
		h := "h" + strconv.Itoa(r.IntN(20))
		switch r.IntN(14) {
		case 0:
			c.Do("DEL", k)
		case 1:
			c.Do("INCR", "n"+k)
		case 2:
			c.Do("HSET", h, "f"+strconv.Itoa(r.IntN(900)), strings.Repeat("v", r.IntN(80)))
		case 3:
			c.Do("HDEL", h, "f"+strconv.Itoa(r.IntN(900)))
		case 4:
			c.Do("EXPIRE", k, strconv.Itoa(1000+r.IntN(1000)))
		case 5:
			c.Do("MULTI")
			c.Do("SET", k, "m")
			c.Do("HINCRBY", "counts", k, "1")
			c.Do("EXEC")
		case 6:
			c.Do("SET", k, strings.Repeat("x", r.IntN(3000)), "EX", "5000")
		case 7:
			c.Do("APPEND", k, "tail")
		case 8:
			c.Do("SETRANGE", "big", strconv.Itoa(r.IntN(200000)), "piece")
		case 9:
			c.Do("SET", "short"+k, "gone", "PX", strconv.Itoa(1+r.IntN(5)))
		case 10:
			c.Do("MSET", k, "1", "other"+k, "2")
		case 11:
			c.Do("RENAME", k, "renamed")
		case 12:
			c.Do("INCRBYFLOAT", "float", "1.5")
		default:
			c.Do("SET", k, "v"+strconv.Itoa(r.IntN(1000)))
		}
	}
}

func startRedis(t testing.TB) *testkit.Redis {
	t.Helper()
	return testkit.StartRedis(t, "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "32mb")
}

func follows(t testing.TB, c *testkit.Conn, port int) {
	t.Helper()
	if got := c.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(port)).Raw; got != "+OK\r\n" {
		t.Fatalf("REPLICAOF: %q", got)
	}
}

func TestReplicaOfRedis(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	p := testkit.Dial(t, redis.Addr)
	r := rand.New(rand.NewPCG(1, 5))
	scribble(t, p, r, 1500)
	n := startServer(t)
	c := n.dial(t)
	c.Do("SET", "own", "goes away")
	follows(t, c, redis.Port)
	sameContent(t, p, c)
	scribble(t, p, r, 1500)
	sameContent(t, p, c)
	if got := infoField(t, p, "replication", "slave0"); !strings.Contains(got, fmt.Sprintf("port=%d,state=online", n.Port)) {
		t.Errorf("the primary shows %q", got)
	}
	if got := c.Do("ROLE").Raw; !strings.HasPrefix(got, fmt.Sprintf("*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:%d\r\n$9\r\nconnected\r\n:", redis.Port)) {
		t.Errorf("ROLE: %q", got)
	}
	// The link breaks: what is missing is asked for, and no more.
	full := infoField(t, p, "stats", "sync_full")
	for range 3 {
		p.Do("CLIENT", "KILL", "TYPE", "replica")
		scribble(t, p, r, 300)
		sameContent(t, p, c)
	}
	if got := infoField(t, p, "stats", "sync_full"); got != full {
		t.Errorf("%s full syncs, want %s", got, full)
	}
	if got := p.Do("WAIT", "1", "50000").Raw; got != ":1\r\n" {
		t.Errorf("WAIT: %q", got)
	}
	// The link is shown as what it is, and can be closed as such.
	if got := c.Do("CLIENT", "LIST", "TYPE", "master").Raw; strings.Count(got, "\n") != 3 || !strings.Contains(got, " flags=M ") {
		t.Errorf("CLIENT LIST TYPE master: %q", got)
	}
	for _, kill := range [][]string{{"TYPE", "master"}, {"ADDR", redis.Addr}, {redis.Addr}} {
		if got := c.Do(append([]string{"CLIENT", "KILL"}, kill...)...).Raw; got != ":1\r\n" && got != "+OK\r\n" {
			t.Errorf("CLIENT KILL %v: %q", kill, got)
		}
		p.Do("INCR", "kills")
		inStep(t, p, c)
	}
	// Writes of clients are refused, reads go on, expired keys are missing and stay until the primary says so.
	for _, w := range [][]string{{"SET", "a", "b"}, {"DEL", "own"}, {"FLUSHALL"}, {"EXPIRE", "k1", "5"}} {
		if got := c.Do(w...).Raw; got != "-READONLY You can't write against a read only replica.\r\n" {
			t.Errorf("%v: %q", w, got)
		}
	}
	c.Do("MULTI")
	c.Do("GET", "k1")
	if got := c.Do("SET", "a", "b").Raw; !strings.HasPrefix(got, "-READONLY") {
		t.Errorf("in MULTI: %q", got)
	}
	if got := c.Do("EXEC").Raw; !strings.HasPrefix(got, "-EXECABORT") {
		t.Errorf("EXEC: %q", got)
	}
}

func TestReplicaKeepsExpiredKeys(t *testing.T) {
	redis := startRedis(t)
	p := testkit.Dial(t, redis.Addr)
	p.Do("DEBUG", "SET-ACTIVE-EXPIRE", "0")
	n := startServer(t)
	c := n.dial(t)
	follows(t, c, redis.Port)
	inStep(t, p, c)
	p.Do("SET", "short", "x", "PXAT", "1")
	p.Do("SET", "long", "x")
	inStep(t, p, c)
	testkit.Eventually(t, 5*time.Second, func() bool { return c.Do("GET", "short").Raw == "$-1\r\n" })
	if got := c.Do("DBSIZE").Raw; got != ":2\r\n" {
		t.Errorf("DBSIZE %q, want the expired key counted", got)
	}
	p.Do("GET", "short") // now the primary says DEL
	inStep(t, p, c)
	if got := c.Do("DBSIZE").Raw; got != ":1\r\n" {
		t.Errorf("DBSIZE %q after the primary's DEL", got)
	}
}

// What commands of the stream do is heard of here: subscribers, keyspace events, watchers.
func TestReplicaIsHeardOf(t *testing.T) {
	redis := startRedis(t)
	p := testkit.Dial(t, redis.Addr)
	n := startServer(t, "notify-keyspace-events KEA")
	c, sub := n.dial(t), n.dial(t)
	follows(t, c, redis.Port)
	inStep(t, p, c)
	sub.Do("PSUBSCRIBE", "*")
	c.Do("WATCH", "watched")
	c.Do("MULTI")
	c.Do("GET", "watched")
	p.Do("PUBLISH", "news", "hello")
	p.Do("SET", "watched", "x")
	for _, want := range []string{"$4\r\nnews\r\n$5\r\nhello", "__keyspace@0__:watched\r\n$3\r\nset", "__keyevent@0__:set\r\n$7\r\nwatched"} {
		m, err := sub.Receive()
		if err != nil || !strings.Contains(m.Raw, want) {
			t.Errorf("heard %q, %v, want %q", m.Raw, err, want)
		}
	}
	if got := c.Do("EXEC").Raw; got != "*-1\r\n" {
		t.Errorf("EXEC of a watched key: %q", got)
	}
}

// What this node does not have stops the link, with the reason where people look, and nothing is half done.
func TestReplicaStopsAtTheUnknown(t *testing.T) {
	redis := startRedis(t)
	p := testkit.Dial(t, redis.Addr)
	n := startServer(t)
	c := n.dial(t)
	follows(t, c, redis.Port)
	p.Do("SET", "a", "1")
	inStep(t, p, c)
	p.Do("MULTI")
	p.Do("SET", "a", "2")
	p.Do("XADD", "stream", "*", "f", "v")
	p.Do("EXEC")
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(infoField(t, c, "replication", "master_last_error"), "command XADD")
	})
	if got := c.Do("GET", "a").Raw; got != "$1\r\n1\r\n" {
		t.Errorf("a is %q", got)
	}
	if got := infoField(t, c, "replication", "master_link_status"); got != "down" {
		t.Errorf("the link is %s", got)
	}
}

// An entry that fails here although the primary has executed it is not passed over, and nothing of it is done.
func TestApplierDiverges(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	c.Do("HSET", "h", "f", "v")
	n.publishRole(true)
	a := newApplier(n.Server)
	defer a.close()
	end := n.wal.End()
	words := func(w ...string) (args [][]byte) {
		for _, s := range w {
			args = append(args, []byte(s))
		}
		return args
	}
	var diverged *replication.DivergedError
	e := replication.Entry{Raw: []byte("raw"), Commands: [][][]byte{words("SET", "a", "b"), words("INCR", "h")}}
	if err := a.Apply(t.Context(), e); !errors.As(err, &diverged) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("WRONGTYPE: %v", err)
	}
	var unsupported *replication.UnsupportedError
	for what, args := range map[string][][]byte{
		"command XADD ": words("XADD", "s", "*", "f", "v"), "command FUNCTION LOAD ": words("FUNCTION", "load", "x"),
		"command SET with 1 arguments": words("SET", "a"), `command \X00`: words("\x00", "a"),
	} {
		e := replication.Entry{Raw: []byte("raw"), Commands: [][][]byte{words("SET", "a", "b"), args}}
		if err := a.Apply(t.Context(), e); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := c.Do("EXISTS", "a").Raw; got != ":0\r\n" || n.wal.End() != end {
		t.Errorf("something was done: a exists %q, the log ends at %d, want %d", got, n.wal.End(), end)
	}
}

func TestReplicaRefusesOtherDatabases(t *testing.T) {
	redis := startRedis(t)
	p := testkit.Dial(t, redis.Addr)
	p.Do("SELECT", "3")
	p.Do("SET", "a", "1")
	n := startServer(t)
	c := n.dial(t)
	c.Do("SET", "own", "stays")
	follows(t, c, redis.Port)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(infoField(t, c, "replication", "master_last_error"), "database 3")
	})
	if got := c.Do("GET", "own").Raw; got != "$5\r\nstays\r\n" {
		t.Errorf("own is %q", got)
	}
}

func TestStaleReplica(t *testing.T) {
	n := startServer(t, "replica-serve-stale-data no")
	c := n.dial(t)
	c.Do("SET", "a", "1")
	follows(t, c, testkit.FreePort(t))
	const down = "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n"
	if got := c.Do("GET", "a").Raw; got != down {
		t.Errorf("GET: %q", got)
	}
	for _, ok := range [][]string{{"INFO"}, {"ROLE"}, {"CONFIG", "SET", "replica-serve-stale-data", "yes"}, {"GET", "a"}} {
		if got := c.Do(ok...).Raw; got == down {
			t.Errorf("%v: %q", ok, got)
		}
	}
	if got := c.Do("REPLICAOF", "NO", "ONE").Raw; got != "+OK\r\n" {
		t.Errorf("REPLICAOF NO ONE: %q", got)
	}
	if got := c.Do("SET", "a", "2").Raw; got != "+OK\r\n" {
		t.Errorf("SET after promotion: %q", got)
	}
}
