package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	askWait  = 2 * time.Second  // for a node to take the wish to stop
	stopWait = 15 * time.Second // for what a failed Up has started
)

// askStop asks all nodes to stop, at once. SHUTDOWN NOW comes first: all of them end, so no primary is to hand its slots to a
// replica, and none waits for one. A node that does not take it gets SIGTERM.
func askStop(nodes []*localNode, password string) error {
	errs := make([]error, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() {
			if n.shutdown(password) {
				return
			}
			if err := syscall.Kill(n.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs[i] = fmt.Errorf("stop node %d, pid %d: %w", n.port, n.pid, err)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// shutdown says whether the node was told. Whoever else listens on its port is left alone.
func (n *localNode) shutdown(password string) bool {
	c, err := dial(n.port, password, askWait)
	if err != nil {
		return false
	}
	defer c.close()
	info, err := c.text("INFO", "server")
	if err != nil || field(info, "process_id") != strconv.Itoa(n.pid) {
		return false
	}
	_, err = c.do("SHUTDOWN", "NOW") // the connection ends with the node, or goes on longer than askWait
	return !isReply(err)
}

// stopStarted ends what this Up has started, since it did not become what was asked for.
func (c *localCluster) stopStarted() error {
	var started []*localNode
	for _, n := range c.nodes {
		if n.done != nil {
			started = append(started, n)
		}
	}
	if len(started) == 0 {
		return nil
	}
	c.say.step("stopping", "what was started")
	_ = askStop(started, c.rec.directive("requirepass")) // what is still there is killed below
	late := time.NewTimer(stopWait)
	defer late.Stop()
	var killed []string
	for _, n := range started {
		select {
		case <-n.done:
			continue
		case <-late.C:
			late.Reset(0) // the others have had their time as well
		}
		_ = syscall.Kill(n.pid, syscall.SIGKILL)
		<-n.done
		killed = append(killed, strconv.Itoa(n.port))
	}
	c.say.phase("stopping", "%s that this run had started, stopped again", count(len(started), "node"))
	if len(killed) > 0 {
		return fmt.Errorf("node %s did not stop within %v and was killed; its log has what was acknowledged", strings.Join(killed, ", "), stopWait)
	}
	return nil
}

// down stops all nodes that run.
func (c *localCluster) down(ctx context.Context) error {
	left := slices.DeleteFunc(slices.Clone(c.nodes), func(n *localNode) bool { return !n.held })
	all := len(left)
	if all == 0 {
		c.say.phase("stopping", "no node runs in %s", c.dir)
		return nil
	}
	for _, n := range left {
		if n.pid == 0 {
			return fmt.Errorf("node %d runs, but %s does not tell its process id: stop it by hand", n.port, n.data)
		}
	}
	if err := askStop(left, c.rec.directive("requirepass")); err != nil {
		return err
	}
	var alive []int // who has not stopped yet
	err := poll(ctx, func() error {
		var names []string
		alive = alive[:0]
		for _, n := range left {
			pid := n.pid
			if err := n.look(); err != nil {
				return final{err}
			}
			if n.held {
				names = append(names, fmt.Sprintf("node %d (pid %d)", n.port, pid))
				alive = append(alive, pid)
			}
			n.pid = pid
		}
		c.say.step("stopping", "%d of %s stopped", all-len(names), count(all, "node"))
		if len(names) > 0 {
			return errors.New(strings.Join(names, ", "))
		}
		return nil
	})
	if err != nil {
		c.say.closeLine()
		return fmt.Errorf("%w. %s ends what still runs; the log has what was acknowledged", err, strings.Replace(killLine(alive), "kill", "kill -9", 1))
	}
	c.say.phase("stopping", "%s stopped", count(all, "node"))
	return nil
}
