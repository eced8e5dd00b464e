package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a running redis-server.
type Redis struct {
	*Program
	Port int
	Addr string // host:port
	Dir  string // its working folder, removed with the test
}

// RedisPath returns the path of the redis-server to use. Without one it skips the
// test, or fails it where CI is set.
func RedisPath(t testing.TB) string {
	t.Helper()
	name := "redis-server"
	if other := os.Getenv("CAIRN_TEST_REDIS"); other != "" {
		name = other
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("redis-server is not installed: %v", err)
	}
	t.Skipf("redis-server is not installed: %v", err)
	return ""
}

// StartRedis starts a redis-server on a free port of 127.0.0.1, in a folder of its
// own, without saving, and waits until it answers. args come after ours, so that
// they win: "--cluster-enabled", "yes".
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	path := RedisPath(t)
	// Somebody else may take the port between FreePort and the start.
	const tries = 3
	for range tries {
		r := &Redis{Port: FreePort(t), Dir: t.TempDir()}
		r.Addr = address(r.Port)
		own := []string{
			"--port", strconv.Itoa(r.Port), "--bind", "127.0.0.1", "--dir", r.Dir,
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		}
		r.Program = startIn(t, r.Dir, path, append(own, args...)...)
		if r.ready() {
			return r
		}
		t.Logf("redis-server did not start on port %d:\n%s", r.Port, r.Log())
		r.Kill()
	}
	t.Fatalf("redis-server did not start in %d tries", tries)
	return nil
}

// ready waits until the process answers, and reports whether it does.
func (r *Redis) ready() bool {
	own := fmt.Sprintf("process_id:%d\r", r.Pid())
	up := false
	poll(startLimit, func() bool {
		c, err := connect(r.Addr, time.Second)
		if err != nil {
			return !r.Running()
		}
		defer c.Close()
		reply, err := c.Try("INFO", "server")
		if err != nil || strings.HasPrefix(reply.Raw, "-LOADING") {
			return !r.Running()
		}
		// Another process may own the port. A server that wants a password
		// cannot be asked.
		up = strings.Contains(reply.Raw, own) || strings.HasPrefix(reply.Raw, "-NOAUTH")
		return true
	})
	return up && r.Running()
}

// WaitPing waits until a server answers PING at addr, whatever it is, with any
// reply but LOADING.
func WaitPing(t testing.TB, addr string, within time.Duration) {
	t.Helper()
	Eventually(t, within, func() bool {
		c, err := connect(addr, time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		reply, err := c.Try("PING")
		return err == nil && !strings.HasPrefix(reply.Raw, "-LOADING")
	}, "PING of %s", addr)
}
