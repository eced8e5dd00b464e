package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// These tests run the program as people do: a process, its files, its sockets, its
// exit status.

const startLimit = time.Minute

// programs are the built binaries; TestMain removes them.
type programs struct{ cairn, crash, bars, chaos string }

// built returns where TestMain put them. TEST_CAIRN_BINARY names another cairn to test.
func built() programs {
	dir := os.Getenv(builtDir)
	p := programs{cairn: filepath.Join(dir, "cairn"), crash: filepath.Join(dir, "crash"), bars: filepath.Join(dir, "bars"), chaos: filepath.Join(dir, "chaos")}
	if other := os.Getenv("TEST_CAIRN_BINARY"); other != "" {
		p.cairn = other
	}
	return p
}

const builtDir = "TEST_BUILT_PROGRAMS"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cairn-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command("go", "build", "-tags", buildTags, "-o", dir+string(filepath.Separator), "cairn/cmd/cairn", "cairn/tools/crash", "cairn/tools/bars", "cairn/tools/chaos").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(builtDir, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// running is a node in a process of its own.
type running struct {
	*testkit.Program
	addr string
	port int
}

// start starts a node in folder dir and waits until it serves. args come last, so
// that they win.
func start(t testing.TB, dir string, args ...string) *running {
	t.Helper()
	return startOn(t, testkit.FreePort(t), dir, args...)
}

func startOn(t testing.TB, port int, dir string, args ...string) *running {
	t.Helper()
	own := []string{"server", "--port", strconv.Itoa(port), "--dir", dir, "--memory-budget", "64mb"}
	n := &running{port: port, addr: "127.0.0.1:" + strconv.Itoa(port)}
	n.Program = testkit.StartProgram(t, built().cairn, append(own, args...)...)
	testkit.WaitPing(t, n.addr, startLimit)
	return n
}

// result is what a program that ended by itself left.
type result struct {
	code           int
	stdout, stderr string
}

// runToEnd runs the program and waits for its end; one that does not end is killed.
func runToEnd(t testing.TB, path string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	end := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer end.Stop()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("run %s: %v", path, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// lookPath finds a program that may be missing on a machine, but not where CI is set.
func lookPath(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: %v", name, err)
	}
	t.Skipf("%s is not installed: %v", name, err)
	return ""
}
