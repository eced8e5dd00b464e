package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/tools/node"
)

const openWait = 60 * time.Second

// openSlot is a slot in the middle of its move, in a cluster of processes: the nodes 0 and 3 are one shard, 1 and 4 the one
// that it goes to.
type openSlot struct {
	t *testing.T
	*node.Cluster
	slot string
	keys []string
}

func newOpenSlot(t *testing.T, timeout time.Duration) *openSlot {
	t.Helper()
	c, err := node.StartCluster(node.ClusterSpec{
		Program: []string{built().cairn, "server"}, Args: []string{"--save", "", "--memory-budget", "64mb"}, Dir: t.TempDir(),
		Primaries: 3, Replicas: 1, Timeout: timeout,
	}, openWait)
	t.Cleanup(c.Close)
	if err != nil {
		t.Fatal(err)
	}
	o := &openSlot{t: t, Cluster: c, slot: "3300"}
	for i := range 20 {
		o.keys = append(o.keys, "{b}"+strconv.Itoa(i))
		o.ok(0, "SET", o.keys[i], strconv.Itoa(i))
	}
	o.ok(1, "CLUSTER", "SETSLOT", o.slot, "IMPORTING", c.Members[0].ID)
	o.ok(0, "CLUSTER", "SETSLOT", o.slot, "MIGRATING", c.Members[1].ID)
	return o
}

func (o *openSlot) ok(i int, words ...string) {
	o.t.Helper()
	if err := o.Members[i].OK(words...); err != nil {
		o.t.Fatalf("node %d: %v: %v", i, words, err)
	}
}

func (o *openSlot) await(what string, cond func() error) {
	o.t.Helper()
	if err := o.Await(openWait, cond); err != nil {
		o.t.Fatalf("%s: %v", what, err)
	}
}

// port is a node's, as it stands in a redirection.
func (o *openSlot) port(i int) string {
	_, port, _ := net.SplitHostPort(o.Members[i].Addr) // it was made by JoinHostPort
	return port
}

// move moves keys from one node to the other.
func (o *openSlot) move(from, to int, keys []string) {
	o.t.Helper()
	o.ok(from, append([]string{"MIGRATE", "127.0.0.1", o.port(to), "", "0", "20000", "KEYS"}, keys...)...)
}

// asks waits until a node sends clients to another one for a key that it does not have.
func (o *openSlot) asks(at, to int, key string) {
	o.t.Helper()
	want := "ASK " + o.slot + " 127.0.0.1:" + o.port(to)
	o.await("it sends clients on", func() error {
		conn, err := o.Members[at].Dial(openWait)
		if err != nil {
			return err
		}
		defer conn.Close()
		r, err := conn.Do("GET", key)
		if err == nil && r.Err() != want {
			err = fmt.Errorf("node %d answers %q, want %s", at, r.Err(), want)
		}
		return err
	})
}

// has checks that a node gives keys to clients that were sent there.
func (o *openSlot) has(at int, keys []string) {
	o.t.Helper()
	conn, err := o.Members[at].Dial(openWait)
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Close()
	for _, key := range keys {
		// A machine with much to do may part the nodes for a moment: the cluster is down then, and nothing is lost.
		o.await("the node serves", func() error {
			if _, err := conn.Do("ASKING"); err != nil {
				return err
			}
			got, err := conn.Text("GET", key)
			if err == nil && got != strings.TrimPrefix(key, "{b}") {
				o.t.Fatalf("node %d: %s is %q", at, key, got)
			}
			return err
		})
	}
}

// replaced kills a node and waits until its replica serves in its place.
func (o *openSlot) replaced(i, by int) {
	o.t.Helper()
	o.Members[i].Kill()
	o.await("the replica takes over", func() error {
		n, err := o.Members[by].Mine()
		if err == nil && !n.Has("master") {
			err = fmt.Errorf("node %d is no primary", by)
		}
		if err != nil {
			return err
		}
		info, err := o.Members[by].Text("CLUSTER", "INFO")
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = fmt.Errorf("node %d: %.30q", by, info)
		}
		return err
	})
}

func (o *openSlot) restart(i int) {
	o.t.Helper()
	if err := o.Restart(o.Members[i], openWait); err != nil {
		o.t.Fatal(err)
	}
}

// fixed has the tool make the cluster whole, and looks whether all is as it was.
func (o *openSlot) fixed() {
	o.t.Helper()
	if err := o.AwaitSteady(openWait); err != nil {
		o.t.Fatal(err)
	}
	// Nodes that do not agree yet make it fail.
	o.await("fix", func() error { _, err := node.RunTool(openWait, "fix", o.Members[2].Addr); return err })
	if err := o.AwaitSteady(openWait); err != nil {
		o.t.Fatal(err)
	}
	o.await("the tool is content", func() error { return node.Content(o.Members[2].Addr, openWait) })
	for _, key := range o.keys {
		got := 0
		for i, m := range o.Members {
			text, err := m.Text("GET", key)
			for end := time.Now().Add(openWait); err != nil && strings.Contains(err.Error(), "TRYAGAIN") && time.Now().Before(end); {
				text, err = m.Text("GET", key) // just repaired
			}
			switch {
			case err == nil && text == strings.TrimPrefix(key, "{b}"):
				got++
			case err == nil || !strings.Contains(err.Error(), "MOVED"):
				o.t.Errorf("node %d: %s is %q, %v", i, key, text, err)
			}
		}
		if got != 1 {
			o.t.Errorf("%d nodes serve %s", got, key)
		}
	}
	for i, m := range o.Members {
		if n, err := m.Mine(); err != nil || len(n.Open) > 0 {
			o.t.Errorf("node %d has open slots %v, %v", i, n.Open, err)
		}
	}
}

// Target and source are killed one after the other while a slot is half moved; their replicas go on with it.
func TestOpenSlotOutlivesBothEnds(t *testing.T) {
	t.Parallel()
	lookPath(t, "redis-cli")
	o := newOpenSlot(t, 3*time.Second)
	o.move(0, 1, o.keys[:10])
	o.replaced(1, 4)
	o.asks(0, 4, o.keys[0])
	o.has(4, o.keys[:10])
	o.restart(1)
	if err := o.AwaitSteady(openWait); err != nil {
		t.Fatal(err)
	}
	o.replaced(0, 3)
	o.asks(3, 4, o.keys[0])
	o.restart(0)
	if err := o.AwaitSteady(openWait); err != nil {
		t.Fatal(err)
	}
	o.move(3, 4, o.keys[10:15])
	o.has(4, o.keys[:15])
	o.fixed()
}

// What SETSLOT was answered is there after a kill: the marks, with no time for a save; and an end that was killed in the
// last step is made whole by the rest.
func TestOpenSlotOutlivesAKill(t *testing.T) {
	t.Parallel()
	lookPath(t, "redis-cli")
	o := newOpenSlot(t, 6*time.Second) // nobody is replaced
	o.move(0, 1, o.keys[:10])
	for _, i := range []int{0, 1} {
		// One more mark, then the kill, faster than a save is.
		o.ok(0, "CLUSTER", "SETSLOT", strconv.Itoa(10+i), "MIGRATING", o.Members[1].ID)
		o.ok(1, "CLUSTER", "SETSLOT", strconv.Itoa(10+i), "IMPORTING", o.Members[0].ID)
		o.Members[i].Kill()
		o.restart(i)
		n, err := o.Members[i].Mine()
		if err != nil || len(n.Open) != 2+i {
			t.Fatalf("node %d has open slots %v, %v, want %d", i, n.Open, err, 2+i)
		}
	}
	for _, m := range o.Members[:2] {
		for _, sl := range []string{"10", "11"} {
			if err := m.OK("CLUSTER", "SETSLOT", sl, "STABLE"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := o.AwaitSteady(openWait); err != nil {
		t.Fatal(err)
	}
	o.move(0, 1, o.keys[10:])
	o.ok(1, "CLUSTER", "SETSLOT", o.slot, "NODE", o.Members[1].ID)
	o.Members[1].Kill()
	o.ok(0, "CLUSTER", "SETSLOT", o.slot, "NODE", o.Members[1].ID)
	o.restart(1)
	// Nobody helps: the target has claimed the slot, or takes it when it hears that nobody else does.
	o.await("the target has the slot", func() error {
		n, err := o.Members[1].Mine()
		if err == nil && !n.Owns(3300) {
			err = fmt.Errorf("it has %v", n.Ranges)
		}
		return err
	})
	o.fixed()
}
