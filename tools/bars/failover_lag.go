package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"cairn/tools/node"
)

const lagHelp = `
A node and its replicas outside of a cluster, repl-backlog-size 256mb. The replica is stopped while 200 MB are written, and
started again; the primary is stopped and started; in a chain of three each is in turn. Each is done by SIGTERM and by
SIGKILL. Bar: a partial resync each time, and the data of all equal.

  go run ./tools/bars lag
  go run ./tools/bars lag --quick                  20 MB`

const lagValue = 4096 // bytes

func prepareLag(f *flag.FlagSet) func(l *lab) error {
	size := f.Int("mb", 200, "`MB` to write while a replica is away")
	quick := f.Bool("quick", false, "20 MB")
	return func(l *lab) error {
		if *quick {
			*size = 20
		}
		if err := l.wantFree(int64(*size)<<24 + 4<<30); err != nil {
			return err
		}
		return measureLag(l, l.program, *size<<20/lagValue)
	}
}

// chainNode is a server of a chain; the first follows nobody.
type chainNode struct {
	*server
	name  string
	fulls int64 // that it is known to have given, in this run of it
}

// chain is servers that follow one another.
type chain struct {
	lab    *lab
	nodes  []*chainNode
	values values
	wrote  int // keys
	batch  int // keys in a step
	fulls  int64
}

func measureLag(l *lab, program []string, batch int) error {
	c := &chain{lab: l, values: newValues(), batch: batch}
	for i := range 3 {
		args := []string{"--repl-backlog-size", "256mb", "--memory-budget", "128mb", "--enable-debug-command", "yes"}
		if i > 0 {
			args = append(args, "--replicaof", "127.0.0.1", strconv.Itoa(c.nodes[i-1].spec.Port))
		}
		name := "node-" + strconv.Itoa(i)
		s, conn, err := l.serve(program, filepath.Join(l.dir, name), args)
		if err != nil {
			return err
		}
		conn.Close()
		c.nodes = append(c.nodes, &chainNode{server: s, name: name})
	}
	if err := errors.Join(c.write(), c.inStep()); err != nil {
		return err
	}
	for _, n := range c.nodes { // what the first resync of each costs does not count
		var err error
		if n.fulls, err = n.fullSyncs(); err != nil {
			return err
		}
	}
	names := []string{"first of the chain", "middle of the chain", "last of the chain"}
	for _, hard := range []bool{false, true} {
		for i := len(c.nodes) - 1; i >= 0; i-- {
			how := "SIGTERM"
			if hard {
				how = "SIGKILL"
			}
			if err := c.away(i, hard); err != nil {
				return fmt.Errorf("%s, %s: %w", names[i], how, err)
			}
			l.verdict(fmt.Sprintf("full syncs after %s of the %s, %s meanwhile", how, names[i], c.meanwhile(i)), fmt.Sprint(c.fulls), "0", c.fulls == 0)
		}
	}
	return nil
}

func (c *chain) meanwhile(i int) string {
	if i == 0 {
		return "0 MB"
	}
	return mb(int64(c.batch) * lagValue)
}

// away ends a node, writes when it is a replica, starts it, and looks at how the chain is whole again.
func (c *chain) away(i int, hard bool) error {
	n := c.nodes[i]
	if hard {
		n.Kill()
	} else if err := n.Stop(clusterLimit); err != nil {
		return fmt.Errorf("%w; its output:\n%s", err, n.Output(2<<10))
	}
	if i > 0 {
		if err := c.write(); err != nil {
			return err
		}
	}
	var err error
	if n.Process, err = node.Start(n.spec); err != nil {
		return err
	}
	conn, err := n.Ready(readyLimit)
	if err != nil {
		return err
	}
	conn.Close()
	n.fulls = 0 // its counters begin anew
	if err := c.inStep(); err != nil {
		return err
	}
	c.fulls = 0
	for _, n := range c.nodes {
		now, err := n.fullSyncs()
		if err != nil {
			return err
		}
		c.fulls += now - n.fulls
		n.fulls = now
	}
	return c.equal()
}

// write writes to the first.
func (c *chain) write() error {
	from := c.wrote
	err := c.lab.fill(c.nodes[0].Addr, "load", c.batch, func(conn *node.Conn, i int) {
		conn.Append("SET", keyName(from+i), c.values.at(from+i, lagValue))
	})
	c.wrote += c.batch
	return err
}

// inStep waits until all have what the first has.
func (c *chain) inStep() (err error) {
	for end := time.Now().Add(readyLimit); time.Now().Before(end); {
		if err = c.step(); err == nil {
			return nil
		}
		if paused := c.lab.pause(20 * time.Millisecond); paused != nil {
			return paused
		}
	}
	for _, n := range c.nodes {
		err = fmt.Errorf("%w\n%s says:\n%s", err, n.name, n.Output(2<<10))
	}
	return err
}

func (c *chain) step() error {
	want := ""
	for i, n := range c.nodes {
		info, err := n.info("replication")
		if err != nil {
			return err
		}
		if i == 0 {
			want = node.Field(info, "master_repl_offset")
			continue
		}
		if link, at := node.Field(info, "master_link_status"), node.Field(info, "slave_repl_offset"); link != "up" || at != want {
			return fmt.Errorf("%s: link %q, offset %s, want %s", n.name, link, at, want)
		}
	}
	return nil
}

func (c *chain) equal() error {
	first := ""
	for _, n := range c.nodes {
		d, err := n.ask("DEBUG", "DIGEST")
		if err != nil {
			return err
		}
		if first == "" {
			first = d
		}
		if d != first {
			return fmt.Errorf("%s holds other data than the first of the chain: digests %.12s and %.12s", n.name, d, first)
		}
	}
	return nil
}

// ask asks on a connection of its own.
func (n *chainNode) ask(args ...string) (string, error) {
	c, err := node.Dial(n.Addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Text(args...)
}

func (n *chainNode) info(section string) (string, error) { return n.ask("INFO", section) }

func (n *chainNode) fullSyncs() (int64, error) {
	info, err := n.info("stats")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(node.Field(info, "sync_full"), 10, 64)
}
