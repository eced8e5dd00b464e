package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findFresh marks the nodes whose folders were removed: started, such a node has a new id and knows nobody. It must not be
// started as long as the others take it for what it was: a replica of a primary that is empty now would copy that.
func (c *localCluster) findFresh() error {
	fresh := 0
	for _, n := range c.nodes {
		if _, err := os.Stat(filepath.Join(n.dir, nodesName)); errors.Is(err, os.ErrNotExist) && c.rec.Formed && !n.held {
			n.fresh = true
			fresh++
		}
	}
	if fresh == len(c.nodes) {
		return errors.New("nothing is left of any node: down --wipe removes the rest, and up makes a new cluster then")
	}
	return nil
}

// rejoin brings back the nodes whose folders were removed. Each becomes a replica of the primary that has fewest, and what the
// others know of its former self is forgotten. When the slots of a shard are gone with it the node is named.
func (c *localCluster) rejoin(ctx context.Context, old, fresh []*localNode) error {
	if len(fresh) == 0 {
		return nil
	}
	member := old[0]
	c.say.step("joining", "%s without a cluster", count(len(fresh), "node"))
	within, cancel := context.WithTimeoutCause(ctx, electWait, fmt.Errorf("not within %v", electWait))
	defer cancel()
	var asked time.Time
	err := poll(within, func() error {
		if time.Since(asked) > askEvery {
			asked = time.Now()
			if err := replaceLost(member, old, fresh); err != nil {
				return err
			}
		}
		return member.covered(fresh)
	})
	if err != nil {
		return fmt.Errorf("node %s: its folder is empty or gone, so it knows nobody, and it cannot come back as a replica: node %d: %w. "+
			"Bring the folder back; or down --wipe, and up makes a new cluster", portsOf(fresh), member.port, err)
	}
	for _, n := range fresh {
		if err := c.startNode(n); err != nil {
			return fmt.Errorf("start node %d: %w", n.port, err)
		}
	}
	if err := c.connect(ctx, fresh); err != nil {
		return err
	}
	for _, n := range fresh {
		if err := c.rejoinOne(ctx, n, member); err != nil {
			return fmt.Errorf("node %d: its folder was empty or gone; adding it to the cluster: %w", n.port, err)
		}
	}
	c.say.phase("joining", "node %s, whose folder was empty or gone: anew, as a replica", portsOf(fresh))
	return nil
}

// askEvery is longer than a failover by hand takes, and than it is tried.
const askEvery = 6 * time.Second

const nodesName = "nodes.conf"

// electWait is how long a shard may take to have a primary: the node timeout, the election, and what a loaded machine adds.
const electWait = 30 * time.Second

func (c *localCluster) rejoinOne(ctx context.Context, n, member *localNode) error {
	if _, err := member.conn.do("CLUSTER", "MEET", host, strconv.Itoa(n.port), strconv.Itoa(n.port+busAbove)); err != nil {
		return err
	}
	nodes := ""
	err := poll(ctx, func() (err error) {
		if err := member.knows([]*localNode{n}); err != nil {
			return err
		}
		if err := n.knows([]*localNode{member}); err != nil {
			return err
		}
		nodes, err = member.conn.text("CLUSTER", "NODES")
		return err
	})
	if err != nil {
		return err
	}
	primary := fewestReplicas(nodes)
	err = poll(ctx, func() error {
		_, err := n.conn.do("CLUSTER", "REPLICATE", primary) // unknown until the gossip has told of it
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range formerOf(nodes, n.port, n.id) {
		for _, other := range c.nodes {
			_, _ = other.conn.do("CLUSTER", "FORGET", id) // who does not know it has nothing to forget
		}
	}
	return nil
}

// replaceLost makes replicas take the places of the primaries whose folders are gone. A replica that was started without its
// primary would not stand by itself: it cannot tell how old its data are.
func replaceLost(member *localNode, old, fresh []*localNode) error {
	nodes, err := member.conn.text("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	for line := range strings.Lines(nodes) {
		primary := strings.Fields(line)
		if len(primary) < 9 || !isOneOf(fresh, primary[1]) {
			continue
		}
		for _, n := range old {
			if f := strings.Fields(nodeLine(nodes, n.id)); len(f) >= 8 && f[3] == primary[0] {
				_, _ = n.conn.do("CLUSTER", "FAILOVER", "FORCE") // whether it did is what the others say next
				break
			}
		}
	}
	return nil
}

func isOneOf(nodes []*localNode, address string) bool {
	return slices.ContainsFunc(nodes, func(n *localNode) bool { return portOf(address) == n.port })
}

// portOf is the port of clients in an address of CLUSTER NODES, 127.0.0.1:7000@17000,name; 0 when there is none.
func portOf(address string) int {
	address, _, _ = strings.Cut(address, "@")
	port, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil {
		return 0
	}
	return port
}

// covered returns an error while a slot has no primary, or one that is not there, as the fresh ones are not: whether their
// links are called connected is a matter of the moment.
func (n *localNode) covered(fresh []*localNode) error {
	nodes, err := n.conn.text("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) > 8 && (f[7] != "connected" || strings.Contains(f[2], "fail") || isOneOf(fresh, f[1])) {
			return fmt.Errorf("nobody serves the slots %s, whose primary had the id %s", strings.Join(f[8:], " "), f[0])
		}
	}
	info, err := n.conn.text("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("it says cluster_state:%s", state)
	}
	return nil
}

// fewestReplicas finds in the text of CLUSTER NODES the primary with slots that has fewest replicas that are well.
func fewestReplicas(nodes string) (id string) {
	replicas := map[string]int{}
	var primaries []string
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		switch {
		case len(f) < 8 || strings.Contains(f[2], "fail"):
		case strings.Contains(f[2], "slave"):
			replicas[f[3]]++
		case len(f) > 8:
			primaries = append(primaries, f[0])
		}
	}
	for _, p := range primaries {
		if id == "" || replicas[p] < replicas[id] {
			id = p
		}
	}
	return id
}

// formerOf finds the failed nodes that were at a port under other ids.
func formerOf(nodes string, port int, id string) (former []string) {
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == id || !strings.Contains(f[2], "fail") && !strings.Contains(f[2], "noaddr") {
			continue
		}
		if portOf(f[1]) == port || strings.Contains(f[2], "noaddr") {
			former = append(former, f[0])
		}
	}
	return former
}

func portsOf(nodes []*localNode) string {
	var ports []string
	for _, n := range nodes {
		ports = append(ports, strconv.Itoa(n.port))
	}
	return strings.Join(ports, ", ")
}
