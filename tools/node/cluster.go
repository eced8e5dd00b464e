package node

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/internal/slot"
)

// ClusterSpec says what cluster to start.
type ClusterSpec struct {
	Program   []string // as in Spec
	Args      []string // directives for every node, beside those that make it one of a cluster
	Dir       string   // each node has a folder of its own in it
	Primaries int
	Replicas  int             // of each primary
	Timeout   time.Duration   // cluster-node-timeout
	Stop      <-chan struct{} // when closed, whoever awaits something of the cluster gets an error; nil: never
	// Own gives more directives for the i-th node, which serves on that port; nil: none.
	Own func(i, port int) []string
	// Place says where the i-th node runs; nil: all on this machine's own network.
	Place func(i int) Place
}

// Cluster is nodes that know each other, each in a process of its own. One goroutine uses it.
//
// Shard k is the nodes k, k+Primaries, k+2*Primaries...; it has the k-th part of the slots. Replicas do not move between
// shards. Who of a shard is the primary changes with time.
type Cluster struct {
	Members []*Member
	spec    ClusterSpec
}

// Member is one node of a cluster.
type Member struct {
	*Process // of its last run
	ID       string
	Name     string // of its folder

	spec Spec
	conn *Conn // for questions; nil before the first, and after an error
}

// StartCluster starts the nodes and makes a cluster of them. Whatever it returns, Close ends what was started.
func StartCluster(s ClusterSpec, limit time.Duration) (*Cluster, error) {
	c := &Cluster{spec: s}
	for i := range s.Primaries * (1 + s.Replicas) {
		port, err := FreePort()
		if err != nil {
			return c, err
		}
		args := append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(s.Timeout.Milliseconds(), 10),
			"--cluster-allow-replica-migration", "no", "--enable-debug-command", "yes",
		}, s.Args...)
		if s.Own != nil {
			args = append(args, s.Own(i, port)...)
		}
		name := "node-" + strconv.Itoa(i)
		m := &Member{Name: name, spec: Spec{Program: s.Program, Args: args, Port: port, Dir: filepath.Join(s.Dir, name)}}
		if s.Place != nil {
			m.spec.Place = s.Place(i)
		}
		if m.Process, err = Start(m.spec); err != nil {
			return c, err
		}
		c.Members = append(c.Members, m)
	}
	for i, m := range c.Members {
		if err := m.await(limit); err != nil {
			return c, err
		}
		var err error
		if m.ID, err = m.Text("CLUSTER", "MYID"); err != nil {
			return c, err
		}
		// Epochs that differ from the start spare the nodes from settling who gets which.
		if err := m.OK("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return c, err
		}
	}
	return c, c.create(limit)
}

// create gives out slots and roles.
func (c *Cluster) create(limit time.Duration) error {
	for k := range c.spec.Primaries {
		r := c.Slots(k)
		if err := c.Members[k].OK("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(int(r.First)), strconv.Itoa(int(r.Last))); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(c.Members[0].Addr)
	if err != nil {
		return err
	}
	for _, m := range c.Members[1:] {
		if err := m.OK("CLUSTER", "MEET", host, port); err != nil {
			return err
		}
	}
	err = c.Await(limit, func() error {
		for _, m := range c.Members {
			nodes, err := m.Nodes()
			if err != nil {
				return err
			}
			if len(nodes) != len(c.Members) || slices.ContainsFunc(nodes, func(n NodeLine) bool { return n.Has("handshake") || !n.Linked && !n.Has("myself") }) {
				return fmt.Errorf("%s knows %d of %d nodes", m.Name, len(nodes), len(c.Members))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, m := range c.Members[c.spec.Primaries:] {
		if err := m.OK("CLUSTER", "REPLICATE", c.Members[i%c.spec.Primaries].ID); err != nil {
			return err
		}
	}
	return c.AwaitSteady(limit)
}

// Close kills what runs.
func (c *Cluster) Close() {
	for _, m := range c.Members {
		m.forget()
		m.Kill()
	}
}

// Slots returns the part of a shard.
func (c *Cluster) Slots(shard int) slot.Range {
	n := c.spec.Primaries
	return slot.Range{First: uint16(shard * slot.Count / n), Last: uint16((shard+1)*slot.Count/n - 1)}
}

// Shard returns the nodes of a shard.
func (c *Cluster) Shard(shard int) (members []*Member) {
	for i := shard; i < len(c.Members); i += c.spec.Primaries {
		members = append(members, c.Members[i])
	}
	return members
}

// Addrs returns where the nodes serve.
func (c *Cluster) Addrs() (addrs []string) {
	for _, m := range c.Members {
		addrs = append(addrs, m.Addr)
	}
	return addrs
}

// Primary returns the node of a shard that serves its slots, as the nodes of the shard say that run, and the others.
func (c *Cluster) Primary(shard int) (primary *Member, replicas []*Member, err error) {
	for _, m := range c.Shard(shard) {
		nodes, err := m.Nodes()
		if err != nil {
			replicas = append(replicas, m)
			continue
		}
		for _, n := range nodes {
			switch {
			case !n.Has("myself"):
			case n.Has("master") && n.Slots > 0 && primary != nil:
				return nil, nil, fmt.Errorf("shard %d: %s and %s both serve its slots", shard, primary.Name, m.Name)
			case n.Has("master") && n.Slots > 0:
				primary = m
			default:
				replicas = append(replicas, m)
			}
		}
	}
	if primary == nil {
		return nil, nil, fmt.Errorf("shard %d: nobody serves its slots", shard)
	}
	return primary, replicas, nil
}

// Await asks until cond has no objection.
func (c *Cluster) Await(limit time.Duration, cond func() error) error {
	var err error
	for end := time.Now().Add(limit); ; {
		if err = cond(); err == nil {
			return nil
		}
		if !time.Now().Before(end) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		select {
		case <-c.spec.Stop:
			return fmt.Errorf("told to stop: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// AwaitSteady waits until all nodes run, agree that all is well, and every replica has what its primary has.
func (c *Cluster) AwaitSteady(limit time.Duration) error {
	return c.Await(limit, func() error {
		for _, m := range c.Members {
			if err := m.Well(len(c.Members)); err != nil {
				return err
			}
		}
		for k := range c.spec.Primaries {
			if err := c.InStep(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// InStep says what keeps the replicas of a shard from having what their primary has.
func (c *Cluster) InStep(shard int) error {
	primary, replicas, err := c.Primary(shard)
	if err != nil {
		return err
	}
	offset, err := primary.Info("replication", "master_repl_offset")
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if err := r.has(offset); err != nil {
			return fmt.Errorf("%s does not follow %s: %w", r.Name, primary.Name, err)
		}
	}
	return nil
}

// has says what keeps a replica from being at an offset.
func (m *Member) has(offset string) error {
	info, err := m.Text("INFO", "replication")
	if err != nil {
		return err
	}
	if link, at := Field(info, "master_link_status"), Field(info, "slave_repl_offset"); link != "up" || at != offset {
		return fmt.Errorf("link %q, offset %s, want %s", link, at, offset)
	}
	return nil
}

// Well says what a node finds amiss with a cluster of that many nodes.
func (m *Member) Well(size int) error {
	info, err := m.Text("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if state := Field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("%s: cluster_state is %q", m.Name, state)
	}
	return m.Links(size)
}

// Links says which of that many nodes a node does not reach, or suspects.
func (m *Member) Links(size int) error {
	nodes, err := m.Nodes()
	if err != nil {
		return err
	}
	if len(nodes) != size {
		return fmt.Errorf("%s knows %d nodes of %d", m.Name, len(nodes), size)
	}
	for _, n := range nodes {
		if n.Failing() || !n.Linked && !n.Has("myself") {
			return fmt.Errorf("%s says of %s: %s, linked: %v", m.Name, n.Addr, n.Flags, n.Linked)
		}
	}
	return nil
}

// Restart starts a node again that has ended, and waits until it answers.
func (c *Cluster) Restart(m *Member, limit time.Duration) (err error) {
	m.forget()
	if m.Process, err = Start(m.spec); err != nil {
		return err
	}
	return m.await(limit)
}

func (m *Member) await(limit time.Duration) error {
	conn, err := m.Ready(limit)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	m.conn = conn
	return nil
}

// Apart returns the same node for another goroutine's questions. It is of use until the node is started again.
func (m *Member) Apart() *Member {
	return &Member{Process: m.Process, ID: m.ID, Name: m.Name, spec: m.spec}
}

// forget drops the connection for questions.
func (m *Member) forget() {
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

// Text asks the node. An error reply is an error.
func (m *Member) Text(args ...string) (string, error) {
	if m.conn == nil {
		conn, err := m.Dial(time.Second)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Name, err)
		}
		m.conn = conn
	}
	reply, err := m.conn.Do(args...)
	if err == nil && reply.Err() != "" {
		return "", fmt.Errorf("%s: %.60q: %s", m.Name, args, reply.Err())
	}
	if err != nil {
		m.forget()
		return "", fmt.Errorf("%s: %.60q: %w", m.Name, args, err)
	}
	return string(reply.Str), nil
}

// Mine returns what the node says of itself.
func (m *Member) Mine() (NodeLine, error) {
	nodes, err := m.Nodes()
	if err != nil {
		return NodeLine{}, err
	}
	for _, n := range nodes {
		if n.Has("myself") {
			return n, nil
		}
	}
	return NodeLine{}, fmt.Errorf("%s: CLUSTER NODES has no line of its own", m.Name)
}

// OK asks for something that is answered with OK.
func (m *Member) OK(args ...string) error {
	text, err := m.Text(args...)
	if err == nil && text != "OK" {
		err = fmt.Errorf("%s: %.60q: reply %.60q, want OK", m.Name, args, text)
	}
	return err
}

// Info returns a field of a section of INFO.
func (m *Member) Info(section, field string) (string, error) {
	text, err := m.Text("INFO", section)
	if err != nil {
		return "", err
	}
	v := Field(text, field)
	if v == "" {
		return "", fmt.Errorf("%s: INFO %s has no field %s", m.Name, section, field)
	}
	return v, nil
}

// Count is Info for a number.
func (m *Member) Count(section, field string) (int64, error) {
	text, err := m.Info(section, field)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", m.Name, field, err)
	}
	return n, nil
}

// NodeLine is what a node says of another in CLUSTER NODES.
type NodeLine struct {
	ID, Addr string // host:port
	Flags    string // with commas between them
	Primary  string // id, or "-"
	Epoch    int64
	Linked   bool
	Slots    int          // how many
	Ranges   []slot.Range // which
	Open     []string     // slots on the move, as in "[77->-id]"; a node lists its own alone
}

// Owns says whether the slot is the node's.
func (n NodeLine) Owns(s uint16) bool {
	return slices.ContainsFunc(n.Ranges, func(r slot.Range) bool { return r.Has(s) })
}

// Has says whether one of the flags is set.
func (n NodeLine) Has(flag string) bool {
	return slices.Contains(strings.Split(n.Flags, ","), flag)
}

// Failing says whether the node is suspected, or known, not to answer.
func (n NodeLine) Failing() bool { return n.Has("fail") || n.Has("fail?") }

// Nodes asks a node whom it knows.
func (m *Member) Nodes() ([]NodeLine, error) {
	text, err := m.Text("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	nodes, err := ParseNodes(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Name, err)
	}
	return nodes, err
}

var errNodeLine = errors.New("CLUSTER NODES: a line that is none")

// ParseNodes reads the reply of CLUSTER NODES.
func ParseNodes(text string) (nodes []NodeLine, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("%w: %.120q", errNodeLine, line)
		}
		addr, _, _ := strings.Cut(f[1], "@")
		n := NodeLine{ID: f[0], Addr: addr, Flags: f[2], Primary: f[3], Linked: f[7] == "connected"}
		if n.Epoch, err = strconv.ParseInt(f[6], 10, 64); err != nil {
			return nil, fmt.Errorf("%w: epoch: %w", errNodeLine, err)
		}
		for _, part := range f[8:] {
			if strings.HasPrefix(part, "[") {
				n.Open = append(n.Open, part) // its owner lists it among the ranges, too
				continue
			}
			r, err := slot.ParseRange(part)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNodeLine, err)
			}
			n.Slots += r.Len()
			n.Ranges = append(n.Ranges, r)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
