package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// TestWords: what people type at first, and what they are told.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   string
		code   int
		stdout string // begins or contains
		stderr string
	}{
		{"--version", 0, "cairn ", ""},
		{"version", 0, "cairn ", ""},
		{"server --version", 0, "Redis server v=", ""},
		{"server help", 0, "Examples:", ""},
		{"server --port 7000 --help", 0, "Examples:", ""},
		{"/etc/redis/redis.conf", 1, "", "did you mean: cairn server /etc/redis/redis.conf\n"},
		{"--port 7000", 1, "", "did you mean: cairn server --port ...\n"},
		{"server -p 7000", 1, "", `unknown option "-p"; options begin with two dashes: --port`},
		{"server --port", 1, "", "port: needs a value"},
		{"server --maxmemry 1gb", 1, "", "did you mean maxmemory?"},
		{"server --maxdata 1gb", 1, "", "limits on data are not supported yet"},
		{"up --help", 0, "cairn up --replicas 0 --port 30000", ""},
		{"down --help", 0, "cairn down --wipe", ""},
		{"up --nosuch", 1, "", "cairn: unknown flag: --nosuch\n"},
	} {
		r := runToEnd(t, built().cairn, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.stdout, c.stdout) || !strings.Contains(r.stderr, c.stderr) || c.stderr == "" && r.stderr != "" {
			t.Errorf("cairn %s: status %d\n%s%s", c.args, r.code, r.stdout, r.stderr)
		}
	}
	if r := runToEnd(t, built().cairn, "--help"); strings.Contains(r.stdout, "completion") {
		t.Errorf("help speaks of completion:\n%s", r.stdout)
	}
}

// TestForeignFiles: a data set of Redis in the folder is not passed over in silence.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dump.rdb"), []byte("REDIS0011"), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "dump.rdb in "
	n := start(t, dir)
	testkit.Dial(t, n.addr).Do("SET", "k", "v")
	n.Signal(syscall.SIGTERM)
	n.ExitCode(t, 10*time.Second)
	if !strings.Contains(n.Log(), warning+dir+" is not read") {
		t.Errorf("no warning:\n%s", n.Log())
	}
	again := start(t, dir)
	again.Signal(syscall.SIGTERM)
	again.ExitCode(t, 10*time.Second)
	if strings.Contains(again.Log(), warning) {
		t.Error("a warning though there are keys")
	}
}

// TestMissingLog: a store without its log is no reason to start with less.
func TestMissingLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir)
	testkit.Dial(t, n.addr).Do("SET", "k", "v")
	n.Signal(syscall.SIGTERM)
	n.ExitCode(t, 10*time.Second)
	log := filepath.Join(dir, "cairn", "log")
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	r := runToEnd(t, built().cairn, "server", "--dir", dir, "--port", "0")
	if r.code != 1 || !strings.Contains(r.stderr, "no log in "+log+", but the store has applied offset ") {
		t.Errorf("status %d, standard error %q", r.code, r.stderr)
	}
}
