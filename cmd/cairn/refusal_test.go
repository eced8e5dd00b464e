package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"cairn/internal/datadir"
	"cairn/internal/testkit"
)

// TestRefusalLeavesNothing: a node that cannot have its ports makes no files, and one whose store or log is missing makes no
// folder in its place.
func TestRefusalLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), testkit.FreePort(t)
	start := []string{"server", "--dir", dir, "--bind", "127.0.0.1", "--memory-budget", "64mb", "--cluster-enabled", "yes", "--port"}
	wantEmpty := func(after string) {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("after %s: %v, %v", after, left, err)
		}
	}
	wantRun(t, 1, "port 60000 is too high for a cluster", append(start, "60000")...)
	wantEmpty("a port too high")
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+10000))
	if err != nil {
		t.Fatal(err)
	}
	wantRun(t, 1, "cluster bus: cannot listen on port "+strconv.Itoa(port+10000), append(start, strconv.Itoa(port))...)
	wantEmpty("a bus port in use")
	l.Close()

	alone := []string{"server", "--dir", dir, "--bind", "127.0.0.1", "--memory-budget", "64mb", "--port", strconv.Itoa(port)}
	n := launch(t, built().cairn, alone...)
	addr := "127.0.0.1:" + strconv.Itoa(port)
	testkit.WaitPing(t, addr, startLimit)
	if got := testkit.Dial(t, addr).Do("SET", "k", "v").Raw; got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	n.stop(t)
	for folder, says := range map[string]string{"store": "but no store beside it", "log": "no log in "} {
		there, away := filepath.Join(datadir.Of(dir, ""), folder), filepath.Join(t.TempDir(), folder)
		if err := os.Rename(there, away); err != nil {
			t.Fatal(err)
		}
		wantRun(t, 1, says, alone...)
		if _, err := os.Stat(there); err == nil {
			t.Errorf("the refusal has made %s", there)
		}
		if err := os.Rename(away, there); err != nil {
			t.Fatal(err)
		}
	}
	n = launch(t, built().cairn, alone...)
	testkit.WaitPing(t, addr, startLimit)
	if got := testkit.Dial(t, addr).Do("GET", "k").Raw; got != "$1\r\nv\r\n" {
		t.Errorf("GET: %q", got)
	}
	n.stop(t)
}

// TestDaemonTellsOfItsPidFile: nobody hears a daemon without a log, so what will be missing is said before.
func TestDaemonTellsOfItsPidFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killAtEnd(t, datadir.Of(dir, ""))
	wantRun(t, 0, "pid file /nosuch/x.pid will not be written", "server", "--dir", dir, "--port", strconv.Itoa(testkit.FreePort(t)),
		"--memory-budget", "64mb", "--daemonize", "yes", "--pidfile", "/nosuch/x.pid")
}
