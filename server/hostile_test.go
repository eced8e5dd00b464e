package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cairn/internal/testkit"
)

// Hostile peers: malformed requests get redis-server's own answer and the same end of the connection, whatever the
// size of the pieces they come in; they cost bounded memory and time; others are served meanwhile.

// malformed are requests whose answer is compared with redis-server's. Each is a whole conversation, after which
// the peer sends nothing more.
func malformed() map[string]string {
	digits := strings.Repeat("9", 100)
	return map[string]string{
		"bulk length near 2^63":     "*1\r\n$9223372036854775807\r\n",
		"bulk length over limit":    "*1\r\n$536870913\r\n",
		"bulk length negative":      "*1\r\n$-1\r\n",
		"bulk length no number":     "*1\r\n$abc\r\nPING\r\n",
		"bulk length long number":   "*1\r\n$" + digits + "\r\n",
		"bulk length empty":         "*1\r\n$\r\n",
		"bulk length with plus":     "*1\r\n$+4\r\nPING\r\n",
		"bulk length leading zero":  "*1\r\n$04\r\nPING\r\n",
		"bulk length with space":    "*1\r\n$ 4\r\nPING\r\n",
		"no dollar":                 "*1\r\nPING\r\n",
		"other type in request":     "*1\r\n:4\r\n",
		"count zero, then ping":     "*0\r\n*1\r\n$4\r\nPING\r\n",
		"count negative, then ping": "*-1\r\n*1\r\n$4\r\nPING\r\n",
		"count far below, ping":     "*-2147483648\r\n*1\r\n$4\r\nPING\r\n",
		"count zero, then inline":   "*0\r\nPING\r\n",
		"count over int32":          "*2147483648\r\n",
		"count near 2^63":           "*9223372036854775807\r\n",
		"count no number":           "*x\r\n",
		"count empty":               "*\r\n",
		"count long number":         "*" + digits + "\r\n",
		"count without end":         "*" + strings.Repeat("1", 70_000),
		"inline without end":        strings.Repeat("x", 70_000),
		"inline too long":           "SET k " + strings.Repeat("x", 100_000) + "\r\n",
		"inline quotes open":        "SET k \"abc\r\n",
		"inline quotes together":    "SET k \"a\"b\r\n",
		"inline empty lines":        "\r\n\r\n\nPING\r\n",
		"inline only newline":       "PING\nPING\n",
		"inline binary":             "\xff\xfe\x80\r\n",
		"bulk end not CRLF":         "*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
		"request after error":       "*1\r\n$x\r\n*1\r\n$4\r\nPING\r\n",
		"replies sent as requests":  "+OK\r\n-ERR\r\n:1\r\n",
		"empty command name":        "*1\r\n$0\r\n\r\n",
		"name of nul bytes":         "*1\r\n$3\r\n\x00\x00\x00\r\n",
		"name with newline":         "*1\r\n$6\r\nPI\r\nNG\r\n",
		"name of 200 bytes":         "*1\r\n$200\r\n" + strings.Repeat("n", 200) + "\r\n",
		"cut within a bulk":         "*1\r\n$4\r\nPI",
		"cut within a count":        "*12",
	}
}

// lockedOut are requests of peers that would have to log in.
func lockedOut() map[string]string {
	eleven := "*11\r\n" + strings.Repeat("$1\r\na\r\n", 11)
	return map[string]string{
		"eleven arguments":    eleven,
		"ten arguments":       "*10\r\n" + strings.Repeat("$1\r\na\r\n", 10),
		"bulk over 16 KiB":    "*1\r\n$16385\r\n",
		"bulk of 16 KiB":      "*2\r\n$4\r\nECHO\r\n$16384\r\n" + strings.Repeat("x", 16384) + "\r\n",
		"count near 2^31":     "*2147483647\r\n",
		"inline flood":        strings.Repeat("y", 70_000),
		"wrong password":      "AUTH nope\r\n*x\r\n",
		"garbage after AUTH":  "AUTH nope\r\n" + eleven + "PING\r\n",
		"right, then limits":  "AUTH secret\r\n" + eleven,
		"get":                 "GET k\r\n",
		"hello with password": "HELLO 3 AUTH default nope\r\nPING\r\n",
		"multi":               "MULTI\r\nGET k\r\nEXEC\r\n",
		"subscribe":           "SUBSCRIBE c\r\n",
		"unknown":             "NOSUCH a b\r\n",
		"wrong arity":         "GET\r\n",
		"reset, quit":         "RESET\r\nQUIT\r\nPING\r\n",
	}
}

// converse sends bytes in pieces, then ends its side, and gives all that comes back and how it ended.
func converse(t *testing.T, addr, request string, piece int) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, replyWait)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(replyWait))
	got := make(chan string, 1)
	go func() { // ends with the connection
		raw, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, unix.ECONNRESET) {
			raw = append(raw, err.Error()...)
		}
		got <- string(raw)
	}()
	for b := []byte(request); len(b) > 0; {
		n := min(piece, len(b))
		if _, err := conn.Write(b[:n]); err != nil {
			break // the other side has had enough
		}
		b = b[n:]
	}
	_ = conn.(*net.TCPConn).CloseWrite() // fails when the other side closed first
	return <-got
}

// sameAnswers compares the answers to each request, sent whole and byte by byte.
func sameAnswers(t *testing.T, ours, theirs string, requests map[string]string) {
	t.Helper()
	for name, raw := range requests {
		want := withoutIDs(converse(t, theirs, raw, len(raw)))
		for _, piece := range []int{len(raw), 1} {
			if piece == 1 && len(raw) > 2000 {
				piece = 1000
			}
			if got := withoutIDs(converse(t, ours, raw, piece)); got != want {
				t.Errorf("%s in pieces of %d:\ngot  %.200q\nwant %.200q", name, piece, got, want)
			}
		}
	}
}

// withoutIDs leaves out what differs between two servers of the same kind: versions and numbers of connections.
func withoutIDs(s string) string {
	at := strings.Index(s, "$6\r\nserver\r\n")
	if at < 0 {
		return s
	}
	return s[:at] + "server..."
}

func TestMalformedRequests(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	sameAnswers(t, n.Addr, r.Addr, malformed())
	for _, http := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nPING\r\n"} {
		want := converse(t, r.Addr, http, len(http))
		if got := converse(t, n.Addr, http, len(http)); got != want {
			t.Errorf("HTTP: got %q, want %q", got, want)
		}
	}
	if got := n.dial(t).Do("PING").Raw; got != "+PONG\r\n" {
		t.Errorf("afterwards: %q", got)
	}
}

func TestMalformedRequestsBeforeLogin(t *testing.T) {
	n, r := startServer(t, "requirepass secret"), testkit.StartRedis(t, "--requirepass", "secret")
	sameAnswers(t, n.Addr, r.Addr, lockedOut())
	sameAnswers(t, n.Addr, r.Addr, malformed())
}

// An argument that comes byte by byte, and a great many tiny arguments, cost time in proportion to their bytes, and
// no stack. The bytes go through one pipe so that the sender, not the network, cuts them.
func TestDribbledRequests(t *testing.T) {
	n := startServer(t)
	big := strings.Repeat("d", 200_000)
	dribble := "*3\r\n$3\r\nSET\r\n$1\r\nd\r\n$200000\r\n" + big + "\r\n"
	if got := converse(t, n.Addr, dribble, 1); got != "+OK\r\n" {
		t.Errorf("dribbled SET: %.100q", got)
	}
	c := n.dial(t)
	if got := c.Do("STRLEN", "d").Raw; got != ":200000\r\n" {
		t.Errorf("STRLEN: %q", got)
	}
	tiny := "*80001\r\n$3\r\nDEL\r\n" + strings.Repeat("$1\r\na\r\n", 80_000)
	before := cpuTime(t)
	if got := converse(t, n.Addr, tiny, 100); got != ":0\r\n" {
		t.Errorf("80000 arguments in pieces of 100 bytes: %.100q", got)
	}
	if used := cpuTime(t) - before; used > 10*time.Second { // parsing from the start each time took 14 s elsewhere
		t.Errorf("80000 arguments in pieces of 100 bytes took %v of CPU", used)
	}
}

// cpuTime is what the process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Announced lengths and counts cost nothing until their bytes come.
func TestAnnouncedSizesAreNotAllocated(t *testing.T) {
	n := startServer(t)
	var conns []net.Conn
	before := memoryInUse()
	for i := range 100 {
		conn, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, []string{"*1\r\n$536870912\r\nx", "*2147483647\r\n$1\r\nx\r\n"}[i%2])
		conns = append(conns, conn)
	}
	waitForInput(t, n, len(conns))
	if grown := memoryInUse() - before; grown > 100*128<<10 {
		t.Errorf("100 connections that announce much and send little hold %d bytes", grown)
	}
}

// waitForInput waits until so many connections have sent something that is no whole command yet.
func waitForInput(t *testing.T, n *testNode, want int) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		have := 0
		for _, c := range n.clients.snapshot() {
			if c.unparsed.Load()+c.parsed.Load() > 0 {
				have++
			}
		}
		return have >= want
	}, "unfinished requests to arrive")
}

func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

const (
	idleMax     = 10_000
	dribbling   = 1000
	bytesPerFD  = 20 << 10 // of an idle connection, both sides of it are in this process
	spareFDs    = 500
	sideBufRoom = 4 << 10 // of the test's side of each connection
)

// Thousands of silent connections and a thousand that dribble cost little memory each, and nobody else is kept
// from being served.
func TestManyConnections(t *testing.T) {
	idle := raiseFiles(t)
	n := startServer(t, "maxclients 20000")
	before := memoryInUse()
	conns := dialMany(t, n, idle)
	testkit.Eventually(t, 30*time.Second, func() bool { return n.clients.count() >= idle }, "all connections")
	perConn := (memoryInUse() - before) / int64(idle)
	t.Logf("%d idle connections, %d bytes each", idle, perConn)
	if perConn > bytesPerFD+sideBufRoom {
		t.Errorf("an idle connection holds %d bytes, want at most %d", perConn, bytesPerFD+sideBufRoom)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends when told
		defer close(ended)
		request := []byte("*2\r\n$4\r\nECHO\r\n$1000\r\n" + strings.Repeat("e", 1000))
		for _, b := range request {
			for _, c := range conns[:min(dribbling, len(conns))] {
				_, _ = c.Write([]byte{b}) // one that fails fails the reading below
			}
			if isClosed(stop) {
				return
			}
		}
	}()
	c := n.dial(t)
	for i := range 500 {
		if got := c.Do("SET", "k", strconv.Itoa(i)).Raw; got != "+OK\r\n" {
			t.Fatalf("SET: %q", got)
		}
	}
	close(stop)
	<-ended
	if got := c.Do("PING").Raw; got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
}

// raiseFiles allows as many open files as the machine lets and says for how many connections they are enough.
func raiseFiles(t *testing.T) int {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	idle := min(idleMax, (int(min(l.Cur, 1<<20))-spareFDs)/2)
	if idle < idleMax {
		t.Logf("%d open files are allowed: %d connections instead of %d", l.Cur, idle, idleMax)
	}
	if idle < dribbling {
		t.Skipf("%d open files are too few", l.Cur)
	}
	return idle
}

func dialMany(t *testing.T, n *testNode, count int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, count)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() { // ends when its share is connected
			defer wg.Done()
			for i := w; i < count; i += 8 {
				c, err := net.DialTimeout("tcp", n.Addr, replyWait)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				conns[i] = c
			}
		}()
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return conns
}

// A peer that may not do anything yet and does not read its replies is held to little memory, and is gone after a
// while; what it sends after a failed login is answered like everything else.
func TestUnreadRepliesBeforeLogin(t *testing.T) {
	const peers = 40
	n := startServer(t, "requirepass secret")
	before := memoryInUse()
	batch := []byte(strings.Repeat("GET k\r\n", 1000))
	for range peers {
		conn, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for range 4000 { // until the node reads no more, since nobody reads its replies
			_ = conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := conn.Write(batch); err != nil {
				break
			}
		}
	}
	held := (memoryInUse() - before) / peers
	t.Logf("each peer that reads nothing holds %d bytes", held)
	if held > 512<<10 { // requests read ahead, replies, and room to grow
		t.Errorf("each peer that reads nothing holds %d bytes", held)
	}
	other := n.dial(t)
	if got := other.Do("AUTH", "secret").Raw; got != "+OK\r\n" {
		t.Errorf("another client: %q", got)
	}
}

// CLIENT KILL ends a connection that is in the middle of a long reply, and one that is waited for in a request.
func TestKillDuringReply(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	args := []string{"HSET", "h"}
	for i := range 3000 {
		args = append(args, fmt.Sprint("field", i), strings.Repeat("v", 3000))
	}
	c.Do(args...)
	for range 5 {
		victim, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = victim.SetDeadline(time.Now().Add(replyWait))
		fmt.Fprint(victim, "CLIENT ID\r\n")
		rd := bufio.NewReader(victim)
		line, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(victim, "HGETALL h\r\n")
		if _, err := rd.ReadByte(); err != nil { // the reply has begun, and is too long for the sockets' buffers
			t.Fatal(err)
		}
		if got := c.Do("CLIENT", "KILL", "ID", strings.TrimSpace(line[1:])).Raw; got != ":1\r\n" {
			t.Errorf("CLIENT KILL: %q", got)
		}
		if left, err := io.ReadAll(rd); err == nil && strings.Count(string(left), "field") >= 3000 {
			t.Errorf("the whole reply of %d bytes came", len(left))
		}
		victim.Close()
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return n.clients.count() == 1 }, "the killed connections to be gone")
}
