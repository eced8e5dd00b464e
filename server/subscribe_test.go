package server

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// waitFor waits until a line of CLIENT LIST contains the text.
func waitFor(t *testing.T, n *testNode, c *testkit.Conn, text string) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(c.Do("CLIENT", "LIST").Raw, text)
	}, "CLIENT LIST with %q", text)
}

func TestSubscribe(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	for _, proto := range []string{"2", "3"} {
		t.Run("RESP"+proto, func(t *testing.T) {
			sub, pub := newBoth(t, n, r), newBoth(t, n, r)
			sub.ours.Do("HELLO", proto)
			sub.redis.Do("HELLO", proto)
			sub.all(`
				UNSUBSCRIBE
				UNSUBSCRIBE x
				PUNSUBSCRIBE
				SUNSUBSCRIBE
				SUBSCRIBE a
				SUBSCRIBE a
				SUBSCRIBE b
				PSUBSCRIBE *
				PSUBSCRIBE a?
				SSUBSCRIBE a
				PING
				PING x
				SUBSCRIBE
				GET x
			`)
			pub.all(`
				PUBSUB NUMSUB
				PUBSUB NUMSUB a b c
				PUBSUB NUMPAT
				PUBSUB NUMPAT x
				PUBSUB CHANNELS a*
				PUBSUB CHANNELS c
				PUBSUB CHANNELS c d
				PUBSUB SHARDCHANNELS
				PUBSUB SHARDNUMSUB a b
				PUBSUB FOO
				PUBSUB
				PUBLISH a
				PUBLISH none x
			`)
			sub.receive() // by *
			pub.same("SPUBLISH a shard")
			sub.receive()
			pub.same("PUBLISH ab x")
			sub.ours.Do("UNSUBSCRIBE", "none") // the two patterns come in no order
			sub.redis.Do("UNSUBSCRIBE", "none")
			drain(t, sub, "none")
			sub.all(`
				PUNSUBSCRIBE *
				UNSUBSCRIBE b
				UNSUBSCRIBE b
			`)
			pub.all("PUBLISH a hello\nPUBLISH b hello\nPUBLISH b hello\nPUBLISH ax \"\"")
			sub.receive()
			sub.receive()
			sub.all("UNSUBSCRIBE\nPUNSUBSCRIBE\nSUNSUBSCRIBE\nPING\nGET x\nSUBSCRIBE again\nRESET\nPING")
			pub.all("PUBSUB CHANNELS\nPUBSUB NUMPAT\nPUBLISH again x")
		})
	}
}

// drain reads what is left up to a confirmation that names text.
func drain(t *testing.T, b *both, text string) {
	t.Helper()
	for _, c := range []*testkit.Conn{b.ours, b.redis} {
		c.Send("UNSUBSCRIBE", text+text)
		for {
			m, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(m.Raw, text+text) {
				break
			}
		}
	}
}

// In a transaction confirmations stand in the reply, and what a client says to itself follows it.
func TestSubscribeInMulti(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	c.Do("HELLO", "3")
	for _, line := range []string{"MULTI", "SUBSCRIBE a b", "PUBLISH a one", "UNSUBSCRIBE b", "ECHO x"} {
		c.Do(strings.Fields(line)...)
	}
	want := "*4\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	if err := c.Send("EXEC"); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for range 3 { // the second confirmation counts as an element, as in Redis: the array ends with that of b
		r, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString(r.Raw)
	}
	want += ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n:1\r\n>3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n$1\r\nx\r\n" +
		">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\none\r\n"
	if got.String() != want {
		t.Errorf("got  %q\nwant %q", got.String(), want)
	}
	if got := c.Do("PUBLISH", "a", "two").Raw; got != ":1\r\n" {
		t.Errorf("the reply to PUBLISH does not come first: %q", got)
	}
	if m, err := c.Receive(); err != nil || m.Raw != ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\ntwo\r\n" {
		t.Errorf("own message: %q, %v", m.Raw, err)
	}
}

// What would listen for ever cannot be part of a transaction, except where Redis allows it.
func TestNotInMulti(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	newBoth(t, n, r).all(`
		MULTI
		SSUBSCRIBE a
		SUNSUBSCRIBE a
		MONITOR
		SET k v
		EXEC
		GET k
		SPUBLISH a x
	`)
}

// Confirmations and messages keep their order while others publish, and replies, short and streamed, stay whole.
func TestOrderUnderLoad(t *testing.T) {
	n := startServer(t)
	big := strings.Repeat("v", 1<<20)
	n.dial(t).Do("SET", "big", big)
	stop := publishers(t, n)
	c := n.dial(t)
	c.Do("HELLO", "3")
	listening := map[string]bool{}
	last := map[string]int{}
	read := func(until string) {
		for {
			r, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			push, ok := r.Value.(testkit.Push)
			if !ok {
				if r.Raw != until {
					t.Fatalf("reply %.80q, want %.80q", r.Raw, until)
				}
				return
			}
			channel, _ := push[1].(string)
			switch push[0] {
			case "subscribe":
				listening[channel] = true
			case "unsubscribe":
				listening[channel] = false
			case "message":
				if !listening[channel] {
					t.Fatalf("%q without a subscription", push)
				}
				var who string
				var k int
				fmt.Sscan(push[2].(string), &who, &k)
				if k <= last[who] && last[who] != 0 {
					t.Fatalf("message %d of %s after %d", k, who, last[who])
				}
				last[who] = k
			}
		}
	}
	value := fmt.Sprintf("$%d\r\n%s\r\n", len(big), big)
	for i := range 60 {
		channel := fmt.Sprint("c", i%2)
		var batch []byte
		for _, cmd := range [][]string{{"PING"}, {"SUBSCRIBE", channel}, {"GET", "big"}, {"ECHO", "x"}, {"UNSUBSCRIBE", channel}, {"PING", "y"}} {
			batch = testkit.AppendCommand(batch, cmd...)
		}
		if _, err := c.Net().Write(batch); err != nil {
			t.Fatal(err)
		}
		for _, until := range []string{"+PONG\r\n", value, "$1\r\nx\r\n", "$1\r\ny\r\n"} {
			read(until)
		}
	}
	stop()
}

// publishers send numbered messages to channels c0 and c1 until stop is called.
func publishers(t *testing.T, n *testNode) (stop func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	for i := range 3 {
		p := n.dial(t)
		all.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-end:
					return
				default:
				}
				if _, err := p.Try("PUBLISH", fmt.Sprint("c", k%2), fmt.Sprint(i, " ", k)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		close(end)
		all.Wait()
	}
}

// Who does not read is closed, by the hard limit at once and by the soft one in time; the publisher never waits.
func TestOutputLimits(t *testing.T) {
	for _, limit := range []string{"pubsub 1mb 0 0", "pubsub 0 1mb 1"} {
		t.Run(limit, func(t *testing.T) {
			n := startServer(t, "client-output-buffer-limit "+limit)
			slow, pub := n.dial(t), n.dial(t)
			slow.Do("SUBSCRIBE", "c")
			payload := strings.Repeat("x", 100<<10)
			testkit.Eventually(t, 20*time.Second, func() bool {
				return pub.Do("PUBLISH", "c", payload).Raw == ":0\r\n"
			}, "the end of a client that does not read")
			if n.stats.outputOverruns.Load() != 1 {
				t.Errorf("%d clients were closed for their output, want 1", n.stats.outputOverruns.Load())
			}
		})
	}
}

// A subscriber's own replies wait for room instead of counting against it.
func TestRepliesWait(t *testing.T) {
	n := startServer(t, "client-output-buffer-limit pubsub 1mb 0 0")
	c := n.dial(t)
	c.Do("HELLO", "3")
	c.Do("SUBSCRIBE", "c")
	c.Do("SET", "k", strings.Repeat("v", 50<<10))
	const times = 400
	batch := bytes.Repeat(testkit.AppendCommand(nil, "GET", "k"), times)
	if _, err := c.Net().Write(batch); err != nil {
		t.Fatal(err)
	}
	queued := func() (most int64) {
		for _, other := range n.clients.snapshot() {
			most = max(most, other.push.size.Load())
		}
		return most
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return queued() > 512<<10 }, "a queue that fills")
	for i := range times {
		if q := queued(); q > 700<<10 { // half of the hard limit, and one batch of replies
			t.Fatalf("%d bytes are queued", q)
		}
		if r, err := c.Receive(); err != nil || len(r.Raw) < 50<<10 {
			t.Fatalf("reply %d: %d bytes, %v", i, len(r.Raw), err)
		}
	}
	// Without subscriptions the connection writes by itself again.
	c.Do("UNSUBSCRIBE")
	testkit.Eventually(t, 10*time.Second, func() bool {
		for _, other := range n.clients.snapshot() {
			if other.push.active() {
				return false
			}
		}
		return true
	}, "the end of the writer")
	if got := c.Do("PING").Raw; got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
	c.Do("SUBSCRIBE", "c")
	if got := c.Do("QUIT").Raw; got != "+OK\r\n" {
		t.Errorf("QUIT: %q", got)
	}
}

func TestKeyspaceEvents(t *testing.T) {
	n := startServer(t, "notify-keyspace-events KEA")
	sub, c := n.dial(t), n.dial(t)
	sub.Do("PSUBSCRIBE", "__key*__:*")
	c.Do("SET", "k", "v")
	for _, want := range []string{"__keyspace@0__:k", "__keyevent@0__:set"} {
		m, err := sub.Receive()
		if err != nil || !strings.Contains(m.Raw, want) {
			t.Errorf("%q, %v, want %s", m.Raw, err, want)
		}
	}
}

// A slot that moves away takes its shard channels along.
func TestRevokedShardChannels(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	c.Do("SSUBSCRIBE", "{a}1")
	c.Do("SSUBSCRIBE", "b")
	n.revokeShardChannels(slot.Of([]byte("a")))
	m, err := c.Receive()
	if want := "*3\r\n$12\r\nsunsubscribe\r\n$4\r\n{a}1\r\n:1\r\n"; err != nil || m.Raw != want {
		t.Errorf("got %q, %v, want %q", m.Raw, err, want)
	}
	if got := n.dial(t).Do("PUBSUB", "SHARDCHANNELS").Raw; got != "*1\r\n$1\r\nb\r\n" {
		t.Errorf("left: %q", got)
	}
}

// A node ends although a subscriber does not read what is queued for it, and a client its replies.
func TestStopWithSilentClients(t *testing.T) {
	n := startServer(t)
	slow, pub, deaf := n.dial(t), n.dial(t), n.dial(t)
	slow.Do("SUBSCRIBE", "c")
	payload := strings.Repeat("x", 100<<10)
	for range 100 {
		pub.Do("PUBLISH", "c", payload)
	}
	pub.Do("SET", "k", payload)
	if _, err := deaf.Net().Write(bytes.Repeat(testkit.AppendCommand(nil, "GET", "k"), 1000)); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := n.clients.count(); left != 0 {
		t.Errorf("%d clients are left", left)
	}
}

// While the data is being opened connections are answered, and work once it is there.
func TestWhileLoading(t *testing.T) {
	n := newServer(t)
	n.loading.Store(true)
	if err := n.listen(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	const loading = "-LOADING Redis is loading the dataset in memory\r\n"
	for _, line := range []struct{ cmd, want string }{
		{"PING", loading},
		{"GET a", loading},
		{"MULTI", loading},
		{"WATCH a", loading},
		{"SPUBLISH a b", loading},
		{"ECHO a", "$1\r\na\r\n"},
		{"CLIENT SETNAME a", "+OK\r\n"},
		{"PUBLISH a b", ":0\r\n"},
		{"EXEC", "-EXECABORT Transaction discarded because of: " + loading[1:]}, // as every EXEC that is refused
	} {
		if got := c.Do(strings.Fields(line.cmd)...).Raw; got != line.want {
			t.Errorf("%s: %q, want %q", line.cmd, got, line.want)
		}
	}
	if err := n.open(); err != nil {
		t.Fatal(err)
	}
	n.loading.Store(false)
	if got := c.Do("SET", "a", "b").Raw; got != "+OK\r\n" {
		t.Errorf("SET: %q", got)
	}
}
