package server

import (
	"bytes"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/server/config"
)

// testNode is a node within the test's process, on a port of 127.0.0.1 and in a folder of its own.
type testNode struct {
	*Server
	Addr string
	Port int
	log  *lockedBuffer

	stopped atomic.Int64 // if not 0, where the clock of commands stands still, Unix milliseconds
}

// lockedBuffer keeps what is logged.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startServer starts a node and stops it with the test. Each directive is a name and its value as on the
// command line, without the dashes: "requirepass secret".
func startServer(t testing.TB, directives ...string) *testNode {
	t.Helper()
	n := newServer(t, directives...)
	if err := n.Start(); err != nil {
		t.Fatalf("start: %v\n%s", err, n.log)
	}
	testkit.WaitPing(t, n.Addr, 10*time.Second)
	return n
}

// newServer is startServer without the start.
func newServer(t testing.TB, directives ...string) *testNode {
	t.Helper()
	n := &testNode{Port: testkit.FreePort(t), log: &lockedBuffer{}}
	n.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Port))
	args := []string{
		"--port", strconv.Itoa(n.Port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--memory-budget", "64mb",
	}
	for _, d := range directives {
		name, value, _ := strings.Cut(d, " ")
		args = append(append(args, "--"+name), strings.Fields(value)...)
	}
	cfg, _, err := config.Load(args, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Server = New(cfg, NewLogger("", n.log, config.LogNotice))
	n.clock = func() int64 {
		if at := n.stopped.Load(); at != 0 {
			return at
		}
		return unixMilli()
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the node:\n%s", n.log)
		}
	})
	return n
}

// dial connects to the node.
func (n *testNode) dial(t testing.TB) *testkit.Conn { return testkit.Dial(t, n.Addr) }
