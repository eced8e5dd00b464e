package rdb

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// keyspace is a Handler that keeps everything.
type keyspace struct {
	aux   map[string]string
	funcs []string
	db    uint64
	keys  map[string]*model // by "db/name"
	meta  map[string]Key
}

func newKeyspace() *keyspace {
	return &keyspace{aux: map[string]string{}, keys: map[string]*model{}, meta: map[string]Key{}}
}

func (k *keyspace) Aux(name, value []byte) error { k.aux[string(name)] = string(value); return nil }
func (k *keyspace) Function(src []byte) error {
	k.funcs = append(k.funcs, string(src))
	return nil
}
func (k *keyspace) SelectDB(db uint64) error      { k.db = db; return nil }
func (k *keyspace) ResizeDB(uint64, uint64) error { return nil }
func (k *keyspace) Key(key Key) (Sink, error) {
	m := &model{}
	id := fmt.Sprintf("%d/%s", k.db, key.Name)
	k.keys[id] = m
	key.Name = bytes.Clone(key.Name)
	k.meta[id] = key
	return m, nil
}

const library = "#!lua name=cairntest\nredis.register_function('f', function(keys, args) return 1 end)\n"

// writeStream writes one key of every type, and one with fields of noiseLen bytes.
// It returns the stream and its keys.
func writeStream(t *testing.T, noiseLen int) ([]byte, *keyspace) {
	t.Helper()
	var out bytes.Buffer
	want := newKeyspace()
	w := NewWriter(&out, 0)
	w.Aux("redis-ver", "7.0.15")
	w.Aux("redis-bits", "64")
	w.Aux("repl-stream-db", "0")
	w.Function([]byte(library))
	expect := func(k Key, m *model) {
		want.keys[fmt.Sprintf("%d/%s", want.db, k.Name)] = m
		if err := w.Key(k); err != nil {
			t.Fatal(err)
		}
	}
	w.SelectDB(0)
	w.ResizeDB(100, 2)
	for i, v := range oldValues() {
		expect(Key{Name: fmt.Appendf(nil, "key:%d", i)}, decode(t, AppendDump(nil, v.body)))
		w.Value(v.body)
	}
	w.SelectDB(3)
	w.ResizeDB(5, 2)
	want.db = 3
	long := bytes.Repeat([]byte("0123456789"), 30_000)
	expect(Key{Name: []byte("long"), DeadlineMs: 4102444800123}, &model{kind: KindString, str: long})
	w.BeginString(uint64(len(long)))
	w.Write(long[:7])
	w.Write(long[7:])
	list, set, zset, hash := &model{kind: KindList}, &model{kind: KindSet}, &model{kind: KindZSet}, &model{kind: KindHash}
	const n = 5000
	expect(Key{Name: []byte("12345"), HasIdle: true, IdleSec: 77}, list)
	w.BeginList(n)
	for i := range n {
		b := fmt.Appendf(nil, "item %d", i)
		w.Item(b)
		list.ListItem(b)
	}
	expect(Key{Name: []byte("set"), HasFreq: true, Freq: 200}, set)
	w.BeginSet(n)
	for i := range n {
		b := fmt.Appendf(nil, "%d", i*i)
		w.Member(b)
		set.SetMember(b)
	}
	expect(Key{Name: []byte("zset"), DeadlineMs: 4102444800000}, zset)
	w.BeginZSet(n)
	for i := range n {
		b := fmt.Appendf(nil, "m%d", n-i)
		w.Scored(b, float64(n-i)/3)
		zset.ZSetMember(b, float64(n-i)/3)
	}
	expect(Key{Name: []byte("")}, hash)
	w.BeginHash(n)
	for i := range n {
		f, v := fmt.Appendf(nil, "f%d", i), bytes.Repeat([]byte{byte(i)}, i%200)
		w.Pair(f, v)
		hash.HashField(f, v, 0)
	}
	wide := &model{kind: KindHash}
	expect(Key{Name: []byte("wide")}, wide)
	noise := make([]byte, noiseLen)
	for i, rng := 0, rand.New(rand.NewPCG(60, 61)); i < len(noise); i++ {
		noise[i] = byte(rng.Uint32())
	}
	zeros := make([]byte, noiseLen)
	w.BeginHash(2)
	w.Pair(noise, zeros)
	w.Pair(zeros, noise)
	wide.HashField(noise, zeros, 0)
	wide.HashField(zeros, noise, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), want
}

func (k *keyspace) same(t *testing.T, want *keyspace) {
	t.Helper()
	for id, m := range want.keys {
		if got := k.keys[id]; got == nil {
			t.Errorf("key %s: missing", id)
		} else if d := got.differs(m); d != "" {
			t.Errorf("key %s: %s", id, d)
		}
	}
	if len(k.keys) != len(want.keys) {
		t.Errorf("%d keys, want %d", len(k.keys), len(want.keys))
	}
}

func TestStreamRoundTrip(t *testing.T) {
	stream, want := writeStream(t, 2<<20)
	for name, r := range map[string]io.Reader{
		"whole":       bytes.NewReader(stream),
		"one byte":    iotest.OneByteReader(bytes.NewReader(stream)),
		"tiny buffer": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		got := newKeyspace()
		br := bufio.NewReaderSize(io.MultiReader(r, strings.NewReader("what follows")), 64)
		if name == "whole" {
			br = bufio.NewReaderSize(br, 1<<16)
		}
		if err := Read(br, got, ReadOptions{CheckPlain: true}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got.same(t, want)
		if rest, err := io.ReadAll(br); err != nil || string(rest) != "what follows" {
			t.Errorf("%s: %q left, %v", name, rest, err)
		}
		m := got.meta
		if m["3/long"].DeadlineMs != 4102444800123 || m["3/12345"].IdleSec != 77 || m["3/set"].Freq != 200 || m["3/"].HasFreq {
			t.Errorf("%s: what belongs to the keys is lost: %+v", name, m["3/long"])
		}
		if got.aux["redis-bits"] != "64" || len(got.funcs) != 1 || got.funcs[0] != library {
			t.Errorf("%s: aux %v, functions %q", name, got.aux, got.funcs)
		}
	}
}

func TestStreamDamage(t *testing.T) {
	stream, _ := writeStream(t, 1000)
	rng := rand.New(rand.NewPCG(40, 41))
	for range 20 {
		bad := bytes.Clone(stream)
		bad[rng.IntN(len(bad))] ^= byte(1 + rng.IntN(255))
		if err := Read(bufio.NewReader(bytes.NewReader(bad)), newKeyspace(), ReadOptions{}); err == nil {
			t.Fatal("a flipped byte was not noticed")
		}
		cut := stream[:rng.IntN(len(stream))]
		if err := Read(bufio.NewReader(bytes.NewReader(cut)), newKeyspace(), ReadOptions{}); !is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", len(cut), err)
		}
	}
	unsummed := append(bytes.Clone(stream[:len(stream)-8]), make([]byte, 8)...)
	if err := Read(bufio.NewReader(bytes.NewReader(unsummed)), newKeyspace(), ReadOptions{}); err != nil {
		t.Fatalf("a stream without a checksum: %v", err)
	}
	for _, head := range []string{"REDIS0013", "REDIS0000", "REDISx010", "VALKEY010"} {
		if err := Read(bufio.NewReader(strings.NewReader(head+"\xff")), newKeyspace(), ReadOptions{}); !is(err, ErrBadFormat) {
			t.Errorf("%s: %v", head, err)
		}
	}
	// An empty collection in a stream is passed over.
	empty := "REDIS0003\x04\x01h\x00\x00\x01s\x01v\xff"
	got := newKeyspace()
	if err := Read(bufio.NewReader(strings.NewReader(empty)), got, ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	if got.keys["0/h"].began != 0 || string(got.keys["0/s"].str) != "v" {
		t.Errorf("%+v", got.keys)
	}
}

// TestLiveLoad: redis-check-rdb finds nothing to say against a file of ours and a
// server holds all that is in it.
func TestLiveLoad(t *testing.T) {
	stream, want := writeStream(t, 2<<20)
	check, err := exec.LookPath("redis-check-rdb")
	if err != nil {
		t.Skip("no redis-check-rdb in PATH")
	}
	file := filepath.Join(t.TempDir(), "dump.rdb")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(check, file).CombinedOutput(); err != nil || !strings.Contains(string(out), "RDB looks OK") {
		t.Fatalf("redis-check-rdb: %v\n%s", err, out)
	}
	eachServer(t, func(t *testing.T, c *conn) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "dump.rdb"), stream, 0o600); err != nil {
			t.Fatal(err)
		}
		loaded := startRedis(t, c.program, dir)
		for id, m := range want.keys {
			db, name, _ := strings.Cut(id, "/")
			loaded.ok("SELECT", db)
			if d := loaded.fetch(name).differs(m); d != "" {
				t.Errorf("key %s: %s", id, d)
			}
		}
		loaded.ok("SELECT", 3)
		if at := loaded.ok("PEXPIRETIME", "long"); at != int64(4102444800123) {
			t.Errorf("deadline %v", at)
		}
		if n := len(loaded.ok("FUNCTION", "LIST").([]any)); n != 1 {
			t.Errorf("%d function libraries", n)
		}
	})
}

// TestLiveFile: we read the file that a server saves.
func TestLiveFile(t *testing.T) {
	for _, compression := range []string{"yes", "no"} {
		eachServer(t, func(t *testing.T, c *conn) {
			rng := rand.New(rand.NewPCG(50, 51))
			c.ok("FUNCTION", "LOAD", library)
			names := map[string]string{}
			for db := range 3 {
				c.ok("SELECT", db*5)
				for i := range 60 {
					name := fmt.Sprintf("key:%d:%d", db, i)
					names[name] = fmt.Sprintf("%d/%s", db*5, name)
					n := sizes[i%len(sizes)]
					switch i % 5 {
					case 0:
						c.ok("SET", name, element(rng, 100_000), "PXAT", 4102444800000+i)
					case 1:
						c.ok(args("RPUSH", name, distinct(rng, n, 300))...)
					case 2:
						c.ok(args("SADD", name, distinct(rng, n, 80))...)
					case 3:
						var flat [][]byte
						for _, m := range distinct(rng, n, 80) {
							flat = append(flat, fmt.Appendf(nil, "%v", rng.NormFloat64()*1000), m)
						}
						c.ok(args("ZADD", name, flat)...)
					case 4:
						c.ok(args("HSET", name, distinct(rng, n*2, 80))...)
					}
				}
			}
			c.ok("SAVE")
			f, err := os.Open(filepath.Join(c.dir, "dump.rdb"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got := newKeyspace()
			if err := Read(bufio.NewReader(f), got, ReadOptions{CheckPlain: true}); err != nil {
				t.Fatal(err)
			}
			for name, id := range names {
				db, _, _ := strings.Cut(id, "/")
				c.ok("SELECT", db)
				m := got.keys[id]
				if m == nil {
					t.Fatalf("key %s: missing", id)
				}
				if d := m.differs(c.fetch(name)); d != "" {
					t.Errorf("key %s: %s", id, d)
				}
				want := c.ok("PEXPIRETIME", name).(int64)
				if at := got.meta[id].DeadlineMs; at != max(want, 0) {
					t.Errorf("key %s: deadline %d, server %d", id, at, want)
				}
				if !got.meta[id].HasIdle {
					t.Errorf("key %s: no idle time", id)
				}
			}
			if len(got.funcs) != 1 || got.funcs[0] != library || got.aux["redis-bits"] != "64" {
				t.Errorf("functions %q, aux %v", got.funcs, got.aux)
			}
		}, "--rdbcompression", compression, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "1gb")
	}
}

func TestWriterSequence(t *testing.T) {
	for name, calls := range map[string]func(w *Writer){
		"value without key": func(w *Writer) { w.BeginString(0) },
		"key without value": func(w *Writer) { w.Key(Key{Name: []byte("k")}) },
		"record in a value": func(w *Writer) { w.Key(Key{}); w.BeginSet(1); w.SelectDB(1) },
		"two keys":          func(w *Writer) { w.Key(Key{}); w.Key(Key{}) },
	} {
		w := NewWriter(io.Discard, 0)
		calls(w)
		if err := w.Close(); !is(err, ErrSequence) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWriterVersion: a stream never carries a type that its version lacks.
func TestWriterVersion(t *testing.T) {
	for name, v := range newerValues() {
		w := NewWriter(io.Discard, 0)
		w.Key(Key{Name: []byte("k")})
		w.Value(v.body)
		var e *UnsupportedTypeError
		if err := w.Close(); !errors.As(err, &e) || e.Type != v.body[0] {
			t.Errorf("type %s: %v", name, err)
		}
		var out bytes.Buffer
		w = NewWriter(&out, VersionOf(v.body[0]))
		w.Key(Key{Name: []byte("k")})
		w.Value(v.body)
		got := newKeyspace()
		if err := errors.Join(w.Close(), Read(bufio.NewReader(&out), got, ReadOptions{})); err != nil {
			t.Fatalf("type %s: %v", name, err)
		}
		if d := got.keys["0/k"].differs(v.want); d != "" {
			t.Errorf("type %s: %s", name, d)
		}
	}
}
