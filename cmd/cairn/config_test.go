package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// debianConf are the directives of the redis.conf that Debian 12 installs, without
// its comments. The folders it names do not exist in a test.
func debianConf(text, dir string, port int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch name, _, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "port":
			fmt.Fprintf(&b, "port %d\n", port)
		case "dir":
			fmt.Fprintf(&b, "dir %s\n", dir)
		case "logfile":
			fmt.Fprintf(&b, "logfile %s\n", filepath.Join(dir, "server.log"))
		case "pidfile":
			fmt.Fprintf(&b, "pidfile %s\n", filepath.Join(dir, "server.pid"))
		case "daemonize":
			b.WriteString("daemonize no\n")
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestDebianConfig(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"testdata/debian.conf", "/etc/redis/redis.conf"} {
		t.Run(filepath.Base(source), func(t *testing.T) {
			text, err := os.ReadFile(source)
			if err != nil {
				t.Skipf("the machine has none: %v", err)
			}
			dir, port := t.TempDir(), testkit.FreePort(t)
			conf := filepath.Join(dir, "redis.conf")
			if err := os.WriteFile(conf, []byte(debianConf(string(text), dir, port)), 0o600); err != nil {
				t.Fatal(err)
			}
			p := testkit.StartProgram(t, built().cairn, "server", conf)
			addr := "127.0.0.1:" + strconv.Itoa(port)
			testkit.WaitPing(t, addr, startLimit)
			c := testkit.Dial(t, addr)
			for _, want := range [][2]string{{"appendfsync", "everysec"}, {"hash-max-listpack-entries", "512"}, {"dir", dir}} {
				if got := c.Do("CONFIG", "GET", want[0]).Value; fmt.Sprint(got) != fmt.Sprint([]any{want[0], want[1]}) {
					t.Errorf("CONFIG GET %s: %v, want %s", want[0], got, want[1])
				}
			}
			testkit.Eventually(t, startLimit, func() bool { // it may serve before it has told everybody
				pid, err := os.ReadFile(filepath.Join(dir, "server.pid"))
				return err == nil && strings.TrimSpace(string(pid)) == strconv.Itoa(p.Pid())
			}, "its process id in the pid file")
			log, err := os.ReadFile(filepath.Join(dir, "server.log"))
			if err != nil || !strings.Contains(string(log), "Ready to accept connections") {
				t.Errorf("log file: %v, %d bytes, and no line that it is ready", err, len(log))
			}
			if text := p.Log(); text != "" {
				t.Errorf("with a log file there is output, too: %q", text)
			}
		})
	}
}

// suiteConf is what the Redis test runner writes for a server.
const suiteConf = `always-show-logo yes
notify-keyspace-events KEA
daemonize no
pidfile /var/run/redis.pid
port %d
timeout 0
bind 127.0.0.1
loglevel verbose
logfile ''
databases 16
latency-monitor-threshold 1
repl-diskless-sync-delay 0
save ''
rdbcompression yes
dbfilename dump.rdb
dir ./data
slave-serve-stale-data yes
appendonly no
appendfsync everysec
no-appendfsync-on-rewrite no
activerehashing yes
enable-protected-configs yes
enable-debug-command yes
enable-module-command yes
propagation-error-behavior panic-on-replicas
shutdown-on-sigterm "nosave force"
port %d
`

// TestNamedRedisServer starts the program as test runners and old scripts do: under
// redis-server's name, with a relative path and a relative dir.
func TestNamedRedisServer(t *testing.T) {
	dir, port := t.TempDir(), testkit.FreePort(t)
	t.Chdir(dir)
	if err := os.Symlink(built().cairn, "redis-server"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("data", 0o755); err != nil {
		t.Fatal(err)
	}
	conf := strings.Replace(fmt.Sprintf(suiteConf, port+1, port), "/var/run", dir, 1)
	if err := os.WriteFile("redis.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	n := launch(t, "./redis-server", "./redis.conf", "--maxclients", "500")
	addr := "127.0.0.1:" + strconv.Itoa(port) // the last line wins
	testkit.WaitPing(t, addr, startLimit)
	c := testkit.Dial(t, addr)
	if got := c.Do("CONFIG", "GET", "maxclients").Value; fmt.Sprint(got) != "[maxclients 500]" {
		t.Errorf("a directive behind the file: %v, want 500", got)
	}
	if got := c.Do("SET", "k", "v").Raw; got != "+OK\r\n" {
		t.Errorf("SET: %q", got)
	}
	out, errText := n.stop(t)
	at := 0
	for _, want := range []string{fmt.Sprintf(" PID: %d\n", n.pid()), "Server initialized", "Ready to accept"} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("output lacks %q, or has it too early:\n%s", want, out)
		}
		at += i
	}
	if errText != "" {
		t.Errorf("standard error is not silent: %q", errText)
	}
	if files, err := os.ReadDir("data"); err != nil || len(files) == 0 {
		t.Errorf("folder data: %d files, %v; want the node's own", len(files), err)
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		args       []string
		want       []string // all of them in what is printed: FILE:LINE: first
	}{
		{"unknown directive", "port 7000\nmaxmemry 1gb\n", nil, []string{".conf:2:", "maxmemry"}},
		{"bad number", "# a comment\n\nport seventy\n", nil, []string{".conf:3:", "port", "seventy"}},
		{"bad choice", "appendfsync sometimes\n", nil, []string{".conf:1:", "appendfsync", "sometimes"}},
		{"open quote", "dir \"/tmp\n", nil, []string{".conf:1:"}},
		{"bad flag", "", []string{"--port", "seventy"}, []string{"port", "seventy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conf := filepath.Join(t.TempDir(), "bad.conf")
			if err := os.WriteFile(conf, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := runToEnd(t, built().cairn, append([]string{"server", conf}, c.args...)...)
			if r.code != 1 {
				t.Errorf("exit status %d, want 1", r.code)
			}
			for _, w := range c.want {
				if !strings.Contains(r.stderr, w) {
					t.Errorf("standard error lacks %q:\n%s", w, r.stderr)
				}
			}
			if lines := strings.Count(r.stderr, "\n"); lines > 4 {
				t.Errorf("one mistake takes %d lines:\n%s", lines, r.stderr)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		t.Parallel()
		missing := filepath.Join(t.TempDir(), "none.conf")
		if r := runToEnd(t, built().cairn, "server", missing); r.code != 1 || !strings.Contains(r.stderr, missing) {
			t.Errorf("status %d, standard error %q; want 1 and the file's name", r.code, r.stderr)
		}
	})
	t.Run("no such folder", func(t *testing.T) {
		t.Parallel()
		missing := filepath.Join(t.TempDir(), "none")
		if r := runToEnd(t, built().cairn, "server", "--dir", missing, "--port", "0"); r.code != 1 || !strings.Contains(r.stderr, missing) {
			t.Errorf("status %d, standard error %q; want 1 and the folder's name", r.code, r.stderr)
		}
	})
}
