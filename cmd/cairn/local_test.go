package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/datadir"
	"cairn/internal/testkit"
)

func canListen(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// pidsOf returns the processes that have the nodes of a cluster in dir, by port.
func pidsOf(t testing.TB, dir string, first, nodes int) map[int]int {
	t.Helper()
	pids := map[int]int{}
	for port := first; port < first+nodes; port++ {
		pid, held, err := datadir.Holder(datadir.Of(filepath.Join(dir, strconv.Itoa(port)), ""))
		if err != nil {
			t.Fatal(err)
		}
		if held {
			pids[port] = pid
		}
	}
	return pids
}

// clusterDir is a folder for a cluster, whose nodes are gone when the test ends.
func clusterDir(t testing.TB, first, nodes int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "c")
	for port := first; port < first+nodes; port++ {
		killAtEnd(t, datadir.Of(filepath.Join(dir, strconv.Itoa(port)), ""))
	}
	return dir
}

// inCluster sends a command to the node on port, and follows one redirection.
func inCluster(t testing.TB, port int, args ...string) any {
	t.Helper()
	reply := testkit.Dial(t, "127.0.0.1:"+strconv.Itoa(port)).Do(args...)
	if moved, ok := strings.CutPrefix(reply.Raw, "-MOVED "); ok {
		return testkit.Dial(t, strings.Fields(moved)[1]).Do(args...).Value
	}
	return reply.Value
}

func wantRun(t testing.TB, want int, said string, args ...string) result {
	t.Helper()
	r := runToEnd(t, built().cairn, args...)
	if r.code != want || !strings.Contains(r.stdout+r.stderr, said) {
		t.Fatalf("cairn %s: status %d, want %d and %q:\n%s%s", strings.Join(args, " "), r.code, want, said, r.stdout, r.stderr)
	}
	return r
}

// TestUpDown is the life of a local cluster.
func TestUpDown(t *testing.T) {
	t.Parallel()
	const nodes = 6
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	port := strconv.Itoa(first)
	r := wantRun(t, 0, "6 of 6 nodes say that the cluster works", "up", "--dir", dir, "--port", port, "--memory-budget", "64mb",
		"--", "--requirepass", "", "--appendfsync", "always")
	if r.stderr != "" || strings.Contains(r.stdout, "\x1b") {
		t.Errorf("standard error %q, output for no terminal:\n%s", r.stderr, r.stdout)
	}
	for _, want := range []string{"primary, slots 0-5460", "replica of " + port, "redis-cli -c -p " + port, "down --dir " + dir} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	for i := range 20 {
		if got := inCluster(t, first, "SET", fmt.Sprint("k", i), "v"); got != "OK" {
			t.Fatalf("SET k%d: %v", i, got)
		}
	}
	if got := testkit.Dial(t, "127.0.0.1:"+port).Do("CONFIG", "GET", "appendfsync").Raw; !strings.Contains(got, "always") {
		t.Errorf("appendfsync: %q", got)
	}
	before := pidsOf(t, dir, first, nodes)
	if err := syscall.Kill(before[first+5], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, startLimit, func() bool { return len(pidsOf(t, dir, first, nodes)) == 5 }, "the end of a killed node")
	wantRun(t, 0, "6 of 6 nodes say that the cluster works", "up", "--dir", dir)
	after := pidsOf(t, dir, first, nodes)
	for port, pid := range before {
		if (after[port] == pid) != (port != first+5) {
			t.Errorf("node %d: pid %d, was %d", port, after[port], pid)
		}
	}
	wantRun(t, 0, "nothing to do, all 6 nodes run", "up", "--dir", dir, "--port", port)
	wantRun(t, 1, "holds a cluster of 3 primaries with 1 replica each, from port "+port, "up", "--dir", dir, "--primaries", "4")
	wantRun(t, 1, "6 nodes of "+dir+" run with other settings", "up", "--dir", dir, "--memory-budget", "65mb")
	wantRun(t, 0, "6 nodes stopped", "down", "--dir", dir)
	if left := pidsOf(t, dir, first, nodes); len(left) > 0 {
		t.Errorf("still there after down: %v", left)
	}
	wantRun(t, 0, "no node runs in "+dir, "down", "--dir", dir)
	wantRun(t, 0, "6 of 6 nodes say that the cluster works", "up", "--dir", dir)
	for i := range 20 {
		if got := inCluster(t, first, "GET", fmt.Sprint("k", i)); got != "v" {
			t.Fatalf("GET k%d after down and up: %v", i, got)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, dir+" stays, since there is more in it than the cluster: notes\n", "down", "--dir", dir, "--wipe")
	wantRun(t, 0, "6 of 6 nodes", "up", "--dir", dir, "--port", port, "--memory-budget", "64mb")
	if err := os.Remove(filepath.Join(dir, "notes")); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, dir+" is gone", "down", "--dir", dir, "--wipe")
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder is still there")
	}
	wantRun(t, 1, "there is no cluster in "+dir, "down", "--dir", dir)
}

// TestUpRefuses: what cannot work is said before, or together with the log of the node that says why; nothing is left running.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	const nodes = 3
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	args := []string{"up", "--dir", dir, "--port", strconv.Itoa(first), "--replicas", "0", "--memory-budget", "64mb"}
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(first+10001))
	if err != nil {
		t.Fatal(err)
	}
	wantRun(t, 1, fmt.Sprintf("nothing was started:\n  port %d in use by pid %d", first+10001, os.Getpid()), args...)
	l.Close()
	if _, err := os.Stat(filepath.Join(dir, strconv.Itoa(first))); err == nil {
		t.Error("there is a folder of a node")
	}
	wantRun(t, 1, "nosuch: unknown directive", append(args, "--", "--nosuch", "1")...)
	wantRun(t, 1, "--port is what up decides itself", append(args, "--", "--port", "1")...)
	wantRun(t, 1, `unknown argument "x"`, append(args, "x")...)
	wantRun(t, 1, "--primaries 0: want 1 or more", append(args, "--primaries", "0")...)
	if left := pidsOf(t, dir, first, nodes); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("there is a folder, although nothing was started")
	}
}

// TestUpInterrupted: Ctrl-C takes back what was started, and the next up finishes what was begun, with a password as well.
func TestUpInterrupted(t *testing.T) {
	t.Parallel()
	const nodes = 3
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	args := []string{
		"up", "--dir", dir, "--port", strconv.Itoa(first), "--replicas", "0", "--memory-budget", "64mb",
		"--", "--requirepass", "secret",
	}
	l := launch(t, built().cairn, args...)
	testkit.Eventually(t, startLimit, func() bool { return len(pidsOf(t, dir, first, nodes)) > 0 }, "a node that runs")
	if err := l.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.done:
	case <-time.After(startLimit):
		t.Fatal("still running after SIGINT")
	}
	if l.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(l.err.String(), "interrupted") {
		t.Errorf("status %d\n%s%s", l.cmd.ProcessState.ExitCode(), l.out.String(), l.err.String())
	}
	if left := pidsOf(t, dir, first, nodes); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	wantRun(t, 0, "3 of 3 nodes say that the cluster works", args...)
	wantRun(t, 0, "3 nodes stopped", "down", "--dir", dir)
}

// TestDownNames: a node that does not stop is named, and the others are stopped.
func TestDownNames(t *testing.T) {
	t.Parallel()
	const nodes = 2
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	wantRun(t, 0, "2 of 2 nodes", "up", "--dir", dir, "--port", strconv.Itoa(first), "--primaries", "2", "--replicas", "0", "--memory-budget", "64mb")
	pids := pidsOf(t, dir, first, nodes)
	if err := syscall.Kill(pids[first], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 1, fmt.Sprintf("it runs (pid %d), but has answered nothing for 10s", pids[first]), "up", "--dir", dir)
	wantRun(t, 1, fmt.Sprintf("still running after 4s: node %d (pid %d). kill -9 %d ends", first, pids[first], pids[first]), "down", "--dir", dir, "--timeout", "4s")
	if left := pidsOf(t, dir, first, nodes); len(left) != 1 || left[first] != pids[first] {
		t.Errorf("left running: %v, want %d alone", left, first)
	}
	if err := syscall.Kill(pids[first], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, startLimit, func() bool { return len(pidsOf(t, dir, first, nodes)) == 0 }, "the end of the node")
}

// TestRemovedFolder: nodes whose folder was removed under them are named, with what ends them.
func TestRemovedFolder(t *testing.T) {
	t.Parallel()
	const nodes = 2
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	up := []string{"up", "--dir", dir, "--port", strconv.Itoa(first), "--primaries", "2", "--replicas", "0", "--memory-budget", "64mb"}
	wantRun(t, 0, "2 of 2 nodes", up...)
	pids := pidsOf(t, dir, first, nodes)
	end := func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already, if all is well
		}
	}
	t.Cleanup(end)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	removed := filepath.Join(dir, strconv.Itoa(first))
	wantRun(t, 1, fmt.Sprintf("ports %d, %d in use by pid %d, the node in %s, which was removed while it ran", first, first+10000, pids[first], removed), up...)
	kill := fmt.Sprintf("kill %d %d", min(pids[first], pids[first+1]), max(pids[first], pids[first+1]))
	wantRun(t, 1, "2 nodes of it still run, and nobody but you can stop them: "+kill, "down", "--dir", dir)
	end()
	testkit.Eventually(t, startLimit, func() bool { return canListen(first) && canListen(first+1) }, "the end of the nodes")
	wantRun(t, 1, "there is no cluster in "+dir+": ", "down", "--dir", dir)
}

// TestCreateCluster does what Redis's own script for local clusters does: six daemons in one folder, told apart by their
// files' names alone.
func TestCreateCluster(t *testing.T) {
	t.Parallel()
	cli := lookPath(t, "redis-cli")
	const nodes = 6
	program, dir, first := asRedisServer(t), t.TempDir(), testkit.FreePorts(t, nodes)
	var hosts []string
	for port := first; port < first+nodes; port++ {
		killAtEnd(t, datadir.Of(dir, fmt.Sprint("appendonlydir-", port)))
		hosts = append(hosts, fmt.Sprint("127.0.0.1:", port))
	}
	startAll := func() {
		t.Helper()
		for port := first; port < first+nodes; port++ {
			p := strconv.Itoa(port)
			r := runToEnd(t, program, "--port", p, "--protected-mode", "yes", "--cluster-enabled", "yes",
				"--cluster-config-file", "nodes-"+p+".conf", "--cluster-node-timeout", "2000", "--appendonly", "yes",
				"--appendfilename", "appendonly-"+p+".aof", "--appenddirname", "appendonlydir-"+p, "--dbfilename", "dump-"+p+".rdb",
				"--logfile", p+".log", "--daemonize", "yes", "--dir", dir, "--memory-budget", "64mb", "--pidfile", p+".pid")
			if r.code != 0 {
				t.Fatalf("start %s: status %d\n%s", p, r.code, r.stderr)
			}
		}
	}
	stopAll := func() {
		t.Helper()
		for port := first; port < first+nodes; port++ {
			runToEnd(t, cli, "-p", strconv.Itoa(port), "shutdown", "nosave")
		}
	}
	startAll()
	create := append([]string{"--cluster", "create"}, hosts...)
	if r := runToEnd(t, cli, append(create, "--cluster-replicas", "1", "--cluster-yes")...); r.code != 0 || !strings.Contains(r.stdout, "All 16384 slots covered") {
		t.Fatalf("create: status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	waitCluster(t, first, nodes)
	if got := inCluster(t, first, "SET", "k", "v"); got != "OK" {
		t.Fatalf("SET: %v", got)
	}
	stopAll()
	startAll()
	waitCluster(t, first, nodes)
	if got := inCluster(t, first, "GET", "k"); got != "v" {
		t.Errorf("GET after stop and start: %v", got)
	}
	stopAll()
	for _, pattern := range []string{"*.log", "appendonlydir-*", "dump-*.rdb", "nodes-*.conf"} { // clean
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left by clean: %v, %v", left, err)
	}
}

// waitCluster waits until all nodes say that the cluster works.
func waitCluster(t testing.TB, first, nodes int) {
	t.Helper()
	for port := first; port < first+nodes; port++ {
		c := testkit.Dial(t, "127.0.0.1:"+strconv.Itoa(port))
		testkit.Eventually(t, startLimit, func() bool {
			return strings.Contains(c.Do("CLUSTER", "INFO").Raw, "cluster_state:ok")
		}, "cluster_state:ok of node", port)
	}
}

// TestUpEmptiedFolder: a node whose folder was removed comes back as a replica, and what its own replica has is not lost to it.
func TestUpEmptiedFolder(t *testing.T) {
	t.Parallel()
	const nodes = 6
	first := testkit.FreePorts(t, nodes)
	dir := clusterDir(t, first, nodes)
	wantRun(t, 0, "6 of 6 nodes", "up", "--dir", dir, "--port", strconv.Itoa(first), "--memory-budget", "64mb")
	for i := range 20 {
		if got := inCluster(t, first, "SET", fmt.Sprint("k", i), "v"); got != "OK" {
			t.Fatalf("SET k%d: %v", i, got)
		}
	}
	wantRun(t, 0, "6 nodes stopped", "down", "--dir", dir)
	if err := os.RemoveAll(filepath.Join(dir, strconv.Itoa(first))); err != nil {
		t.Fatal(err)
	}
	wantRun(t, 0, fmt.Sprintf("node %d, whose folder was empty or gone: anew, as a replica", first), "up", "--dir", dir)
	for i := range 20 {
		if got := inCluster(t, first, "GET", fmt.Sprint("k", i)); got != "v" {
			t.Errorf("GET k%d: %v", i, got)
		}
	}
	wantRun(t, 0, "6 nodes stopped", "down", "--dir", dir)
	for port := first; port < first+nodes; port++ {
		if err := os.RemoveAll(filepath.Join(dir, strconv.Itoa(port))); err != nil {
			t.Fatal(err)
		}
	}
	wantRun(t, 1, "nothing is left of any node", "up", "--dir", dir)
	wantRun(t, 0, dir+" is gone", "down", "--dir", dir, "--wipe")
}
