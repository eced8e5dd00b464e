package server

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// Clusters of several nodes in this process, on real ports, beside real ones.

// nodeTime is the cluster-node-timeout of these nodes: short, yet longer than a machine with much to do keeps them waiting.
const nodeTime = "3000"

// clusterWait is longer than anything takes that a cluster does by itself.
const clusterWait = 90 * time.Second

func startNodes(t testing.TB, n int, more ...string) (nodes []*testNode, conns []*testkit.Conn) {
	t.Helper()
	for range n {
		node := startServer(t, append([]string{"cluster-enabled yes", "cluster-node-timeout " + nodeTime}, more...)...)
		nodes, conns = append(nodes, node), append(conns, node.dial(t))
	}
	return nodes, conns
}

// again starts a node anew that was stopped, with its files.
func again(t *testing.T, n *testNode) (*testNode, *testkit.Conn) {
	t.Helper()
	next := &testNode{Server: New(n.cfg, NewLogger("", n.log, 0)), Addr: n.Addr, Port: n.Port, log: n.log}
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return next, next.dial(t)
}

func mustOK(t testing.TB, c *testkit.Conn, words ...string) {
	t.Helper()
	if got := c.Do(words...).Raw; got != "+OK\r\n" {
		t.Fatalf("%v: got %q", words, got)
	}
}

// join makes one cluster of nodes, the slots in equal parts on the first primaries of them, and each other one a replica
// of the first, the second ...
func join(t testing.TB, nodes []*testNode, conns []*testkit.Conn, primaries int) {
	t.Helper()
	for i, c := range conns {
		if i < primaries {
			first, last := i*slot.Count/primaries, (i+1)*slot.Count/primaries-1
			mustOK(t, c, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
		mustOK(t, c, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			mustOK(t, c, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].Port))
		}
	}
	known := func(c *testkit.Conn) bool {
		return strings.Contains(c.Do("CLUSTER", "INFO").Raw, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(conns))) &&
			!strings.Contains(c.Do("CLUSTER", "NODES").Raw, "handshake")
	}
	for _, c := range conns {
		testkit.Eventually(t, clusterWait, func() bool { return known(c) }, "a node knows all")
	}
	for i := primaries; i < len(conns); i++ {
		mustOK(t, conns[i], "CLUSTER", "REPLICATE", conns[i-primaries].Do("CLUSTER", "MYID").Value.(string))
	}
	for i, c := range conns {
		clusterState(t, c, "ok")
		if i >= primaries {
			inStep(t, conns[i-primaries], c)
		}
	}
}

// owners is what CLUSTER NODES says of who has what, which must be the same on all nodes.
func owners(c *testkit.Conn) string {
	var lines []string
	for line := range strings.Lines(fmt.Sprint(c.Do("CLUSTER", "NODES").Value)) {
		f := strings.Fields(line)
		flags := strings.TrimPrefix(f[2], "myself,")
		lines = append(lines, strings.Join(append([]string{f[0], f[1], flags, f[3], f[6], f[7]}, f[8:]...), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func agree(t *testing.T, conns []*testkit.Conn) {
	t.Helper()
	for _, c := range conns[1:] {
		testkit.Eventually(t, clusterWait, func() bool { return owners(c) == owners(conns[0]) }, "all nodes say the same")
	}
}

func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 3)
	join(t, nodes, conns, 3)
	agree(t, conns)
	// foo is in slot 12182, of the third.
	mustOK(t, conns[2], "SET", "foo", "bar")
	if got, want := conns[0].Do("GET", "foo").Raw, fmt.Sprintf("-MOVED 12182 127.0.0.1:%d\r\n", nodes[2].Port); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	messagesCross(t, nodes, conns)
	if err := nodes[2].Stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range conns[:2] {
		clusterState(t, c, "fail")
		if got := c.Do("GET", "foo").Raw; got != "-CLUSTERDOWN The cluster is down\r\n" {
			t.Errorf("got %q", got)
		}
	}
	var last *testkit.Conn
	nodes[2], last = again(t, nodes[2])
	conns[2] = last
	for _, c := range conns {
		clusterState(t, c, "ok")
	}
	agree(t, conns)
	if got := last.Do("GET", "foo").Raw; got != "$3\r\nbar\r\n" {
		t.Errorf("got %q", got)
	}
}

// messagesCross publishes on one node what is heard on another.
func messagesCross(t *testing.T, nodes []*testNode, conns []*testkit.Conn) {
	t.Helper()
	far := nodes[1].dial(t)
	far.Do("SUBSCRIBE", "news")
	if got := conns[0].Do("PUBLISH", "news", "hello").Raw; got != ":0\r\n" {
		t.Errorf("PUBLISH counts the subscribers here: got %q", got)
	}
	got, err := far.Receive()
	if want := "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n"; err != nil || got.Raw != want {
		t.Errorf("got %q, %v", got.Raw, err)
	}
	if got := conns[0].Do("SPUBLISH", "foo", "x").Raw; !strings.HasPrefix(got, "-MOVED 12182") {
		t.Errorf("got %q", got)
	}
	if got := conns[1].Do("CLUSTER", "INFO").Raw; !strings.Contains(got, "cluster_stats_messages_publish_received:1") {
		t.Errorf("the message is not counted: %s", got)
	}
}

func TestClusterFailover(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 4)
	join(t, nodes, conns, 3)
	agree(t, conns)
	primary, replica := conns[0], conns[3]
	mustOK(t, primary, "SET", "{b}1", "one") // slot 3300
	inStep(t, primary, replica)
	moved := fmt.Sprintf("-MOVED 3300 127.0.0.1:%d\r\n", nodes[0].Port)
	if got := replica.Do("GET", "{b}1").Raw; got != moved {
		t.Errorf("got %q, want %q", got, moved)
	}
	mustOK(t, replica, "READONLY")
	if got := replica.Do("GET", "{b}1").Raw; got != "$3\r\none\r\n" {
		t.Errorf("got %q", got)
	}
	if got := replica.Do("SET", "{b}1", "x").Raw; got != moved {
		t.Errorf("got %q, want %q", got, moved)
	}
	// A shard channel: who listens at the replica hears what is said at the primary, and loses nothing by the failover.
	ear := nodes[3].dial(t)
	ear.Do("SSUBSCRIBE", "{b}news")
	primary.Do("SPUBLISH", "{b}news", "hello")
	if got, err := ear.Receive(); err != nil || !strings.Contains(got.Raw, "hello") {
		t.Errorf("got %q, %v", got.Raw, err)
	}
	// Writes go on while the roles change, each acknowledged once.
	acked := make(chan int)
	stop := make(chan struct{})
	go writeThrough(map[string]*testkit.Conn{nodes[0].Addr: nodes[0].dial(t), nodes[3].Addr: nodes[3].dial(t)}, nodes[0].Addr, stop, acked)
	mustOK(t, replica, "CLUSTER", "FAILOVER")
	isPrimary(t, replica)
	inStep(t, replica, primary)
	close(stop)
	if n := <-acked; infoCount(t, replica, "{b}n") != n {
		t.Errorf("%d increments were acknowledged, the counter is %d", n, infoCount(t, replica, "{b}n"))
	}
	agree(t, conns)
	// A primary that stops hands over: when it has ended, the other one serves.
	inStep(t, replica, primary)
	if err := nodes[3].Stop(); err != nil {
		t.Fatal(err)
	}
	if got := primary.Do("SET", "{b}1", "two").Raw; got != "+OK\r\n" {
		t.Errorf("got %q\n%s", got, nodes[3].log)
	}
	var returned *testkit.Conn
	nodes[3], returned = again(t, nodes[3])
	inStep(t, primary, returned)
	if got := infoField(t, returned, "replication", "role"); got != "slave" {
		t.Errorf("got role %s", got)
	}
	conns[3] = returned
	agree(t, conns)
}

func isPrimary(t *testing.T, c *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, clusterWait, func() bool { return infoField(t, c, "replication", "role") == "master" }, "it is a primary")
}

// writeThrough counts a key up, following redirections, and tells how often that was acknowledged.
func writeThrough(conns map[string]*testkit.Conn, at string, stop <-chan struct{}, acked chan<- int) {
	n := 0
	defer func() { acked <- n }()
	for {
		select {
		case <-stop:
			return
		default:
		}
		got, err := conns[at].Try("INCR", "{b}n")
		if err != nil {
			return
		}
		if to, is := strings.CutPrefix(got.Raw, "-MOVED 3300 "); is {
			at = strings.TrimSpace(to)
		} else if strings.HasPrefix(got.Raw, ":") {
			n++
		}
	}
}

func infoCount(t *testing.T, c *testkit.Conn, key string) int {
	t.Helper()
	n, _ := strconv.Atoi(fmt.Sprint(c.Do("GET", key).Value))
	return n
}

// redis-cli makes a cluster of three live nodes and one of ours, and finds it in order from each of them.
func TestClusterMadeByRedisCLI(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("no redis-cli here")
	}
	ours := startServer(t, "cluster-enabled yes", "cluster-node-timeout "+nodeTime)
	addrs, conns := []string{ours.Addr}, []*testkit.Conn{ours.dial(t)}
	for range 3 {
		r := testkit.StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", nodeTime)
		addrs, conns = append(addrs, r.Addr), append(conns, testkit.Dial(t, r.Addr))
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(cli, append([]string{"--cluster"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli --cluster %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(append(append([]string{"create"}, addrs...), "--cluster-yes")...)
	for _, c := range conns {
		clusterState(t, c, "ok")
	}
	for _, a := range addrs {
		if out := run("check", a); !strings.Contains(out, "[OK] All nodes agree") || !strings.Contains(out, "[OK] All 16384 slots covered") {
			t.Errorf("check %s:\n%s", a, out)
		}
	}
	for i, a := range conns {
		for j, b := range conns {
			key := fmt.Sprintf("{%d}from%d", j, i)
			got, want := a.Do("GET", key).Raw, b.Do("GET", key).Raw
			if strings.HasPrefix(got, "-MOVED") && strings.HasPrefix(want, "-MOVED") && got != want {
				t.Errorf("%s: node %d says %q, node %d says %q", key, i, got, j, want)
			}
		}
	}
	if out := run("call", addrs[1], "ping"); strings.Count(out, "PONG") != len(addrs) {
		t.Errorf("call: %s", out)
	}
}

// What a slot on its way answers is what a live server answers.
func TestMovingSlotIsRedis(t *testing.T) {
	t.Parallel()
	p := startClusterPair(t)
	for _, c := range []*testkit.Conn{p.cairn, p.redis} {
		mustOK(t, c, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	}
	p.state("ok")
	// Another node of each kind, known well enough to be the end of a move.
	_, ours := startNodes(t, 1)
	theirs := testkit.Dial(t, testkit.StartRedis(t, "--cluster-enabled", "yes").Addr)
	meet := func(c, far *testkit.Conn) string {
		id := far.Do("CLUSTER", "MYID").Value.(string)
		port := far.Do("CONFIG", "GET", "port").Value.([]any)[1].(string)
		mustOK(t, c, "CLUSTER", "MEET", "127.0.0.1", port)
		for _, x := range []*testkit.Conn{c, far} {
			testkit.Eventually(t, clusterWait, func() bool {
				text := x.Do("CLUSTER", "NODES").Raw
				return strings.Count(text, "master") == 2 && !strings.Contains(text, "handshake") && strings.Contains(text, "0-16383")
			}, "two nodes know each other")
		}
		return id
	}
	ids := []string{meet(p.cairn, ours[0]), meet(p.redis, theirs)}
	for i, c := range []*testkit.Conn{p.cairn, p.redis} {
		c.Do("SET", "{a}here", "1")
		c.Do("SET", "{a}too", "1")
		mustOK(t, c, "CLUSTER", "SETSLOT", "15495", "MIGRATING", ids[i])
	}
	far := &pair{t: t, cairn: ours[0], redis: theirs}
	far.state("ok")
	for i, c := range []*testkit.Conn{p.cairn, p.redis} {
		id := c.Do("CLUSTER", "MYID").Value.(string)
		mustOK(t, []*testkit.Conn{ours[0], theirs}[i], "CLUSTER", "SETSLOT", "15495", "IMPORTING", id)
	}
	p.alike(script(t, "slot_leaving.txt"))
	far.alike(script(t, "slot_arriving.txt"))
}

// A clock that is set changes nothing in the cluster.
func TestClusterClockIsItsOwn(t *testing.T) {
	n := startServer(t, "cluster-enabled yes")
	before := n.bus.Now()
	n.clock = func() int64 { return 1 }
	if after := n.bus.Now(); after < before {
		t.Errorf("the bus is at %d, was at %d", after, before)
	}
}

func TestBusProtectedMode(t *testing.T) {
	n := newServer(t, "cluster-enabled yes", "cluster-bus-port-protected-mode yes", "bind 0.0.0.0")
	err := n.Start()
	if want := fmt.Sprintf("port %d, is open to other machines (bind 0.0.0.0)", n.Port+10000); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
	for bind, want := range map[string]string{"0.0.0.0": "is open to other machines", "127.0.0.1": "+OK"} {
		c := startServer(t, "cluster-enabled yes", "bind "+bind).dial(t)
		for value, want := range map[string]string{"no": "+OK", "yes": want} {
			if got := c.Do("CONFIG", "SET", "cluster-bus-port-protected-mode", value).Raw; !strings.Contains(got, want) {
				t.Errorf("bind %s, set to %s: %q, want %q", bind, value, got, want)
			}
		}
	}
	alone := startServer(t, "cluster-enabled yes", "cluster-bus-port-protected-mode yes", "bind 127.0.0.1 -::1")
	if strings.Contains(alone.log.String(), "open to other machines") {
		t.Errorf("it warns without a reason:\n%s", alone.log)
	}
}
