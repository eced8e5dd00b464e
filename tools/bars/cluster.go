package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

const (
	clusterLimit = 60 * time.Second // for anything a cluster is to reach; no bar is near it
	nodeTimeout  = 2 * time.Second  // of which the bars speak
	shards       = 3
)

// timeoutFlag declares the flag of the node timeout.
func timeoutFlag(f *flag.FlagSet) *time.Duration {
	return f.Duration("node-timeout", nodeTimeout, "cluster-node-timeout; the bars are for 2 s")
}

// cluster starts three primaries with a replica each.
func (l *lab) cluster(s side, timeout time.Duration) (*node.Cluster, error) {
	c, err := node.StartCluster(node.ClusterSpec{
		Program: s.program, Args: s.args, Dir: filepath.Join(l.dir, s.name), Primaries: shards, Replicas: 1, Timeout: timeout,
		Stop: l.ctx.Done(),
	}, clusterLimit)
	l.atEnd(c.Close)
	if err != nil {
		for _, m := range c.Members {
			err = fmt.Errorf("%w\n%s says:\n%s", err, m.Name, m.Output(500))
		}
		return nil, fmt.Errorf("create a cluster of %s: %w", s.name, err)
	}
	return c, nil
}

// side is a server that a bar is measured on.
type side struct {
	name    string
	program []string
	args    []string
	bar     bool // holds for it
}

func (l *lab) cairnSide(budget string) side {
	return side{name: "cairn", program: l.program, args: []string{"--memory-budget", budget}, bar: true}
}

// redisSide is redis-server that keeps what it acknowledges in a log, synced each second, as cairn does.
func redisSide() side {
	return side{name: "redis-server", program: []string{"redis-server"}, args: []string{
		"--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0", "--daemonize", "no",
	}}
}

// tagIn returns a hash tag, beginning with head, of a slot in r. Every n gives another.
func tagIn(r slot.Range, head string, n int) string {
	for i := 0; ; i++ {
		tag := head + strconv.Itoa(n) + "-" + strconv.Itoa(i)
		if r.Has(slot.Of([]byte(tag))) {
			return tag
		}
	}
}

// digests asks the nodes of a shard for a digest of all data, and wants them equal.
func digests(c *node.Cluster, shard int) error {
	return equalDigests(c.Shard(shard)...)
}

func equalDigests(members ...*node.Member) error {
	first := ""
	for _, m := range members {
		d, err := digest(m)
		if err != nil {
			return fmt.Errorf("digest of %s: %w", m.Name, err)
		}
		if first == "" {
			first = d
		}
		if d != first {
			return fmt.Errorf("%s and %s hold different data: digests %.12s and %.12s", members[0].Name, m.Name, first, d)
		}
	}
	return nil
}

// digest waits for long: it reads all that the node has.
func digest(m *node.Member) (string, error) {
	conn, err := m.Dial(time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetTimeout(readyLimit)
	return conn.Text("DEBUG", "DIGEST")
}
