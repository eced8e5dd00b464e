package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// A node that may open few files gives clients only what it does not need itself: connections, as many as there may
// be, do not keep it from going on with its log.
func TestFewFiles(t *testing.T) {
	sh := lookPath(t, "sh")
	run := func(files string, args ...string) []string {
		return append([]string{"-c", "ulimit -n " + files + "; exec \"$0\" \"$@\"", built().cairn}, args...)
	}
	dir := t.TempDir()
	port := testkit.FreePort(t)
	args := []string{"server", "--port", strconv.Itoa(port), "--dir", dir, "--memory-budget", "64mb", "--logfile", "log"}
	if r := runToEnd(t, sh, run("100", args...)...); r.code != 1 || !strings.Contains(r.stderr, "open files: the limit of 100 ") {
		t.Errorf("100 files: status %d, %q", r.code, r.stderr)
	}
	n := launch(t, sh, run("200", args...)...)
	addr := "127.0.0.1:" + strconv.Itoa(port)
	testkit.WaitPing(t, addr, startLimit)
	c := testkit.Dial(t, addr)
	if got := c.Do("CONFIG", "GET", "maxclients").Raw; got != "*2\r\n$10\r\nmaxclients\r\n$2\r\n62\r\n" {
		t.Errorf("maxclients with 200 files: %q", got)
	}
	want := "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle the specified number of clients, try with 62\r\n"
	if got := c.Do("CONFIG", "SET", "maxclients", "63").Raw; got != want {
		t.Errorf("maxclients 63: %q", got)
	}
	for range 250 {
		other, err := net.DialTimeout("tcp", addr, startLimit)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
	}
	value := strings.Repeat("v", 1<<20)
	for i := range 40 { // several segments of the log
		if got := c.Do("SET", "k"+strconv.Itoa(i%4), value).Raw; got != "+OK\r\n" {
			t.Fatalf("SET: %q", got)
		}
	}
	n.stop(t)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "maxclients reduced") || strings.Contains(string(log), "too many open files") {
		t.Errorf("log:\n%s", log)
	}
}
