package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

// drill is a cluster in which replicas are told to take over, and a record of what everybody said.
type drill struct {
	t    *testing.T
	c    *node.Cluster
	said []string
}

// drillTimeout is long: no replica stands by itself before the drill is over.
const drillTimeout = 45 * time.Second

func newDrill(t *testing.T, program []string, args ...string) *drill {
	t.Helper()
	c, err := node.StartCluster(node.ClusterSpec{
		Program: program, Args: args, Dir: t.TempDir(), Primaries: 3, Replicas: 1, Timeout: drillTimeout,
	}, startLimit)
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range c.Members {
				t.Logf("%s says:\n%s", m.Name, m.Output(4<<10))
			}
		}
		c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return &drill{t: t, c: c}
}

func (d *drill) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// steady waits until all is well, and all nodes say the same of who is whose replica: voters must know it.
func (d *drill) steady() {
	d.t.Helper()
	d.must(d.c.AwaitSteady(startLimit))
	d.must(d.c.Await(startLimit, func() error {
		first := ""
		for _, m := range d.c.Members {
			nodes, err := m.Nodes()
			if err != nil {
				return err
			}
			roles := ""
			for _, n := range nodes {
				roles += fmt.Sprintf("%s %v %s %d\n", n.ID, n.Has("slave"), n.Primary, n.Slots)
			}
			lines := strings.Split(roles, "\n")
			slices.Sort(lines)
			if roles = strings.Join(lines, "\n"); first == "" {
				first = roles
			}
			if roles != first || strings.Count(roles, "true") != 3 {
				return fmt.Errorf("%s says%s\n%s says%s", d.c.Members[0].Name, first, m.Name, roles)
			}
		}
		return nil
	}))
}

// ask records a node's answer.
func (d *drill) ask(m *node.Member, words ...string) string {
	d.t.Helper()
	got := testkit.Dial(d.t, m.Addr).Do(words...).Raw
	d.said = append(d.said, fmt.Sprintf("%s %v: %q", m.Name, words, got))
	return got
}

// role records what a node is, of which it must be certain by now.
func (d *drill) role(m *node.Member) {
	d.t.Helper()
	role, err := m.Info("replication", "role")
	d.must(err)
	d.said = append(d.said, m.Name+" is "+role)
}

func (d *drill) becomesPrimary(m *node.Member) {
	d.t.Helper()
	d.must(d.c.Await(startLimit, func() error {
		if role, err := m.Info("replication", "role"); err != nil || role != "master" {
			return errors.Join(err, fmt.Errorf("%s is %q", m.Name, role))
		}
		return nil
	}))
}

// key is one of a shard's.
func (d *drill) key(shard int) string {
	for i := 0; ; i++ {
		if key := "drill-" + strconv.Itoa(i); d.c.Slots(shard).Has(slot.Of([]byte(key))) {
			return key
		}
	}
}

// down kills a node; the other one must have seen that its link to it is gone.
func (d *drill) down(m, sees *node.Member) {
	d.t.Helper()
	m.Kill()
	d.must(d.c.Await(startLimit, func() error {
		link, err := sees.Info("replication", "master_link_status")
		if err == nil && link != "down" {
			err = fmt.Errorf("%s: master_link_status is %q", sees.Name, link)
		}
		return err
	}))
}

// run is the drill. Node i is the first primary of shard i, node i+3 its first replica.
func (d *drill) run() []string {
	p := d.c.Members[:3]
	r := d.c.Members[3:]
	for shard := range 3 {
		d.ask(p[shard], "SET", d.key(shard), "kept")
	}
	d.steady() // and the replicas have it
	for _, word := range []string{"FORCE", "TAKEOVER", "NOW"} {
		d.ask(p[0], "CLUSTER", "FAILOVER", word)
	}
	d.ask(r[0], "CLUSTER", "FAILOVER", "NOW")
	d.ask(r[0], "CLUSTER", "FAILOVER", "FORCE", "TAKEOVER")

	// A primary that is dead hands nothing over. FORCE does without it, and needs votes.
	d.down(p[0], r[0])
	testkit.Eventually(d.t, startLimit, func() bool {
		return testkit.Dial(d.t, r[0].Addr).Do("CLUSTER", "FAILOVER").Raw == "-ERR Master is down or failed, please use CLUSTER FAILOVER FORCE\r\n"
	}, "a primary that is dead is said to be so")
	d.ask(r[0], "CLUSTER", "FAILOVER", "FORCE")
	d.becomesPrimary(r[0])
	d.ask(r[0], "GET", d.key(0))
	d.must(d.c.Restart(p[0], startLimit))
	d.steady()
	d.role(p[0])

	// TAKEOVER asks nobody: it is done when it is answered.
	d.ask(r[1], "CLUSTER", "FAILOVER", "TAKEOVER")
	d.role(r[1])
	d.steady()
	d.role(p[1])

	// With two of three primaries dead there is no majority for FORCE.
	d.down(p[2], r[2])
	d.down(r[1], p[1])
	d.ask(p[1], "CLUSTER", "FAILOVER", "FORCE")
	d.must(d.c.Await(startLimit, func() error {
		info, err := r[0].Text("CLUSTER", "INFO")
		if err == nil && node.Field(info, "cluster_stats_messages_auth-req_received") == "" {
			err = errors.New("the last primary was not asked for its vote")
		}
		return err
	}))
	d.role(p[1])
	for _, m := range []*node.Member{p[1], r[2]} {
		d.ask(m, "CLUSTER", "FAILOVER", "TAKEOVER")
		d.role(m)
	}
	d.ask(p[1], "GET", d.key(1))
	d.ask(r[2], "GET", d.key(2))
	d.must(d.c.Restart(p[2], startLimit))
	d.must(d.c.Restart(r[1], startLimit))
	d.steady()
	for i, m := range d.c.Members {
		d.role(m)
		if d.ask(m, "READONLY"); i >= 3 {
			d.ask(m, "DBSIZE")
		}
	}
	return d.said
}

// TestTakeover: CLUSTER FAILOVER FORCE and TAKEOVER, with primaries that are alive and dead, end as those of redis-server do.
func TestTakeover(t *testing.T) {
	t.Parallel()
	redis := testkit.RedisPath(t)
	var ours, theirs []string
	t.Run("of each", func(t *testing.T) {
		t.Run("cairn", func(t *testing.T) {
			t.Parallel()
			ours = newDrill(t, []string{built().cairn, "server"}, "--memory-budget", "64mb").run()
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			theirs = newDrill(t, []string{redis}, "--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0").run()
		})
	})
	if !slices.Equal(ours, theirs) {
		for i := range max(len(ours), len(theirs)) {
			got, want := "", ""
			if i < len(ours) {
				got = ours[i]
			}
			if i < len(theirs) {
				want = theirs[i]
			}
			if got != want {
				t.Errorf("%s\n  redis-server: %s", got, want)
			}
		}
	}
}
