package command

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// TestHashDifferential runs random commands against cairn and redis-server and compares the replies.
func TestHashDifferential(t *testing.T) {
	const steps = 6000
	for _, c := range []struct{ proto, maxEntries, maxValue int }{{2, 8, 20}, {3, 128, 64}} {
		t.Run(fmt.Sprint("resp", c.proto), func(t *testing.T) {
			n := newNode(t)
			n.proto = c.proto
			server := testkit.StartRedis(t,
				"--hash-max-listpack-entries", fmt.Sprint(c.maxEntries), "--hash-max-listpack-value", fmt.Sprint(c.maxValue))
			client := testkit.Dial(t, server.Addr)
			client.Do("HELLO", fmt.Sprint(c.proto))
			n.settings.HashMaxEntries.Store(int64(c.maxEntries))
			n.settings.HashMaxValue.Store(int64(c.maxValue))
			rnd := rand.New(rand.NewPCG(uint64(c.proto), 7))
			for step := range steps {
				args := randomHashCommand(rnd, c.maxValue)
				if step%97 == 0 {
					applyPending(t, n.store)
				}
				got, want := n.do(args...), client.Do(args...).Raw
				if unordered(args) {
					got, want = sortReply(t, got), sortReply(t, want)
				}
				if got != want {
					t.Fatalf("step %d: %q\ngives %q\nwant  %q", step, args, got, want)
				}
			}
			if c.maxEntries == 128 { // the node that replays has the default settings
				checkReplay(t, n)
			}
		})
	}
}

// applyPending brings what is pending to the store below, so that reads have to look there.
func applyPending(t *testing.T, s *engine.Store) {
	t.Helper()
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
}

// randomHashCommand makes a command on few keys and fields, sometimes with an argument too few or too many. In the
// shapes K is a key, F a field, V a value.
func randomHashCommand(rnd *rand.Rand, maxValue int) []string {
	shapes := []string{
		"HSET K F V", "HSET K F V F V F V", "HMSET K F V F V", "HSETNX K F V", "HGET K F", "HMGET K F F F", "HGETALL K",
		"HKEYS K", "HVALS K", "HDEL K F", "HDEL K F F F", "HDEL K F F F F F", "HLEN K", "HEXISTS K F", "HSTRLEN K F",
		"HINCRBY K F V", "HINCRBY K F V", "HINCRBYFLOAT K F V", "HRANDFIELD K 100 WITHVALUES",
		"HSCAN K 0 COUNT 1000 MATCH f*1*", "OBJECT ENCODING K", "SET string V",
	}
	cmd := strings.Fields(shapes[rnd.IntN(len(shapes))])
	if rnd.IntN(170) == 0 {
		cmd = []string{"DEL", "K"}
	}
	for i, word := range cmd {
		switch word {
		case "K":
			cmd[i] = fmt.Sprint("h", rnd.IntN(4))
			if rnd.IntN(40) == 0 {
				cmd[i] = "string"
			}
		case "F":
			cmd[i] = fmt.Sprint("f", rnd.IntN(14))
		case "V":
			cmd[i] = randomHashValue(rnd, maxValue)
		}
	}
	switch rnd.IntN(100) {
	case 0, 1:
		cmd = cmd[:len(cmd)-1]
	case 2, 3:
		cmd = append(cmd, "more")
	}
	return cmd
}

func randomHashValue(rnd *rand.Rand, maxValue int) string {
	switch rnd.IntN(12) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("v", maxValue-5+rnd.IntN(7))
	case 2:
		return "1.5"
	case 3:
		return "9223372036854775807"
	case 4:
		return "word"
	}
	return fmt.Sprint(rnd.IntN(200) - 100)
}

func unordered(args []string) bool {
	return slices.Contains([]string{"HGETALL", "HKEYS", "HVALS", "HRANDFIELD", "HSCAN"}, args[0])
}

// sortReply sorts the lines of a reply. That a value stands behind its field is looked at where the fields tell
// their values.
func sortReply(t *testing.T, raw string) string {
	t.Helper()
	lines := strings.Split(raw, "\r\n")
	slices.Sort(lines)
	return strings.Join(lines, "\r\n")
}

// bulkValues parses a reply of strings, nested ones in order.
func bulkValues(t *testing.T, raw string) (out []string) {
	t.Helper()
	r, n, err := resp.ParseReply([]byte(raw))
	if err != nil || n != len(raw) {
		t.Fatalf("reply of %d bytes reads back as %d: %v", len(raw), n, err)
	}
	var walk func(r resp.Reply)
	walk = func(r resp.Reply) {
		if len(r.Elems) == 0 && len(r.Str) > 0 {
			out = append(out, string(r.Str))
		}
		for _, e := range r.Elems {
			walk(e)
		}
	}
	walk(r)
	return out
}

// fillHash makes a hash of n fields f0, f1, ... with values v0, v1, ..., in commands of 1000 fields.
func fillHash(t *testing.T, n *node, key string, fields int) {
	t.Helper()
	for at := 0; at < fields; {
		cmd := []string{"HSET", key}
		for range min(1000, fields-at) {
			cmd = append(cmd, fmt.Sprint("f", at), fmt.Sprint("v", at))
			at++
		}
		if got, want := n.do(cmd...), fmt.Sprintf(":%d\r\n", (len(cmd)-2)/2); got != want {
			t.Fatalf("HSET of %d fields gives %q", (len(cmd)-2)/2, got)
		}
	}
}

func TestHashLarge(t *testing.T) {
	const fields = 20000
	n := newNode(t)
	fillHash(t, n, "h", fields)
	for range 2 {
		for _, cmd := range []string{"HGETALL", "HKEYS", "HVALS"} {
			got := bulkValues(t, n.do(cmd, "h"))
			seen := make(map[string]bool)
			for i, v := range got {
				if cmd == "HGETALL" && i%2 == 1 && v[1:] != got[i-1][1:] {
					t.Fatalf("HGETALL has %q for %q", v, got[i-1])
				}
				seen[v] = true
			}
			if want := fields * (1 + len(cmd)/7); len(got) != want || len(seen) != want {
				t.Fatalf("%s gives %d strings, %d different, want %d", cmd, len(got), len(seen), want)
			}
		}
		applyPending(t, n.store)
	}
	var rec layout.Record
	n.txn.Begin([]uint16{slot.Of([]byte("h"))}, false, engine.Forever)
	k, err := n.txn.Key([]byte("h"))
	if err != nil {
		t.Fatal(err)
	}
	rec = k.Rec
	n.txn.End()
	if rec.Count != fields || rec.Bytes != uint64(len(strings.Join(bulkValues(t, n.do("HGETALL", "h")), ""))) {
		t.Errorf("the record says %d fields, %d bytes", rec.Count, rec.Bytes)
	}
	for at := 0; at < fields; at += 500 {
		cmd := []string{"HDEL", "h"}
		for i := range 500 {
			cmd = append(cmd, fmt.Sprint("f", at+i))
		}
		if got := n.do(cmd...); got != ":500\r\n" {
			t.Fatalf("HDEL from %d gives %q", at, got)
		}
	}
	if got := n.do("EXISTS", "h"); got != ":0\r\n" {
		t.Errorf("emptied hash: EXISTS gives %q", got)
	}
	checkReplay(t, n)
}

func TestHashLongValues(t *testing.T) {
	n := newNode(t)
	long := strings.Repeat("0123456789", 30000)
	n.do("HSET", "h", "long", long, long, "short")
	for range 2 {
		if got := n.do("HGET", "h", "long"); got != fmt.Sprintf("$%d\r\n%s\r\n", len(long), long) {
			t.Errorf("HGET gives %d bytes", len(got))
		}
		if got := n.do("HMGET", "h", "nosuch", "long", long); got != fmt.Sprintf("*3\r\n$-1\r\n$%d\r\n%s\r\n$5\r\nshort\r\n", len(long), long) {
			t.Errorf("HMGET gives %d bytes", len(got))
		}
		if got := bulkValues(t, n.do("HGETALL", "h")); len(got) != 4 || !slices.Contains(got, long) {
			t.Errorf("HGETALL gives %d strings", len(got))
		}
		if got := n.do("HSTRLEN", "h", "long"); got != ":300000\r\n" {
			t.Errorf("HSTRLEN gives %q", got)
		}
		applyPending(t, n.store)
	}
}

// A hash that Redis would keep in a listpack of any size has rows beyond PackedHashMax, and says listpack.
func TestHashPackedLimit(t *testing.T) {
	n := newNode(t)
	n.settings.HashMaxEntries.Store(1 << 20)
	n.settings.HashMaxValue.Store(1 << 30)
	value := strings.Repeat("v", 1000)
	for i := range 20 {
		n.do("HSET", "h", fmt.Sprint("f", i), value)
	}
	n.do("HSET", "long", "f", strings.Repeat("v", 100_000))
	for _, key := range []string{"h", "long"} {
		n.txn.Begin([]uint16{slot.Of([]byte(key))}, false, engine.Forever)
		k, err := n.txn.Key([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		if k.Rec.Form != layout.Rows || k.Rec.Enc != layout.HashListpack || len(k.Rec.Body) != 0 {
			t.Errorf("%s has form %d, enc %d, %d bytes of body", key, k.Rec.Form, k.Rec.Enc, len(k.Rec.Body))
		}
		n.txn.End()
	}
	if got := bulkValues(t, n.do("HGETALL", "h")); len(got) != 40 {
		t.Errorf("HGETALL gives %d strings", len(got))
	}
	n.settings.HashMaxEntries.Store(20)
	n.do("HSET", "h", "one more", "v")
	if got := n.do("OBJECT", "ENCODING", "h"); got != "$9\r\nhashtable\r\n" {
		t.Errorf("OBJECT ENCODING gives %q", got)
	}
}
