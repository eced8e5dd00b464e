package node_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/tools/node"
)

func start(t *testing.T, args ...string) (*node.Process, *node.Conn) {
	t.Helper()
	port, err := node.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p, err := node.Start(node.Spec{Program: []string{testkit.RedisPath(t), "--save", ""}, Args: args, Port: port, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	c, err := p.Ready(20 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return p, c
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 300 { // of 7100, drawn at random: without a sign two are alike 499 times in 500
		port, err := node.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given away twice", port)
		}
		seen[port] = true
	}
}

func TestConn(t *testing.T) {
	t.Parallel()
	_, c := start(t)
	big := strings.Repeat("0123456789", 300_000) // many reads
	c.Append("SET", "k", big)
	c.Append("GET", "k")
	c.Append("LPUSH", "k", "v")
	c.Append("MGET", "k", "none", "k")
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, check := range []func() bool{
		func() bool { r, err := c.Receive(); return err == nil && string(r.Str) == "OK" },
		func() bool { r, err := c.Receive(); return err == nil && string(r.Str) == big },
		func() bool { r, err := c.Receive(); return err == nil && strings.HasPrefix(r.Err(), "WRONGTYPE") },
		func() bool {
			r, err := c.Receive()
			return err == nil && len(r.Elems) == 3 && string(r.Elems[2].Str) == big && r.Elems[1].IsNull()
		},
	} {
		if !check() {
			t.Fatalf("reply %d of the pipeline is not what was asked for", i)
		}
	}
	if n, err := c.Int("STRLEN", "k"); err != nil || n != int64(len(big)) {
		t.Errorf("STRLEN: %d, %v; want %d", n, err, len(big))
	}
	if _, err := c.Int("GET", "none"); err == nil {
		t.Error("a null passed as a number")
	}
	if _, err := c.Text("LPOP", "k"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("an error reply passed as a text: %v", err)
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	p, c := start(t)
	info, err := c.Text("INFO", "server")
	if err != nil {
		t.Fatal(err)
	}
	if got := node.Field(info, "process_id"); got != strconv.Itoa(p.Pid()) {
		t.Errorf("process_id %s, want %d", got, p.Pid())
	}
	if n, err := node.RSS(p.Pid()); err != nil || n < 1<<20 {
		t.Errorf("memory: %d bytes, %v; want at least a mebibyte", n, err)
	}
	if n, err := node.CPU(p.Pid()); err != nil || n < 0 {
		t.Errorf("processor time: %v, %v", n, err)
	}
	if err := p.Stop(20 * time.Second); err != nil {
		t.Error(err)
	}
	if !strings.Contains(p.Output(64<<10), "bye bye") {
		t.Error("the output of the process is not kept")
	}
}

// TestReadyOfTheDead: a program that ends is told apart from one that is slow.
func TestReadyOfTheDead(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("false")
	if err != nil {
		t.Skip(err)
	}
	p, err := node.Start(node.Spec{Program: []string{program}, Port: 1, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if _, err := p.Ready(20 * time.Second); !errors.Is(err, node.ErrEnded) {
		t.Errorf("%v, want %v", err, node.ErrEnded)
	}
}

func TestFolderBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"a": 10, "sub/b": 2000} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := node.FolderBytes(dir); err != nil || n != 2010 {
		t.Errorf("%d bytes, %v; want 2010", n, err)
	}
	if n, err := node.FolderBytes(filepath.Join(dir, "none")); err != nil || n != 0 {
		t.Errorf("no folder: %d bytes, %v; want 0", n, err)
	}
	if err := node.WantFree(dir, 1<<62); err == nil {
		t.Error("four exabytes are free")
	}
}

func TestField(t *testing.T) {
	t.Parallel()
	info := "# Server\r\ntcp_port:7000\r\nport:1\r\n"
	if got := node.Field(info, "port"); got != "1" {
		t.Errorf("port: %q, want 1", got)
	}
	if got := node.Field(info, "none"); got != "" {
		t.Errorf("none: %q", got)
	}
}
