package command

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// The node's part of what keyspace commands ask for: nothing waits for the log here, and accesses are not counted.

func (n *node) ReplyAfter(*Ctx, int64)                   {}
func (n *node) AccessInfo(uint16, []byte) (int64, int64) { return 0, 5 }
func (n *node) Sender(*Ctx, uint16) Sender               { return Sender{} }

func (n *node) SetAccessInfo(*Ctx, []byte, int64, int64) {}

// multi runs commands as one EXEC does, and gives their raw replies.
func (n *node) multi(cmds ...string) []string {
	n.t.Helper()
	w := &resp.Writer{Proto: n.proto}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w, InMulti: true}
	n.txn.BeginAll(true, n.now)
	var replies []string
	for _, line := range cmds {
		args, _ := resp.SplitArgs(nil, []byte(line))
		cmd, ok := n.table.Lookup(args)
		if !ok {
			n.t.Fatalf("%q is no command", line)
		}
		c.Reset(cmd, args)
		w.Buf = w.Buf[:0]
		if err := c.Execute(); err != nil {
			c.ReplyError(err)
		}
		n.finish(w, c)
		replies = append(replies, string(w.Buf))
	}
	if _, err := n.txn.Commit(); err != nil {
		n.t.Fatal(err)
	}
	return replies
}

// TestKeyspaceDifferential runs random commands against cairn and redis-server and compares the replies.
func TestKeyspaceDifferential(t *testing.T) {
	const steps = 8000
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("resp", proto), func(t *testing.T) {
			n := newNode(t)
			n.proto = proto
			client := testkit.Dial(t, testkit.StartRedis(t).Addr)
			client.Do("HELLO", fmt.Sprint(proto))
			rnd := rand.New(rand.NewPCG(uint64(proto), 11))
			for step := range steps {
				if step%89 == 0 {
					applyPending(t, n.store)
				}
				args := randomKeyspaceCommand(rnd)
				n.now = time.Now().UnixMilli()
				if args[0] == "carry" {
					carry(t, n, client, rnd.IntN(2) == 0, args[1], args[2])
					continue
				}
				got, want := n.do(args...), client.Do(args...).Raw
				switch args[0] {
				case "KEYS", "SCAN", "HGETALL":
					got, want = sortReply(t, got), sortReply(t, want)
				case "TTL", "PTTL":
					got = nearTo(got, want, args[0] == "PTTL")
				}
				if got != want {
					t.Fatalf("step %d: %q\ngives %q\nwant  %q", step, args, got, want)
				}
			}
			checkReplay(t, n)
		})
	}
}

// nearTo gives want when got is about the same number: the two clocks are read at different moments.
func nearTo(got, want string, ms bool) string {
	g, errG := strconv.Atoi(strings.Trim(got, ":\r\n"))
	w, errW := strconv.Atoi(strings.Trim(want, ":\r\n"))
	far := 10
	if ms {
		far *= 1000
	}
	if errG == nil && errW == nil && g > 0 && w > 0 && max(g-w, w-g) < far {
		return want
	}
	return got
}

// carry dumps a key of one side and restores it on both.
func carry(t *testing.T, n *node, client *testkit.Conn, fromCairn bool, from, to string) {
	t.Helper()
	raw := client.Do("DUMP", from).Raw
	if fromCairn {
		raw = n.do("DUMP", from)
	}
	if raw[0] == '_' || raw == "$-1\r\n" {
		return
	}
	_, payload, _ := strings.Cut(raw, "\r\n")
	args := []string{"RESTORE", to, "0", payload[:len(payload)-2], "REPLACE"}
	if got, want := n.do(args...), client.Do(args...).Raw; got != want || want != "+OK\r\n" {
		t.Fatalf("%q gives %q here, %q there", args, got, want)
	}
}

func randomKeyspaceCommand(rnd *rand.Rand) []string {
	pick := func(words ...string) string { return words[rnd.IntN(len(words))] }
	key := func() string {
		if rnd.IntN(2) == 0 {
			return fmt.Sprint("{t}", rnd.IntN(4))
		}
		return fmt.Sprint("k", rnd.IntN(4))
	}
	value := func() string {
		return pick("1", "12345", "-7", "word", "", strings.Repeat("long ", 20), strings.Repeat("v", 600), strings.Repeat("0123456789", 7000))
	}
	long := strings.Repeat("x", 65)
	seconds := func() string {
		return pick("100000000", "200000000", "300000000", "-1", "0", "x", "9223372036854775807")
	}
	at := func() string { return pick("33177117420", "33177117421", "1", "-5", "x", "9223372036854775807") }
	var cmd []string
	switch rnd.IntN(26) {
	case 0, 1, 2:
		cmd = []string{"SET", key(), value()}
	case 3, 4:
		cmd = []string{"HSET", key(), pick("f1", "f2", "f3", long), pick("v", "42", long)}
	case 5:
		cmd = []string{pick("DEL", "UNLINK"), key(), key()}
	case 6:
		cmd = []string{pick("EXISTS", "TOUCH"), key(), key(), key()}
	case 7:
		cmd = []string{"TYPE", key()}
	case 8, 9, 10:
		cmd = []string{pick("RENAME", "RENAMENX"), key(), key()}
	case 11, 12:
		cmd = append([]string{"COPY", key(), key()}, [][]string{nil, {"REPLACE"}, {"DB", "0"}, {"DB", "0", "REPLACE"}, {"DB"}}[rnd.IntN(5)]...)
	case 13:
		cmd = append([]string{pick("EXPIRE", "EXPIREAT"), key(), seconds()}, [][]string{nil, {"NX"}, {"XX"}, {"GT"}, {"LT"}, {"XX", "GT"}, {"NX", "GT"}}[rnd.IntN(7)]...)
	case 14:
		cmd = append([]string{pick("EXPIREAT", "EXPIREAT", "PEXPIREAT"), key(), at()}, [][]string{nil, {"NX"}, {"XX"}, {"GT"}, {"LT"}}[rnd.IntN(5)]...)
	case 15:
		cmd = []string{pick("TTL", "PTTL"), key()}
	case 16:
		cmd = []string{"PERSIST", key()}
	case 17:
		cmd = []string{"DBSIZE"}
	case 18:
		cmd = []string{"KEYS", pick("*", "k*", "{t}*", "{t}1", "k[0-2]", "*1", "{t}?")}
	case 19:
		cmd = []string{"SCAN", "0", "COUNT", "1000", pick("MATCH", "TYPE"), pick("*", "{t}*", "k1", "string", "hash", "none")}
	case 20:
		cmd = []string{"OBJECT", "ENCODING", key()}
	case 21:
		if cmd = []string{"FLUSHALL"}; rnd.IntN(4) > 0 {
			cmd = []string{"GET", key()}
		}
	case 22:
		cmd = []string{"HGETALL", key()}
	case 23, 24:
		return []string{"carry", key(), key()}
	case 25:
		cmd = []string{"APPEND", key(), "x"}
	}
	if rnd.IntN(50) == 0 && len(cmd) > 1 {
		cmd = cmd[:len(cmd)-1]
	} else if rnd.IntN(50) == 0 {
		cmd = append(cmd, "more")
	}
	return cmd
}

// TestMoveLarge moves and copies values that are rows, within a slot and to another.
func TestMoveLarge(t *testing.T) {
	const fields, length = 3000, 300_000
	for _, applied := range []bool{false, true} {
		n := newNode(t)
		settle := func() {
			if applied {
				applyPending(t, n.store)
			}
		}
		text := strings.Repeat("abcdefgh", length/8)
		fillHash(t, n, "{t}h", fields)
		n.do("SET", "{t}s", text)
		settle()
		for _, cmd := range []string{
			"COPY {t}h {t}h2", "COPY {t}s {t}s2", "COPY {t}h h3", "COPY {t}s s3",
			"RENAME {t}h {t}h4", "RENAME {t}s {t}s4", "RENAME {t}h4 h5", "RENAME {t}s4 s5",
		} {
			if got := n.do(strings.Fields(cmd)...); got != "+OK\r\n" && got != ":1\r\n" {
				t.Fatalf("%s gives %q", cmd, got)
			}
			settle()
		}
		n.do("HSET", "h3", "f1", "other")
		n.do("DEL", "h3", "s3")
		settle()
		for _, key := range []string{"{t}h2", "h5"} {
			if got := n.do("HLEN", key); got != fmt.Sprintf(":%d\r\n", fields) {
				t.Fatalf("HLEN %s gives %q", key, got)
			}
			if got := bulkValues(t, n.do("HGETALL", key)); len(got) != 2*fields {
				t.Fatalf("HGETALL %s gives %d words", key, len(got))
			}
		}
		for _, key := range []string{"{t}s2", "s5"} {
			if got := n.do("GET", key); got != fmt.Sprintf("$%d\r\n%s\r\n", length, text) {
				t.Fatalf("GET %s gives %d bytes", key, len(got))
			}
		}
		if got := n.do("EXISTS", "{t}h", "{t}s", "{t}h4", "{t}s4"); got != ":0\r\n" {
			t.Fatalf("%q old names are left", got)
		}
		checkReplay(t, n)
	}
}

// TestKeyspaceInMulti: commands inside EXEC see what those before them did.
func TestKeyspaceInMulti(t *testing.T) {
	n := newNode(t)
	n.do("SET", "old", "1")
	n.do("SET", "gone", "1")
	got := n.multi("SET new 1", "DEL gone", "DBSIZE", "KEYS *", "SCAN 0 COUNT 100", "FLUSHALL", "DBSIZE",
		"RANDOMKEY", "SET last 1", "DBSIZE", "RANDOMKEY", "KEYS l*", "RENAME last {last}2", "RENAME {last}2 last", "KEYS *")
	for i, want := range map[int]string{
		2: ":2\r\n", 6: ":0\r\n", 7: "$-1\r\n", 9: ":1\r\n", 10: "$4\r\nlast\r\n", 11: "*1\r\n$4\r\nlast\r\n",
		14: "*1\r\n$4\r\nlast\r\n",
	} {
		if got[i] != want {
			t.Errorf("reply %d is %q, want %q", i, got[i], want)
		}
	}
	for _, i := range []int{3, 4} {
		if words := bulkValues(t, got[i]); !slices.Contains(words, "old") || !slices.Contains(words, "new") || slices.Contains(words, "gone") {
			t.Errorf("reply %d lists %q", i, words)
		}
	}
	if got := n.do("DBSIZE"); got != ":1\r\n" {
		t.Errorf("DBSIZE after it is %q", got)
	}
	checkReplay(t, n)
}

// TestForeignSlots: keys of slots that belong to other nodes are there, but only cluster commands see them.
func TestForeignSlots(t *testing.T) {
	n := newNode(t)
	for i := range 100 {
		n.do("SET", fmt.Sprint("k", i), "v")
	}
	routing := &engine.Routing{Cluster: true}
	var own []string
	for i := range 100 {
		name := fmt.Sprint("k", i)
		if s := slot.Of([]byte(name)); s < 8000 {
			routing.Slots[s] = engine.SlotOwned
			own = append(own, name)
		}
	}
	n.store.SetRouting(routing)
	slices.Sort(own)
	if got := n.do("DBSIZE"); got != fmt.Sprintf(":%d\r\n", len(own)) {
		t.Errorf("DBSIZE gives %q, %d keys are this node's", got, len(own))
	}
	keys := bulkValues(t, n.do("KEYS", "*"))
	if slices.Sort(keys); !slices.Equal(keys, own) {
		t.Errorf("KEYS gives %q, want %q", keys, own)
	}
	if keys = scanKeys(t, n, 7, nil); !slices.Equal(keys, own) {
		t.Errorf("SCAN gives %q, want %q", keys, own)
	}
	for range 50 {
		if got := bulkValues(t, n.do("RANDOMKEY")); len(got) != 1 || !slices.Contains(own, got[0]) {
			t.Fatalf("RANDOMKEY gives %q", got)
		}
	}
}

// TestExpiredKeysAreHidden: they still count in DBSIZE, and nothing else shows them.
func TestExpiredKeysAreHidden(t *testing.T) {
	n := newNode(t)
	n.do("SET", "dead", "1", "PX", "100")
	n.do("SET", "alive", "1", "PX", "1000")
	n.now += 100
	if got := n.do("EXISTS", "dead"); got != ":1\r\n" {
		t.Fatalf("a key is gone within the millisecond of its deadline: %q", got)
	}
	n.now++
	for cmd, want := range map[string]string{
		"EXISTS dead": ":0\r\n", "TTL dead": ":-2\r\n", "TYPE dead": "+none\r\n", "DBSIZE": ":2\r\n",
		"KEYS *": "*1\r\n$5\r\nalive\r\n", "SCAN 0": "*2\r\n$1\r\n0\r\n*1\r\n$5\r\nalive\r\n",
		"RANDOMKEY": "$5\r\nalive\r\n", "DUMP dead": "$-1\r\n", "OBJECT ENCODING dead": "$-1\r\n",
	} {
		if got := n.do(strings.Fields(cmd)...); got != want {
			t.Errorf("%s gives %q, want %q", cmd, got, want)
		}
	}
	n.log.Reset()
	if got := n.do("EXPIRE", "dead", "100"); got != ":0\r\n" {
		t.Errorf("EXPIRE of a dead key gives %q", got)
	}
	if got := describeLog(t, n.log.Bytes()); got != "DEL dead\n" {
		t.Errorf("logged %q", got)
	}
	n.now += 1000
	if got := n.do("RANDOMKEY"); got != "$-1\r\n" {
		t.Errorf("RANDOMKEY among dead keys gives %q", got)
	}
}
