package command

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/replication/rdb"
	"cairn/replication/rows"
)

// longLengths are around every border of a value's form.
var longLengths = []int{
	0, 10, layout.LongFieldOver - 1, layout.LongFieldOver, layout.LongFieldOver + 1, 5 * layout.PieceBytes,
	5*layout.PieceBytes + 1, 200_001, engine.StageFrom - 1, engine.StageFrom, engine.StageFrom + 70_000,
}

// longText is n bytes that tell where they are from.
func longText(seed, n int) string {
	b := make([]byte, 0, n+8)
	for r := rand.NewPCG(uint64(seed), uint64(n)); len(b) < n; {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return string(b[:n])
}

// checkOrphans fails the test when, nothing being left to drop, the store has a row that no record, or no row of a
// field, names; or one of these names something that is not there.
func checkOrphans(t *testing.T, n *node) {
	t.Helper()
	var names map[string]uint64 // pieces that each value has to have
	testkit.Eventually(t, 20e9, func() bool {
		if err := errors.Join(n.store.Apply(), n.store.Flush()); err != nil {
			t.Fatal(err)
		}
		names = map[string]uint64{}
		waiting := false
		err := n.store.DumpRows(func(row, val []byte) error {
			sl, err := layout.SlotOf(row)
			switch {
			case err != nil:
				return err
			case row[0] == layout.SpaceSlot && row[3] == layout.KindDrop:
				waiting = true
			case row[0] == layout.SpaceSlot && row[3] == layout.KindRecord:
				var rec layout.Record
				if err := rec.Decode(val); err != nil {
					return err
				}
				names[fmt.Sprint(sl, " ", rec.Gen)] = 0
			case row[0] == layout.SpaceSlot && row[3] == layout.KindElement:
				gen := fmt.Sprint(sl, " ", be64(row[layout.PrefixLen:]))
				v, err := layout.DecodeHashValue(val)
				if _, ok := names[gen]; err != nil || !ok && !waiting {
					return fmt.Errorf("element %.40x of a generation that is not named, %w", row, err)
				}
				if v.InPieces {
					names[fmt.Sprint(gen, " ", v.Number)] = v.Pieces()
				}
			case row[0] == layout.SpaceBulk && row[3] == layout.KindChunk:
				name := fmt.Sprint(sl, " ", be64(row[layout.PrefixLen:]))
				if gen, number, ok := layout.PieceKeyParts(row); ok {
					name = fmt.Sprint(sl, " ", gen, " ", number)
					names[name]--
				} else if _, ok := names[name]; !ok && !waiting {
					return fmt.Errorf("chunk %.40x of a generation that is not named", row)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return !waiting
	}, "dropped values to be gone")
	for name, left := range names {
		if left != 0 {
			t.Errorf("value %s (slot, generation, number) has %d pieces too few", name, int64(left))
		}
	}
}

func be64(b []byte) (n uint64) {
	for _, c := range b[:8] {
		n = n<<8 | uint64(c)
	}
	return n
}

// digestOf is what DEBUG DIGEST-VALUE gives.
func digestOf(t *testing.T, n *node, key string) string {
	t.Helper()
	n.txn.Begin([]uint16{slot.Of([]byte(key))}, false, engine.Forever)
	defer n.txn.End()
	k, err := n.txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	var d Digest
	if k.Exists() {
		if err := d.MixValue(n.txn, k); err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(d[:])
}

// sortedReply makes an array that may come in any order comparable; of pairs, each stays together.
func sortedReply(t *testing.T, raw string, pairs bool) string {
	t.Helper()
	r, _, err := resp.ParseReply([]byte(raw))
	if err != nil {
		t.Fatalf("%.60q: %v", raw, err)
	}
	var items []string
	step := 1
	if pairs {
		step = 2
	}
	for i := 0; i+step <= len(r.Elems); i += step {
		item := ""
		for _, e := range r.Elems[i : i+step] {
			item += fmt.Sprintf("%d:%s ", len(e.Str), e.Str)
		}
		items = append(items, item)
	}
	sort.Strings(items)
	return strings.Join(items, "|")
}

// longScript is commands on a few hashes, of which most values are long.
func longScript(r *rand.Rand, count int) (script [][]string) {
	key := func() string { return []string{"{t}h", "{t}i", "elsewhere"}[r.IntN(3)] }
	field := func() string { return fmt.Sprint("f", r.IntN(6)) }
	value := func() string {
		return longText(r.IntN(1000), longLengths[r.IntN(len(longLengths))])
	}
	for range count {
		k := key()
		switch r.IntN(16) {
		case 0, 1, 2:
			script = append(script, []string{"HSET", k, field(), value()})
		case 3:
			script = append(script, []string{"HSET", k, field(), value(), field(), value(), field(), value()})
		case 4:
			script = append(script, []string{"HMSET", k, field(), value(), "n", "5"})
		case 5:
			script = append(script, []string{"HSETNX", k, field(), value()})
		case 6, 7:
			script = append(script, []string{"HDEL", k, field(), field()})
		case 8:
			script = append(script, []string{"HINCRBY", k, "n", "7"}, []string{"HINCRBY", k, field(), "7"})
		case 9:
			script = append(script, []string{"HINCRBYFLOAT", k, "n", "0.5"}, []string{"HINCRBYFLOAT", k, field(), "1"})
		case 10:
			script = append(script, []string{"COPY", k, key(), "REPLACE"})
		case 11:
			script = append(script, []string{"RENAME", k, key()})
		case 12:
			script = append(script, []string{"HSET", k, "n", "1"}, []string{"DEL", k}, []string{"HSET", k, field(), value()})
		case 13:
			script = append(script, []string{"SET", k, value()}, []string{"GET", k}, []string{"DEL", k})
		default:
			script = append(script, []string{"HSTRLEN", k, field()}, []string{"HGET", k, field()}, []string{"HEXISTS", k, field()})
		}
	}
	return script
}

// All commands on hashes with long fields answer what a real server answers, what is stored is the same after a replay
// of the log, after a full sync in each of its two forms, and after DUMP and RESTORE in both directions, and nothing
// that is not named stays in the store.
func TestLongFieldsWithRedis(t *testing.T) {
	server := testkit.StartRedis(t, "--enable-debug-command", "yes")
	client := testkit.Dial(t, server.Addr)
	n := newNode(t)
	r := rand.New(rand.NewPCG(1, 1))
	for i, args := range longScript(r, 100) {
		got, want := n.do(args...), client.Do(args...).Raw
		if got != want {
			t.Fatalf("command %d, %.60q: %.80q, server answers %.80q", i, args, got, want)
		}
		if i%10 == 0 {
			applyPending(t, n.store)
		}
	}
	// What the keys end with is worth reading.
	for _, k := range []string{"{t}h", "{t}i", "elsewhere"} {
		for i, size := range longLengths {
			args := []string{"HSET", k, fmt.Sprint("f", i), longText(i, size)}
			n.do(args...)
			client.Do(args...)
		}
	}
	sameLongHashes(t, n, client)
	checkReplay(t, n)
	checkOrphans(t, n)
	for _, how := range []func(*testing.T, *node) *node{viaRDB, viaRows} {
		to := how(t, n)
		if a, b := dumpRows(t, n), dumpRows(t, to); a != b {
			t.Errorf("rows differ after a full sync at %s", firstDifference(a, b))
		}
		to.do("HSET", "{t}h", "another", longText(9, 300_000))
		to.do("HDEL", "{t}h", "another")
		sameLongHashes(t, to, client)
		checkOrphans(t, to)
	}
	for i, k := range []string{"{t}h", "{t}i", "elsewhere"} {
		payload := bulkText(t, n.do("DUMP", k))
		if got := client.Do("RESTORE", "copy", "0", payload, "REPLACE").Raw; got != "+OK\r\n" {
			t.Fatalf("server restores %s: %q", k, got)
		}
		if a, b := digestOf(t, n, k), fmt.Sprintf("%s", client.Do("DEBUG", "DIGEST-VALUE", "copy").Value.([]any)[0]); a != b {
			t.Errorf("digest of %s is %s, of its copy in the server %s", k, a, b)
		}
		client.Do("CONFIG", "SET", "rdbcompression", []string{"yes", "no", "yes"}[i])
		payload = client.Do("DUMP", "copy").Value.(string)
		if got := n.do("RESTORE", k, "0", payload, "REPLACE"); got != "+OK\r\n" {
			t.Fatalf("RESTORE of the server's %s: %q", k, got)
		}
	}
	sameLongHashes(t, n, client)
	checkReplay(t, n)
	for _, k := range []string{"{t}h", "{t}i", "elsewhere"} {
		n.do("DEL", k)
	}
	checkOrphans(t, n)
	if rows := storedRows(t, n); rows != 0 {
		t.Errorf("%d rows of no key are left", rows)
	}
}

// storedRows counts the rows of keys and values.
func storedRows(t *testing.T, n *node) (rows int) {
	t.Helper()
	if err := n.store.DumpRows(func(_, _ []byte) error { rows++; return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// sameLongHashes compares all reading commands.
func sameLongHashes(t *testing.T, n *node, client *testkit.Conn) {
	t.Helper()
	for _, k := range []string{"{t}h", "{t}i", "elsewhere"} {
		exact := [][]string{{"HLEN", k}, {"OBJECT", "ENCODING", k}, {"HMGET", k, "f1", "none", "f7", "f1", "n", "f10", "f3"}}
		for i := range longLengths {
			exact = append(exact, []string{"HGET", k, fmt.Sprint("f", i)}, []string{"HSTRLEN", k, fmt.Sprint("f", i)})
		}
		for _, args := range exact {
			if got, want := n.do(args...), client.Do(args...).Raw; got != want {
				t.Errorf("%.60q: %.80q, server answers %.80q", args, got, want)
			}
		}
		for _, args := range [][]string{{"HGETALL", k}, {"HKEYS", k}, {"HVALS", k}, {"HRANDFIELD", k, "100", "WITHVALUES"}} {
			pairs := args[0] == "HGETALL" || len(args) > 2
			if got, want := sortedReply(t, n.do(args...), pairs), sortedReply(t, client.Do(args...).Raw, pairs); got != want {
				t.Errorf("%.60q: %.80q, server answers %.80q", args, got, want)
			}
		}
		for _, count := range []string{"1", "3", "100", "2000"} {
			if got, want := scannedPairs(t, n, k, count), sortedReply(t, client.Do("HGETALL", k).Raw, true); got != want {
				t.Errorf("HSCAN %s COUNT %s lists other pairs than HGETALL", k, count)
			}
		}
		if a, b := digestOf(t, n, k), fmt.Sprintf("%s", client.Do("DEBUG", "DIGEST-VALUE", k).Value.([]any)[0]); a != b {
			t.Errorf("digest of %s is %s, server's %s", k, a, b)
		}
		picksThatAre(t, n, k, "-5", "2")
	}
}

// picksThatAre sees to it that picks by chance are pairs of the hash.
func picksThatAre(t *testing.T, n *node, key string, counts ...string) {
	t.Helper()
	for _, count := range counts {
		r, _, err := resp.ParseReply([]byte(n.do("HRANDFIELD", key, count, "WITHVALUES")))
		if err != nil || len(r.Elems) == 0 {
			t.Fatalf("HRANDFIELD %s %s: %v", key, count, err)
		}
		values := map[string]string{}
		for i := 0; i < len(r.Elems); i += 2 {
			field := string(r.Elems[i].Str)
			if _, ok := values[field]; !ok {
				values[field] = bulkText(t, n.do("HGET", key, field))
			}
			if values[field] != string(r.Elems[i+1].Str) {
				t.Errorf("HRANDFIELD %s %s: field %q has another value than with HGET", key, count, field)
			}
		}
	}
}

// scannedPairs lists all pairs by HSCAN as sortedReply does.
func scannedPairs(t *testing.T, n *node, key, count string) string {
	t.Helper()
	var items []string
	for cursor := "0"; ; {
		r, _, err := resp.ParseReply([]byte(n.do("HSCAN", key, cursor, "COUNT", count)))
		if err != nil {
			t.Fatal(err)
		}
		e := r.Elems[1].Elems
		for i := 0; i < len(e); i += 2 {
			items = append(items, fmt.Sprintf("%d:%s %d:%s ", len(e[i].Str), e[i].Str, len(e[i+1].Str), e[i+1].Str))
		}
		if cursor = string(r.Elems[0].Str); cursor == "0" {
			sort.Strings(items)
			return strings.Join(items, "|")
		}
	}
}

// viaRDB gives a second node that was loaded from the first one's RDB stream.
func viaRDB(t *testing.T, n *node) *node {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dump.rdb")
	saveRDB(t, n, path)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := newNode(t)
	if _, err := loadRDB(to, raw); err != nil {
		t.Fatal(err)
	}
	return to
}

// viaRows gives a second node that was loaded from the first one's rows.
func viaRows(t *testing.T, n *node) *node {
	t.Helper()
	sn, err := n.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := errors.Join(WriteRows(sn, &out, rows.S2), sn.Close()); err != nil {
		t.Fatal(err)
	}
	to := newNode(t)
	into, err := to.store.NewReplacement()
	if err == nil {
		err = LoadRows(&out, into)
	}
	if err == nil {
		err = into.Commit(nil, to.log.End(), func() error { return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// A long value that comes into a hash which is much larger is staged by itself: it leaves little pending, whatever
// happens to the hash between staging and the lock, and what is not used goes.
func TestLongFieldStaged(t *testing.T) {
	for _, meanwhile := range [][]string{
		nil,
		{"HSET", "h", "f1", "another"},
		{"HDEL", "h", "f3"},
		{"DEL", "h"},
		{"SET", "h", "string"},
		{"RENAME", "elsewhere", "h"},
		{"RENAME", "h", "{h}moved"},
		{"FLUSHALL"},
	} {
		for _, times := range []int{1, stageTries + 1} {
			n, whole := newNode(t), newNode(t)
			both := func(args ...string) (string, string) { return n.do(args...), whole.do(args...) }
			for i := range 6 {
				both("HSET", "h", fmt.Sprint("f", i), longText(i, 200_000))
				both("HSET", "elsewhere", fmt.Sprint("f", i), longText(i, 230_000))
			}
			applyPending(t, n.store)
			other, left := newNode(t), times
			other.store, other.log, other.txn = n.store, n.log, n.store.NewTxn()
			n.beforeLocks = func() {
				if left > 0 && meanwhile != nil {
					left--
					other.do(meanwhile...)
					whole.do(meanwhile...)
					if left%2 == 1 { // so that there is something to change again
						other.do("RENAME", "{h}moved", "h")
						whole.do("RENAME", "{h}moved", "h")
					}
				}
			}
			pairs := []string{"f1", longText(1, 1<<20+1), "f2", "short", "new", longText(2, 70_000), "f1", longText(3, 1_500_000)}
			got := n.do(append([]string{"HSET", "h"}, pairs...)...)
			n.beforeLocks = nil
			if meanwhile == nil || meanwhile[0][0] == 'H' {
				pendingBelow(t, n, 256<<10, "HSET")
			}
			if want := whole.do(append([]string{"HSET", "h"}, pairs...)...); got != want {
				t.Errorf("HSET after %v: %q, want %q", meanwhile, got, want)
			}
			if a, b := dumpRows(t, n), dumpRows(t, whole); a != b {
				t.Errorf("HSET after %v: rows differ at %s", meanwhile, firstDifference(a, b))
			}
			if a, b := both("HSETNX", "h", "f2", longText(4, 1<<20)); a != b { // staged for nothing
				t.Errorf("HSETNX: %q, want %q", a, b)
			}
			checkReplay(t, n)
			checkOrphans(t, n)
		}
	}
}

// Picks of a hash with long fields, some made under the lock and many while they are sent, are what is there.
func TestLongFieldPicks(t *testing.T) {
	n := newNode(t)
	n.do("HSET", "few", "a", longText(1, 70_000), "b", "short", "c", "")
	picksThatAre(t, n, "few", "-20", "-1001", "1", "2")
	n.do("HSET", "many", "long", longText(1, 70_000))
	for i := range 200 {
		n.do("HSET", "many", fmt.Sprint("f", i), fmt.Sprint("v", i))
	}
	picksThatAre(t, n, "many", "-300", "3", "150")
}

// What one entry sets and takes away again leaves nothing.
func TestLongFieldsInOneEntry(t *testing.T) {
	n := newNode(t)
	n.do("HSET", "{t}h", "a", longText(1, 100_000), "b", longText(2, 2<<20))
	applyPending(t, n.store)
	entry := entryOf(
		[]string{"HSET", "{t}h", "c", longText(3, 100_000)},
		[]string{"HSET", "{t}h", "c", longText(4, 100_001)},
		[]string{"HDEL", "{t}h", "b"},
		[]string{"HSET", "{t}h", "a", "short"},
		[]string{"COPY", "{t}h", "{t}i"},
		[]string{"HSET", "{t}i", "d", longText(5, 3<<20)},
		[]string{"HSET", "{t}i", "d", longText(6, 70_000)},
		[]string{"HSET", "{t}j", "a", longText(7, 70_000)},
		[]string{"HDEL", "{t}j", "a"},
		[]string{"HSET", "{t}k", "a", longText(7, 70_000), "b", "c"},
		[]string{"DEL", "{t}k"},
		[]string{"RENAME", "{t}h", "{t}l"},
	)
	n.replay(entry)
	if got := n.do("HGET", "{t}l", "c"); bulkText(t, got) != longText(4, 100_001) {
		t.Errorf("HGET gives %d bytes", len(got))
	}
	checkOrphans(t, n)
	n.do("DEL", "{t}l", "{t}i")
	checkOrphans(t, n)
	if rows := storedRows(t, n); rows != 0 {
		t.Errorf("%d rows of no key are left", rows)
	}
}

// A hash whose long values stand in their rows, as they did once, reads as ever, and a change makes pieces of them.
func TestLongFieldsAsTheyWere(t *testing.T) {
	n := newNode(t)
	long := longText(1, 200_000)
	n.do("HSET", "h", "f", longText(2, 100), "g", "v")
	n.txn.Begin([]uint16{slot.Of([]byte("h"))}, true, n.now)
	k, err := n.txn.Key([]byte("h"))
	if err != nil {
		t.Fatal(err)
	}
	k.Rec.Bytes += uint64(len(long) - 100)
	n.txn.PutElement(k, layout.AppendHashElement(nil, []byte("f")), layout.AppendHashValue(nil, []byte(long), 0))
	n.txn.Put(k)
	if _, err := n.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"HGET", "h", "f"}, {"HVALS", "h"}, {"HSCAN", "h", "0"}, {"HRANDFIELD", "h", "2", "WITHVALUES"}} {
		if got := n.do(args...); !strings.Contains(got, long) {
			t.Errorf("%v gives %d bytes without the value", args, len(got))
		}
	}
	n.do("COPY", "h", "{h}copy")
	payload := bulkText(t, n.do("DUMP", "h"))
	n.do("RESTORE", "{h}restored", "0", payload)
	for _, key := range []string{"h", "{h}copy", "{h}restored"} {
		if got := n.do("HSTRLEN", key, "f"); got != ":200000\r\n" {
			t.Errorf("HSTRLEN of %s: %q", key, got)
		}
		n.do("HSET", key, "f", long+"x")
		if got := bulkText(t, n.do("HGET", key, "f")); got != long+"x" {
			t.Errorf("HGET of %s gives %d bytes", key, len(got))
		}
	}
	checkOrphans(t, n)
}

// A missing or damaged piece is an error that names the key, never a shorter value.
func TestLongFieldDamaged(t *testing.T) {
	for _, damage := range []func(k *engine.Key, txn *engine.Txn, number uint64){
		func(k *engine.Key, txn *engine.Txn, number uint64) { txn.PutPiece(k, number, 2, []byte("short")) },
		func(k *engine.Key, txn *engine.Txn, number uint64) { txn.PutPiece(k, number, 12, []byte("x")) },
		func(k *engine.Key, txn *engine.Txn, number uint64) {
			txn.PutElement(k, layout.AppendHashElement(nil, []byte("f")), layout.AppendHashPieces(nil, number, 400_000, 0))
		},
		func(k *engine.Key, txn *engine.Txn, number uint64) {
			txn.PutElement(k, layout.AppendHashElement(nil, []byte("f")), layout.AppendHashPieces(nil, number+1, 200_000, 0))
		},
	} {
		n := newNode(t)
		n.do("HSET", "h", "f", longText(1, 200_000), "g", "v")
		n.txn.Begin([]uint16{slot.Of([]byte("h"))}, true, n.now)
		k, err := n.txn.Key([]byte("h"))
		if err != nil {
			t.Fatal(err)
		}
		v, ok, err := fieldValue(&Ctx{Txn: n.txn}, k, []byte("f"))
		if err != nil || !ok || !v.InPieces {
			t.Fatalf("field is %+v, %v", v, err)
		}
		damage(k, n.txn, v.Number)
		n.txn.Put(k)
		if _, err := n.txn.Commit(); err != nil {
			t.Fatal(err)
		}
		n.txn.Begin([]uint16{slot.Of([]byte("h"))}, false, n.now)
		if k, err = n.txn.Key([]byte("h")); err != nil {
			t.Fatal(err)
		}
		var d Digest
		err = d.MixValue(n.txn, k)
		n.txn.End()
		sn, snErr := n.store.Snapshot()
		if snErr != nil {
			t.Fatal(snErr)
		}
		saved := WriteRDB(sn, io.Discard, RDBInfo{})
		if err := sn.Close(); err != nil {
			t.Fatal(err)
		}
		// A piece too many is seen by nobody who stops at the length.
		if err == nil && saved == nil {
			t.Error("a damaged value is taken")
		}
	}
}

// The decoder gives a long value in pieces, compressed or not, and what it gives is what was written.
func TestLongFieldSinkPieces(t *testing.T) {
	if rdb.LongField != layout.LongFieldOver {
		t.Fatalf("the decoder gives values of more than %d bytes in pieces, rows hold %d", rdb.LongField, layout.LongFieldOver)
	}
	n := newNode(t)
	for _, size := range longLengths {
		for seed, value := range []string{longText(1, size), strings.Repeat("abc", size/3)} {
			var out bytes.Buffer
			w := rdb.NewWriter(&out, 0)
			err := errors.Join(w.Key(rdb.Key{Name: []byte("h")}), w.BeginHash(2), w.BeginPair([]byte("a"), uint64(len(value))))
			for rest := value; len(rest) > 0; {
				part := rest[:min(len(rest), 10_007)]
				rest = rest[len(part):]
				err = errors.Join(err, w.Part([]byte(part)))
			}
			packed := rdb.AppendString(nil, []byte(value)) // maybe an LZF block
			if err = errors.Join(err, w.Pair([]byte("b"), nil), w.Key(rdb.Key{Name: []byte("packed")})); err != nil {
				t.Fatal(err)
			}
			body := append([]byte{rdb.TypeHash, 1, 1, 'a'}, packed...)
			if err = errors.Join(w.Value(body), w.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := loadRDB(n, out.Bytes()); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			for _, key := range []string{"h", "packed"} {
				if got := bulkText(t, n.do("HGET", key, "a")); got != value {
					t.Errorf("%s %d: HGET gives %d bytes, want %d", key, seed, len(got), len(value))
				}
			}
			cut := out.Bytes()[:out.Len()-out.Len()/3]
			if _, err := loadRDB(n, cut); err == nil && size > 100 {
				t.Errorf("a stream that ends in a value of %d bytes is taken", size)
			}
		}
	}
	checkOrphans(t, n)
}
