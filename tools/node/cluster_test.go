package node_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

// TestClusterOfRedis: what is started is a cluster, and a client finds its way also when a role has moved.
func TestClusterOfRedis(t *testing.T) {
	t.Parallel()
	c, err := node.StartCluster(node.ClusterSpec{
		Program: []string{testkit.RedisPath(t), "--save", ""}, Args: []string{"--repl-diskless-sync-delay", "0"},
		Dir: t.TempDir(), Primaries: 3, Replicas: 1, Timeout: 15 * time.Second,
	}, 60*time.Second)
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range c.Members {
				t.Logf("%s says:\n%s", m.Name, m.Output(1<<10))
			}
		}
		c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	r := node.NewRouter(c.Addrs()[5:], 20*time.Second) // it knows a replica only
	t.Cleanup(r.Close)
	write := func(key, value string) (addr string) {
		testkit.Eventually(t, 60*time.Second, func() bool {
			replies, at, err := r.Try(key, []string{"SET", key, value}, []string{"GET", key})
			addr = at
			return err == nil && len(replies) == 2 && string(replies[1].Str) == value
		}, "%s was not written", key)
		return addr
	}
	for i := range 30 {
		key := "k" + strconv.Itoa(i)
		addr := write(key, key)
		for k := range 3 {
			if p, _, err := c.Primary(k); err != nil || c.Slots(k).Has(slot.Of([]byte(key))) != (p.Addr == addr) {
				t.Errorf("%s was written to %s, the primary of shard %d is %v, %v", key, addr, k, p, err)
			}
		}
	}
	old, replicas, err := c.Primary(0)
	if err != nil || len(replicas) != 1 {
		t.Fatalf("%v, %d replicas", err, len(replicas))
	}
	if err := replicas[0].OK("CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 60*time.Second, func() bool {
		p, _, err := c.Primary(0)
		return err == nil && p == replicas[0]
	}, "%s has not taken over", replicas[0].Name)
	key := ""
	for i := 0; !c.Slots(0).Has(slot.Of([]byte(key))); i++ {
		key = "moved" + strconv.Itoa(i)
	}
	if addr := write(key, "there"); addr != replicas[0].Addr {
		t.Errorf("%s was written to %s, want %s", key, addr, replicas[0].Addr)
	}
	if err := c.AwaitSteady(60 * time.Second); err != nil {
		t.Fatal(err)
	}
	old.Kill()
	if _, err := old.Text("PING"); err == nil {
		t.Error("a node that was killed answers")
	}
	if err := c.InStep(0); err == nil {
		t.Error("a node that was killed is in step")
	}
	if err := c.Restart(old, 60*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitSteady(60 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// TestRouterWithoutNodes: a client that finds nobody says so.
func TestRouterWithoutNodes(t *testing.T) {
	t.Parallel()
	r := node.NewRouter([]string{"127.0.0.1:1"}, time.Second)
	defer r.Close()
	if _, _, err := r.Try("k", []string{"GET", "k"}); err == nil {
		t.Error("somebody answered")
	}
	_, c := start(t)
	r = node.NewRouter([]string{c.Net().RemoteAddr().String()}, time.Second)
	defer r.Close()
	if _, _, err := r.Try("k", []string{"GET", "k"}); err == nil || errors.Is(err, node.ErrElsewhere) {
		t.Errorf("%v, want an error of a server that is no cluster", err)
	}
}

const someNodes = `07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,host slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.0.1:30002@31002 master,fail? - 0 1426238316232 2 disconnected 5461-10922 3 [77->-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1]
`

func TestParseNodes(t *testing.T) {
	t.Parallel()
	nodes, err := node.ParseNodes(someNodes)
	if err != nil || len(nodes) != 2 {
		t.Fatalf("%d nodes, %v; want 2", len(nodes), err)
	}
	if n := nodes[0]; !n.Has("slave") || n.Addr != "127.0.0.1:30004" || n.Failing() || !n.Linked || n.Slots != 0 || n.Epoch != 4 {
		t.Errorf("%+v", n)
	}
	if n := nodes[1]; !n.Has("master") || n.Has("fail") || !n.Failing() || n.Linked || n.Slots != 5463 || n.Primary != "-" ||
		!n.Owns(3) || !n.Owns(5461) || n.Owns(5460) || len(n.Open) != 1 {
		t.Errorf("%+v", n)
	}
	for _, bad := range []string{"one two", strings.Replace(someNodes, " 2 dis", " x dis", 1), strings.Replace(someNodes, "5461-", "5461+", 1)} {
		if nodes, err := node.ParseNodes(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, nodes)
		}
	}
}

// FuzzParseNodes: it is text from a server.
func FuzzParseNodes(f *testing.F) {
	f.Add(someNodes)
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := node.ParseNodes(text)
		if err == nil && len(nodes) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d nodes from %d lines", len(nodes), strings.Count(text, "\n")+1)
		}
	})
}
