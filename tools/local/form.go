package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cairn/internal/slot"
)

// form makes one cluster of the nodes: each gets an epoch of its own and its share of the slots, the first one meets all
// others, and the last ones become replicas. Nodes that an interrupted form left halfway begin again.
func (c *localCluster) form(ctx context.Context) error {
	c.say.step("forming", "slots and epochs")
	for _, n := range c.nodes {
		if err := n.begin(); err != nil {
			return fmt.Errorf("node %d: %w", n.port, err)
		}
	}
	for i, n := range c.nodes {
		if err := n.settle(i+1, c.rec.Primaries); err != nil {
			return fmt.Errorf("node %d: %w", n.port, err)
		}
	}
	c.say.step("forming", "nodes meet")
	first := c.nodes[0]
	for _, n := range c.nodes[1:] {
		if _, err := first.conn.do("CLUSTER", "MEET", host, strconv.Itoa(n.port), strconv.Itoa(n.port+busAbove)); err != nil {
			return fmt.Errorf("node %d: meet node %d: %w", first.port, n.port, err)
		}
	}
	for _, n := range c.nodes {
		if err := poll(ctx, func() error { return n.knows(c.nodes) }); err != nil {
			return fmt.Errorf("node %d: %w", n.port, err)
		}
	}
	c.say.step("forming", "replicas")
	for i, n := range c.nodes[c.rec.Primaries:] {
		primary := c.nodes[i%c.rec.Primaries]
		if _, err := n.conn.do("CLUSTER", "REPLICATE", primary.id); err != nil {
			return fmt.Errorf("node %d: replicate node %d: %w", n.port, primary.port, err)
		}
	}
	c.say.phase("forming", "slots shared out, nodes met, replicas assigned")
	return nil
}

// begin makes sure that the node is in no cluster. It refuses to empty a node that has keys.
func (n *localNode) begin() error {
	info, err := n.conn.text("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if field(info, "cluster_known_nodes") == "1" && field(info, "cluster_slots_assigned") == "0" && field(info, "cluster_my_epoch") == "0" {
		return nil
	}
	if _, err := n.conn.do("CLUSTER", "RESET", "HARD"); err != nil {
		return fmt.Errorf("it is part of a cluster already, and cannot leave it: %w", err)
	}
	n.id, err = n.conn.text("CLUSTER", "MYID")
	return err
}

// settle gives the node, the number-th of all from 1 on, its epoch, and its slots if it is one of the primaries. Epochs that
// differ from the start spare the nodes the settling of collisions.
func (n *localNode) settle(number, primaries int) error {
	if _, err := n.conn.do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(number)); err != nil {
		return err
	}
	if number > primaries {
		return nil
	}
	first, last := slotsOf(number-1, primaries)
	_, err := n.conn.do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
	return err
}

// slotsOf returns the range of slots of a primary, counted from 0.
func slotsOf(index, primaries int) (first, last int) {
	return index * slot.Count / primaries, (index+1)*slot.Count/primaries - 1
}

// knows returns an error while the node does not know all others by their ids.
func (n *localNode) knows(all []*localNode) error {
	nodes, err := n.conn.text("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	missing := 0
	for _, other := range all {
		line := nodeLine(nodes, other.id)
		if line == "" || strings.Contains(line, "handshake") {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("it does not know %d of %d nodes", missing, len(all))
	}
	return nil
}

// nodeLine finds the line of a node in the text of CLUSTER NODES.
func nodeLine(nodes, id string) string {
	for line := range strings.Lines(nodes) {
		if strings.HasPrefix(line, id+" ") {
			return line
		}
	}
	return ""
}

// waitOK waits until every node says that the cluster works, and each replica follows its primary. A cluster that was just
// formed must also agree on who is a replica.
func (c *localCluster) waitOK(ctx context.Context, formed bool) error {
	replicas := 0
	if formed {
		replicas = c.rec.count() - c.rec.Primaries
	}
	for i, n := range c.nodes {
		c.say.step("waiting", "%d of %d nodes say that the cluster works", i, len(c.nodes))
		err := poll(ctx, func() error {
			if n.ended() {
				return final{fmt.Errorf("it ended (%s); its log:\n%s", n.status, n.logTail())}
			}
			err := n.works(len(c.nodes), replicas)
			if err == nil || isReply(err) || n.done != nil {
				return err
			}
			if looked := n.look(); looked == nil && !n.held {
				return final{fmt.Errorf("it ran, and has ended meanwhile: %w. up starts it again", err)}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("node %d: %w", n.port, err)
		}
	}
	c.say.phase("waiting", "%d of %d nodes say that the cluster works", len(c.nodes), len(c.nodes))
	return nil
}

// works returns an error while something is missing.
func (n *localNode) works(nodes, replicas int) error {
	info, err := n.conn.text("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("it says cluster_state:%s", state)
	}
	known, err := strconv.Atoi(field(info, "cluster_known_nodes"))
	if err != nil || known < nodes {
		return fmt.Errorf("it knows %d of %d nodes", known, nodes)
	}
	list, err := n.conn.text("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	if found := strings.Count(list, "slave "); found < replicas {
		return fmt.Errorf("it knows %d of %d replicas", found, replicas)
	}
	info, err = n.conn.text("INFO", "replication")
	if err != nil {
		return err
	}
	if field(info, "role") != "slave" {
		return nil
	}
	if field(info, "master_link_status") != "up" {
		return errors.New("it is a replica and has no link to its primary")
	}
	return seesPrimary(list)
}

// seesPrimary says what keeps a replica from taking over from its primary, by its CLUSTER NODES.
func seesPrimary(list string) error {
	mine := ""
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 7 && strings.Contains(f[2], "myself") {
			mine = f[3]
		}
	}
	f := strings.Fields(nodeLine(list, mine))
	if len(f) < 8 || f[7] != "connected" || strings.Contains(f[2], "fail") {
		return errors.New("it is a replica, and does not hear its primary on the bus")
	}
	return nil
}

// askRole says in words what the node is now.
func (n *localNode) askRole() string {
	nodes, err := n.conn.text("CLUSTER", "NODES")
	if err != nil {
		return err.Error()
	}
	fields := strings.Fields(nodeLine(nodes, n.id))
	if len(fields) < 8 {
		return ""
	}
	if strings.Contains(fields[2], "slave") {
		of := fields[3]
		if primary := strings.Fields(nodeLine(nodes, of)); len(primary) > 1 {
			of, _, _ = strings.Cut(primary[1], "@")
			of = of[strings.LastIndexByte(of, ':')+1:]
		}
		return "replica of " + of
	}
	if len(fields) == 8 {
		return "primary, no slots"
	}
	return "primary, slots " + strings.Join(fields[8:], " ")
}
