package bus

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
	"cairn/internal/testkit"
)

// TestDriversMeet: three nodes know each other after two of them were met, and publish to each other.
func TestDriversMeet(t *testing.T) {
	t.Parallel()
	a, b, c := start(t, nil), start(t, nil), start(t, nil)
	a.meet(b.port)
	a.meet(c.port)
	for _, m := range [][]*member{{a, b, c}, {b, a, c}, {c, a, b}} {
		testkit.Eventually(t, soon, func() bool { return m[0].knows(idOf(m[1].port), idOf(m[2].port)) }, "all know each other")
	}
	a.addSlots(0, 5000)
	testkit.Eventually(t, soon, func() bool {
		n, _ := c.node(idOf(a.port))
		return len(n.Slots) == 1 && n.Slots[0].Last == 5000
	}, "slots of one are known to another")
	b.do(cluster.CmdPublish{Channel: []byte("chan"), Payload: []byte("hello")})
	for _, m := range []*member{a, c} {
		testkit.Eventually(t, soon, func() bool { return m.got("false chan hello") }, "the publication arrives")
	}
	links := a.Links()
	if len(links) != 4 {
		t.Errorf("%d links, want two to and two from: %+v", len(links), links)
	}
	testkit.Eventually(t, soon, func() bool {
		a.Driver.mu.Lock()
		defer a.Driver.mu.Unlock()
		return len(a.strangers) == 0
	}, "no link is a stranger's")
	old := a.linksWith(b)
	a.KillLinks(idOf(b.port), true, true)
	for at, l := range a.linksWith(b) {
		if old[at] == l {
			t.Errorf("link %d is there although it was killed", at)
		}
	}
	testkit.Eventually(t, soon, func() bool { return len(a.Links()) == 4 && a.knows(idOf(b.port), idOf(c.port)) }, "killed links come back")
}

// linksWith gives the links with another member.
func (m *member) linksWith(other *member) map[cluster.LinkID]*link {
	m.Driver.mu.Lock()
	defer m.Driver.mu.Unlock()
	out := map[cluster.LinkID]*link{}
	for at, l := range m.links {
		if peer, ok := m.machine.LinkPeer(at); ok && peer.String() == idOf(other.port) {
			out[at] = l
		}
	}
	return out
}

// TestRestart: a node that comes back is the one that it was.
func TestRestart(t *testing.T) {
	t.Parallel()
	a, b := start(t, nil), start(t, nil)
	a.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "they meet")
	a.addSlots(7, 9)
	o := a.o
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if ans := a.Do(cluster.CmdSave{}); ans.Err == nil {
		t.Error("a closed driver took a command")
	}
	d, err := Load(o, func() *cluster.State { t.Error("begins anew"); return fresh(a.port)() })
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	again := &member{d, a.recorder, t, a.port}
	testkit.Eventually(t, soon, func() bool { return again.knows(idOf(b.port)) }, "it knows the other one")
	if n, _ := again.node(idOf(a.port)); len(n.Slots) != 1 || n.Slots[0].First != 7 {
		t.Errorf("slots %v, want 7-9", n.Slots)
	}
}

// redisNode is a real server and what is asked of it here.
type redisNode struct {
	*testkit.Redis
	client *testkit.Conn
	id     string
}

func startRedis(t *testing.T) *redisNode {
	t.Helper()
	r := testkit.StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(testTimeout))
	c := testkit.Dial(t, r.Addr)
	return &redisNode{r, c, strings.TrimSpace(c.Do("CLUSTER", "MYID").Value.(string))}
}

func (r *redisNode) bus() int { return r.Port + 10000 }

// line gives the server's line about a node.
func (r *redisNode) line(id string) string {
	for l := range strings.Lines(r.client.Do("CLUSTER", "NODES").Value.(string)) {
		if strings.HasPrefix(l, id) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

func (r *redisNode) knows(id string) bool {
	l := r.line(id)
	return strings.Contains(l, " connected") && !strings.Contains(l, "handshake")
}

// TestRedisAsPeer: a node of ours and two real servers are one cluster. It meets the one, and the other one meets it; slots
// and publications travel; all agree that a killed one has failed, and that it is back.
func TestRedisAsPeer(t *testing.T) {
	t.Parallel()
	a, first, second := start(t, nil), startRedis(t), startRedis(t)
	a.meet(first.bus())
	me := idOf(a.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(first.id) && first.knows(me) }, "our meet")
	second.client.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(a.port-10000), strconv.Itoa(a.port))
	testkit.Eventually(t, soon, func() bool { return a.knows(first.id, second.id) && second.knows(me) && second.knows(first.id) }, "their meet")

	a.addSlots(0, 5000)
	first.client.Do("CLUSTER", "ADDSLOTSRANGE", "5001", "10000")
	second.client.Do("CLUSTER", "ADDSLOTSRANGE", "10001", "16383")
	for _, r := range []*redisNode{first, second} {
		testkit.Eventually(t, soon, func() bool {
			return strings.Contains(r.line(me), " 0-5000") && strings.Contains(r.client.Do("CLUSTER", "INFO").Raw, "cluster_state:ok")
		}, "the server sees our slots, and a whole cluster")
	}
	testkit.Eventually(t, soon, func() bool { return a.Driver.View().OK }, "our node sees a whole cluster")

	first.client.Do("SUBSCRIBE", "chan")
	a.do(cluster.CmdPublish{Channel: []byte("chan"), Payload: []byte("to redis")})
	if got := fmt.Sprint(must(t, first.client)); !strings.Contains(got, "to redis") {
		t.Errorf("subscriber got %s", got)
	}
	second.client.Do("PUBLISH", "chan", "from redis")
	testkit.Eventually(t, soon, func() bool { return a.got("false chan from redis") }, "their publication arrives")

	first.Kill()
	testkit.Eventually(t, soon, func() bool {
		n, _ := a.node(first.id)
		return n.Flags&nodesconf.Failed != 0 && strings.Contains(second.line(first.id), "master,fail ")
	}, "the killed one has failed, here and there")
	if a.Driver.View().OK {
		t.Error("our node thinks the cluster is well without a third of it")
	}
}

func must(t *testing.T, c *testkit.Conn) testkit.Reply {
	t.Helper()
	r, err := c.Receive()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConfigure: changed addresses reach the machine, and a changed timeout the links.
func TestConfigure(t *testing.T) {
	t.Parallel()
	a, b := start(t, nil), start(t, nil)
	a.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return b.knows(idOf(a.port)) }, "they meet")
	cfg := a.o.Config
	cfg.Hostname, cfg.NodeTimeout = "a.example", 7000
	a.Configure(cfg, 0)
	testkit.Eventually(t, soon, func() bool {
		n, _ := b.node(idOf(a.port))
		return n.Hostname == "a.example"
	}, "the name is known to the other one")
	a.Driver.mu.Lock()
	defer a.Driver.mu.Unlock()
	if got := a.timeout().Milliseconds(); got != 7000 {
		t.Errorf("links use a timeout of %d ms, want 7000", got)
	}
}

// TestCommandsOfASlowNode: Do waits for the node's work, and the bus does not.
func TestCommandsOfASlowNode(t *testing.T) {
	t.Parallel()
	a, b := start(t, nil), start(t, nil)
	a.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "they meet")
	a.hold = make(chan struct{})
	done := make(chan cluster.Answer, 1)
	go func() { done <- a.Do(cluster.CmdReplicate{ID: idOf(b.port)}) }()
	testkit.Eventually(t, soon, func() bool {
		n, _ := b.node(idOf(a.port))
		return n.Flags&nodesconf.Replica != 0
	}, "others hear of it while the node works")
	select {
	case ans := <-done:
		t.Fatalf("answered before it was done: %v", ans.Err)
	default:
	}
	close(a.hold)
	if ans := <-done; ans.Err != nil || !a.has(fmt.Sprintf("follow 127.0.0.1:%d", b.port-10000)) {
		t.Errorf("%v, calls %v", ans.Err, a.calls)
	}
}
