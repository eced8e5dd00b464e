package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cairn/internal/datadir"
)

const (
	host     = "127.0.0.1"
	logName  = "node.log"
	logShown = 2 << 10 // bytes of a log that an error shows
	pollWait = 20 * time.Millisecond
)

// localNode is one node, running or not. Whether it runs is what the lock of its data folder says: a process id in a file
// may be another process's by now.
type localNode struct {
	port int
	dir  string
	data string
	pid  int
	held bool // by a process

	fresh bool // its folder was removed: see findFresh

	conn    *conn
	id      string
	role    string        // in words
	done    chan struct{} // closed when the process that this Up started has ended; nil if it started none
	status  string        // how it ended, valid once done is closed
	logFrom int64         // where that process's lines begin in the log
}

func newNode(dir string, port int) *localNode {
	n := &localNode{port: port, dir: filepath.Join(dir, strconv.Itoa(port))}
	n.data = datadir.Of(n.dir, "")
	return n
}

// look asks whether the node runs.
func (n *localNode) look() (err error) {
	n.pid, n.held, err = datadir.Holder(n.data)
	if err != nil {
		return fmt.Errorf("node %d: %w", n.port, err)
	}
	return nil
}

// portWait is how long a port may stay taken: a process that was killed gives up its folder a moment before its ports.
const portWait = time.Second

// wantPorts returns an error for the ports that others have, before anything is started.
func (c *localCluster) wantPorts(ctx context.Context) error {
	deadline := time.Now().Add(portWait)
	for {
		taken, err := c.takenPorts()
		switch {
		case err != nil:
			return err
		case len(taken) == 0:
			return nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return errors.New(inUse(taken))
		}
		time.Sleep(pollWait)
	}
}

// takenPorts are those that nodes which do not run would need and cannot have.
func (c *localCluster) takenPorts() (taken []int, err error) {
	for _, n := range c.nodes {
		if n.held {
			continue
		}
		for _, port := range []int{n.port, n.port + busAbove} {
			l, err := net.Listen("tcp", address(port))
			if err == nil {
				err = l.Close()
			}
			switch {
			case err == nil:
			case errors.Is(err, syscall.EADDRINUSE):
				taken = append(taken, port)
			default:
				return nil, fmt.Errorf("port %d: %w", port, err)
			}
		}
	}
	return taken, nil
}

// start starts the nodes that do not run, but for those that rejoin starts.
func (c *localCluster) start() error {
	for _, n := range c.nodes {
		if n.held || n.fresh {
			continue
		}
		if err := c.startNode(n); err != nil {
			return fmt.Errorf("start node %d: %w", n.port, err)
		}
	}
	return nil
}

func (c *localCluster) startNode(n *localNode) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(n.dir, logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	if n.logFrom, err = log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	args := slices.Concat(c.program[1:], c.arguments(n))
	cmd := exec.Command(c.program[0], args...)
	cmd.Dir = n.dir
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: what the terminal sends, and its end, is not for the node.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.pid, n.done = cmd.Process.Pid, make(chan struct{})
	go func() { // ends with the process, or with ours
		_ = cmd.Wait()
		n.status = cmd.ProcessState.String()
		close(n.done)
	}()
	return nil
}

// arguments are the directives of a node. Those of the caller come last and win.
func (c *localCluster) arguments(n *localNode) []string {
	args := []string{
		"--port", strconv.Itoa(n.port), "--dir", n.dir, "--bind", host, "-::1",
		"--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
		"--repl-diskless-sync-delay", "0", // nobody else is coming that a copy should wait for
		"--pidfile", "node.pid", "--memory-budget", c.rec.MemoryBudget,
	}
	if password := c.rec.directive("requirepass"); password != "" {
		args = append(args, "--masterauth", password)
	}
	return append(args, c.rec.Directives...)
}

// environment leaves out what would change a node's settings behind our back, and what is meant for this process alone.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "CAIRN_") || name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "WATCHDOG_")
	})
}

// connect waits until each node answers. One that was found running and turns out to have ended is started: a process that
// was killed keeps its folder, and takes connections, until the system has put it away.
func (c *localCluster) connect(ctx context.Context, nodes []*localNode) error {
	password := c.rec.directive("requirepass")
	for i, n := range nodes {
		c.say.step("starting", "%d of %d nodes answer", i, len(nodes))
		err := poll(ctx, func() error {
			if n.ended() {
				return final{fmt.Errorf("it ended (%s); its log, %s:\n%s", n.status, filepath.Join(n.dir, logName), n.logTail())}
			}
			err := n.answers(password)
			if err == nil || n.done != nil {
				return err
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return final{n.hangs()}
			}
			return errors.Join(err, c.startEnded(n))
		})
		if err != nil {
			return fmt.Errorf("node %d: %w", n.port, err)
		}
	}
	if slices.ContainsFunc(nodes, func(n *localNode) bool { return n.done != nil }) {
		c.say.phase("starting", "%d of %d nodes answer", len(nodes), len(nodes))
	} else {
		c.say.phase("starting", "nothing to do, all %d nodes run", len(nodes))
	}
	return nil
}

// startEnded starts a node that was found running, and does not run any more.
func (c *localCluster) startEnded(n *localNode) error {
	if err := n.look(); err != nil {
		return final{err}
	}
	if n.held {
		return nil
	}
	if err := c.startNode(n); err != nil {
		return final{fmt.Errorf("start it: %w", err)}
	}
	return nil
}

// hangs says what to do about a node that ran before this Up and answers nothing, not even that it is loading.
func (n *localNode) hangs() error {
	return fmt.Errorf("it runs (pid %d), but has answered nothing for %v: its process is stopped, or hangs; what it said last is in %s. "+
		"kill -CONT %d lets a stopped one go on. kill -9 %d ends it, and up starts it again; its log has what was acknowledged",
		n.pid, replyLimit, filepath.Join(n.dir, logName), n.pid, n.pid)
}

// answers connects to the node, and asks it anything.
func (n *localNode) answers(password string) error {
	conn, err := dial(n.port, password, replyLimit)
	if err != nil {
		if isReply(err) && !strings.HasPrefix(err.Error(), "LOADING") {
			return final{err} // a wrong password does not become right
		}
		return err
	}
	if n.id, err = conn.text("CLUSTER", "MYID"); err == nil {
		_, err = conn.do("DBSIZE") // LOADING until the data is open
	}
	if err != nil {
		conn.close()
		if isReply(err) && !strings.HasPrefix(err.Error(), "LOADING") {
			return final{err}
		}
		return err
	}
	n.conn = conn
	return nil
}

func (c *localCluster) disconnect() {
	for _, n := range c.nodes {
		if n.conn != nil {
			n.conn.close()
		}
	}
}

func (n *localNode) ended() bool {
	if n.done == nil {
		return false
	}
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// logTail is the end of what the last process wrote.
func (n *localNode) logTail() string {
	f, err := os.Open(filepath.Join(n.dir, logName))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	from := max(n.logFrom, size-logShown)
	raw, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw))
}

// final is an error that waiting does not mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// poll calls try until it gives no error, a final one, or the context ends; then the last error is told as well.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(pollWait)
	defer tick.Stop()
	for {
		err := try()
		var end final
		if err == nil {
			return nil
		}
		if errors.As(err, &end) {
			return end.error
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return fmt.Errorf("interrupted: %w", err)
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
