package testkit

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// logLimit bounds what is kept of a program's output, in bytes. The end is kept.
const logLimit = 1 << 20

// Program is a process that the test started. It is killed when the test ends;
// its output is added to the test's log if the test failed.
type Program struct {
	name string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed once the process has been waited for
}

// StartProgram starts the program at path and returns at once. Its standard
// output and standard error are kept for Log.
func StartProgram(t testing.TB, path string, args ...string) *Program {
	t.Helper()
	return startIn(t, "", path, args...)
}

// startIn starts the program in folder dir; "" is the test's own.
func startIn(t testing.TB, dir, path string, args ...string) *Program {
	t.Helper()
	p := &Program{name: path, cmd: exec.Command(path, args...), log: &tail{}, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// A child of the child that keeps the output open must not hang the test.
	p.cmd.WaitDelay = 2 * time.Second
	dieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	go func() { // ends with the process, at the latest in the cleanup below
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s, pid %d:\n%s", path, p.Pid(), p.Log())
		}
	})
	return p
}

// Pid returns the process id, also after the end of the process.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Log returns the last mebibyte of what the program wrote to standard output and
// standard error.
func (p *Program) Log() string { return p.log.String() }

// Signal sends a signal. One that comes after the end of the process is lost.
func (p *Program) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL and waits for its end. It may be called more
// than once.
func (p *Program) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Done is closed when the process has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Program) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode waits for the end of the process and returns its exit code, -1 if a
// signal ended it. It ends the test if the process still runs after the given
// time, or a minute if that is longer.
func (p *Program) ExitCode(t testing.TB, within time.Duration) int {
	t.Helper()
	within = max(within, leastPatience)
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("%s, pid %d: still running after %v", p.name, p.Pid(), within)
	}
	return p.cmd.ProcessState.ExitCode()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	// Dropping only at twice the limit makes the copy rare.
	if len(l.buf) > 2*logLimit {
		l.buf = append([]byte(nil), l.buf[len(l.buf)-logLimit:]...)
	}
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-logLimit):])
}
