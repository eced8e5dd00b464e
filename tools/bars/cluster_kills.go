package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"cairn/internal/datadir"
	"cairn/tools/node"
)

// killedSync is a replica with an old set that is killed while it fetches a new one.
type killedSync struct {
	lab     *lab
	program []string
	primary *chainNode
	dir     string // of the replica; its old set is kept beside it
	port    int
	took    time.Duration // of a sync that nobody disturbs

	oldDigest, newDigest string
	bound                int64 // bytes of a folder with one set, whichever is bigger
	olds, news           int
	most                 int64 // bytes after a kill and a start
}

func (o *fullsyncOptions) killed(l *lab) error {
	k, err := newKilledSync(l, l.program, o.small)
	if err != nil {
		return fmt.Errorf("sync to be killed: %w", err)
	}
	for n := range o.kills {
		at := k.took * time.Duration(n+1) / time.Duration(o.kills)
		if err := k.kill(at); err != nil {
			return fmt.Errorf("killed after %v, kill %d: %w", at, n+1, err)
		}
		l.progress("kill %d of %d: %d times the old set, %d times the new one", n+1, o.kills, k.olds, k.news)
	}
	l.figure(fmt.Sprintf("%d kills in %v: old set, new set", o.kills, k.took.Round(time.Millisecond)), fmt.Sprintf("%d, %d", k.olds, k.news))
	l.verdict("neither, or a part of either", "0", "0", true)
	l.verdict("most of the folder after it", mb(k.most), "<= "+mb(k.bound), k.most <= k.bound)
	return nil
}

// newKilledSync makes the primary with the new set, the replica's old one, and measures a sync that nobody disturbs.
func newKilledSync(l *lab, program []string, size int) (*killedSync, error) {
	k := &killedSync{lab: l, program: program, dir: filepath.Join(l.dir, "killed")}
	v := newValues()
	s, conn, err := l.serve(program, filepath.Join(l.dir, "source"), k.args())
	if err != nil {
		return nil, err
	}
	conn.Close()
	k.primary = &chainNode{server: s, name: "source"}
	keys := size << 20 / syncValue
	if err := l.fill(s.Addr, "load", keys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, syncValue)) }); err != nil {
		return nil, err
	}
	if k.newDigest, err = k.primary.ask("DEBUG", "DIGEST"); err != nil {
		return nil, err
	}
	if k.port, err = node.FreePort(); err != nil {
		return nil, err
	}
	err = k.with(nil, func(r *chainNode) error {
		err := l.fill(r.Addr, "load", keys/2, func(c *node.Conn, i int) { c.Append("SET", "old:"+keyName(i), v.at(i+1, syncValue)) })
		if err != nil {
			return err
		}
		if k.oldDigest, err = r.ask("DEBUG", "DIGEST"); err != nil {
			return err
		}
		return r.Stop(clusterLimit)
	})
	if err != nil {
		return nil, err
	}
	if err := copyFolder(k.dir, k.dir+"-old"); err != nil {
		return nil, err
	}
	return k, k.undisturbed()
}

func (k *killedSync) args(more ...string) []string {
	return append([]string{"--repl-backlog-size", "1mb", "--memory-budget", "128mb", "--enable-debug-command", "yes"}, more...)
}

// undisturbed takes the time and the space of a whole sync.
func (k *killedSync) undisturbed() error {
	before, err := node.FolderBytes(k.dir)
	if err != nil {
		return err
	}
	began := time.Now()
	err = k.with(k.follow(), func(r *chainNode) error {
		c := &chain{lab: k.lab, nodes: []*chainNode{k.primary, r}}
		if err := c.inStep(); err != nil {
			return err
		}
		k.took = time.Since(began)
		return errors.Join(c.equal(), r.Stop(clusterLimit))
	})
	if err != nil {
		return err
	}
	after, err := node.FolderBytes(k.dir)
	k.bound = max(before, after) + spaceSlack
	return err
}

func (k *killedSync) follow() []string {
	return []string{"--replicaof", "127.0.0.1", strconv.Itoa(k.primary.spec.Port)}
}

// with runs the replica. Whatever f does with it, it has ended afterwards.
func (k *killedSync) with(more []string, f func(r *chainNode) error) error {
	spec := node.Spec{Program: k.program, Args: k.args(more...), Port: k.port, Dir: k.dir}
	p, err := node.Start(spec)
	if err != nil {
		return err
	}
	defer p.Kill()
	c, err := p.Ready(readyLimit)
	if err != nil {
		return err
	}
	c.Close()
	return f(&chainNode{server: &server{Process: p, spec: spec}, name: "replica"})
}

// kill begins a sync, kills the replica after a while, and looks at what it has when it is started alone.
func (k *killedSync) kill(after time.Duration) error {
	if k.lab.ctx.Err() != nil {
		return k.lab.ctx.Err()
	}
	if err := copyFolder(k.dir+"-old", k.dir); err != nil {
		return err
	}
	p, err := node.Start(node.Spec{Program: k.program, Args: k.args(k.follow()...), Port: k.port, Dir: k.dir})
	if err != nil {
		return err
	}
	err = k.lab.pause(after)
	p.Kill()
	if err != nil {
		return err
	}
	err = k.with(nil, func(r *chainNode) error {
		d, err := r.ask("DEBUG", "DIGEST")
		if err != nil {
			return err
		}
		switch d {
		case k.oldDigest:
			k.olds++
		case k.newDigest:
			k.news++
		default:
			n, err := r.ask("INFO", "keyspace")
			return errors.Join(fmt.Errorf("neither the old set nor the new one: %.60q; it says:\n%s", n, r.Output(2<<10)), err)
		}
		return r.Stop(clusterLimit)
	})
	if err != nil {
		return err
	}
	n, err := node.FolderBytes(k.dir)
	k.most = max(k.most, n)
	if err == nil && n > k.bound {
		err = fmt.Errorf("its folder has %s, more than %s: %v", mb(n), mb(k.bound), biggest(k.dir))
	}
	return err
}

// biggest names what in a folder takes most of the space.
func biggest(dir string) (names []string) {
	entries, err := os.ReadDir(datadir.Of(dir, ""))
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if n, err := node.FolderBytes(filepath.Join(datadir.Of(dir, ""), e.Name())); err == nil {
			names = append(names, e.Name()+" "+mb(n))
		}
	}
	return names
}
