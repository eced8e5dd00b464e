package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// TestReplConfRepliesAreRedis: the words by which a replica introduces itself are answered as Redis answers them.
func TestReplConfRepliesAreRedis(t *testing.T) {
	p := startPair(t)
	p.same(`
REPLCONF
REPLCONF listening-port
REPLCONF listening-port x
REPLCONF listening-port 7001 ip-address 10.0.0.1
REPLCONF ip-address ` + strings.Repeat("x", 255) + `
REPLCONF ip-address ` + strings.Repeat("x", 300) + `
REPLCONF ip-address ""
REPLCONF capa eof capa psync2
REPLCONF capa nosuch
REPLCONF rdb-only 2
REPLCONF rdb-only x
REPLCONF rdb-only 0
REPLCONF nosuch 1
REPLCONF capa eof nosuch 1 rdb-only 7
REPLCONF rdb-filter-only nosuch
REPLCONF rdb-filter-only functions
ROLE
PSYNC
PSYNC x notanumber
PSYNC x 1 FAILOVER
SYNC x
WAIT x 0
WAIT 0 x
WAIT 0 -1
WAIT 0 0
WAIT 1 20
CLIENT UNBLOCK 123456
CLIENT LIST TYPE replica`)
	q := startPair(t) // without capa eof
	q.same("REPLCONF rdb-filter-only \"\"\nPSYNC ? -1\nSYNC")
	for _, c := range []*testkit.Conn{p.cairn, p.redis} {
		// ACK and GETACK are not answered, and PSYNC is refused while replies wait.
		if _, err := c.Net().Write([]byte("REPLCONF ACK 1\r\nREPLCONF GETACK *\r\nPING\r\nPSYNC ? -1\r\n")); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"+PONG\r\n", "-ERR SYNC and PSYNC are invalid with pending output\r\n"} {
			if got, err := c.Receive(); err != nil || got.Raw != want {
				t.Errorf("got %q, %v, want %q", got.Raw, err, want)
			}
		}
	}
	if got := p.cairn.Do("REPLCONF", "version", "8.0.1").Raw; got != "+OK\r\n" {
		t.Errorf("version: %q", got)
	}
}

// handReplica is a replica made by hand, attached by a partial resync. more is what it says of itself beside the usual.
type handReplica struct {
	*testkit.Conn
	t  *testing.T
	rd *bufio.Reader
}

func (n *testNode) attach(t *testing.T, port string, more ...string) *handReplica {
	t.Helper()
	c := n.dial(t)
	for _, words := range [][]string{{"PING"}, {"REPLCONF", "listening-port", port}, {"REPLCONF", "capa", "eof", "capa", "psync2"}} {
		c.Do(words...)
	}
	if len(more) > 0 {
		c.Do(append([]string{"REPLCONF"}, more...)...)
	}
	fields := n.replicationInfo(t)
	offset, err := strconv.Atoi(fields["master_repl_offset"])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send("PSYNC", fields["master_replid"], strconv.Itoa(offset+1)); err != nil {
		t.Fatal(err)
	}
	if err := c.Net().SetReadDeadline(time.Now().Add(replyWait)); err != nil {
		t.Fatal(err)
	}
	h := &handReplica{c, t, bufio.NewReader(c.Net())}
	line, err := h.rd.ReadString('\n')
	if err != nil || line != "+CONTINUE "+fields["master_replid"]+"\r\n" {
		t.Fatalf("PSYNC: %q, %v", line, err)
	}
	return h
}

func (h *handReplica) ack(offset int64, more ...string) {
	h.t.Helper()
	if err := h.Send(append([]string{"REPLCONF", "ACK", strconv.FormatInt(offset, 10)}, more...)...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *handReplica) command() string {
	h.t.Helper()
	words, err := readCommand(h.rd)
	if err != nil {
		h.t.Fatalf("stream: %v", err)
	}
	return strings.Join(words, " ")
}

func (n *testNode) replicationInfo(t *testing.T) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for name, v := range infoFields(n.dial(t).Do("INFO", "replication").Value.(string)) {
		fields[strings.TrimPrefix(name, "Replication ")] = v
	}
	return fields
}

func TestReplicaIsShown(t *testing.T) {
	n := startServer(t)
	h := n.attach(t, "7001")
	c := n.dial(t)
	c.Do("SET", "k", "v")
	if got := h.command(); got != "SET k v" {
		t.Fatalf("stream: %q", got)
	}
	end := n.wal.End()
	h.ack(end)
	testkit.Eventually(t, 10*time.Second, func() bool { return n.primary.Acked(end) == 1 }, "acknowledged")
	fields := n.replicationInfo(t)
	want := fmt.Sprintf("ip=127.0.0.1,port=7001,state=online,offset=%d,lag=0", end)
	if fields["slave0"] != want || fields["connected_slaves"] != "1" {
		t.Errorf("INFO: %q of %s, want %q", fields["slave0"], fields["connected_slaves"], want)
	}
	role := fmt.Sprintf("*3\r\n$6\r\nmaster\r\n:%d\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n7001\r\n$%d\r\n%d\r\n", end, len(strconv.FormatInt(end, 10)), end)
	if got := c.Do("ROLE").Raw; got != role {
		t.Errorf("ROLE: %q, want %q", got, role)
	}
	if got := c.Do("CLIENT", "LIST", "TYPE", "replica").Raw; !strings.Contains(got, "flags=S ") || !strings.Contains(got, "cmd=psync ") {
		t.Errorf("CLIENT LIST: %q", got)
	}
	if got := infoFields(c.Do("INFO", "everything").Value.(string)); got["Stats sync_partial_ok"] != "1" || got["Clients connected_clients"] != strconv.Itoa(n.clients.count()-1) {
		t.Errorf("INFO: %s partial, %s clients", got["Stats sync_partial_ok"], got["Clients connected_clients"])
	}
	if got := c.Do("CLIENT", "KILL", "TYPE", "replica").Raw; got != ":1\r\n" {
		t.Errorf("CLIENT KILL: %q", got)
	}
	if _, err := h.rd.ReadByte(); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("after CLIENT KILL: %v", err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return n.primary.Len() == 0 }, "detached")
}

// later sends a command and gives the channel of its reply.
func later(t *testing.T, c *testkit.Conn, words ...string) <-chan string {
	t.Helper()
	out := make(chan string, 1)
	if err := c.Send(words...); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the reply
		r, err := c.Receive()
		if err != nil {
			r.Raw = err.Error()
		}
		out <- r.Raw
	}()
	return out
}

func TestWaitForReplicas(t *testing.T) {
	n := startServer(t)
	h := n.attach(t, "7001")
	c, other := n.dial(t), n.dial(t)
	if got := c.Do("WAIT", "1", "0").Raw; got != ":1\r\n" {
		t.Errorf("before any write: %q", got)
	}
	c.Do("SET", "k", "v")
	end := n.wal.End()
	if got := c.Do("WAIT", "0", "0").Raw; got != ":0\r\n" {
		t.Errorf("WAIT 0: %q", got)
	}
	if got := c.Do("WAIT", "1", "20").Raw; got != ":0\r\n" {
		t.Errorf("after its time: %q", got)
	}
	if a, b := h.command(), h.command(); a != "SET k v" || b != "REPLCONF GETACK *" {
		t.Fatalf("stream: %q, %q", a, b)
	}
	c.Do("MULTI")
	c.Do("WAIT", "1", "0")
	if got := c.Do("EXEC").Raw; got != "*1\r\n:0\r\n" {
		t.Errorf("in a transaction: %q", got)
	}
	reply := later(t, c, "WAIT", "1", "0")
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(other.Do("CLIENT", "LIST").Raw, "flags=b ")
	}, "it waits")
	h.ack(end - 1)
	h.ack(end)
	if got := <-reply; got != ":1\r\n" {
		t.Errorf("WAIT 1: %q", got)
	}
	// The replies before it do not wait with it.
	if _, err := c.Net().Write(append(testkit.AppendCommand(nil, "SET", "k", "w"), testkit.AppendCommand(nil, "WAIT", "1", "0")...)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Receive(); err != nil || got.Raw != "+OK\r\n" {
		t.Fatalf("SET before WAIT: %q, %v", got.Raw, err)
	}
	if got := other.Do("CLIENT", "UNBLOCK", strconv.FormatInt(n.blockedID(t), 10), "ERROR").Raw; got != ":1\r\n" {
		t.Errorf("CLIENT UNBLOCK: %q", got)
	}
	if got, err := c.Receive(); err != nil || got.Raw != "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n" {
		t.Errorf("after CLIENT UNBLOCK ERROR: %q, %v", got.Raw, err)
	}
	// A connection that ends does not leave its wait behind.
	if err := c.Send("WAIT", "5", "0"); err != nil {
		t.Fatal(err)
	}
	n.blockedID(t)
	c.Close()
	testkit.Eventually(t, 10*time.Second, func() bool { return n.stats.blocked.Load() == 0 }, "the wait is over")
}

// blockedID waits until a client is blocked and gives its number.
func (n *testNode) blockedID(t *testing.T) (id int64) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() bool {
		for _, c := range n.clients.snapshot() {
			if c.unblock.Load() != nil {
				id = c.id
			}
		}
		return id != 0
	}, "a client waits")
	return id
}

func TestWaitForLogs(t *testing.T) {
	n := startServer(t)
	h := n.attach(t, "7001")
	c := n.dial(t)
	c.Do("SET", "k", "v")
	end := n.wal.End()
	if got := c.Do("WAITAOF", "1", "0", "0").Raw; got != "*2\r\n:1\r\n:0\r\n" || n.wal.Synced() < end {
		t.Errorf("local: %q, synced to %d of %d", got, n.wal.Synced(), end)
	}
	reply := later(t, c, "WAITAOF", "1", "1", "0")
	h.ack(end)
	h.ack(end, "FACK", strconv.FormatInt(end, 10))
	if got := <-reply; got != "*2\r\n:1\r\n:1\r\n" {
		t.Errorf("got %q", got)
	}
	c.Do("SET", "k", "w")
	if got := c.Do("WAITAOF", "0", "1", "20").Value.([]any)[1]; got != int64(0) {
		t.Errorf("after its time: %v", got)
	}
}

func TestTooFewReplicas(t *testing.T) {
	n := startServer(t, "min-replicas-to-write 1", "min-replicas-max-lag 10")
	c := n.dial(t)
	const refused = "-NOREPLICAS Not enough good replicas to write.\r\n"
	if got := c.Do("SET", "k", "v").Raw; got != refused {
		t.Errorf("without replicas: %q", got)
	}
	if got := c.Do("GET", "k").Raw; got != "$-1\r\n" {
		t.Errorf("GET: %q", got)
	}
	h := n.attach(t, "7001")
	testkit.Eventually(t, 10*time.Second, func() bool { return c.Do("SET", "k", "v").Raw == "+OK\r\n" }, "a replica is there")
	if got := n.replicationInfo(t)["min_slaves_good_slaves"]; got != "1" {
		t.Errorf("INFO: %q", got)
	}
	h.Close()
	testkit.Eventually(t, 10*time.Second, func() bool { return c.Do("SET", "k", "v").Raw == refused }, "the replica is gone")
	c.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	if got := c.Do("SET", "k", "v").Raw; got != "+OK\r\n" {
		t.Errorf("min-replicas-to-write 0: %q", got)
	}
}

// TestTooFewReplicasInTransaction has the setting change between MULTI and EXEC.
func TestTooFewReplicasInTransaction(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	b, other := newBoth(t, n, r), newBoth(t, n, r)
	for _, queued := range []string{
		"MULTI\nGET k\nSET k v",
		"MULTI\nGET k",
		"MULTI",
		"MULTI\nSET k v\nNOSUCH",
		"MULTI\nNOSUCH\nSET k v",
		"WATCH k\nSET k 2\nMULTI\nDEL k",
	} {
		b.all(queued)
		other.same("CONFIG SET min-replicas-to-write 1")
		b.all("EXEC\nEXEC\nGET k\nSET k w")
		other.same("CONFIG SET min-replicas-to-write 0")
	}
	b.all("MULTI\nSET k w\nGET k\nEXEC\nGET k")
}

// TestPausedStream: while a failover holds writes back nothing enters the log, and no replica attaches.
func TestPausedStream(t *testing.T) {
	n := startServer(t)
	h := n.attach(t, "7001")
	r := *n.store.Routing()
	r.WritesPaused = true
	n.store.SetRouting(&r)
	if _, err := n.appendControl("ping"); err == nil {
		t.Error("a ping was appended")
	}
	if got := n.dial(t).Do("PSYNC", "?", "-1").Raw; got != "-NOMASTERLINK Can't SYNC while failing over\r\n" {
		t.Errorf("PSYNC: %q", got)
	}
	again := r
	again.WritesPaused = false
	n.store.SetRouting(&again)
	if _, err := n.appendControl("SELECT", "0"); err != nil {
		t.Error(err)
	}
	n.dial(t).Do("SET", "k", "v")
	if a, b := h.command(), h.command(); a != "SELECT 0" || b != "SET k v" {
		t.Errorf("stream: %q, %q", a, b)
	}
}

// TestStopDrainsReplicas: a node that stops gives its replicas the end of the stream, and takes no write meanwhile.
func TestStopDrainsReplicas(t *testing.T) {
	n := startServer(t)
	h := n.attach(t, "7001")
	c, late := n.dial(t), n.dial(t)
	c.Do("SET", "k", "v")
	end := n.wal.End()
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop() }()
	if a, b := h.command(), h.command(); a != "SET k v" || b != "REPLCONF GETACK *" {
		t.Fatalf("stream: %q, %q", a, b)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return n.store.Routing().WritesPaused }, "writes are held back")
	refused := later(t, late, "SET", "k", "w")
	if got := c.Do("GET", "k").Raw; got != "$1\r\nv\r\n" {
		t.Errorf("GET while it stops: %q", got)
	}
	h.ack(end)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := <-refused; strings.HasPrefix(got, "+") {
		t.Errorf("a write while it stops: %q", got)
	}
}

// TestStopDoesNotWaitForEver: a replica that acknowledges nothing holds the stop up for shutdown-timeout only.
func TestStopDoesNotWaitForEver(t *testing.T) {
	n := startServer(t, "shutdown-timeout 1")
	n.attach(t, "7001")
	n.dial(t).Do("SET", "k", "v")
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(n.log.String(), "replicas do not have the end of the stream") {
		t.Error("nothing is said of it")
	}
}
