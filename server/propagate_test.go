package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/resp"
	"cairn/internal/testkit"
)

// propagated are commands whose entries in the log are compared with what redis-server sends its replicas. Times are
// compared to ten seconds.
var propagated = []string{
	"SET a 1", "SET a 1 EX 1000", "SET a 1 PX 1000000", "SET a 1 EXAT 33333333333", "SET a 2 KEEPTTL", "SET a 1 NX", "SET a 3 XX GET",
	"SETEX a 1000 v", "PSETEX a 1000000 v", "SETNX a v", "SETNX new v", "GETSET a w", "GETDEL a", "GETDEL none",
	"SET a 10", "GETEX a", "GETEX a EX 1000", "GETEX a PX 1000000", "GETEX a EXAT 33333333333", "GETEX a PERSIST", "GETEX a PERSIST",
	"GETEX a PXAT 1", "GETEX none EX 10", "SET a 10", "INCR a", "DECRBY a 3", "INCRBYFLOAT a 1.5", "INCRBYFLOAT f 3",
	"APPEND a x", "APPEND a \"\"", "SETRANGE a 2 yy", "SETRANGE a 5 \"\"", "SETBIT b 7 1", "SETBIT b 7 1", "SETBIT b 7 0",
	"MSET m1 1 m2 2", "MSETNX m1 1 m3 2", "MSETNX m3 1 m4 2", "BITOP NOT dst m1", "BITOP AND dst none other", "BITOP OR dst none",
	"BITFIELD bf GET u8 0", "BITFIELD bf SET u8 0 255", "BITFIELD bf SET u8 0 255", "BITFIELD bf OVERFLOW FAIL INCRBY u8 0 1",
	"BITFIELD_RO bf GET u8 0", "LCS m1 m2", "STRLEN a", "EXPIRE a 1000", "EXPIRE a 10 GT", "PEXPIRE a 1000000", "EXPIREAT a 33333333333",
	"PEXPIREAT a 33333333333000", "EXPIRE none 10", "PERSIST a", "PERSIST a", "EXPIRE a -1", "EXPIRE a 10",
	"SET a 1", "PEXPIREAT a 1", "SET a 1", "EXPIREAT a 0", "HSET h f 1 g 2", "HSET h f 1", "HSETNX h f 9", "HSETNX h k 9", "HMSET h x 1",
	"HINCRBY h f 3", "HINCRBYFLOAT h f 0.5", "HINCRBYFLOAT h fresh 1.25", "HDEL h none", "HDEL h f none", "HGET h g", "HRANDFIELD none",
	"DEL none", "DEL m1 none", "UNLINK m2", "UNLINK none", "RENAME h h2", "RENAME h2 h2", "RENAMENX h2 m3", "RENAMENX h2 h3", "COPY h3 h4",
	"COPY h3 h4", "COPY h3 h4 REPLACE", "COPY none x REPLACE", "RENAME none x", "INCR h3", "SET", "EXISTS m3", "TOUCH m3", "TTL m3", "OBJECT ENCODING m3",
	// What is expired goes first.
	"SET a v PXAT 1", "GET a", "SET a v PXAT 1", "SET a new", "SET a v PXAT 1", "INCR a", "SET a v PXAT 1", "DEL a", "SET a v PXAT 1", "EXPIRE a 10",
	"SET a v PXAT 1", "RENAME a b", "SET a v PXAT 1", "SETNX a 1", "SET a v PXAT 1", "SCAN 0 MATCH a COUNT 1000", "SET a v PXAT 1", "TTL a", "SET a v PXAT 1", "APPEND a x",
	// Transactions: one write stands alone, several are wrapped, reads leave nothing.
	"MULTI|SET a 1|EXEC", "MULTI|SET a 1|GET a|EXEC", "MULTI|SET a 1|SET b 2|EXEC", "MULTI|EXEC", "MULTI|GET a|EXEC", "MULTI|DEL none|EXEC",
	"MULTI|SET a 1|HGET a f|SET b 2|EXEC", "MULTI|SET a 1|DISCARD", "MULTI|EXPIRE a 1000|INCRBYFLOAT f 1|EXEC", "MULTI|SET a v PXAT 1|GET a|EXEC",
	"MULTI|PING|SET a 1|EXEC", "MULTI|SET a|EXEC", "WATCH a|MULTI|SET a 2|SET b 3|EXEC", "WATCH a|SET a 1|MULTI|SET a 2|EXEC",
	"MULTI|GETDEL a|EXEC", "MULTI|FLUSHALL|SET a 1|EXEC", "FLUSHALL", "FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL SYNC",
}

// TestPropagation runs commands here and at a redis-server whose replication stream is read.
func TestPropagation(t *testing.T) {
	n := startServer(t, "enable-debug-command yes")
	r := testkit.StartRedis(t, "--enable-debug-command", "yes", "--repl-diskless-sync", "no", "--repl-ping-replica-period", "3600")
	b := newBoth(t, n, r)
	b.same("DEBUG SET-ACTIVE-EXPIRE 0")
	stream := replicaOf(t, r.Addr)
	at := n.wal.End()
	for i, line := range propagated {
		for command := range strings.SplitSeq(line, "|") {
			b.same(command)
		}
		mark := strconv.Itoa(i)
		b.same("SET mark " + mark)
		want := untilMark(t, stream, mark)
		reader, err := n.wal.NewReader(at)
		if err != nil {
			t.Fatal(err)
		}
		got := untilMark(t, bufio.NewReader(waitingReader{reader.Read, func() error { return reader.Wait(nil) }}), mark)
		at = n.wal.End()
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s\n ours  %s\n redis %s", line, got, want)
		}
	}
}

// TestPublishPropagation has a stream of each side that a replica reads: what is published is for it alone. In a
// transaction that writes it stands behind the block here, so that is not compared.
func TestPublishPropagation(t *testing.T) {
	n := startServer(t)
	r := testkit.StartRedis(t, "--repl-diskless-sync", "no", "--repl-ping-replica-period", "3600")
	b := newBoth(t, n, r)
	b.all("PUBLISH early m\nSPUBLISH early m")
	ours, redis := replicaOf(t, n.Addr), replicaOf(t, r.Addr)
	for i, line := range []string{
		"PUBLISH ch m", "publish ch \"\"", "SPUBLISH ch m", "PUBLISH ch", "MULTI|PUBLISH ch m|EXEC", "MULTI|GET a|SPUBLISH ch m|EXEC",
		"MULTI|PUBLISH ch m|DISCARD", "WATCH a|SET a 1|MULTI|PUBLISH ch m|EXEC", "SUBSCRIBE ch|PUBLISH ch m|UNSUBSCRIBE ch",
	} {
		for command := range strings.SplitSeq(line, "|") {
			b.same(command)
		}
		mark := strconv.Itoa(i)
		b.same("SET mark " + mark)
		if got, want := untilMark(t, ours, mark), untilMark(t, redis, mark); got != want {
			t.Errorf("%s\n ours  %s\n redis %s", line, got, want)
		}
	}
	b.all("MULTI\nSET a 1\nPUBLISH ch m\nEXEC\nSET mark end")
	if got := untilMark(t, ours, "end"); got != "SET a 1; PUBLISH ch m; " {
		t.Errorf("in a transaction that writes: %s", got)
	}
}

// waitingReader reads a log that has no end.
type waitingReader struct {
	read func([]byte) (int, error)
	wait func() error
}

func (r waitingReader) Read(p []byte) (int, error) {
	if err := r.wait(); err != nil {
		return 0, err
	}
	return r.read(p)
}

// replicaOf asks a server for its stream and reads past the data set.
func replicaOf(t *testing.T, addr string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("SYNC\r\n")); err != nil {
		t.Fatal(err)
	}
	rd := bufio.NewReader(conn)
	for {
		line, err := rd.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line = strings.TrimSpace(line); line == "" {
			continue // a sign of life while the data set is written
		}
		size, err := strconv.Atoi(strings.TrimPrefix(line, "$"))
		if err != nil {
			t.Fatalf("SYNC answered %q", line)
		}
		if _, err := rd.Discard(size); err != nil {
			t.Fatal(err)
		}
		return rd
	}
}

// untilMark reads a stream up to SET mark with this value and describes what stood before, a command a line.
func untilMark(t *testing.T, rd *bufio.Reader, mark string) string {
	t.Helper()
	var out strings.Builder
	for {
		words, err := readCommand(rd)
		if err != nil {
			t.Fatalf("stream: %v", err)
		}
		line := strings.ToUpper(words[0])
		for _, w := range words[1:] {
			line += " " + aboutWhen(w)
		}
		if line == "SET mark "+mark {
			return out.String()
		}
		if line != "SELECT 0" && line != "PING" {
			out.WriteString(line + "; ")
		}
	}
}

func readCommand(rd *bufio.Reader) ([]string, error) {
	header, err := rd.ReadString('\n')
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(strings.TrimSpace(header[1:]))
	if err != nil || header[0] != '*' {
		return nil, fmt.Errorf("%q is no command", header)
	}
	words := make([]string, count)
	for i := range words {
		if header, err = rd.ReadString('\n'); err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(header[1:]))
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(rd, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

// aboutWhen makes a time near now one that does not depend on when the test runs.
func aboutWhen(word string) string {
	const near, step = int64(1e7), int64(1e4) // milliseconds
	ms, ok := resp.ParseInt([]byte(word))
	if d := ms - time.Now().UnixMilli(); ok && -near < d && d < near {
		return fmt.Sprintf("now+%ds", (d+step/2)/step*step/1000)
	}
	return word
}
