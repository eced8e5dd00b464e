package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// limitClients sets the limits that a small budget would give, so that tests need little memory.
func limitClients(n *testNode, soft, hard int64) {
	n.memory.soft.Store(soft)
	n.memory.hard.Store(hard)
}

// halfSent opens a connection and sends size bytes of a SET of twice as much.
func halfSent(t *testing.T, n *testNode, size int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintf(conn, "*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$%d\r\n%s", 2*size, strings.Repeat("h", size)); err != nil {
		t.Logf("half a command: %v", err) // it was closed meanwhile, which may be right
	}
	return conn
}

// Many that send half of a long command hold little together, and keep nobody from being served: neither short
// commands nor one longer than all of them may hold.
func TestHalfSentCommands(t *testing.T) {
	t.Parallel()
	n := startServer(t)
	limitClients(n, 1<<20, 3<<19)
	for range 40 {
		halfSent(t, n, 50_000)
	}
	c := n.dial(t)
	c.SetTimeout(60 * time.Second)
	if got := c.Do("SET", "k", "v").Raw; got != "+OK\r\n" {
		t.Errorf("a short command: %q", got)
	}
	if got := c.Do("SET", "k", strings.Repeat("v", 4<<20)).Raw; got != "+OK\r\n" {
		t.Errorf("a long command: %.100q", got)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.buffers.Load() < 3<<19 }, "clients to hold less")
	if got := c.Do("STRLEN", "k").Raw; got != ":4194304\r\n" {
		t.Errorf("STRLEN: %q", got)
	}
}

// Clients that send and read as they should are served, however much they want to send at once: they wait for each
// other and none is closed.
func TestLongCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	const clients, size = 30, 200_000
	n := startServer(t)
	limitClients(n, 1<<20, 2<<20)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := n.dial(t)
			c.SetTimeout(60 * time.Second)
			for range 5 {
				r, err := c.Try("SET", fmt.Sprint("k", i), strings.Repeat("v", size))
				if err != nil || r.Raw != "+OK\r\n" {
					t.Errorf("client %d: %q, %v", i, r.Raw, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := n.memory.evicted.Load(); got != 0 {
		t.Errorf("%d clients were closed", got)
	}
}

// One client alone may send a command longer than any limit on all of them.
func TestLongestCommandAlone(t *testing.T) {
	n := startServer(t)
	limitClients(n, 1<<20, 3<<19)
	c := n.dial(t)
	if got := c.Do("SET", "k", strings.Repeat("v", 8<<20)).Raw; got != "+OK\r\n" {
		t.Errorf("SET: %.100q", got)
	}
	if got := n.memory.evicted.Load(); got != 0 {
		t.Errorf("%d clients were closed", got)
	}
}

// Clients that do not read their replies hold little together.
func TestUnreadReplies(t *testing.T) {
	n := startServer(t)
	limitClients(n, 1<<20, 3<<19)
	c := n.dial(t)
	c.Do("SET", "k", strings.Repeat("v", 60_000))
	c.Do("SETRANGE", "big", "2000000", "v")
	for i := range 60 {
		conn, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(conn, strings.Repeat([]string{"GET k\r\n", "GET big\r\n"}[i%2], 200))
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.evicted.Load() > 0 }, "clients that do not read to be closed")
	testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.buffers.Load() < 3<<19 }, "clients to hold less")
	if got := c.Do("GET", "none").Raw; got != "$-1\r\n" {
		t.Errorf("another client: %q", got)
	}
}

// closed waits for the other side to end a connection.
func closed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(replyWait))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// maxmemory-clients closes those that hold most, spares who asked for it, and is told.
func TestMaxmemoryClients(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	small, large, spared := halfSent(t, n, 100_000), halfSent(t, n, 400_000), n.dial(t)
	spared.Do("CLIENT", "SETNAME", "spared")
	if got := spared.Do("CLIENT", "NO-EVICT", "ON").Raw; got != "+OK\r\n" {
		t.Fatalf("NO-EVICT: %q", got)
	}
	fmt.Fprintf(spared.Net(), "*1\r\n$600000\r\n%s", strings.Repeat("s", 500_000))
	testkit.Eventually(t, 20*time.Second, func() bool {
		list := c.Do("CLIENT", "LIST").Raw
		return strings.Contains(list, "qbuf=100000 ") && strings.Contains(list, "qbuf=400000 ") && strings.Contains(list, "qbuf=500000 ")
	}, "the bytes to arrive")
	before := n.memory.all()
	if got := c.Do("CONFIG", "SET", "maxmemory-clients", fmt.Sprint(before-1)).Raw; got != "+OK\r\n" {
		t.Fatalf("CONFIG SET: %q", got)
	}
	if !closed(large) {
		t.Error("the client that holds most and may be closed lives")
	}
	list := c.Do("CLIENT", "LIST").Raw
	if !strings.Contains(list, "name=spared") || !strings.Contains(list, "qbuf=100000 ") {
		t.Errorf("more clients were closed than needed:\n%s", list)
	}
	info := c.Do("INFO", "everything").Raw
	if !strings.Contains(info, "evicted_clients:1\r\n") {
		t.Error("INFO does not say so")
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		sum := int64(0)
		for _, field := range strings.Fields(c.Do("CLIENT", "LIST").Raw) {
			if size, ok := strings.CutPrefix(field, "tot-mem="); ok {
				n, _ := strconv.ParseInt(size, 10, 64)
				sum += n
			}
		}
		return strings.Contains(c.Do("INFO", "memory").Raw, fmt.Sprintf("mem_clients_normal:%d\r\n", sum))
	}, "CLIENT LIST and INFO to say the same")
	if !strings.Contains(n.log.String(), "Evicting client: id=") {
		t.Error("the log does not say so")
	}
	small.Close()
}

// Percentages are of maxmemory, and of the budget where that is not set; the least limit is Redis's.
func TestMaxmemoryClientsPercent(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	for _, test := range []struct {
		maxmemory, value string
		want             int64
	}{
		{"0", "10%", 64 << 20 / 10},
		{"100mb", "10%", 10 << 20},
		{"0", "1", 128 << 10},
		{"0", "5000000", 5_000_000},
	} {
		if got := c.Do("CONFIG", "SET", "maxmemory", test.maxmemory, "maxmemory-clients", test.value).Raw; got != "+OK\r\n" {
			t.Fatalf("CONFIG SET: %q", got)
		}
		if got := n.memory.hard.Load(); got != test.want+1 || !n.memory.strict.Load() {
			t.Errorf("%s of %s: %d, want %d", test.value, test.maxmemory, got, test.want)
		}
	}
	c.Do("CONFIG", "SET", "maxmemory-clients", "0")
	if soft, hard := n.memory.soft.Load(), n.memory.hard.Load(); soft != 40<<20/5 || hard != soft+soft/2 || n.memory.strict.Load() {
		t.Errorf("without a limit: %d and %d", soft, hard)
	}
}

// What connections hold is counted to the byte: nothing is left when they are gone, whatever they did.
func TestClientMemoryAddsUp(t *testing.T) {
	n := startServer(t)
	for i := range 20 {
		c := testkit.Dial(t, n.Addr)
		c.Do("SUBSCRIBE", "a", "b")
		p := testkit.Dial(t, n.Addr)
		p.Do("WATCH", "x", "y")
		p.Do("MULTI")
		p.Do("SET", "x", strings.Repeat("v", 10_000*i))
		p.Do("PUBLISH", "a", strings.Repeat("m", 5000))
		p.Do("EXEC")
		halfSent(t, n, 1000*i).Close()
		c.Close()
		p.Close()
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return n.clients.count() == 0 }, "the connections to be gone")
	testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.all() == 0 }, "nothing to be counted")
}

// A connection that waits holds no room to read into: neither before its first command nor after the last.
func TestIdleConnectionsHoldNothing(t *testing.T) {
	n := startServer(t)
	limitClients(n, 0, 1<<30) // as when room is scarce: nobody keeps it
	silent, c := n.dial(t), n.dial(t)
	for i := range 3 {
		c.Do("SET", "k", strings.Repeat("v", 1000))
		testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.buffers.Load() == 0 }, "buffers to be given back, round ", i)
	}
	silent.Do("PING")
}

// The turn goes down the line, and away from an owner that does not send.
func TestTurnQueue(t *testing.T) {
	var q turnQueue
	a, b, c := &client{id: 1}, &client{id: 2}, &client{id: 3}
	if q.enter(a) != nil || q.enter(b) == nil || q.enter(c) == nil {
		t.Fatal("the first has not the turn, or others have")
	}
	if q.takeOver(b) || q.takeOver(c) {
		t.Error("the turn was taken from an owner that runs its command")
	}
	a.reading.Store(time.Now().Add(-2 * turnIdle).UnixMilli())
	if q.takeOver(c) {
		t.Error("the second in line took the turn")
	}
	if !q.takeOver(b) || q.owner.Load() != b {
		t.Error("the first in line did not take the turn of one that sends nothing")
	}
	q.leave(b)
	q.end(a) // it had it before
	if q.owner.Load() != b {
		t.Error("who has not the turn passed it on")
	}
	q.end(b)
	if q.owner.Load() != c || len(c.called) != 1 {
		t.Error("the turn did not go to the next")
	}
	q.end(c)
	if q.owner.Load() != nil || len(q.line) != 0 {
		t.Error("the line is not empty")
	}
}

// What a client keeps from command to command is bounded though it is alone and never stops sending: names that it
// listens to and watches, and the bookkeeping of a transaction.
func TestKeptMemory(t *testing.T) {
	t.Parallel()
	// Within one command others close the client, which may take a moment; without it each held 35 MB and more.
	const hard, slack = 3 << 19, 24 << 20
	names := func(word string, from, n int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n$%d\r\n%s\r\n", n+1, len(word), word)
		for i := from; i < from+n; i++ {
			fmt.Fprintf(&b, "$12\r\nname%08d\r\n", i)
		}
		return b.String()
	}
	inParts := func(word string) (all string) {
		for i := range 200 {
			all += names(word, i*1000, 1000)
		}
		return all
	}
	for name, sent := range map[string]string{
		"subscribe":         inParts("SUBSCRIBE"),
		"psubscribe":        inParts("PSUBSCRIBE"),
		"watch":             inParts("WATCH"),
		"multi":             "MULTI\r\n" + strings.Repeat("PING\r\n", 400_000),
		"subscribe at once": names("SUBSCRIBE", 0, 200_000),
		"watch at once":     names("WATCH", 0, 200_000),
	} {
		t.Run(name, func(t *testing.T) {
			n := startServer(t)
			limitClients(n, 1<<20, hard)
			conn, err := net.Dial("tcp", n.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
			go func() { _, _ = io.WriteString(conn, sent) }() // it is closed before it has read all of it
			if !closed(conn) {
				t.Fatal("the client was not closed")
			}
			evicted := regexp.MustCompile(`Evicting client: .*tot-mem=(\d+)`).FindStringSubmatch(n.log.String())
			if evicted == nil {
				t.Fatal("the log does not tell why")
			}
			if held, _ := strconv.Atoi(evicted[1]); held < hard || held > hard+slack+len(sent) {
				t.Errorf("it held %d bytes, the limit is %d", held, hard)
			}
			testkit.Eventually(t, 20*time.Second, func() bool { return n.memory.all() == 0 }, "nothing to be counted")
		})
	}
}

// The arguments of a transaction are a command's: they may be longer than what all others may hold.
func TestLongestTransactionAlone(t *testing.T) {
	n := startServer(t)
	limitClients(n, 1<<20, 3<<19)
	c := n.dial(t)
	c.Do("WATCH", "k")
	c.Do("MULTI")
	for range 8 {
		if got := c.Do("SET", "k", strings.Repeat("v", 1<<20)).Raw; got != "+QUEUED\r\n" {
			t.Fatalf("SET: %.100q", got)
		}
	}
	if got := c.Do("EXEC").Raw; got != "*8\r\n"+strings.Repeat("+OK\r\n", 8) {
		t.Errorf("EXEC: %.100q", got)
	}
	if got := n.memory.evicted.Load(); got != 0 {
		t.Errorf("%d clients were closed", got)
	}
}

// A command with many arguments is memory that no collection frees: the collector is told at once, and told when it ends.
func TestCollectorHearsOfManyArguments(t *testing.T) {
	n := startServer(t)
	before := debug.SetMemoryLimit(-1)
	done := n.enterMany(100_000)
	if got := debug.SetMemoryLimit(-1) - before; got < 100_000*manyRoom {
		t.Errorf("its limit rose by %d bytes, want %d and more", got, 100_000*manyRoom)
	}
	done()
	testkit.Eventually(t, 20*time.Second, func() bool { return debug.SetMemoryLimit(-1) < before+100_000*manyRoom }, "the limit to fall")
}

// Free memory is given back near the budget only, and not again at once.
func TestFreeMemoryIsReturnedNearTheBudget(t *testing.T) {
	var k freeKeeper
	if k.look(1 << 50); !k.next.IsZero() {
		t.Error("far from the budget something was given back")
	}
	if residentBytes() == 0 {
		t.Skip("the system does not say what is resident")
	}
	k.look(1)
	if k.next.IsZero() {
		t.Fatal("beyond the budget nothing was given back")
	}
	later := time.Now().Add(time.Hour)
	k.next = later
	if k.look(1); k.next != later {
		t.Error("it was given back too soon")
	}
}

// Clients are made to rest; a replica's acknowledgements are read all the same, also when it was told so before it was one.
func TestReplicaIsNotMadeToRest(t *testing.T) {
	n, r := startServer(t), startServer(t)
	c := n.dial(t)
	host, port, _ := strings.Cut(n.Addr, ":")
	mustOK(t, r.dial(t), "REPLICAOF", host, port)
	acked := func() bool {
		c.Do("SET", "k", "v")
		return c.Do("WAIT", "1", "2000").Raw == ":1\r\n"
	}
	testkit.Eventually(t, replyWait, acked, "the replica follows")
	told := 0
	n.clients.mu.Lock()
	for _, all := range n.clients.byID {
		if all.replica.Load() != nil {
			_ = all.conn.SetReadDeadline(time.Unix(1, 0))
			told++
		}
	}
	n.clients.mu.Unlock()
	if told != 1 {
		t.Fatalf("%d replicas", told)
	}
	for range 3 {
		if !acked() {
			t.Error("what the replica has is not acknowledged")
		}
		n.memory.rested.Store(0)
		n.restIdle()
	}
	n.clients.mu.Lock()
	defer n.clients.mu.Unlock()
	for _, all := range n.clients.byID {
		if all.replica.Load() != nil && all.wakened.Load() {
			t.Error("a replica was told to rest")
		}
	}
}
