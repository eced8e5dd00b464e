package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/slot"
)

// large is a value that is staged, with zeroes at the end of a chunk.
func large(seed byte) string {
	b := bytes.Repeat([]byte{seed, seed + 1, seed + 2}, engine.StageFrom)
	clear(b[5*layout.ChunkBytes-100 : 6*layout.ChunkBytes])
	return string(b)
}

func genOf(t *testing.T, n *node, key string) uint64 {
	t.Helper()
	n.txn.Begin([]uint16{slot.Of([]byte(key))}, false, engine.Forever)
	defer n.txn.End()
	k, err := n.txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if k.Rec.Form != layout.Rows {
		t.Fatalf("key %s has form %d, want rows", key, k.Rec.Form)
	}
	return k.Rec.Gen
}

// pendingBelow fails the test when a command left more than most bytes waiting for the store: what is staged does not
// wait there.
func pendingBelow(t *testing.T, n *node, most int64, what string) {
	t.Helper()
	if got := n.store.Pending(); got > most {
		t.Errorf("%s leaves %d bytes pending, want at most %d", what, got, most)
	}
}

// Large values come in without being pending as a whole, read back, replace each other, and the log gives the same
// rows again.
func TestStagedStrings(t *testing.T) {
	n := newNode(t)
	const most = 64 << 10
	a, b := large('a'), large('k')
	want := map[string]string{}
	set := func(key, value string, args ...string) {
		t.Helper()
		n.do(args...)
		pendingBelow(t, n, most, args[0])
		want[key] = value
		if got := bulkText(t, n.do("GET", key)); got != value {
			t.Errorf("%s: GET gives %d bytes, want %d", args[0], len(got), len(value))
		}
		applyPending(t, n.store)
	}
	set("{t}set", a, "SET", "{t}set", a)
	set("{t}set", b, "SET", "{t}set", b, "EX", "100")
	set("{t}nx", a, "SETNX", "{t}nx", a)
	set("{t}nx", a, "SETNX", "{t}nx", b) // staged for nothing
	set("{t}ex", a, "SETEX", "{t}ex", "100", a)
	set("{t}px", b, "PSETEX", "{t}px", "100000", b)
	set("{t}set", a, "GETSET", "{t}set", a)
	set("{t}m1", a, "MSET", "{t}m1", a, "{t}m2", "small", "{t}m3", b)
	want["{t}m2"], want["{t}m3"] = "small", b
	n.do("APPEND", "{t}m1", "x")
	want["{t}m1"] += "x"
	for key, value := range want {
		if got := bulkText(t, n.do("GET", key)); got != value {
			t.Errorf("%s: GET gives %d bytes, want %d", key, len(got), len(value))
		}
	}
	if got := n.do("PTTL", "{t}px"); got != ":100000\r\n" {
		t.Errorf("PTTL of a staged value: %q", got)
	}
	checkReplay(t, n)
}

// bulkText is the content of a bulk reply.
func bulkText(t *testing.T, raw string) string {
	t.Helper()
	r, _, err := resp.ParseReply([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Str)
}

// RESTORE of large values of each type is staged; one that is not sound changes nothing.
func TestStagedRestore(t *testing.T) {
	n := newNode(t)
	n.do("SET", "s", large('a'))
	for i := range 3000 {
		n.do("HSET", "h", fmt.Sprint("f", i), strings.Repeat("v", 500))
	}
	applyPending(t, n.store)
	for _, key := range []string{"s", "h"} {
		payload := bulkText(t, n.do("DUMP", key))
		if got := n.do("RESTORE", key+"2", "0", payload[:len(payload)-1]+"x"); !strings.HasPrefix(got, "-ERR") {
			t.Errorf("RESTORE of a damaged payload: %.60q", got)
		}
		if got := n.do("RESTORE", key+"2", "0", payload); got != "+OK\r\n" {
			t.Fatalf("RESTORE %s: %.60q", key, got)
		}
		pendingBelow(t, n, 64<<10, "RESTORE")
		if got := n.do("RESTORE", key+"2", "0", payload); got != "-BUSYKEY Target key name already exists.\r\n" {
			t.Errorf("RESTORE over a key: %.60q", got)
		}
		if again := bulkText(t, n.do("DUMP", key+"2")); again != payload {
			t.Errorf("DUMP of the restored %s differs", key)
		}
		if got := n.do("RESTORE", key+"2", "7000", payload, "REPLACE"); got != "+OK\r\n" || n.do("PTTL", key+"2") != ":7000\r\n" {
			t.Errorf("RESTORE with REPLACE: %.60q", got)
		}
		applyPending(t, n.store)
	}
	checkReplay(t, n)
}

// COPY and RENAME across slots copy before they lock; a source that changes in between is copied anew, and in the end
// under the lock.
func TestStagedCopy(t *testing.T) {
	for changes := range stageTries + 2 {
		n := newNode(t)
		for i := range 3000 {
			n.do("HSET", "h", fmt.Sprint("f", i), strings.Repeat("v", 500))
		}
		applyPending(t, n.store)
		other := n.store.NewTxn()
		left := changes
		n.beforeLocks = func() {
			if left == 0 {
				return
			}
			left--
			// A change that shows in no count.
			other.Begin([]uint16{slot.Of([]byte("h"))}, true, n.now)
			k, err := other.Key([]byte("h"))
			if err != nil {
				t.Fatal(err)
			}
			field, value := fmt.Appendf(nil, "f%d", left), strings.Repeat(string(rune('a'+left)), 500)
			other.PutElement(k, layout.AppendHashElement(nil, field), layout.AppendHashValue(nil, []byte(value), 0))
			other.Put(k)
			other.LogStrings("HSET", k.Name, field, []byte(value))
			if _, err := other.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.do("COPY", "h", "copy"); got != ":1\r\n" {
			t.Fatalf("COPY: %q", got)
		}
		pendingBelow(t, n, 64<<10, "COPY")
		n.beforeLocks = nil
		if a, b := n.do("HGETALL", "h"), n.do("HGETALL", "copy"); a != b {
			t.Errorf("after %d changes the copy differs", changes)
		}
		n.do("RENAME", "copy", "elsewhere")
		if a, b := n.do("HGETALL", "h"), n.do("HGETALL", "elsewhere"); a != b || n.do("EXISTS", "copy") != ":0\r\n" {
			t.Errorf("after RENAME the copy differs")
		}
		if genOf(t, n, "h") == genOf(t, n, "elsewhere") {
			t.Error("two keys share a generation")
		}
		checkReplay(t, n)
	}
}

// A slot that is emptied between staging and the locks, or by the transaction itself, costs nothing but time.
func TestStagedOverDrop(t *testing.T) {
	n := newNode(t)
	a := large('a')
	flushed, other := false, n.store.NewTxn()
	n.beforeLocks = func() {
		if flushed {
			return
		}
		flushed = true
		other.BeginAll(true, n.now)
		other.DropAll()
		other.LogStrings("FLUSHALL")
		if _, err := other.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	n.do("SET", "k", a)
	n.beforeLocks = nil
	applyPending(t, n.store)
	if got := bulkText(t, n.do("GET", "k")); got != a {
		t.Errorf("GET gives %d bytes, want %d", len(got), len(a))
	}
	n.replay([][][]byte{{[]byte("FLUSHALL")}, {[]byte("SET"), []byte("k"), []byte(a)}, {[]byte("SET"), []byte("k"), []byte(a + "x")}})
	applyPending(t, n.store)
	if got := bulkText(t, n.do("GET", "k")); got != a+"x" {
		t.Errorf("GET gives %d bytes, want %d", len(got), len(a)+1)
	}
}
