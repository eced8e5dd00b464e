package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/spill"
	"cairn/internal/testkit"
)

// longPayload gives a value of n bytes that does not compress, and its payload.
func longPayload(t testing.TB, n int) (value, payload string) {
	t.Helper()
	s, x := arrivals(t.(*testing.T))
	value = strings.Repeat("0123456789abcde\x00", n/16+1)[:n]
	s.settings.DefaultSettings()
	x.must(t.(*testing.T), ok, "SET", "k", value)
	if payload = bulk(x.do("DUMP", "k")); len(payload) < n {
		t.Fatalf("a payload of %d bytes for %d", len(payload), n)
	}
	return value, payload
}

// noLongArgs waits until no long argument is anywhere.
func (n *testNode) noLongArgs(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, replyWait, func() bool { return n.longArgs.Load().Used() == 0 }, "no long argument takes room")
}

// half sends the first part of a RESTORE and waits until the node has it.
func (n *testNode) half(t *testing.T, payload string, sent int) net.Conn {
	t.Helper()
	before := n.longArgs.Load().Used()
	c := n.dial(t).Net()
	whole := testkit.AppendCommand(nil, "RESTORE", "half", "0", payload)
	if _, err := c.Write(whole[:len(whole)-len(payload)+sent]); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, replyWait, func() bool { return n.longArgs.Load().Used() >= before+int64(sent) }, "the node has %d bytes", sent)
	return c
}

const longTest = 3<<20 + 7

// A long payload is not in memory while it arrives, and all that a command's words are shown in afterwards is a copy:
// what is mapped is gone when the reply comes, and to look at it would end the process.
func TestLongArgumentLeavesNothing(t *testing.T) {
	value, payload := longPayload(t, longTest)
	n := startServer(t, "slowlog-log-slower-than 0", "latency-monitor-threshold 1", "notify-keyspace-events KEA", "repl-backlog-size 1gb")
	c, monitor, events := n.dial(t), n.dial(t), n.dial(t)
	monitor.Do("MONITOR")
	events.Do("PSUBSCRIBE", "*")
	for _, args := range [][]string{
		{"RESTORE", "plain", "0", payload},
		{"RESTORE-ASKING", "asking", "0", payload, "IDLETIME", "5"},
		{"RESTORE", "relative", "100000", payload},
		{"restore", "relative", "100000", payload, "replace"},
	} {
		if got := c.Do(args...).Raw; got != ok {
			t.Fatalf("%.40q: %.100q", args, got)
		}
		n.noLongArgs(t)
		if got := c.Do("GET", args[1]).Value; got != value {
			t.Errorf("%s has another value", args[1])
		}
		c.Do("SET", "a", "b") // who uses the transaction and the context next
		runtime.GC()
	}
	for _, args := range [][]string{
		{"RESTORE", "plain", "0", payload},                                           // there already
		{"RESTORE", "broken", "0", payload[:len(payload)-1] + "!"},                   // checksum
		{"RESTORE", "broken", "x", payload},                                          // words
		{"RESTORE", "broken", "0", payload, "NOSUCH"},                                //
		{"RESTORE", "broken", "0", strings.Repeat("x", 2<<20)},                       // no payload at all
		{"RESTORE", "broken", "0", payload, strings.Repeat("x", 2<<20)},              // another long word
		{"RESTORE", strings.Repeat("k", 2<<20), "0", payload},                        // a long key
		{"RESTORE", strings.Repeat("k", 2<<20), strings.Repeat("1", 2<<20), payload}, //
		{"SET", "plain", payload},                                                    // not a long argument
		{"NOSUCH", "plain", "0", payload},                                            //
	} {
		got := c.Do(args...).Raw
		if args[0] != "SET" && len(args[1]) < 100 && got[0] != '-' {
			t.Errorf("%.60q: %.100q", args, got)
		}
		n.noLongArgs(t)
	}
	n.oneOfMulti(t, c, payload)
	runtime.GC()
	for _, args := range [][]string{
		{"SLOWLOG", "GET", "-1"}, {"LATENCY", "LATEST"}, {"LATENCY", "HISTORY", "command"}, {"CLIENT", "LIST"}, {"INFO"},
	} {
		if got := c.Do(args...).Raw; got[0] == '-' {
			t.Errorf("%q: %.100q", args, got)
		}
	}
	c.Do("PING", "end")
	awaitText(t, monitor, `"PING" "end"`, `"RESTORE" "plain" "0" "`, "more bytes")
	c.Do("PUBLISH", "end", "now")
	awaitText(t, events, "end", "__keyevent@0__:restore")
}

// oneOfMulti queues a long payload, which is copied.
func (n *testNode) oneOfMulti(t *testing.T, c *testkit.Conn, payload string) {
	t.Helper()
	for _, args := range [][]string{{"MULTI"}, {"RESTORE", "multi", "0", payload}, {"PING"}} {
		if got := c.Do(args...).Raw; got[0] != '+' {
			t.Fatalf("%.40q: %.100q", args, got)
		}
		if used := n.longArgs.Load().Used(); used != 0 {
			t.Errorf("%d bytes in files for a queued command", used)
		}
	}
	runtime.GC()
	if got := c.Do("EXEC").Raw; got != "*2\r\n+OK\r\n+PONG\r\n" {
		t.Errorf("EXEC: %.100q", got)
	}
}

// awaitText reads what a connection is sent until a piece has the last word, and looks for the others in all of it.
func awaitText(t *testing.T, c *testkit.Conn, last string, words ...string) {
	t.Helper()
	var all strings.Builder
	for {
		reply, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if all.WriteString(reply.Raw); strings.Contains(reply.Raw, last) {
			break
		}
	}
	for _, word := range words {
		if !strings.Contains(all.String(), word) {
			t.Errorf("nothing has %q", word)
		}
	}
	if all.Len() > 10<<20 {
		t.Errorf("%d bytes were sent", all.Len())
	}
}

// What is half sent takes disk, is no memory of the client, and is gone with the connection.
func TestHalfALongArgument(t *testing.T) {
	_, payload := longPayload(t, longTest)
	n := startServer(t)
	c := n.dial(t)
	half := n.half(t, payload, longTest/2)
	line := regexp.MustCompile(`argv-mem=(\d+).* tot-mem=(\d+) .*cmd=NULL`).FindStringSubmatch(c.Do("CLIENT", "LIST").Raw)
	if len(line) == 0 {
		t.Fatal("the connection is not listed")
	}
	if memory, _ := strconv.Atoi(line[2]); memory > 512<<10 {
		t.Errorf("tot-mem is %d", memory)
	}
	if total := n.memory.total(); total > 1<<20 {
		t.Errorf("clients hold %d bytes", total)
	}
	half.Close()
	n.noLongArgs(t)
	half = n.half(t, payload, longTest/2)
	c.Do("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal")
	n.noLongArgs(t)
	if _, err := half.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	bad := n.dial(t).Net() // whole, but the command's next word is none
	if _, err := fmt.Fprintf(bad, "*5\r\n$7\r\nRESTORE\r\n$1\r\nk\r\n$1\r\n0\r\n$%d\r\n%s\r\n$-5\r\n", len(payload), payload); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(bad); string(got) != "-ERR Protocol error: invalid bulk length\r\n" {
		t.Errorf("got %.100q, %v", got, err)
	}
	n.noLongArgs(t)
}

// All long arguments together have a limit. What goes beyond it is read, thrown away and answered, and the next command of
// the connection is served.
func TestLongArgumentsHaveALimit(t *testing.T) {
	_, payload := longPayload(t, 1<<20+512<<10)
	n := startServer(t, "proto-max-bulk-len 2mb")
	c := n.dial(t)
	var others []net.Conn
	for range 4 {
		others = append(others, n.half(t, payload, 1<<20+256<<10))
	}
	got := c.Do("RESTORE", "one too many", "0", payload).Raw
	if !regexp.MustCompile(`^-ERR long arguments that are being received take \d+ bytes of disk, limit 8388608: `).MatchString(got) {
		t.Errorf("got %.200q", got)
	}
	if got := c.Do("GET", "one too many").Raw; got != "$-1\r\n" {
		t.Errorf("got %q", got)
	}
	for _, o := range others {
		o.Close()
	}
	n.noLongArgs(t)
	if got := c.Do("RESTORE", "now", "0", payload).Raw; got != ok {
		t.Errorf("got %.200q", got)
	}
}

// A disk that is nearly full while an argument arrives: one error, and the connection goes on.
func TestLongArgumentMeetsAFullDisk(t *testing.T) {
	_, payload := longPayload(t, longTest)
	var full atomic.Bool
	n := newServer(t)
	n.fs = roomFS{vfs.Default, full.Load}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	folder, err := spill.Open(t.TempDir(), spill.Options{Limit: n.longArgsLimit, Full: n.longArgsFull})
	if err != nil {
		t.Fatal(err)
	}
	n.longArgs.Store(folder)
	c := n.dial(t)
	whole := testkit.AppendCommand(nil, "RESTORE", "k", "0", payload)
	if _, err := c.Net().Write(whole[:longTest/2]); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, replyWait, func() bool { return folder.Used() > longTest/3 }, "half of it is here")
	full.Store(true)
	testkit.Eventually(t, replyWait, func() bool { return n.store.Gate() != nil }, "the gate closes")
	if _, err := c.Net().Write(whole[longTest/2:]); err != nil {
		t.Fatal(err)
	}
	reply, err := c.Receive()
	if err != nil || !strings.HasPrefix(reply.Raw, "-MISCONF disk is nearly full") {
		t.Errorf("got %.200q, %v", reply.Raw, err)
	}
	n.noLongArgs(t)
	full.Store(false)
	testkit.Eventually(t, replyWait, func() bool { return n.store.Gate() == nil }, "the gate opens")
	if got := c.Do("RESTORE", "k", "0", payload).Raw; got != ok {
		t.Errorf("got %.200q", got)
	}
}

// A connection that has not logged in gets no file.
func TestLongArgumentNeedsALogin(t *testing.T) {
	_, payload := longPayload(t, longTest)
	n := startServer(t, "requirepass secret")
	c := n.dial(t)
	if err := c.Send("RESTORE", "k", "0", payload); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c.Net()); len(got) > 0 && !strings.Contains(string(got), "unauthenticated bulk length") {
		t.Errorf("got %.200q", got)
	}
	if used := n.longArgs.Load().Used(); used != 0 {
		t.Errorf("%d bytes in files", used)
	}
	c = n.dial(t)
	c.Do("AUTH", "secret")
	if got := c.Do("RESTORE", "k", "0", payload).Raw; got != ok {
		t.Errorf("got %.200q", got)
	}
}

// After a restart the value is there: it was in the log.
func TestLongArgumentIsInTheLog(t *testing.T) {
	value, payload := longPayload(t, longTest)
	n := startServer(t)
	c := n.dial(t)
	if got := c.Do("RESTORE", "k", "0", payload).Raw; got != ok {
		t.Fatal(got)
	}
	stream := streamOf(t, n.Server)
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	s := openReplay(t, vfs.NewMem(), &now, false)
	feed(t, s, stream)
	s.primary = s.newPrimary()
	s.store.SetRouting(&engine.Routing{})
	if got := bulk(newSession(s).do("GET", "k")); got != value {
		t.Errorf("another value of %d bytes came back", len(got))
	}
}
