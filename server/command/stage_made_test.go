package command

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/internal/slot"
)

// madeCommand makes a large value of what keys hold; want gives the result from the strings at a and b.
type madeCommand struct {
	name string
	args []string
	key  string
	want func(a, b string) string
}

func madeCommands(part string) []madeCommand {
	at := len(part) / 2
	each := func(op bitOperation) func(a, b string) string {
		return func(a, b string) string {
			out := make([]byte, max(len(a), len(b)))
			copy(out, a)
			combine(op, out, []byte(b))
			return string(out)
		}
	}
	return []madeCommand{
		{"BITOP OR", []string{"BITOP", "OR", "{t}d", "{t}a", "{t}b"}, "{t}d", each(bitOr)},
		{"BITOP AND over a source", []string{"BITOP", "AND", "{t}b", "{t}a", "{t}b"}, "{t}b", each(bitAnd)},
		{"BITOP XOR", []string{"BITOP", "XOR", "{t}d", "{t}a", "{t}b", "{t}none"}, "{t}d", each(bitXor)},
		{"BITOP NOT", []string{"BITOP", "NOT", "{t}a", "{t}a"}, "{t}a", func(a, _ string) string {
			out := []byte(a)
			invert(out)
			return string(out)
		}},
		{"COPY", []string{"COPY", "{t}a", "{t}d", "REPLACE"}, "{t}d", func(a, _ string) string { return a }},
		{"RENAME", []string{"RENAME", "{t}a", "elsewhere"}, "elsewhere", func(a, _ string) string { return a }},
		{"APPEND", []string{"APPEND", "{t}a", part}, "{t}a", func(a, _ string) string { return a + part }},
		{"APPEND to nothing", []string{"APPEND", "{t}none", part}, "{t}none", func(_, _ string) string { return part }},
		{"APPEND to little", []string{"APPEND", "{t}small", part}, "{t}small", func(_, _ string) string { return "small" + part }},
		{"SETRANGE within", []string{"SETRANGE", "{t}b", "20000", part}, "{t}b", func(_, b string) string {
			return b[:20000] + part + b[min(len(b), 20000+len(part)):]
		}},
		{"SETRANGE far out", []string{"SETRANGE", "{t}a", strconv.Itoa(8<<20 + 7), part}, "{t}a", func(a, _ string) string {
			return a + strings.Repeat("\x00", 8<<20+7-len(a)) + part
		}},
		{"SETRANGE of nothing", []string{"SETRANGE", "{t}none", strconv.Itoa(at), part}, "{t}none", func(_, _ string) string {
			return strings.Repeat("\x00", at) + part
		}},
	}
}

// Whatever makes a large value of keys gives the same, and leaves little pending, whether it is made before the lock,
// made again because a key has changed, or made under the lock because it keeps changing; and so does the log.
func TestStagedMade(t *testing.T) {
	part := large('p') + large('x')
	for _, m := range madeCommands(part) {
		for _, changes := range []int{0, 1, stageTries + 1} {
			n := newNode(t)
			a, b := large('a'), large('k')+strings.Repeat("end", 40_000)
			n.do("SET", "{t}a", a, "EX", "1000")
			n.do("SET", "{t}b", b)
			n.do("SET", "{t}small", "small")
			applyPending(t, n.store)
			other, left := n.store.NewTxn(), changes
			n.beforeLocks = func() {
				if left == 0 {
					return
				}
				left--
				// The same length, the same number of rows, another byte.
				a = a[:50_000] + string(rune('A'+left)) + a[50_001:]
				setrangeAt(t, n, other, "{t}a", 50_000, a[50_000:50_001])
			}
			reply := n.do(m.args...)
			n.beforeLocks = nil
			pendingBelow(t, n, 128<<10, m.name)
			if reply[0] == '-' {
				t.Fatalf("%s: %.80q", m.name, reply)
			}
			want := m.want(a, b)
			if got := bulkText(t, n.do("GET", m.key)); got != want {
				t.Errorf("%s after %d changes: GET gives %d bytes that are not the %d wanted", m.name, changes, len(got), len(want))
			}
			if m.args[0] != "BITOP" && m.args[1] == "{t}a" {
				if got := n.do("TTL", m.key); got != ":1000\r\n" {
					t.Errorf("%s: TTL %q, want the 1000 from before", m.name, got)
				}
			}
			checkReplay(t, n)
		}
	}
}

// setrangeAt is SETRANGE by somebody else.
func setrangeAt(t *testing.T, n *node, txn *engine.Txn, key string, off int64, value string) {
	t.Helper()
	txn.Begin([]uint16{slot.Of([]byte(key))}, true, n.now)
	k, err := txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	e, err := editString(txn, k)
	if err == nil {
		err = e.write(off, []byte(value))
	}
	if err != nil {
		t.Fatal(err)
	}
	e.finish()
	txn.Log([]byte("SETRANGE"), []byte(key), strconv.AppendInt(nil, off, 10), []byte(value))
	if _, err := txn.Commit(); err != nil {
		t.Fatal(err)
	}
}

// entryOf splits lines into commands of one entry.
func entryOf(lines ...[]string) (entry [][][]byte) {
	for _, words := range lines {
		var args [][]byte
		for _, w := range words {
			args = append(args, []byte(w))
		}
		entry = append(entry, args)
	}
	return entry
}

// In one transaction a value is made of what commands before have made, also in a slot that the transaction has
// emptied, and of two made for one key the last stays.
func TestStagedMadeInOneEntry(t *testing.T) {
	part := large('p')
	lines := [][]string{
		{"SET", "{t}a", large('a')},
		{"BITOP", "NOT", "{t}n", "{t}a"},
		{"BITOP", "XOR", "{t}d", "{t}n", "{t}a"},
		{"APPEND", "{t}d", part},
		{"SETRANGE", "{t}n", "100", part},
		{"SETRANGE", "{t}n", "3000000", part},
		{"COPY", "{t}n", "{t}c"},
		{"COPY", "{t}d", "{t}c", "REPLACE"},
		{"SETBIT", "{t}c", "7", "1"},
		{"HSET", "{t}h", "f", part, "g", part},
		{"HSET", "{t}h", "g", part + "x", "i", "1"},
		{"COPY", "{t}h", "{t}i"},
		{"RENAME", "{t}c", "elsewhere"},
	}
	single := newNode(t)
	for _, words := range lines {
		single.do(words...)
	}
	want := dumpRows(t, single)
	for _, first := range [][][]string{nil, {{"FLUSHALL"}}} {
		n := newNode(t)
		if first != nil {
			n.do("SET", "{t}a", large('z'))
			n.do("SET", "{t}n", large('y'))
		}
		n.replay(entryOf(append(first, lines...)...))
		if got := dumpRows(t, n); got != want {
			t.Errorf("rows of one entry differ from those of single commands (FLUSHALL first: %v)", first != nil)
		}
		n.replay(entryOf(lines...)) // over what is there
		if n.do("GET", "{t}n") != single.do("GET", "{t}n") {
			t.Error("executed again, {t}n differs")
		}
	}
}

// More sources than are open at once give what they give two by two.
func TestBitopOfMany(t *testing.T) {
	n := newNode(t)
	count := 2*bitReaders + 3
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("{t}%d", i)
		n.do("SETRANGE", names[i], strconv.Itoa(i*20_000), strings.Repeat(string(rune('a'+i%26)), 1000+i))
	}
	n.do("SET", names[5], large('q'))
	for _, op := range []string{"OR", "XOR", "AND"} {
		n.do(append([]string{"BITOP", op, "{t}many"}, names...)...)
		pendingBelow(t, n, 16<<20, op)
		n.do("COPY", names[0], "{t}two", "REPLACE")
		for _, name := range names[1:] {
			n.do("BITOP", op, "{t}two", "{t}two", name)
		}
		if a, b := n.do("GET", "{t}many"), n.do("GET", "{t}two"); a != b {
			t.Errorf("%s of %d strings gives %d bytes, two by two %d others", op, count, len(a), len(b))
		}
		applyPending(t, n.store)
	}
}

// HSET of many bytes gives the same hash whether it is written anew or changed in place, and tells the same number of
// new fields.
func TestStagedFields(t *testing.T) {
	big := func(c string) string { return strings.Repeat(c, 1<<20) }
	long := strings.Repeat("f", 3000)
	for _, before := range [][]string{
		nil,
		{"a", "1", "b", "2"},
		{"a", "1", "b", big("o")},
		{"a", big("p"), "b", big("o"), "c", "", "d", "4", long, "5"},
	} {
		for _, changes := range []int{0, 1, stageTries + 1} {
			n, whole := newNode(t), newNode(t)
			if before != nil {
				n.do(append([]string{"HSET", "h"}, before...)...)
				whole.do(append([]string{"HSET", "h"}, before...)...)
				n.do("EXPIRE", "h", "1000")
				whole.do("EXPIRE", "h", "1000")
			}
			applyPending(t, n.store)
			left, other := changes, newNode(t)
			other.store, other.log, other.txn = n.store, n.log, n.store.NewTxn()
			n.beforeLocks = func() {
				if left > 0 {
					left--
					other.do("HSET", "h", "d", strconv.Itoa(left))
					whole.do("HSET", "h", "d", strconv.Itoa(left))
				}
			}
			pairs := []string{"a", big("x"), "n", big("y"), "a", big("z"), "e", "", long, big("w"), "m", big("v"), "n", "last"}
			got := n.do(append([]string{"HSET", "h"}, pairs...)...)
			n.beforeLocks = nil
			pendingBelow(t, n, 64<<10, "HSET")
			created := 0
			for i := 0; i < len(pairs); i += 2 {
				if whole.do("HSET", "h", pairs[i], pairs[i+1]) == ":1\r\n" {
					created++
				}
			}
			if want := fmt.Sprintf(":%d\r\n", created); got != want {
				t.Errorf("HSET over %d fields: %q, want %q", len(before)/2, got, want)
			}
			if a, b := dumpRows(t, n), dumpRows(t, whole); a != b {
				t.Errorf("HSET over %d fields, %d changes: rows differ from those of one field after the other", len(before)/2, changes)
			}
			if a, b := n.do("HGETALL", "h"), whole.do("HGETALL", "h"); a != b || n.do("PTTL", "h") != whole.do("PTTL", "h") {
				t.Errorf("HSET over %d fields: what is there differs", len(before)/2)
			}
			checkReplay(t, n)
		}
	}
	n := newNode(t)
	if got := n.do("HSETNX", "h", "f", big("x")); got != ":1\r\n" {
		t.Errorf("HSETNX: %q", got)
	}
	pendingBelow(t, n, 64<<10, "HSETNX")
	if got := n.do("HSETNX", "h", "f", big("y")); got != ":0\r\n" || bulkText(t, n.do("HGET", "h", "f")) != big("x") {
		t.Errorf("HSETNX over a field: %q", got)
	}
	n.do("SET", "s", "v")
	for _, cmd := range [][]string{{"HSET", "s", "f", big("x")}, {"HSET", "h", "f", big("x"), "g"}} {
		if got := n.do(cmd...); got[0] != '-' {
			t.Errorf("%.20q: %.60q, want an error", cmd, got)
		}
	}
	checkReplay(t, n)
}

// MSET of many strings that are long, none of them long enough to be staged alone.
func TestStagedMany(t *testing.T) {
	n := newNode(t)
	args := []string{"MSET"}
	value := func(i int) string { return strings.Repeat(string(rune('a'+i)), 300_000+i) }
	for i := range 20 {
		args = append(args, fmt.Sprintf("{t}%d", i), value(i))
	}
	args = append(args, "{t}0", value(25))
	n.do(args...)
	pendingBelow(t, n, 64<<10, "MSET")
	for i := range 20 {
		want := value(i)
		if i == 0 {
			want = value(25)
		}
		if got := bulkText(t, n.do("GET", fmt.Sprintf("{t}%d", i))); got != want {
			t.Errorf("GET of string %d gives %d bytes, want %d", i, len(got), len(want))
		}
	}
	checkReplay(t, n)
}

// What is in the way of a large value is answered as ever: types, lengths, words.
func TestStagedMadeRefused(t *testing.T) {
	n := newNode(t)
	part := large('p')
	n.do("HSET", "{t}h", "f", "v")
	n.do("SET", "{t}a", part)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"-WRONGTYPE", []string{"APPEND", "{t}h", part}},
		{"-WRONGTYPE", []string{"SETRANGE", "{t}h", "0", part}},
		{"-ERR offset is out of range", []string{"SETRANGE", "{t}a", "-1", part}},
		{"-ERR value is not an integer", []string{"SETRANGE", "{t}a", "x", part}},
		{"-ERR string exceeds maximum", []string{"SETRANGE", "{t}a", "536870912", part}},
		{"-ERR string exceeds maximum", []string{"SETRANGE", "{t}a", "9223372036854775807", part}},
		{"-WRONGTYPE", []string{"BITOP", "OR", "{t}d", "{t}a", "{t}h"}},
		{"-ERR BITOP NOT must", []string{"BITOP", "NOT", "{t}d", "{t}a", "{t}a"}},
		{"-ERR syntax", []string{"BITOP", "NOR", "{t}d", "{t}a", "{t}a"}},
		{":0", []string{"COPY", "{t}a", "{t}h"}},
		{"-ERR syntax", []string{"COPY", "{t}a", "{t}d", "AGAIN"}},
	} {
		if got := n.do(c.args...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%.60q: %.80q, want %s", c.args, got, c.want)
		}
	}
	if got := bulkText(t, n.do("GET", "{t}a")); got != part || bytes.Contains([]byte(n.do("KEYS", "*")), []byte("{t}d")) {
		t.Error("a refused command has changed something")
	}
	checkReplay(t, n)
}
