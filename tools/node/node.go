// Package node starts a server as an operator would, in a process of its own, and
// speaks RESP to it. The checks of the tree that need whole nodes stand on it.
//
// Shape. A Process is one run of a server program: Start, Ready, Kill or Stop. A
// Conn is one connection to any server: Append and Flush for pipelines, Do for one
// command. What the operating system knows of a process and a folder is in proc.go
// and disk.go.
//
// Units. Limits and waits are time.Duration, sizes are bytes.
//
// Errors. They name the program or the address, and what was waited for. An error
// reply is a reply, not an error.
//
// Not here: what is right and wrong; that is the business of the caller. Nothing
// here depends on package testing: internal/testkit does the same for tests.
package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Spec says what to start.
type Spec struct {
	Program []string // program and its leading arguments: "bin/cairn", "server"
	Args    []string // directives: "--appendfsync", "always"
	Port    int
	Dir     string // data folder, created when missing; output.txt in it keeps what the process says
	Place   Place
}

// Place is where a server runs and its clients are. The zero value is this machine's own network.
type Place struct {
	Host string // address of the server; "": 127.0.0.1
	// Enter runs a function there, on the goroutine whose thread is there; nil: here is there.
	Enter func(do func() error) error
}

// Dial connects to an address as somebody at that place does.
func (p Place) Dial(addr string, limit time.Duration) (c *Conn, err error) {
	err = p.enter(func() error {
		c, err = Dial(addr, limit)
		return err
	})
	return c, err
}

func (p Place) enter(do func() error) error {
	if p.Enter == nil {
		return do()
	}
	return p.Enter(do)
}

// address is where a server listens.
func (s *Spec) address() string {
	host := s.Place.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(s.Port))
}

// Process is one run of a server.
type Process struct {
	Addr string // host:port
	Dir  string

	place Place
	cmd   *exec.Cmd
	done  chan struct{} // closed once the process has been waited for
}

const outputName = "output.txt"

// Start starts the program and returns at once. The process does not survive the
// caller.
func Start(s Spec) (*Process, error) {
	if len(s.Program) == 0 {
		return nil, errors.New("start a server: no program named")
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(s.Dir, outputName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	defer out.Close() // the process has its own handle
	args := append([]string{}, s.Program[1:]...)
	args = append(args, "--port", strconv.Itoa(s.Port), "--dir", s.Dir)
	cmd := exec.Command(s.Program[0], append(args, s.Args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	dieWithParent(cmd)
	if err := s.Place.enter(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Program[0], err)
	}
	p := &Process{Addr: s.address(), Dir: s.Dir, place: s.Place, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process; Kill and Stop wait for it
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Dial connects to the server, from beside it.
func (p *Process) Dial(limit time.Duration) (*Conn, error) { return p.place.Dial(p.Addr, limit) }

// Pid returns the process id, also after the end of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process with SIGKILL and waits for its end. It may be called more
// than once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when there is nothing to kill
	<-p.done
}

// Stop sends SIGTERM and waits for the end. It returns an error for a status other
// than 0, and kills a process that is still there after the limit.
func (p *Process) Stop(limit time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // as in Kill
	select {
	case <-p.done:
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("process %d: still running %v after SIGTERM", p.Pid(), limit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("process %d: exit status %d after SIGTERM, want 0", p.Pid(), code)
	}
	return nil
}

// ErrEnded says that the process ended by itself.
var ErrEnded = errors.New("the process ended")

// Ready waits until the server gives any reply to a command but LOADING, and returns the connection
// that got it. An error shows the end of the output.
func (p *Process) Ready(limit time.Duration, command ...string) (*Conn, error) {
	if len(command) == 0 {
		command = []string{"PING"}
	}
	last := errors.New("nobody listens")
	for end := time.Now().Add(limit); time.Now().Before(end); {
		c, err := p.Dial(time.Second)
		if err == nil {
			c.SetTimeout(max(time.Until(end), time.Second))
			reply, tryErr := c.Do(command...)
			if tryErr == nil && !strings.HasPrefix(reply.Err(), "LOADING") {
				c.SetTimeout(replyLimit) // what was left of the wait is no measure for what is asked next
				return c, nil
			}
			c.Close()
			if err = tryErr; err == nil {
				err = errors.New(reply.Err())
			}
		}
		last = err
		select {
		case <-p.done:
			return nil, fmt.Errorf("%w with status %d before it answered; its output:\n%s", ErrEnded, p.cmd.ProcessState.ExitCode(), p.Output(4<<10))
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%s: no reply within %v: %w; its output:\n%s", p.Addr, limit, last, p.Output(4<<10))
}

// Output returns the last n bytes of what all processes in this folder wrote.
func (p *Process) Output(n int) string {
	raw, err := os.ReadFile(filepath.Join(p.Dir, outputName))
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-n):])
}
