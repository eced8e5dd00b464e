package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// neutral takes out of a reply what no two nodes have in common: ids, ports, offsets, and the address, which a
// node of Redis does not know before it met another one.
func neutral(raw string) string {
	for _, r := range []struct{ from, to string }{
		{`\b[0-9a-f]{40}\b`, "<id>"},
		{`(MOVED|ASK) (\d+) 127\.0\.0\.1:\d+`, "$1 $2 <address>"},
		{`(127\.0\.0\.1)?:\d+@\d+`, "<address>"},
		{`\$0\r\n\r\n:\d+\r\n|\$9\r\n127\.0\.0\.1\r\n:\d+\r\n`, "<address>"},
		{`port\r\n:\d+`, "<port>"},
		{`:2\d{4}\r\n\$40`, "<port>"},
		{`\$(2\r\nip|8\r\nendpoint)\r\n\$\d+\r\n(127\.0\.0\.1)?\r\n`, "<ip>"},
		{`replication-offset\r\n:\d+`, "<offset>"},
		{`\$\d+\r\n(<id> <address>)`, "$1"},
		{`cluster_stats_messages_\w+:\d+\r\n`, ""},
		{`migration_\w+:[^\r]*\r\n`, ""},
		{`\$\d+\r\ncluster_state`, "cluster_state"},
		{`total_cluster_links_buffer_limit_exceeded:0\r\n`, ""},
	} {
		raw = regexp.MustCompile(r.from).ReplaceAllString(raw, r.to)
	}
	return raw
}

func (p *pair) alike(lines string) {
	p.t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		words := strings.Fields(line)
		got, want := neutral(p.cairn.Do(words...).Raw), neutral(p.redis.Do(words...).Raw)
		if got != want {
			p.t.Errorf("%s\ngot  %q\nwant %q", strings.TrimSpace(line), got, want)
		}
	}
}

func startClusterPair(t *testing.T) *pair {
	t.Helper()
	return startPair(t, "cluster-enabled yes", "cluster-node-timeout 15000")
}

// state waits until both have taken up a change of what is owned, or of coverage: Redis does so a little later, and no
// node says ok in its first two seconds.
func (p *pair) state(want string) {
	p.t.Helper()
	for _, c := range []*testkit.Conn{p.cairn, p.redis} {
		clusterState(p.t, c, want)
	}
}

func clusterState(t testing.TB, c *testkit.Conn, want string) {
	t.Helper()
	testkit.Eventually(t, replyWait, func() bool {
		return strings.Contains(c.Do("CLUSTER", "INFO").Raw, "cluster_state:"+want)
	}, "a node says cluster_state:%s", want)
}

const replyWait = time.Minute

func TestClusterRepliesAreRedis(t *testing.T) {
	t.Parallel()
	p := startClusterPair(t)
	p.alike(script(t, "cluster_empty.txt"))
	if p.seven {
		p.alike("CLUSTER INFO\nCLUSTER MEET 127.0.0.1 x\nCLUSTER MEET 127.0.0.1 1 x")
	}
	p.alike("CLUSTER ADDSLOTSRANGE 0 99 200 16383")
	p.alike(script(t, "cluster_partly.txt"))
	p.alike("CLUSTER ADDSLOTSRANGE 100 199 250 250")
	p.state("ok")
	p.alike(script(t, "cluster_whole.txt"))
	for _, c := range []*testkit.Conn{p.cairn, p.redis} {
		c.Do("DEL", "{a}b")
	}
	p.alike(script(t, "cluster_keys.txt"))
	p.state("fail")
	p.alike("GET a\nCONFIG SET cluster-require-full-coverage no")
	p.state("ok")
	p.alike("GET a\nDEL a\nCLUSTER FLUSHSLOTS\nGET a\nCLUSTER INFO")
}

func TestClusterAnnouncesAsRedis(t *testing.T) {
	t.Parallel()
	p := startClusterPair(t)
	p.alike("CLUSTER ADDSLOTSRANGE 0 16383")
	p.state("ok")
	p.alike(script(t, "cluster_announced.txt"))
}

func TestClusterOff(t *testing.T) {
	p := startPair(t)
	p.same("CLUSTER NODES\nCLUSTER ADDSLOTS 1\nCLUSTER GETKEYSINSLOT 1 1\nCLUSTER MEET a 1\nREADONLY\nASKING")
}

func TestClusterStateIsKept(t *testing.T) {
	t.Parallel()
	n := startServer(t, "cluster-enabled yes", "cluster-announce-hostname host.name")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	c.Do("CLUSTER", "BUMPEPOCH")
	clusterState(t, c, "ok")
	c.Do("SET", "a", "b")
	before := c.Do("CLUSTER", "NODES").Raw
	if !strings.Contains(before, fmt.Sprintf(" 127.0.0.1:%d@%d,host.name myself,master - 0 0 1 connected 0-16383\n", n.Port, n.Port+10000)) {
		t.Errorf("got %s", before)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	again := New(n.cfg, NewLogger("", n.log, 0))
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	c = testkit.Dial(t, n.Addr)
	if after := c.Do("CLUSTER", "NODES").Raw; after != before {
		t.Errorf("got %s, want %s", after, before)
	}
	clusterState(t, c, "ok")
	if got := c.Do("GET", "a").Raw; got != "$1\r\nb\r\n" {
		t.Errorf("got %q", got)
	}
	if err := again.Stop(); err != nil {
		t.Fatal(err)
	}
	// A file that was cut short ends the start: the node must not come back as a stranger.
	path := filepath.Join(n.cfg.V.Dir.Load(), "nodes.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-5], 0o644); err != nil {
		t.Fatal(err)
	}
	last := New(n.cfg, NewLogger("", n.log, 0))
	if err := last.Start(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

// The file of a Redis node is taken over: id, epoch, slots, and the nodes that it knew.
func TestClusterTakesOverRedis(t *testing.T) {
	r := testkit.StartRedis(t, "--cluster-enabled", "yes")
	rc := testkit.Dial(t, r.Addr)
	rc.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16000")
	rc.Do("CLUSTER", "SET-CONFIG-EPOCH", "3")
	id := rc.Do("CLUSTER", "MYID").Value.(string)
	rc.Do("CLUSTER", "SAVECONFIG")
	text, err := os.ReadFile(filepath.Join(r.Dir, "nodes.conf"))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("f", 40)
	text = append([]byte(other+" 10.0.0.9:7009@17009,,tls-port=0 master - 0 0 2 connected 16001-16383\n"), text...)
	n := newServer(t, "cluster-enabled yes")
	if err := os.WriteFile(filepath.Join(n.cfg.V.Dir.Load(), "nodes.conf"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	if got := c.Do("CLUSTER", "MYID").Value; got != id {
		t.Errorf("got id %v, want %s", got, id)
	}
	if got := c.Do("CLUSTER", "NODES").Raw; !strings.Contains(got, " myself,master - 0 0 3 connected 0-16000\n") || !strings.Contains(got, " 2 disconnected 16001-16383\n") {
		t.Errorf("got %s", got)
	}
	// It serves when it has heard a majority, and the other one does not exist.
	if got := c.Do("SET", "key:12", "v").Raw; !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("got %q", got)
	}
	if got := c.Do("CLUSTER", "DELSLOTS", "16001").Raw; got != "+OK\r\n" {
		t.Errorf("got %q", got)
	}
	if got := c.Do("CLUSTER", "FORGET", other).Raw; got != "+OK\r\n" {
		t.Errorf("got %q", got)
	}
	if got := fmt.Sprint(c.Do("CLUSTER", "INFO").Value); !strings.Contains(got, "cluster_state:fail") || !strings.Contains(got, "cluster_known_nodes:1") {
		t.Errorf("got %s", got)
	}
}

func TestClusterInTransaction(t *testing.T) {
	t.Parallel()
	n := startServer(t, "cluster-enabled yes")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	id := c.Do("CLUSTER", "MYID").Raw
	for _, args := range [][]string{{"MULTI"}, {"CLUSTER", "RESET", "HARD"}, {"CLUSTER", "SET-CONFIG-EPOCH", "9"}} {
		c.Do(args...)
	}
	if got := c.Do("EXEC").Raw; got != "*2\r\n+OK\r\n+OK\r\n" {
		t.Errorf("got %q", got)
	}
	if c.Do("CLUSTER", "MYID").Raw == id {
		t.Error("the id is the old one after a hard reset")
	}
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	clusterState(t, c, "ok")
	for _, args := range [][]string{{"MULTI"}, {"GET", "a"}, {"CLUSTER", "DELSLOTS", "1"}} {
		c.Do(args...)
	}
	if got := c.Do("EXEC").Raw; got != "*2\r\n$-1\r\n-ERR the cluster cannot be changed inside a transaction that has keys\r\n" {
		t.Errorf("got %q", got)
	}
}
