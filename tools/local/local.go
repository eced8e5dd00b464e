// Package local runs a whole cluster on this machine, for trying things out and for tests of applications.
//
// Shape. Up starts the nodes as processes of their own, makes a cluster of them when they are none yet, and waits until
// every node says that it works. Down stops them. A folder belongs to one cluster:
//
//	DIR/cluster.json       what the cluster is: see record.go
//	DIR/pid                locked while an Up or a Down is at work
//	DIR/7000/node.log      what the node on port 7000 says
//	DIR/7000/node.pid      its process id
//	DIR/7000/nodes.conf    what it knows of the cluster
//	DIR/7000/cairn/        its data
//
// Both may be called again at any time: Up starts what does not run, Down stops what runs. What an Up that failed or was
// interrupted has started, it stops again.
//
// Units. Timeouts are time.Duration, ports are TCP ports; each node also needs the one 10000 above for the cluster bus.
//
// Errors. They name the node by its port, and say what to do.
//
// Not here: clusters over several machines, and changes of a cluster; redis-cli --cluster does both.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cairn/internal/datadir"
)

// DefaultDir is the folder of a cluster when none is named.
const DefaultDir = "local-cluster"

const (
	busAbove = 10000 // the bus listens that far above the port
	maxPort  = 65535
	maxNodes = 1000
)

// UpOptions say what Up shall run.
type UpOptions struct {
	Program []string // program and its leading arguments: "bin/cairn", "server"

	// Check finds what is wrong with a node's arguments, those behind Program's, before any is started; nil: nobody looks.
	Check func(args []string) error

	Self string // how the caller's program was called, for hints
	Dir  string // "": DefaultDir

	// What is zero (Replicas: negative) is what the folder's cluster has, or the default of a new one.
	Primaries    int      // 3; fewer than 3 cannot replace one that failed
	Replicas     int      // of each primary, 1
	Port         int      // of the first node, 7000; the others follow
	MemoryBudget string   // of each node, 128mb
	Directives   []string // for each node, as on its command line

	Timeout time.Duration // for all of it, 0: one minute
	Out     io.Writer     // progress and result; nil: none
	Colour  bool          // Out is a terminal that shows colours
}

// DownOptions say what Down shall stop.
type DownOptions struct {
	Self    string
	Dir     string        // "": DefaultDir
	Wipe    bool          // remove the data, too
	Timeout time.Duration // 0: half a minute
	Out     io.Writer
	Colour  bool
}

// Up runs the cluster of the folder. It returns nil once every node says that the cluster works and all replicas follow.
func Up(ctx context.Context, o UpOptions) error {
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	dir, err := folderOf(o.Dir)
	if err != nil {
		return err
	}
	rec, known, err := loadRecord(dir)
	if err != nil {
		return err
	}
	was := &localCluster{rec: rec.copy(), dir: dir}
	if err := rec.settle(&o, dir, known); err != nil {
		return err
	}
	release, err := takeFolder(dir)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not ready within %v", o.Timeout))
	defer cancel()
	if known && rec.changed {
		if err := was.wantStopped(o.Self); err != nil {
			return err
		}
	}
	c := &localCluster{rec: rec, dir: dir, say: newScreen(o.Out, o.Colour), program: o.Program, checkArgs: o.Check}
	if err := c.findNodes(); err != nil {
		return err
	}
	if err := c.up(ctx); err != nil {
		c.say.closeLine()
		return errors.Join(err, c.stopStarted(), forgetUnbegun(dir))
	}
	c.tellResult(&o)
	return nil
}

// localCluster is the cluster of a folder while Up or Down works on it.
type localCluster struct {
	rec     *record
	dir     string // absolute
	say     *screen
	program []string
	nodes   []*localNode // by port

	checkArgs func(args []string) error // nil: nobody looks
}

// findNodes lists the nodes that the record speaks of, and which of them run.
func (c *localCluster) findNodes() error {
	for i := range c.rec.count() {
		n := newNode(c.dir, c.rec.Port+i)
		if err := n.look(); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return nil
}

func (c *localCluster) running() (count int) {
	for _, n := range c.nodes {
		if n.held {
			count++
		}
	}
	return count
}

// wantStopped returns an error when a node runs: its settings are about to change.
func (c *localCluster) wantStopped(self string) error {
	if err := c.findNodes(); err != nil {
		return err
	}
	if n := c.running(); n > 0 {
		return fmt.Errorf("%s of %s run with other settings: stop them first with: %s", count(n, "node"), c.dir, c.hint(self, "down", ""))
	}
	return nil
}

// check finds mistakes in what the nodes are told. They are told the same, but for ports and folders.
func (c *localCluster) check() error {
	if c.checkArgs == nil {
		return nil
	}
	anyone := &localNode{port: c.rec.Port, dir: c.dir} // the nodes' own folders are not there yet
	if err := c.checkArgs(c.arguments(anyone)); err != nil {
		return fmt.Errorf("nothing was started, the nodes would refuse their settings:\n%w", err)
	}
	return nil
}

// forgetUnbegun removes the folder of a cluster of which nothing is there but the lock of this Up.
func forgetUnbegun(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != datadir.LockName {
		return err
	}
	if err := datadir.Forget(dir); err != nil {
		return err
	}
	_ = os.Remove(dir) // who has put something in meanwhile keeps it
	return nil
}

// up starts, forms and waits.
func (c *localCluster) up(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.wantPorts(ctx); err != nil {
		return err
	}
	if err := c.findFresh(); err != nil {
		return err
	}
	restore, err := c.rec.replace(c.dir)
	if err != nil {
		return err
	}
	c.say.title("%s with %s each, in %s", count(c.rec.Primaries, "primary"), count(c.rec.Replicas, "replica"), c.dir)
	if err := c.start(); err != nil {
		return errors.Join(err, restore())
	}
	var fresh, old []*localNode
	for _, n := range c.nodes {
		if n.fresh {
			fresh = append(fresh, n)
		} else {
			old = append(old, n)
		}
	}
	if err := c.connect(ctx, old); err != nil {
		if ctx.Err() == nil { // a node does not take its settings, perhaps: they are not what the next run begins with
			err = errors.Join(err, restore())
		}
		return err
	}
	defer c.disconnect()
	forming := !c.rec.Formed
	if forming {
		if err := c.form(ctx); err != nil {
			return err
		}
	} else if err := c.rejoin(ctx, old, fresh); err != nil {
		return err
	}
	if err := c.waitOK(ctx, forming); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.role = n.askRole()
	}
	c.rec.Formed = true
	return c.rec.save(c.dir)
}

// Down stops the cluster of the folder.
func Down(ctx context.Context, o DownOptions) error {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	dir, err := folderOf(o.Dir)
	if err != nil {
		return err
	}
	rec, known, err := loadRecord(dir)
	if err != nil {
		return err
	}
	if !known {
		if pids := strays(dir, nil); len(pids) > 0 {
			return fmt.Errorf("there is no cluster in %s any more, but %s of it still run, and nobody but you can stop them: %s",
				dir, count(len(pids), "node"), killLine(pids))
		}
		return fmt.Errorf("there is no cluster in %s: %s up makes one, and --dir names its folder", dir, o.Self)
	}
	release, err := takeFolder(dir)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("still running after %v", o.Timeout))
	defer cancel()
	c := &localCluster{rec: rec, dir: dir, say: newScreen(o.Out, o.Colour)}
	if err := c.findNodes(); err != nil {
		return err
	}
	if err := c.down(ctx); err != nil {
		return err
	}
	if pids := strays(dir, c.nodes); len(pids) > 0 {
		c.say.phase("stopping", "%s of a cluster that was in this folder before still run: %s", count(len(pids), "node"), killLine(pids))
	}
	if o.Wipe {
		return c.wipe()
	}
	c.say.hint("The data is kept. Next:", [][2]string{
		{c.hint(o.Self, "up", ""), "start it again"},
		{c.hint(o.Self, "down", " --wipe"), "remove it"},
	})
	return nil
}

// wipe removes what Up made, and the folder if nothing else is in it.
func (c *localCluster) wipe() error {
	for _, n := range c.nodes {
		if err := os.RemoveAll(n.dir); err != nil {
			return fmt.Errorf("wipe: %w", err)
		}
	}
	if err := os.Remove(filepath.Join(c.dir, recordName)); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	if err := datadir.Forget(c.dir); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	left, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	if len(left) > 0 {
		c.say.phase("wiped", "the cluster is gone; %s stays, since there is more in it than the cluster: %s", c.dir, someNames(left))
		return nil
	}
	if err := os.Remove(c.dir); err != nil {
		c.say.phase("wiped", "the cluster is gone; %s, empty, stays: %v", c.dir, err)
		return nil
	}
	c.say.phase("wiped", "%s is gone", c.dir)
	return nil
}

// namesShown is how many names of files a message has.
const namesShown = 5

// someNames lists what is in a folder, without those that are too many.
func someNames(entries []os.DirEntry) string {
	var names []string
	for _, e := range entries[:min(len(entries), namesShown)] {
		names = append(names, e.Name())
	}
	text := strings.Join(names, ", ")
	if more := len(entries) - namesShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func folderOf(dir string) (string, error) {
	if dir == "" {
		dir = DefaultDir
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("folder of the cluster: %w", err)
	}
	return abs, nil
}

// takeFolder keeps two Ups and Downs out of each other's way.
func takeFolder(dir string) (release func(), err error) {
	lock, err := datadir.Take(dir)
	var used *datadir.InUseError
	if errors.As(err, &used) {
		return nil, fmt.Errorf("another up or down, pid %d, is at work in %s: wait for its end", used.Pid, dir)
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Release() }, nil
}

// hint is a command of ours as it is to be typed for this cluster.
func (c *localCluster) hint(self, command, more string) string {
	text := self + " " + command
	if def, err := filepath.Abs(DefaultDir); err != nil || def != c.dir {
		dir := c.dir
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, c.dir); err == nil && !strings.HasPrefix(rel, "..") {
				dir = rel
			}
		}
		text += " --dir " + dir
	}
	return text + more
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
