package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/testkit"
	"cairn/replication/rdb"
)

// rdbData is a command for each way in which values are stored.
func rdbData() (commands [][]string) {
	set := func(args ...string) { commands = append(commands, args) }
	for _, n := range []int{0, 1, 11, 44, 45, 512, 513, 16384, 65536, 65537, 1 << 20} {
		set("SET", fmt.Sprint("s", n), strings.Repeat("v", n))
		set("SET", fmt.Sprint("t", n), strings.Repeat("v", n), "PXAT", "32503680000000")
	}
	for _, v := range []string{"0", "-1", "32767", "-32769", "2147483648", "007", "9223372036854775807"} {
		set("SET", "int:"+v, v)
	}
	set("SET", "binary\x00\xff\r\n", "\x00\xff\r\n$5")
	set("SETBIT", "sparse", "40000000", "1")
	set("SETRANGE", "zeroes at the end", "100000", "\x00")
	for i := range 300 {
		set("SET", fmt.Sprint("many", i), fmt.Sprint("v", i))
	}
	hash := func(name string, fields, size int) {
		args := []string{"HSET", name}
		for i := range fields {
			args = append(args, fmt.Sprint("f", i), strings.Repeat("x", size)+strconv.Itoa(i))
		}
		set(args...)
	}
	hash("h1", 1, 0)
	hash("h512", 512, 0)
	hash("h513", 513, 0)
	hash("long value", 2, 70)
	hash("listpack in rows", 300, 50)
	hash("h5000", 5000, 10)
	set("HSET", "h binary\x00", "", "", "\x00f", "\xff")
	set("PEXPIREAT", "h513", "32503680000000")
	return commands
}

// saveRDB writes all data of n into a file.
func saveRDB(t *testing.T, n *node, path string) {
	t.Helper()
	sn, err := n.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	info := RDBInfo{RedisVersion: "7.2.4", CreatedSec: 1_700_000_000, UsedMemory: 1, ReplID: strings.Repeat("a", 40)}
	if err := errors.Join(WriteRDB(sn, file, info), file.Close(), sn.Close()); err != nil {
		t.Fatal(err)
	}
}

// loadRDB makes a stream the data of n.
func loadRDB(n *node, raw []byte) (RDBLoaded, error) {
	into, err := n.store.NewReplacement()
	if err != nil {
		return RDBLoaded{}, err
	}
	told, err := LoadRDB(bufio.NewReader(bytes.NewReader(raw)), into, RDBOptions{Settings: &n.settings})
	if err == nil {
		err = into.Commit(nil, n.log.End(), func() error { return nil })
	}
	return told, errors.Join(err, into.Abort())
}

// What is written out and loaded again is row for row what the commands had made.
func TestRDBRoundTrip(t *testing.T) {
	n := newNode(t)
	for _, args := range rdbData() {
		if reply := n.do(args...); strings.HasPrefix(reply, "-") {
			t.Fatalf("%.60q: %s", args, reply)
		}
	}
	path := filepath.Join(t.TempDir(), "dump.rdb")
	saveRDB(t, n, path)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := newNode(t)
	to.do("SET", "s1", "another")
	to.do("SET", "only here", "v")
	told, err := loadRDB(to, raw)
	if err != nil {
		t.Fatal(err)
	}
	if told.ReplID != strings.Repeat("a", 40) || told.ReplOffset != fmt.Sprint(n.log.End()) || told.Keys != n.store.Keys() {
		t.Errorf("loaded %+v", told)
	}
	if a, b := dumpRows(t, n), dumpRows(t, to); a != b {
		t.Errorf("rows differ at %s", firstDifference(a, b))
	}
	if a, b := n.store.Bytes(), to.store.Bytes(); a != b || n.store.Keys() != to.store.Keys() {
		t.Errorf("%d bytes in %d keys, loaded as %d in %d", a, n.store.Keys(), b, to.store.Keys())
	}
	if got := to.do("PEXPIRETIME", "h513"); got != ":32503680000000\r\n" {
		t.Errorf("deadline after loading: %q", got)
	}
	// Expiry finds what was loaded.
	due := 0
	to.store.DueSlots(32503680000001, func(uint16) bool { due++; return true })
	if due == 0 {
		t.Error("no slot is due when all deadlines have passed")
	}
}

func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("line %d: %.200s | %.200s", i, as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(as), len(bs))
}

// A real server loads what is written and has the same data; what it saves loads here.
func TestRDBWithRedis(t *testing.T) {
	testkit.RedisPath(t)
	n := newNode(t)
	for _, args := range rdbData() {
		n.do(args...)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "dump.rdb")
	saveRDB(t, n, path)
	if check, err := exec.LookPath("redis-check-rdb"); err == nil {
		if out, err := exec.Command(check, path).CombinedOutput(); err != nil {
			t.Errorf("redis-check-rdb: %v\n%s", err, out)
		}
	}
	redis := testkit.StartRedis(t, "--dir", dir, "--dbfilename", "dump.rdb")
	testkit.WaitPing(t, redis.Addr, 20*time.Second)
	c := testkit.Dial(t, redis.Addr)
	sameData(t, n, c)

	c.Do("SET", "compressed", strings.Repeat("abc", 100000))
	c.Do("SET", "short", "v", "PX", "1") // expired by the time it is loaded, and kept
	c.Do("DEBUG", "SET-ACTIVE-EXPIRE", "0")
	c.Do("SAVE")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := newNode(t)
	if _, err := loadRDB(to, raw); err != nil {
		t.Fatal(err)
	}
	c.Do("DEL", "short")
	to.do("DEL", "short")
	sameData(t, to, c)
}

// sameData compares every key of n with what a server answers.
func sameData(t *testing.T, n *node, c *testkit.Conn) {
	t.Helper()
	keys := n.store.Keys()
	if size := c.Do("DBSIZE").Value; size != keys {
		t.Fatalf("server has %v keys, want %d", size, keys)
	}
	cursor := "0"
	for seen := int64(0); ; {
		page := c.Do("SCAN", cursor, "COUNT", "1000").Value.([]any)
		for _, k := range page[1].([]any) {
			name := fmt.Sprintf("%s", k)
			seen++
			ask := [][]string{{"TYPE", name}, {"PEXPIRETIME", name}, {"OBJECT", "ENCODING", name}}
			if c.Do("TYPE", name).Raw == "+hash\r\n" {
				ask = append(ask, []string{"HLEN", name})
				all := c.Do("HGETALL", name).Value.([]any)
				for i := 0; i < len(all); i += 2 {
					f := fmt.Sprintf("%s", all[i])
					if got, want := n.do("HGET", name, f), fmt.Sprintf("$%d\r\n%s\r\n", len(all[i+1].(string)), all[i+1]); got != want {
						t.Fatalf("%.40q field %.40q: %.60q, server has %.60q", name, f, got, want)
					}
				}
			} else {
				ask = append(ask, []string{"GET", name})
			}
			for _, args := range ask {
				if got, want := n.do(args...), c.Do(args...).Raw; got != want {
					t.Fatalf("%.60q: %.60q, server answers %.60q", args, got, want)
				}
			}
		}
		if cursor = fmt.Sprintf("%s", page[0]); cursor == "0" {
			if seen < keys {
				t.Errorf("server lists %d keys, want %d", seen, keys)
			}
			return
		}
	}
}

// What has no place here is refused with its name, and the data in use stays.
func TestRDBRefused(t *testing.T) {
	stream := func(f func(w *rdb.Writer) error) []byte {
		var out bytes.Buffer
		w := rdb.NewWriter(&out, 12)
		if err := errors.Join(w.Key(rdb.Key{Name: []byte("fine")}), w.Value(rdb.AppendStringValue(nil, []byte("v"))), f(w), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	key := func(w *rdb.Writer, name string, value func() error) error {
		return errors.Join(w.Key(rdb.Key{Name: []byte(name)}), value())
	}
	str := func(w *rdb.Writer, name string) error {
		return key(w, name, func() error { return w.Value(rdb.AppendStringValue(nil, []byte("v"))) })
	}
	cases := map[string][]byte{
		`key "queue" is a list`: stream(func(w *rdb.Writer) error {
			return key(w, "queue", func() error { return errors.Join(w.BeginList(1), w.Item([]byte("a"))) })
		}),
		`key "board" is a zset`: stream(func(w *rdb.Writer) error {
			return key(w, "board", func() error { return errors.Join(w.BeginZSet(1), w.Scored([]byte("a"), 1)) })
		}),
		`key "timed" has fields with deadlines`: stream(func(w *rdb.Writer) error {
			return key(w, "timed", func() error { return errors.Join(w.BeginHashDeadlines(1), w.PairUntil([]byte("a"), nil, 5)) })
		}),
		"database 3 has 2 keys": stream(func(w *rdb.Writer) error {
			return errors.Join(w.SelectDB(3), w.ResizeDB(2, 0), str(w, "a"), str(w, "b"))
		}),
		"function library":          stream(func(w *rdb.Writer) error { return w.Function([]byte("#!lua name=mylib")) }),
		`key "fine" is there twice`: stream(func(w *rdb.Writer) error { return str(w, "fine") }),
		`field "a" is there twice`: stream(func(w *rdb.Writer) error {
			return key(w, "h", func() error {
				return errors.Join(w.BeginHash(2), w.Pair([]byte("a"), nil), w.Pair([]byte("a"), nil))
			})
		}),
		"element of a value is there twice": stream(func(w *rdb.Writer) error {
			return key(w, "h", func() error {
				long := bytes.Repeat([]byte("x"), 100)
				return errors.Join(w.BeginHash(2), w.Pair([]byte("a"), long), w.Pair([]byte("a"), long))
			})
		}),
		`key "log": rdb: value type 19`: bytes.Replace(stream(func(w *rdb.Writer) error { return str(w, "log") }), []byte("\x00\x03log"), []byte("\x13\x03log"), 1),
		"checksum":                      append(stream(func(*rdb.Writer) error { return nil })[:20], "12345678"...),
	}
	n := newNode(t)
	n.do("SET", "old", "v")
	for want, raw := range cases {
		_, err := loadRDB(n, raw)
		if err == nil || want != "checksum" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if got := n.do("GET", "old") + n.do("DBSIZE"); got != "$1\r\nv\r\n:1\r\n" {
			t.Fatalf("%s: the data in use is %q", want, got)
		}
	}
	// A database without keys, and collections without elements, do no harm.
	raw := stream(func(w *rdb.Writer) error { return errors.Join(w.SelectDB(3), w.ResizeDB(0, 0), w.SelectDB(0)) })
	if _, err := loadRDB(n, raw); err != nil || n.do("GET", "fine") != "$1\r\nv\r\n" {
		t.Errorf("empty database: %v", err)
	}
}

// A hash whose fields have deadlines needs version 12, and is then written with them.
func TestRDBFieldDeadlines(t *testing.T) {
	n := newNode(t)
	n.do("HSET", "timed", "a", "1")
	n.txn.BeginAll(true, engine.Forever)
	k, err := n.txn.Key([]byte("timed"))
	if err != nil {
		t.Fatal(err)
	}
	k.Rec.Body = []byte("\x01\x00\x02\x00\x00\x01\x00\x00\x00\x00\x00\x01a\x01v\x00\x00\x00\x00\x00\x00\x00\x00\x01b\x01w")
	n.txn.Put(k)
	if _, err := n.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	sn, err := n.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	var unknown *rdb.UnsupportedTypeError
	if err := WriteRDB(sn, io.Discard, RDBInfo{}); !errors.As(err, &unknown) || !strings.Contains(err.Error(), `"timed"`) {
		t.Errorf("version 10: %v", err)
	}
	var out bytes.Buffer
	if err := WriteRDB(sn, &out, RDBInfo{Version: 12}); err != nil {
		t.Fatal(err)
	}
	got := fieldList{}
	if err := rdb.Read(bufio.NewReader(&out), got, rdb.ReadOptions{}); err != nil || fmt.Sprint(got) != "map[a=v:1099511627776 b=w:0]" {
		t.Errorf("version 12 reads back as %v, %v", got, err)
	}
}

// fieldList gathers the fields of hashes with their deadlines.
type fieldList map[string]int64

func (f fieldList) Aux(_, _ []byte) error         { return nil }
func (f fieldList) Function([]byte) error         { return nil }
func (f fieldList) SelectDB(uint64) error         { return nil }
func (f fieldList) ResizeDB(_, _ uint64) error    { return nil }
func (f fieldList) Key(rdb.Key) (rdb.Sink, error) { return fieldSink{fields: f}, nil }

type fieldSink struct {
	rdb.Discard
	fields fieldList
}

func (s fieldSink) HashField(field, value []byte, deadlineMs int64) error {
	s.fields[string(field)+"="+string(value)] = deadlineMs
	return nil
}
