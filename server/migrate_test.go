package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/testkit"
	"cairn/wal"
)

// migratePair is a node and a redis-server, each with a redis-server of its own to move keys to.
type migratePair struct {
	*pair
	to [2]*testkit.Redis
}

func startMigratePair(t *testing.T, target ...string) *migratePair {
	t.Helper()
	p := &migratePair{pair: startPair(t)}
	for i := range p.to {
		p.to[i] = testkit.StartRedis(t, target...)
	}
	return p
}

func portOf(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// both runs a line on both sides. TO is the address of the side's target, CLOSED one where nobody listens; a line that
// begins with @ runs at the target.
func (p *migratePair) both(line, closed string) {
	p.t.Helper()
	var got [2]string
	for i, c := range []*testkit.Conn{p.cairn, p.redis} {
		text := strings.NewReplacer("TO", "127.0.0.1 "+portOf(p.t, p.to[i].Addr), "CLOSED", "127.0.0.1 "+closed).Replace(line)
		if rest, ok := strings.CutPrefix(text, "@"); ok {
			c = testkit.Dial(p.t, p.to[i].Addr)
			text = rest
		}
		words := strings.Fields(text)
		for i := range words {
			if words[i] == `""` {
				words[i] = ""
			}
		}
		got[i] = c.Do(words...).Raw
	}
	if got[0] != got[1] {
		p.t.Errorf("%s\ngot  %q\nwant %q", line, got[0], got[1])
	}
}

func TestMigrateRepliesAreRedis(t *testing.T) {
	t.Parallel()
	p := startMigratePair(t)
	closed := strconv.Itoa(testkit.FreePort(t))
	for line := range strings.Lines(strings.TrimSpace(script(t, "migrate.txt"))) {
		p.both(strings.TrimSpace(line), closed)
	}
}

func TestMigrateLogsIn(t *testing.T) {
	t.Parallel()
	p := startMigratePair(t, "--requirepass", "secret")
	for _, to := range p.to {
		c := testkit.Dial(t, to.Addr)
		mustOK(t, c, "AUTH", "secret")
		mustOK(t, c, "ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all")
	}
	for line := range strings.Lines(strings.TrimSpace(script(t, "migrate_auth.txt"))) {
		p.both(strings.TrimSpace(line), "1")
	}
}

// values are of every form that the store has.
func migrateValues(t testing.TB, c *testkit.Conn) (keys []string) {
	t.Helper()
	set := func(key string, words ...string) {
		if r := c.Do(words...); strings.HasPrefix(r.Raw, "-") {
			t.Fatalf("%.40q: %s", words, r.Raw)
		}
		keys = append(keys, key)
	}
	for i, size := range []int{0, 5, 30, 600, 16 << 10, 70 << 10, 3 << 20} {
		key := "{m}s" + strconv.Itoa(i)
		var b strings.Builder
		for j := 0; b.Len() < size; j++ {
			fmt.Fprintf(&b, "%d.", j*j*7919)
		}
		set(key, "SET", key, b.String()[:size])
	}
	for i := range 2*windowKeys + 7 {
		key := "{m}k" + strconv.Itoa(i)
		set(key, "SET", key, key)
	}
	set("{m}n", "SET", "{m}n", "-12345")
	set("{m}hash", "HSET", "{m}hash", "a", "1", "b", strings.Repeat("v", 300))
	for at := 0; at < 20000; at += 1000 {
		words := []string{"HSET", "{m}large"}
		for i := at; i < at+1000; i++ {
			words = append(words, "field"+strconv.Itoa(i), strings.Repeat("x", i%90))
		}
		c.Do(words...)
	}
	keys = append(keys, "{m}large")
	c.Do("PEXPIRE", "{m}s3", "1000000")
	c.Do("PEXPIRE", "{m}large", "1000000")
	return keys
}

func digests(t testing.TB, c *testkit.Conn, keys []string) string {
	t.Helper()
	return c.Do(append([]string{"DEBUG", "DIGEST-VALUE"}, keys...)...).Raw
}

// Values go from a node to redis-server, from there to a node, from there to a node, and are still the same.
func TestMigrateCarriesEveryValue(t *testing.T) {
	t.Parallel()
	a, c := startServer(t, "enable-debug-command yes"), startServer(t, "enable-debug-command yes")
	b, d := testkit.StartRedis(t, "--enable-debug-command", "yes"), startServer(t, "enable-debug-command yes")
	conns := []*testkit.Conn{a.dial(t), testkit.Dial(t, b.Addr), c.dial(t), d.dial(t)}
	addrs := []string{a.Addr, b.Addr, c.Addr, d.Addr}
	keys := migrateValues(t, conns[0])
	want := digests(t, conns[0], keys)
	for i := range 3 {
		words := append([]string{"MIGRATE", "127.0.0.1", portOf(t, addrs[i+1]), "", "0", "20000", "KEYS"}, keys...)
		mustOK(t, conns[i], words...)
		if got := digests(t, conns[i+1], keys); got != want {
			t.Errorf("after move %d: got %q, want %q", i, got, want)
		}
		if got := conns[i].Do("DBSIZE").Raw; got != ":0\r\n" {
			t.Errorf("after move %d the source has %q keys", i, got)
		}
		if ttl := conns[i+1].Do("PTTL", "{m}large").Value.(int64); ttl < 100_000 || ttl > 1_000_000 {
			t.Errorf("after move %d {m}large has %d ms left", i, ttl)
		}
	}
}

// fakeTarget is a node that answers as the test says.
type fakeTarget struct {
	t *testing.T
	l net.Listener
}

func newFakeTarget(t *testing.T) *fakeTarget {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &fakeTarget{t, l}
}

func (f *fakeTarget) port() string { return portOf(f.t, f.l.Addr().String()) }

// fakePeer is one connection to it.
type fakePeer struct {
	t    *testing.T
	conn net.Conn
	in   *resp.Framer
}

// accept takes the next connection.
func (f *fakeTarget) accept() *fakePeer {
	f.t.Helper()
	conn, err := f.l.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return &fakePeer{f.t, conn, resp.NewFramer(resp.Limits{})}
}

// welcome takes a connection and answers its SELECT.
func (f *fakeTarget) welcome() *fakePeer {
	f.t.Helper()
	p := f.accept()
	p.expect("SELECT", "0")
	p.say("+OK\r\n")
	return p
}

// expect reads a command and compares its first words.
func (p *fakePeer) expect(words ...string) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(replyWait))
	for {
		args, _, ok, err := p.in.Next()
		if err != nil {
			p.t.Fatal(err)
		}
		if ok {
			if got := string(bytes.Join(args, []byte(" "))); !strings.HasPrefix(got, strings.Join(words, " ")) {
				p.t.Fatalf("the target got %.200q, want %q", got, words)
			}
			return
		}
		n, err := p.conn.Read(p.in.Space(4096))
		if err != nil {
			p.t.Fatalf("the target expects %q: %v", words, err)
		}
		p.in.Advance(n)
	}
}

func (p *fakePeer) say(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, text); err != nil {
		p.t.Fatal(err)
	}
}

// movingSlot is a node of a cluster that has keys in the slot of {b}, which is on its way to another one.
func movingSlot(t *testing.T, pairs ...string) (n *testNode, c *testkit.Conn, ask string) {
	t.Helper()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	mustOK(t, conns[0], append([]string{"MSET"}, pairs...)...)
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", "3300", "MIGRATING", conns[1].Do("CLUSTER", "MYID").Value.(string))
	return nodes[0], conns[0], fmt.Sprintf("-ASK 3300 127.0.0.1:%d\r\n", nodes[1].Port)
}

func blocked(t testing.TB, c *testkit.Conn, n int) {
	t.Helper()
	testkit.Eventually(t, replyWait, func() bool {
		return infoField(t, c, "clients", "blocked_clients") == strconv.Itoa(n)
	}, "%d clients wait", n)
}

// afterwards runs a command on a connection of its own and gives its reply.
func afterwards(t testing.TB, n *testNode, words ...string) <-chan string {
	t.Helper()
	c := n.dial(t)
	c.SetTimeout(replyWait)
	out := make(chan string, 1)
	go func() { // ends with the reply
		r, err := c.Try(words...)
		if err != nil {
			r.Raw = err.Error()
		}
		out <- r.Raw
	}()
	return out
}

func gets(t testing.TB, what string, out <-chan string, want string) {
	t.Helper()
	select {
	case got := <-out:
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	case <-time.After(replyWait):
		t.Errorf("%s: no reply", what)
	}
}

// While a key is on its way it can be read; whoever wants to change it waits, and is told where it is. Others go on.
func TestMigrateHoldsWritersBack(t *testing.T) {
	t.Parallel()
	n, c, ask := movingSlot(t, "{b}1", "one", "{b}2", "two", "{b}3", "three")
	f := newFakeTarget(t)
	moved := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "", "0", "20000", "KEYS", "{b}1", "{b}2", "{b}none")
	p := f.welcome()
	p.expect("RESTORE-ASKING", "{b}1", "0")
	p.expect("RESTORE-ASKING", "{b}2", "0")
	if got := c.Do("MGET", "{b}1", "{b}2").Raw; got != "*2\r\n$3\r\none\r\n$3\r\ntwo\r\n" {
		t.Errorf("keys on their way: got %q", got)
	}
	write := afterwards(t, n, "APPEND", "{b}1", "x")
	blocked(t, c, 1)
	kept := afterwards(t, n, "APPEND", "{b}2", "x")
	blocked(t, c, 2)
	tx := n.dial(t)
	mustOK(t, tx, "MULTI")
	tx.Do("GET", "{b}3")
	tx.Do("SET", "{b}1", "x")
	exec := make(chan string, 1)
	go func() { exec <- tx.Do("EXEC").Raw }() // ends with the reply
	blocked(t, c, 3)
	again := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}1", "0", "20000")
	q := f.welcome()
	blocked(t, c, 4)
	mustOK(t, c, "SET", "{b}3", "3")
	p.say("+OK\r\n-ERR no room\r\n")
	gets(t, "MIGRATE", moved, "-ERR Target instance replied with error: ERR no room\r\n")
	gets(t, "a writer of what was moved", write, ask)
	gets(t, "a writer of what was not", kept, ":4\r\n")
	gets(t, "a transaction", exec, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
	gets(t, "another MIGRATE", again, "+NOKEY\r\n")
	_ = q
	if got := c.Do("GET", "{b}1").Raw; got != ask {
		t.Errorf("what was moved: got %q, want %q", got, ask)
	}
	if got := c.Do("CLUSTER", "GETKEYSINSLOT", "3300", "10").Raw; got != "*2\r\n$4\r\n{b}2\r\n$4\r\n{b}3\r\n" && got != "*2\r\n$4\r\n{b}3\r\n$4\r\n{b}2\r\n" {
		t.Errorf("the slot has %q", got)
	}
	// The connections are used again.
	last := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "", "0", "20000", "KEYS", "{b}3")
	q.expect("RESTORE-ASKING", "{b}3", "0")
	q.say("+OK\r\n")
	gets(t, "MIGRATE", last, "+OK\r\n")
	if got := infoField(t, c, "stats", "migrate_cached_sockets"); got != "2" {
		t.Errorf("%s connections are kept, want 2", got)
	}
}

// Whatever the target does, a key is either moved or here, and can be moved again.
func TestMigrateTroubleWithTheTarget(t *testing.T) {
	t.Parallel()
	n := startServer(t)
	c := n.dial(t)
	f := newFakeTarget(t)
	two := func(timeout string) <-chan string {
		mustOK(t, c, "MSET", "{b}1", "one", "{b}2", "two")
		return afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "", "0", timeout, "KEYS", "{b}1", "{b}2")
	}
	has := func(what string, want int) {
		t.Helper()
		if got := c.Do("EXISTS", "{b}1", "{b}2").Raw; got != fmt.Sprintf(":%d\r\n", want) {
			t.Errorf("%s: got %q, want %d keys", what, got, want)
		}
	}
	const reading = "-IOERR error or timeout reading to target instance\r\n"

	r := two("3000") // time for the target to be met, on a busy machine, too
	f.welcome()
	gets(t, "no answer", r, reading)
	has("no answer", 2)

	r = two("20000")
	p := f.welcome()
	p.expect("RESTORE", "{b}1")
	_ = p.conn.Close() // once: it tries again
	p = f.welcome()
	p.expect("RESTORE", "{b}1")
	_ = p.conn.Close()
	gets(t, "closed twice", r, reading)
	has("closed twice", 2)

	r = two("20000")
	p = f.welcome()
	p.say("+OK\r\n")
	_ = p.conn.Close()
	gets(t, "closed in between", r, reading)
	has("closed in between", 1)

	r = two("20000")
	p = f.welcome()
	p.say("+OK\r\n$3\r\nabc\r\n")
	gets(t, "no status", r, reading)
	has("no status", 1)

	r = two("20000")
	p = f.welcome()
	p.say("+OK\r\n-" + strings.Repeat("x", 2*replyKept) + "\r\n")
	gets(t, "a long error", r, "-ERR Target instance replied with error: "+strings.Repeat("x", replyKept-1)+"\r\n")
	has("a long error", 1)

	// That connection is kept, and closed by the target: nobody hears of it.
	_ = p.conn.Close()
	r = two("20000")
	p = f.welcome()
	p.say("+OK\r\n+OK\r\n")
	gets(t, "both taken", r, "+OK\r\n")
	has("both taken", 0)
}

// What was moved is asked for elsewhere only when a replica knows that it is gone here: one that does not know would bring
// the old value back when it takes over.
func TestMigrateWaitsForAReplica(t *testing.T) {
	t.Parallel()
	n, c, ask := movingSlot(t, "{b}1", "one", "{b}2", "two", "{b}3", "three")
	mustOK(t, c, "CONFIG", "SET", "cluster-node-timeout", "60000")
	h := n.attach(t, "7001")
	ack := func() {
		end := n.wal.End()
		h.ack(end)
		testkit.Eventually(t, replyWait, func() bool { return n.primary.Acked(end) == 1 }, "acknowledged")
	}
	ack()
	f := newFakeTarget(t)
	moved := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}1", "0", "60000")
	p := f.welcome()
	p.expect("RESTORE-ASKING", "{b}1", "0")
	p.say("+OK\r\n")
	gets(t, "MIGRATE", moved, "+OK\r\n")
	read := afterwards(t, n, "GET", "{b}1")
	blocked(t, c, 1)
	tx := n.dial(t)
	mustOK(t, tx, "MULTI")
	queued := later(t, tx, "GET", "{b}1")
	blocked(t, c, 2)
	mustOK(t, c, "SET", "{b}2", "2")
	ack()
	gets(t, "a reader of what was moved", read, ask)
	gets(t, "a reader in a transaction", queued, ask)
	if got := c.Do("GET", "{b}1").Raw; got != ask {
		t.Errorf("got %q, want %q", got, ask)
	}
	// The replica stands still: nobody waits for it for longer than the move itself might have taken.
	moved = afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}2", "0", "200")
	p.expect("RESTORE-ASKING", "{b}2", "0")
	p.say("+OK\r\n")
	gets(t, "MIGRATE", moved, "+OK\r\n")
	if got := c.Do("GET", "{b}2").Raw; got != ask {
		t.Errorf("got %q, want %q", got, ask)
	}
	if !strings.Contains(n.log.String(), "although no replica is known to have deleted them keys=1") {
		t.Error("nothing is logged about a replica that stands still")
	}
	_ = h.Net().Close()
	testkit.Eventually(t, replyWait, func() bool { return n.primary.Len() == 0 }, "detached")
	moved = afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}3", "0", "60000")
	p.expect("RESTORE-ASKING", "{b}3", "0")
	p.say("+OK\r\n")
	gets(t, "MIGRATE", moved, "+OK\r\n")
	if got := c.Do("GET", "{b}3").Raw; got != ask {
		t.Errorf("no replica: got %q, want %q", got, ask)
	}
}

// A key is deleted only where its slot is still what it was.
func TestMigrateDeletesNothingInAnotherSlotState(t *testing.T) {
	n, c, ask := movingSlot(t, "{b}1", "one")
	f := newFakeTarget(t)
	moved := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}1", "0", "20000")
	p := f.welcome()
	p.expect("RESTORE-ASKING", "{b}1", "0")
	// While a failover waits for the stream to stand still, nothing is deleted.
	n.pauseWrites(pauseFailover, true)
	p.say("+OK\r\n")
	blocked(t, c, 1)
	if got := c.Do("GET", "{b}1").Raw; got != "$3\r\none\r\n" {
		t.Errorf("got %q", got)
	}
	n.pauseWrites(pauseFailover, false)
	gets(t, "MIGRATE", moved, "+OK\r\n")
	if got := c.Do("GET", "{b}1").Raw; got != ask {
		t.Errorf("got %q", got)
	}
	mustOK(t, c, "CLUSTER", "SETSLOT", "3300", "STABLE")
	testkit.Eventually(t, replyWait, func() bool { // it might have come back
		return c.Do("SET", "{b}1", "again").Raw == "+OK\r\n"
	}, "the key is made anew")
	moved = afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "{b}1", "0", "20000")
	p.expect("RESTORE-ASKING", "{b}1", "0")
	mustOK(t, c, "CLUSTER", "SETSLOT", "3300", "MIGRATING", n.otherID(t, c))
	p.say("+OK\r\n")
	gets(t, "MIGRATE", moved, "-"+textNotMoved+"slot 3300 is not any more what it was\r\n")
	mustOK(t, c, "SET", "{b}1", "still here")
}

// otherID is the id of the other node of two.
func (n *testNode) otherID(t testing.TB, c *testkit.Conn) string {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(c.Do("CLUSTER", "NODES").Value)) {
		if !strings.Contains(line, "myself") {
			return strings.Fields(line)[0]
		}
	}
	t.Fatal("there is no other node")
	return ""
}

// A value that cannot be read to its end stays, and the others go.
func TestMigrateOfAViewThatIsTooOld(t *testing.T) {
	n := newServer(t)
	n.tune = func(o *engine.Options, _ *wal.Options) { o.IteratorLifetime = 1 }
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c, f := n.dial(t), newFakeTarget(t)
	words := []string{"HSET", "{b}large"}
	for i := range 2000 {
		words = append(words, "field"+strconv.Itoa(i), strings.Repeat("x", 50))
	}
	c.Do(words...)
	mustOK(t, c, "MSET", "{b}1", "one", "{b}2", "two")
	moved := afterwards(t, n, "MIGRATE", "127.0.0.1", f.port(), "", "0", "20000", "KEYS", "{b}1", "{b}large", "{b}2")
	p := f.welcome()
	p.expect("RESTORE", "{b}1", "0")
	p.expect("RESTORE", "{b}2", "0")
	p.say("+OK\r\n+OK\r\n")
	select {
	case got := <-moved:
		if !strings.HasPrefix(got, "-IOERR ") || !strings.Contains(got, engine.ErrIterTooOld.Error()) {
			t.Errorf("got %q", got)
		}
	case <-time.After(replyWait):
		t.Fatal("no reply")
	}
	if got := c.Do("KEYS", "*").Raw; got != "*1\r\n$8\r\n{b}large\r\n" {
		t.Errorf("what is left: %q", got)
	}
}

func TestMigrateIsNotForTransactions(t *testing.T) {
	c := startServer(t).dial(t)
	mustOK(t, c, "MULTI")
	if got := c.Do("MIGRATE", "127.0.0.1", "1", "a", "0", "1").Raw; !strings.HasPrefix(got, "-ERR MIGRATE is not allowed in a transaction") {
		t.Errorf("got %q", got)
	}
	if got := c.Do("EXEC").Raw; got != "-EXECABORT Transaction discarded because of previous errors.\r\n" {
		t.Errorf("got %q", got)
	}
}

// A key that expired, and that nobody looks at, goes when a tool wants to move it: whoever empties a slot by GETKEYSINSLOT
// and MIGRATE would meet it for ever.
func TestMigrateDeletesTheExpired(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	mustOK(t, conns[1], "CLUSTER", "SETSLOT", "3300", "IMPORTING", conns[0].Do("CLUSTER", "MYID").Value.(string))
	mustOK(t, conns[1], "ASKING")
	mustOK(t, conns[1], "SET", "{b}1", "x", "PX", "1")
	testkit.Eventually(t, replyWait, func() bool {
		conns[1].Do("ASKING")
		return conns[1].Do("EXISTS", "{b}1").Raw == ":0\r\n"
	}, "the key expires")
	if got := conns[1].Do("CLUSTER", "COUNTKEYSINSLOT", "3300").Raw; got != ":1\r\n" {
		t.Fatalf("the slot has %q keys: it is arriving, so nothing may expire in it by itself", got)
	}
	if got := conns[1].Do("MIGRATE", "127.0.0.1", portOf(t, nodes[0].Addr), "{b}1", "0", "1000").Raw; got != "+NOKEY\r\n" {
		t.Errorf("got %q", got)
	}
	if got := conns[1].Do("CLUSTER", "COUNTKEYSINSLOT", "3300").Raw; got != ":0\r\n" {
		t.Errorf("the slot has %q keys", got)
	}
}

func FuzzReplyReader(f *testing.F) {
	f.Add([]byte("+OK\r\n-ERR x\n\n"), 1)
	f.Add(bytes.Repeat([]byte("y"), replyMost+replyRead+1), 1<<20)
	f.Fuzz(func(t *testing.T, src []byte, step int) {
		r := replyReader{src: stepReader{bytes.NewReader(src), max(step, 1)}}
		var whole []byte
		for {
			line, err := r.line()
			if cap(r.buf) > 4*replyMost {
				t.Fatalf("a buffer of %d bytes for lines of %d at most", cap(r.buf), replyMost)
			}
			if err != nil {
				break
			}
			end := bytes.IndexByte(src[len(whole):], '\n')
			if end < 0 {
				t.Fatalf("a line that is none: %.60q", line)
			}
			want := bytes.TrimSuffix(src[len(whole):len(whole)+end], []byte("\r"))
			if want = want[:min(len(want), replyKept)]; !bytes.Equal(line, want) {
				t.Fatalf("got %.60q, want %.60q", line, want)
			}
			whole = src[:len(whole)+end+1]
		}
	})
}

// stepReader gives at most so many bytes at a time.
type stepReader struct {
	src  io.Reader
	most int
}

func (s stepReader) Read(b []byte) (int, error) { return s.src.Read(b[:min(len(b), s.most)]) }
