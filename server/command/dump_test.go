package command

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/replication/rdb"
)

// bulkOf gives the content of a bulk string reply.
func bulkOf(t *testing.T, raw string) string {
	t.Helper()
	r, n, err := resp.ParseReply([]byte(raw))
	if err != nil || n != len(raw) || raw[0] != '$' {
		t.Fatalf("no bulk string: %.80q (%v)", raw, err)
	}
	return string(r.Str)
}

// TestDumpLarge: values that are rows go to redis-server and come back as they were.
func TestDumpLarge(t *testing.T) {
	n := newNode(t)
	client := testkit.Dial(t, testkit.StartRedis(t).Addr)
	holes := strings.Repeat("\x00", 50_000)
	text := strings.Repeat("some text ", 9_000) + holes + "end"
	n.do("SET", "s", text)
	n.do("SETRANGE", "sparse", "300000", "x")
	fillHash(t, n, "h", 20_000)
	n.do("HSET", "middling", "f", strings.Repeat("m", 20_000), "g", strings.Repeat("m", 2000))
	for i := range 100 {
		// Few and short enough for a listpack, too long to be packed in the record.
		n.do("HSET", "listpack", fmt.Sprintf("%060d", i), strings.Repeat("l", 60))
	}
	for _, applied := range []bool{false, true} {
		if applied {
			applyPending(t, n.store)
		}
		for _, key := range []string{"s", "sparse", "h", "middling", "listpack"} {
			payload := bulkOf(t, n.do("DUMP", key))
			if got := client.Do("RESTORE", key, "0", payload, "REPLACE").Raw; got != "+OK\r\n" {
				t.Fatalf("redis-server restores %s of %d bytes: %q", key, len(payload), got)
			}
			if got := n.do("RESTORE", "own", "0", payload, "REPLACE"); got != "+OK\r\n" {
				t.Fatalf("RESTORE of own dump of %s gives %q", key, got)
			}
			back := bulkOf(t, client.Do("DUMP", key).Raw)
			if got := n.do("RESTORE", "back", "0", back, "REPLACE"); got != "+OK\r\n" {
				t.Fatalf("RESTORE of redis-server's dump of %s gives %q", key, got)
			}
			read := []string{"GET", key}
			if n.do("TYPE", key) == "+hash\r\n" {
				read[0] = "HGETALL"
			}
			want := n.do(read...)
			for _, copied := range []string{"own", "back"} {
				if got := n.do(read[0], copied); got != want && sortPairs(t, got) != sortPairs(t, want) {
					t.Errorf("%s: %s has %d bytes, want %d", key, copied, len(got), len(want))
				}
				if got, want := n.do("OBJECT", "ENCODING", copied), client.Do("OBJECT", "ENCODING", key).Raw; got != want {
					t.Errorf("%s: encoding of %s is %q, want %q", key, copied, got, want)
				}
			}
			if got := client.Do(read...).Raw; got != want && sortPairs(t, got) != sortPairs(t, want) {
				t.Errorf("%s: redis-server has %d bytes, want %d", key, len(got), len(want))
			}
		}
	}
	checkReplay(t, n)
}

// sortPairs gives the pairs of a hash in order.
func sortPairs(t *testing.T, raw string) string {
	t.Helper()
	words := bulkValues(t, raw)
	var pairs []string
	for i := 0; i+1 < len(words); i += 2 {
		pairs = append(pairs, words[i]+"="+words[i+1])
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\n")
}

// TestDumpSizes: the length that is announced is the length that is sent, around each border between forms.
func TestDumpSizes(t *testing.T) {
	n := newNode(t)
	for _, length := range []int{
		0, 1, 63, 64, layout.InlineMax, layout.InlineMax + 1, 16383, 16384, layout.ChunkedOver, layout.ChunkedOver + 1,
		layout.ChunkedOver + layout.ChunkBytes, 200_001,
	} {
		value := strings.Repeat("z", length)
		n.do("SET", "k", value)
		payload := bulkOf(t, n.do("DUMP", "k"))
		if got := n.do("RESTORE", "to", "0", payload, "REPLACE"); got != "+OK\r\n" {
			t.Fatalf("length %d: RESTORE gives %q", length, got)
		}
		if got := bulkOf(t, n.do("GET", "to")); got != value {
			t.Errorf("length %d comes back as %d", length, len(got))
		}
	}
}

// TestRestoreUnsupported names what is asked for and not there.
func TestRestoreUnsupported(t *testing.T) {
	n := newNode(t)
	list := rdb.AppendList(nil, slices.Values([][]byte{[]byte("a")}))
	deadlines := rdb.AppendHashDeadlines(nil, 1, slices.Values([]rdb.Field{
		{Name: []byte("f"), Value: []byte("v"), DeadlineMs: 33177117420000},
	}))
	for body, want := range map[string]string{
		string(list):      "-ERR values of type list are not supported by this server\r\n",
		string(deadlines): "-ERR hash fields with a deadline are not supported by this server\r\n",
		"\xff\x00":        "-ERR Bad data format\r\n",
		"":                "-ERR Bad data format\r\n",
	} {
		if got := n.do("RESTORE", "k", "0", string(rdb.AppendDump(nil, []byte(body)))); got != want {
			t.Errorf("RESTORE of %q gives %q, want %q", body, got, want)
		}
	}
	if n.log.Len() != 0 {
		t.Errorf("logged %q", n.log.Bytes())
	}
}

// FuzzRestore gives RESTORE values whose checksum is right. It takes them or refuses them; refused, nothing is
// left in the transaction, not even rows that nobody names.
func FuzzRestore(f *testing.F) {
	pairs := func(yield func(k, v []byte) bool) {
		for i := range 200 {
			if !yield(fmt.Append(nil, "field", i), []byte("value")) {
				return
			}
		}
	}
	f.Add(rdb.AppendStringValue(nil, []byte("text")))
	f.Add(rdb.AppendStringValue(nil, bytes.Repeat([]byte("text"), 20_000)))
	f.Add(rdb.AppendHash(nil, 200, pairs, rdb.Limits{}))
	f.Add(rdb.AppendHash(nil, 200, pairs, rdb.Limits{Entries: 1000, Value: 1000}))
	broken := rdb.AppendHash(nil, 200, pairs, rdb.Limits{})
	f.Add(broken[:len(broken)-1])
	f.Add(append(broken, broken[len(broken)-12:]...))
	f.Fuzz(func(t *testing.T, body []byte) {
		n := newNode(t)
		payload := rdb.AppendDump(nil, body)
		w := &resp.Writer{}
		c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w, InMulti: true}
		args := [][]byte{[]byte("RESTORE"), []byte("k"), []byte("0"), payload}
		cmd, _ := n.table.Lookup(args)
		c.Reset(cmd, args)
		n.txn.Begin([]uint16{slot.Of(args[1])}, true, n.now)
		failed := c.Execute() != nil
		k, err := n.txn.Key(args[1])
		if err != nil {
			t.Fatal(err)
		}
		if failed != !k.Exists() {
			t.Fatalf("refused: %v, the key exists: %v", failed, k.Exists())
		}
		if failed && n.txn.Dirty() != 0 {
			t.Fatalf("refused, and %d changes are left", n.txn.Dirty())
		}
		if failed {
			// The generations that it may have used must be empty.
			probe := *k
			probe.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows}
			last := n.txn.NewGeneration()
			for probe.Rec.Gen = 0; probe.Rec.Gen < last; probe.Rec.Gen++ {
				for _, probe.Rec.Type = range []layout.Type{layout.HashType, layout.String} {
					it, err := n.txn.Elements(&probe, nil)
					if err != nil {
						t.Fatal(err)
					}
					if it.Valid() {
						t.Fatalf("a row %q of generation %d is left", it.Key(), probe.Rec.Gen)
					}
					if err := it.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if _, err := n.txn.Commit(); err != nil {
			t.Fatal(err)
		}
		if failed {
			return
		}
		first := n.do("DUMP", "k")
		if got := n.do("RESTORE", "again", "0", bulkOf(t, first)); got != "+OK\r\n" {
			t.Fatalf("what DUMP gives is refused: %q", got)
		}
	})
}
