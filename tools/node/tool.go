package node

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Tool is one run of redis-cli --cluster, the program that operators change clusters with.
type Tool struct {
	cmd  *exec.Cmd
	what string
	out  lockedBuffer
	done chan struct{} // closed once the process has been waited for
}

// lockedBuffer is written by two copiers.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// StartTool starts redis-cli --cluster with these arguments, the subcommand first, and says yes to what it asks. It does not
// survive the caller.
func StartTool(args ...string) (*Tool, error) {
	t := &Tool{cmd: exec.Command("redis-cli", append([]string{"--cluster"}, args...)...), what: args[0], done: make(chan struct{})}
	t.cmd.Stdin = strings.NewReader(strings.Repeat("yes\n", 20))
	t.cmd.Stdout, t.cmd.Stderr = &t.out, &t.out
	dieWithParent(t.cmd)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("redis-cli --cluster: %w", err)
	}
	go func() { // ends with the process; Kill and Wait wait for it
		_ = t.cmd.Wait()
		close(t.done)
	}()
	return t, nil
}

// Done is closed when the tool has ended.
func (t *Tool) Done() <-chan struct{} { return t.done }

// Kill ends the tool with SIGKILL and waits for its end.
func (t *Tool) Kill() {
	_ = t.cmd.Process.Kill() // fails only when there is nothing to kill
	<-t.done
}

// Output returns what the tool has said.
func (t *Tool) Output() string { return t.out.String() }

// errTool says that the tool was not content.
var errTool = errors.New("the tool failed")

// Wait waits for the tool's end, and returns an error with the end of its output when it failed or takes longer than the
// limit, after which it is killed.
func (t *Tool) Wait(limit time.Duration) error {
	select {
	case <-t.done:
	case <-time.After(limit):
		t.Kill()
		return fmt.Errorf("redis-cli --cluster %s: still running after %v:\n%s", t.what, limit, t.tail())
	}
	if code := t.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("redis-cli --cluster %s: %w with status %d:\n%s", t.what, errTool, code, t.tail())
	}
	return nil
}

func (t *Tool) tail() string {
	text := strings.ReplaceAll(t.out.String(), "........", "") // one for each key
	return text[max(0, len(text)-2<<10):]
}

// RunTool runs the tool to its end and returns what it said.
func RunTool(limit time.Duration, args ...string) (string, error) {
	t, err := StartTool(args...)
	if err != nil {
		return "", err
	}
	err = t.Wait(limit)
	return t.Output(), err
}

// StartReshard starts to move the lowest n slots of a node to another one, pipeline keys at a time.
func StartReshard(from, to *Member, n, pipeline int, more ...string) (*Tool, error) {
	args := []string{
		"reshard", to.Addr, "--cluster-from", from.ID, "--cluster-to", to.ID, "--cluster-slots", strconv.Itoa(n),
		"--cluster-pipeline", strconv.Itoa(pipeline), "--cluster-yes",
	}
	return StartTool(append(args, more...)...)
}

// Content runs redis-cli --cluster check at a node, and says what it complains about.
func Content(addr string, limit time.Duration) error {
	out, err := RunTool(limit, "check", addr)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "All nodes agree about slots") || !strings.Contains(out, "All 16384 slots covered") ||
		strings.Contains(out, "[ERR]") || strings.Contains(out, "[WARNING]") {
		return fmt.Errorf("redis-cli --cluster check %s: not content:\n%s", addr, out)
	}
	return nil
}
