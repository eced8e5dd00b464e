package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// launched is a process whose two outputs are kept apart.
type launched struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer // safe to read once done is closed
	done     chan struct{}
}

func launch(t testing.TB, path string, args ...string) *launched {
	t.Helper()
	l := &launched{cmd: exec.Command(path, args...), done: make(chan struct{})}
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.err
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, at the latest in the cleanup below
		_ = l.cmd.Wait()
		close(l.done)
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // fails when it has ended
		<-l.done
	})
	return l
}

func (l *launched) pid() int { return l.cmd.Process.Pid }

// stop sends SIGTERM, wants status 0 and returns both outputs. Init systems and test runners grant 10 s, of which a node
// with so little data needs a fraction; how busy the machine of a test is nobody knows.
func (l *launched) stop(t testing.TB) (out, errText string) {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	select {
	case <-l.done:
	case <-time.After(startLimit):
		t.Fatal("still running a minute after SIGTERM")
	}
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d after SIGTERM, want 0\n%s%s", code, l.out.String(), l.err.String())
	}
	return l.out.String(), l.err.String()
}

// TestTerminate: an orderly stop is quick, says nothing on standard error, and
// everything is there afterwards, also when clients are in the middle of something.
func TestTerminate(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), testkit.FreePort(t)
	args := []string{"server", "--port", strconv.Itoa(port), "--dir", dir, "--memory-budget", "64mb"}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	value := strings.Repeat("x", 70<<10) // in chunks
	for round := range 3 {
		l := launch(t, built().cairn, args...)
		testkit.WaitPing(t, addr, startLimit)
		c := testkit.Dial(t, addr)
		if got := c.Do("INCR", "n").Value; got != int64(round+1) {
			t.Fatalf("start %d: INCR gives %v, want %d", round+1, got, round+1)
		}
		if round == 0 {
			c.Do("SET", "big", value)
			c.Do("HSET", "h", "f", "v")
			c.Do("SET", "due", "v", "EX", "1000")
		}
		if got := c.Do("GET", "big").Value; got != value {
			t.Errorf("start %d: big has another value", round+1)
		}
		if got := c.Do("DBSIZE").Value; got != int64(4) {
			t.Errorf("start %d: DBSIZE %v, want 4", round+1, got)
		}
		idle := testkit.Dial(t, addr)
		idle.Do("MULTI")
		if _, err := idle.Net().Write([]byte("*2\r\n$3\r\nGET\r\n$1000\r\nhalf")); err != nil {
			t.Fatal(err)
		}
		if _, errText := l.stop(t); errText != "" {
			t.Errorf("standard error is not silent: %q", errText)
		}
	}
}

// TestTerminateAtOnce: who was answered may end the node, though it has just begun to serve and is still starting its tasks.
func TestTerminateAtOnce(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), testkit.FreePort(t)
	args := []string{"server", "--port", strconv.Itoa(port), "--dir", dir, "--memory-budget", "64mb"}
	for round := range 8 {
		l := launch(t, built().cairn, args...)
		var c net.Conn
		testkit.Eventually(t, startLimit, func() (ok bool) {
			var err error
			c, err = net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
			return err == nil
		}, "the node listens")
		defer c.Close()
		if _, err := c.Write([]byte("INCR n\r\n")); err != nil {
			t.Fatal(err)
		}
		reply, want := make([]byte, 4), fmt.Sprintf(":%d\r\n", round+1)
		if _, err := io.ReadFull(c, reply); err != nil || string(reply) != want {
			t.Fatalf("start %d: INCR gives %q, %v; want %q", round+1, reply, err, want)
		}
		if _, errText := l.stop(t); errText != "" {
			t.Errorf("standard error is not silent: %q", errText)
		}
	}
}

// TestTwoSignals: who signals a process and its group sends two at once, and means one.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	testkit.Dial(t, n.addr).Do("SET", "k", "v")
	n.Signal(syscall.SIGTERM)
	n.Signal(syscall.SIGINT)
	if code := n.ExitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestShutdownCommand: SHUTDOWN ends the process in order.
func TestShutdownCommand(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	if err := testkit.Dial(t, n.addr).Send("SHUTDOWN", "NOSAVE"); err != nil {
		t.Fatal(err)
	}
	if code := n.ExitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSecondNode: two nodes in one folder would destroy it; two on one port serve nobody.
func TestSecondNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir)
	for _, c := range []struct{ name, dir, port string }{
		{"same folder", dir, strconv.Itoa(testkit.FreePort(t))},
		{"same port", t.TempDir(), strconv.Itoa(n.port)},
	} {
		r := runToEnd(t, built().cairn, "server", "--dir", c.dir, "--port", c.port)
		if r.code == 0 || r.stderr == "" {
			t.Errorf("%s: status %d, standard error %q; want a failure that says why", c.name, r.code, r.stderr)
		}
		if want := "data folder " + filepath.Join(dir, "cairn") + " is used by the node with pid " + strconv.Itoa(n.Pid()); c.name == "same folder" && !strings.Contains(r.stderr, want) {
			t.Errorf("standard error %q, want %q", r.stderr, want)
		}
		if want := "cairn: cannot listen on port " + c.port + ": address already in use\n"; c.name == "same port" && r.stderr != want {
			t.Errorf("standard error %q, want %q", r.stderr, want)
		}
	}
	if got := testkit.Dial(t, n.addr).Do("SET", "k", "v").Raw; got != "+OK\r\n" {
		t.Errorf("the first node, afterwards: %q", got)
	}
}

// TestNotify is systemd's side of Type=notify.
func TestNotify(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", "") // any
	n := start(t, t.TempDir(), "--supervised", "systemd")
	seen := map[string]bool{}
	read := func(until string) {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(startLimit)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		for !seen[until] {
			n, err := l.Read(buf)
			if err != nil {
				t.Fatalf("no %s, only %v: %v", until, seen, err)
			}
			for line := range strings.Lines(string(buf[:n])) {
				seen[strings.TrimSpace(line)] = true
			}
		}
	}
	read("READY=1")
	if seen["STOPPING=1"] {
		t.Error("STOPPING=1 before the stop")
	}
	read("WATCHDOG=1")
	n.Signal(syscall.SIGTERM)
	read("STOPPING=1")
	if code := n.ExitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// shortDir is for socket paths, of which the system takes 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	n := start(t, t.TempDir(), "--unixsocket", path, "--unixsocketperm", "750")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got&os.ModeSocket == 0 || got.Perm() != 0o750 {
		t.Errorf("mode %v, want a socket with 0750", got)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := askRaw(t, c, "PING\r\n"); got != "+PONG\r\n" {
		t.Errorf("PING over the socket: %q", got)
	}
	n.Signal(syscall.SIGTERM)
	n.ExitCode(t, 10*time.Second)
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is still there after the end")
	}
}

// TestProtectedMode: without a password, other machines are told why they are turned away.
func TestProtectedMode(t *testing.T) {
	t.Parallel()
	host := otherAddress(t)
	n := start(t, t.TempDir(), "--bind", "*", "--protected-mode", "yes")
	ask := func() string {
		c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(n.port)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return askRaw(t, c, "PING\r\n")
	}
	if got := ask(); !strings.HasPrefix(got, "-DENIED ") {
		t.Errorf("a client from %s: %q, want -DENIED", host, got)
	}
	c := testkit.Dial(t, n.addr)
	if got := c.Do("PING").Raw; got != "+PONG\r\n" {
		t.Errorf("a client from this machine: %q", got)
	}
	if got := c.Do("CONFIG", "SET", "protected-mode", "no").Raw; got != "+OK\r\n" {
		t.Fatalf("CONFIG SET: %q", got)
	}
	if got := ask(); got != "+PONG\r\n" {
		t.Errorf("with protected-mode no: %q", got)
	}
}

// otherAddress is an address of this machine that is not loopback: the server sees
// clients from there as foreign.
func otherAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Skipf("addresses of this machine: %v", err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	t.Skip("this machine has only loopback")
	return ""
}

// askRaw sends bytes and returns the first line that comes back. A server that closes at once may
// already have refused the bytes.
func askRaw(t testing.TB, c net.Conn, text string) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(startLimit)); err != nil {
		t.Fatal(err)
	}
	_, writeErr := c.Write([]byte(text))
	line := []byte{}
	one := make([]byte, 1)
	for !bytes.HasSuffix(line, []byte("\r\n")) {
		if _, err := c.Read(one); err != nil {
			t.Fatalf("read after %q: %v (write: %v)", line, err, writeErr)
		}
		line = append(line, one[0])
	}
	return string(line)
}
