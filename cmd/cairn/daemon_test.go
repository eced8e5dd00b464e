package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/datadir"
	"cairn/internal/testkit"
)

// asRedisServer returns a path of the program that is called redis-server.
func asRedisServer(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redis-server")
	if err := os.Symlink(built().cairn, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// killAtEnd ends the process that a daemon's folder speaks of when the test ends.
func killAtEnd(t testing.TB, folder string) {
	t.Helper()
	t.Cleanup(func() {
		if pid, held, _ := datadir.Holder(folder); held && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// daemons are the programs whose manners as daemons are compared: the real one, where it is installed, and ours.
func daemons(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"ours": asRedisServer(t)}
	if path, err := exec.LookPath("redis-server"); err == nil {
		all["Redis"] = path
	}
	return all
}

// TestDaemonize: the parent ends with status 0 and the child serves, in a session of its own, with its process id in the
// pid file until it stops. Settings from standard input reach the child.
func TestDaemonize(t *testing.T) {
	t.Parallel()
	for name, program := range daemons(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, port := t.TempDir(), testkit.FreePort(t)
			killAtEnd(t, datadir.Of(dir, ""))
			pidFile := filepath.Join(dir, "server.pid")
			cmd := exec.Command(program, "-", "--port", strconv.Itoa(port), "--dir", dir, "--daemonize", "yes", "--logfile", "log", "--pidfile", pidFile)
			cmd.Stdin = strings.NewReader("requirepass secret\n")
			if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "cairn") {
				t.Fatalf("the parent: %v\n%s", err, out)
			}
			addr := "127.0.0.1:" + strconv.Itoa(port)
			c := dialDaemon(t, addr, name == "ours")
			if got := c.Do("PING").Raw; got != "-NOAUTH Authentication required.\r\n" {
				t.Errorf("PING before AUTH: %q", got)
			}
			c.Do("AUTH", "secret")
			pid := 0
			testkit.Eventually(t, startLimit, func() bool {
				raw, _ := os.ReadFile(pidFile)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
				return pid > 0
			}, "a pid file")
			if session, err := getsid(pid); err != nil || session != pid {
				t.Errorf("process %d is in session %d, %v", pid, session, err)
			}
			if err := c.Send("SHUTDOWN", "NOSAVE"); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, 10*time.Second, func() bool {
				return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
			}, "the end of the process")
			if _, err := os.Stat(pidFile); err == nil {
				t.Error("the pid file is still there")
			}
			if log, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || !strings.Contains(string(log), "Ready to accept connections") {
				t.Errorf("log: %v\n%s", err, log)
			}
		})
	}
}

// dialDaemon connects to a daemon whose parent has ended. Ours serves by then.
func dialDaemon(t *testing.T, addr string, atOnce bool) *testkit.Conn {
	t.Helper()
	if !atOnce {
		testkit.WaitPing(t, addr, startLimit)
	}
	return testkit.Dial(t, addr)
}

func getsid(pid int) (int, error) {
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sid), nil
}

// TestDaemonizeFails: what is wrong with the configuration is said before there is a child. Ours goes on to say what the
// child finds; Redis leaves that to its log.
func TestDaemonizeFails(t *testing.T) {
	t.Parallel()
	for name, program := range daemons(t) {
		dir, port := t.TempDir(), testkit.FreePort(t)
		taken := start(t, t.TempDir())
		for _, c := range []struct {
			args      string
			also      bool // Redis's parent fails, too
			ours, log string
		}{
			{"--port PORT --nosuch 1", true, "nosuch: unknown directive", ""},
			{"--port PORT --logfile /nonexistent/log", true, "logfile: open /nonexistent/log: no such file or directory", ""},
			{"--port TAKEN --logfile log", false, "cannot listen on port TAKEN: address already in use", "Failed listening on port TAKEN"},
		} {
			fill := strings.NewReplacer("PORT", strconv.Itoa(port), "TAKEN", strconv.Itoa(taken.port))
			args := append(strings.Fields(fill.Replace(c.args)), "--dir", dir, "--daemonize", "yes")
			r := runToEnd(t, program, args...)
			if name == "Redis" && (r.code != 0) != c.also {
				t.Errorf("Redis, %s: status %d\n%s", c.args, r.code, r.stderr)
			}
			if name == "ours" && (r.code != 1 || !strings.Contains(r.stderr, fill.Replace(c.ours))) {
				t.Errorf("%s: status %d, %q; want 1, %q", c.args, r.code, r.stderr, fill.Replace(c.ours))
			}
			testkit.Eventually(t, 10*time.Second, func() bool {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				return strings.Contains(string(log), fill.Replace(c.log))
			}, name, c.args, "in the log")
		}
	}
}

// TestStopThenStart: a script that waits for the end of its connection, as redis-cli shutdown does, can start the node again
// at once.
func TestStopThenStart(t *testing.T) {
	t.Parallel()
	program, dir, port := asRedisServer(t), t.TempDir(), testkit.FreePort(t)
	folder := datadir.Of(dir, "")
	killAtEnd(t, folder)
	for round := range 4 {
		r := runToEnd(t, program, "--port", strconv.Itoa(port), "--dir", dir, "--daemonize", "yes", "--logfile", "log",
			"--pidfile", filepath.Join(dir, "pid"), "--memory-budget", "64mb")
		if r.code != 0 {
			t.Fatalf("start %d: status %d\n%s", round, r.code, r.stderr)
		}
		c := testkit.Dial(t, "127.0.0.1:"+strconv.Itoa(port))
		for i := range 200 {
			c.Do("SET", "k"+strconv.Itoa(i), strings.Repeat("v", 10<<10))
		}
		if err := c.Send("SHUTDOWN"); err != nil {
			t.Fatal(err)
		}
		if err := c.Net().SetReadDeadline(time.Now().Add(startLimit)); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c.Net()); err != nil || len(rest) > 0 {
			t.Fatalf("after SHUTDOWN: %q, %v", rest, err)
		}
		if pid, held, err := datadir.Holder(folder); held || err != nil {
			t.Errorf("start %d: the connection has ended, process %d still has the data: %v", round, pid, err)
		}
	}
}

// TestVersionLine: scripts cut the line of redis-server --version in these ways.
func TestVersionLine(t *testing.T) {
	t.Parallel()
	forms := []*regexp.Regexp{
		regexp.MustCompile(`^Redis server v=(\d+\.\d+\.\d+) sha=[0-9a-f]{8}:[01] malloc=\S+ bits=\d\d build=[0-9a-f]+\b`),
		regexp.MustCompile(`v=([0-9.]+) sha`),
		regexp.MustCompile(`v=(\S+)`),
	}
	for name, program := range daemons(t) {
		for _, flag := range []string{"-v", "--version"} {
			r := runToEnd(t, program, flag)
			for _, form := range forms {
				if m := form.FindStringSubmatch(r.stdout); r.code != 0 || m == nil || strings.Count(r.stdout, "\n") != 1 {
					t.Errorf("%s %s: status %d, %q does not fit %v", name, flag, r.code, r.stdout, form)
				} else if name == "ours" && m[1] != "7.2.4" {
					t.Errorf("%s: %q", flag, m[1])
				}
			}
		}
	}
}

// TestMovedData: appenddirname gives a node a data folder of its own in dir. A node that has data does not begin anew
// because it was set.
func TestMovedData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir)
	own := start(t, dir, "--appenddirname", "aof-2") // beside one that runs
	testkit.Dial(t, n.addr).Do("SET", "k", "first")
	testkit.Dial(t, own.addr).Do("SET", "k", "second")
	n.Kill()
	own.Kill()
	r := runToEnd(t, built().cairn, "server", "--dir", dir, "--port", "0", "--appenddirname", "aof-3")
	if want := "there is data in " + filepath.Join(dir, "cairn") + ": move it"; r.code != 1 || !strings.Contains(r.stderr, want) {
		t.Errorf("status %d, standard error %q, want %q", r.code, r.stderr, want)
	}
	for _, c := range []struct{ name, want string }{{"appendonlydir", "first"}, {"aof-2", "second"}} {
		again := start(t, dir, "--appenddirname", c.name)
		if got := testkit.Dial(t, again.addr).Do("GET", "k").Value; got != c.want {
			t.Errorf("%s: %v, want %q", c.name, got, c.want)
		}
		again.Kill()
		if strings.Contains(again.Log(), "is not read") {
			t.Errorf("its own folder looks foreign:\n%s", again.Log())
		}
	}
}
