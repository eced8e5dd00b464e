package server

import (
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// both is a connection to cairn and one to redis-server that are sent the same.
type both struct {
	t           *testing.T
	ours, redis *testkit.Conn
}

func newBoth(t *testing.T, n *testNode, r *testkit.Redis) *both {
	return &both{t, n.dial(t), testkit.Dial(t, r.Addr)}
}

// same sends a line of words to both and compares the raw replies.
func (b *both) same(line string) {
	b.t.Helper()
	args := strings.Fields(line)
	for i, a := range args {
		if a == `""` {
			args[i] = ""
		}
	}
	ours, redis := b.ours.Do(args...).Raw, b.redis.Do(args...).Raw
	if ours != redis {
		b.t.Errorf("%s\n ours  %q\n redis %q", line, ours, redis)
	}
}

func (b *both) all(lines string) {
	b.t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			b.same(line)
		}
	}
}

// receive compares the next message that nobody asked for.
func (b *both) receive() {
	b.t.Helper()
	ours, err := b.ours.Receive()
	redis, err2 := b.redis.Receive()
	if err != nil || err2 != nil || ours.Raw != redis.Raw {
		b.t.Errorf("message:\n ours  %q, %v\n redis %q, %v", ours.Raw, err, redis.Raw, err2)
	}
}

const connectionScript = `
	PING
	PING hello
	PING a b
	ECHO hi
	ECHO
	SELECT 0
	SELECT x
	SELECT 99999999999
	SELECT -1
	SELECT 4294967296
	SELECT 12345
	AUTH
	AUTH x
	AUTH default x
	AUTH a b
	AUTH a b c
	HELLO x
	HELLO 1
	HELLO 4
	HELLO 3 AUTH a
	HELLO 3 AUTH a b
	HELLO 3 SETNAME
	HELLO 3 FOO
	CLIENT GETNAME
	PING
	RESET
	CLIENT GETNAME
	RESET x
	QUIT
	`

const clientScript = `
	CLIENT SETNAME a
	CLIENT SETNAME ""
	CLIENT GETNAME
	CLIENT SETNAME b
	CLIENT GETNAME
	CLIENT FOO
	CLIENT
	CLIENT GETNAME x
	CLIENT ID x
	CLIENT REPLY x
	CLIENT REPLY ON
	CLIENT NO-EVICT ON
	CLIENT NO-EVICT OFF
	CLIENT NO-EVICT x
	CLIENT GETREDIR
	CLIENT TRACKINGINFO
	CLIENT TRACKING x
	CLIENT TRACKING OFF
	CLIENT UNBLOCK 77
	CLIENT UNBLOCK x
	CLIENT UNBLOCK 77 TIMEOUT
	CLIENT UNBLOCK 77 FOO
	CLIENT UNBLOCK 77 ERROR x
	CLIENT PAUSE x
	CLIENT PAUSE -1
	CLIENT PAUSE 1 FOO
	CLIENT PAUSE 1 WRITE x
	CLIENT PAUSE 0
	CLIENT UNPAUSE
	CLIENT KILL
	CLIENT KILL 1.2.3.4:5
	CLIENT KILL ADDR 1.2.3.4:5
	CLIENT KILL LADDR 1.2.3.4:5
	CLIENT KILL ID 0
	CLIENT KILL ID x
	CLIENT KILL ID 999
	CLIENT KILL TYPE x
	CLIENT KILL TYPE pubsub
	CLIENT KILL TYPE master SKIPME no
	CLIENT KILL SKIPME x
	CLIENT KILL USER nobody
	CLIENT KILL ID 999 TYPE
	CLIENT KILL SKIPME yes FOO bar
	CLIENT LIST TYPE x
	CLIENT LIST TYPE replica
	CLIENT LIST TYPE master
	CLIENT LIST ID
	CLIENT LIST ID x
	CLIENT LIST ID 999
	CLIENT LIST FOO
	CLIENT CACHING yes
	`

func TestConnectionCommands(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	newBoth(t, n, r).all(connectionScript)
	b := newBoth(t, n, r)
	b.all(clientScript)
	// Redis 7.0 takes this time and adds it up to one in the past.
	if got := b.ours.Do("CLIENT", "PAUSE", "9223372036854775807").Raw; got != "-ERR timeout is out of range\r\n" {
		t.Errorf("endless pause: %q", got)
	}
	// A space cannot be sent by all.
	for _, c := range []*testkit.Conn{b.ours, b.redis} {
		if got := c.Do("CLIENT", "SETNAME", "a b").Raw; got != "-ERR Client names cannot contain spaces, newlines or special characters.\r\n" {
			t.Errorf("name with a space: %q", got)
		}
	}
}

func TestHello(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	want := "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n"
	got := c.Do("HELLO", "3", "SETNAME", "me").Raw
	tail := "$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, tail) {
		t.Errorf("HELLO 3: %q", got)
	}
	if got := c.Do("CLIENT", "GETNAME").Raw; got != "$2\r\nme\r\n" {
		t.Errorf("name: %q", got)
	}
	if got := c.Do("HELLO", "2").Raw; !strings.HasPrefix(got, "*14\r\n") {
		t.Errorf("HELLO 2: %q", got)
	}
}

func TestSetInfo(t *testing.T) {
	c := startServer(t).dial(t)
	for _, line := range []struct{ cmd, want string }{
		{"CLIENT SETINFO LIB-NAME go", "+OK\r\n"},
		{"CLIENT SETINFO lib-ver 1.2", "+OK\r\n"},
		{"CLIENT SETINFO lib-foo x", "-ERR Unrecognized option 'lib-foo'\r\n"},
		{"CLIENT SETINFO Lib-Name a\x01b", "-ERR Lib-Name cannot contain spaces, newlines or special characters.\r\n"},
		{"CLIENT NO-TOUCH on", "+OK\r\n"},
	} {
		if got := c.Do(strings.Fields(line.cmd)...).Raw; got != line.want {
			t.Errorf("%s: %q, want %q", line.cmd, got, line.want)
		}
	}
	if got := c.Do("CLIENT", "INFO").Raw; !strings.Contains(got, " lib-name=go lib-ver=1.2\n") || !strings.Contains(got, " flags=T ") {
		t.Errorf("CLIENT INFO: %q", got)
	}
}

func TestLogin(t *testing.T) {
	n, r := startServer(t, "requirepass secret"), testkit.StartRedis(t, "--requirepass", "secret")
	b := newBoth(t, n, r)
	b.all(`
		PING
		GET a
		NOSUCH
		HELLO 3 AUTH default wrong
		AUTH wrong
		AUTH default wrong
		AUTH other secret
		AUTH secret
		PING
		RESET
		PING
		AUTH default secret
		PING
	`)
	c := n.dial(t)
	// Redis 7.0 leaves "<proto> " out.
	if got := c.Do("HELLO").Raw; got != "-"+string(errHelloNoAuth)+"\r\n" {
		t.Errorf("HELLO before the login: %q", got)
	}
	if got := c.Do("HELLO", "3", "AUTH", "default", "secret").Raw; !strings.HasPrefix(got, "%7\r\n") {
		t.Errorf("HELLO with AUTH: %q", got)
	}
}

// The fields of a line, in their order, are Redis's; those of which the value is the same on both are compared.
func TestClientLine(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	b := newBoth(t, n, r)
	ours, redis := fields(b.ours.Do("CLIENT", "LIST").Value), fields(b.redis.Do("CLIENT", "LIST").Value)
	for i, f := range redis {
		if i >= len(ours) || ours[i][0] != f[0] {
			t.Fatalf("field %d is not %s:\n ours  %q\n redis %q", i, f[0], ours, redis)
		}
		switch f[0] {
		case "name", "flags", "db", "sub", "psub", "ssub", "multi", "qbuf", "multi-mem", "obl", "oll",
			"omem", "events", "cmd", "user", "redir", "resp":
			if ours[i][1] != f[1] {
				t.Errorf("%s: ours %q, redis %q", f[0], ours[i][1], f[1])
			}
		}
	}
	rest := ours[len(redis):]
	if len(rest) != 2 || rest[0][0] != "lib-name" || rest[1][0] != "lib-ver" {
		if len(rest) != 0 {
			t.Errorf("fields beyond those of 7.0: %q, want lib-name and lib-ver", rest)
		}
	}
}

func fields(v any) (list [][2]string) {
	s, _ := v.(string)
	for word := range strings.FieldsSeq(s) {
		name, value, _ := strings.Cut(word, "=")
		list = append(list, [2]string{name, value})
	}
	return list
}

func TestClientKill(t *testing.T) {
	n := startServer(t)
	me, other := n.dial(t), n.dial(t)
	id := other.Do("CLIENT", "ID").Raw
	id = strings.Trim(id, ":\r\n")
	if got := me.Do("CLIENT", "KILL", "ID", id).Raw; got != ":1\r\n" {
		t.Fatalf("kill by id: %q", got)
	}
	if _, err := other.Try("PING"); err == nil {
		t.Error("a killed connection answers")
	}
	if got := me.Do("CLIENT", "LIST").Raw; strings.Contains(got, "id="+id+" ") {
		t.Errorf("a killed connection is listed: %q", got)
	}
	other = n.dial(t)
	other.Do("PING") // the kernel takes a connection before the node knows of it
	addr := other.Net().LocalAddr().String()
	if got := me.Do("CLIENT", "KILL", addr).Raw; got != "+OK\r\n" {
		t.Fatalf("kill by address: %q", got)
	}
	if _, err := other.Try("PING"); err == nil {
		t.Error("a killed connection answers")
	}
	// Whoever asked first whether the node is there may not be gone yet.
	testkit.Eventually(t, replyWait, func() bool { return strings.Count(me.Do("CLIENT", "LIST").Raw, "id=") == 1 }, "one client is left")
	// One's own goes after the reply.
	if got := me.Do("CLIENT", "KILL", "SKIPME", "no", "LADDR", n.Addr).Raw; got != ":1\r\n" {
		t.Fatalf("kill of oneself: %q", got)
	}
	if _, err := me.Try("PING"); err == nil {
		t.Error("a connection that killed itself answers")
	}
}

func TestClientReply(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	b := newBoth(t, n, r)
	for _, c := range []*testkit.Conn{b.ours, b.redis} {
		for _, line := range []string{
			"CLIENT REPLY SKIP", "PING skipped", "PING 1", "CLIENT REPLY OFF", "PING off", "NOSUCH", "CLIENT REPLY SKIP",
			"PING off", "CLIENT REPLY x", "SUBSCRIBE a", "CLIENT REPLY ON", "UNSUBSCRIBE", "PING 2",
		} {
			if err := c.Send(strings.Fields(line)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 { // PING 1 and the confirmations: RESP2 allows no CLIENT while subscribed
		b.receive()
	}
	b.all("CLIENT REPLY ON\nPING 3")
}

func TestPause(t *testing.T) {
	n := startServer(t)
	me, other := n.dial(t), n.dial(t)
	if got := me.Do("CLIENT", "PAUSE", "60000", "WRITE").Raw; got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := other.Do("GET", "a").Raw; got != "$-1\r\n" {
		t.Fatalf("a read while writes are paused: %q", got)
	}
	if err := other.Send("SET", "a", "1"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, me, " flags=b ")
	if got := me.Do("GET", "a").Raw; got != "$-1\r\n" {
		t.Fatalf("the write did not wait: %q", got)
	}
	me.Do("CLIENT", "UNPAUSE")
	if got, err := other.Receive(); err != nil || got.Raw != "+OK\r\n" {
		t.Fatalf("the write after the pause: %q, %v", got.Raw, err)
	}
	me.Do("CLIENT", "PAUSE", "60000")
	if err := other.Send("PING"); err != nil {
		t.Fatal(err)
	}
	// Everything waits, CLIENT UNPAUSE too, as in Redis.
	if err := me.Send("CLIENT", "UNPAUSE"); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return n.stats.blocked.Load() == 2 }, "two commands that wait")
	n.pause.clear()
	if got, err := other.Receive(); err != nil || got.Raw != "+PONG\r\n" {
		t.Fatalf("PING after the pause: %q, %v", got.Raw, err)
	}
}
