package rdb

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// stringCorpus holds the lengths and numbers at which encodings change.
func stringCorpus(rng *rand.Rand) [][]byte {
	var all [][]byte
	for _, v := range []int64{
		0, 1, -1, 12, 13, 63, 64, 127, 128, -127, -128, -129, 255, 256, 4095, 4096, -4096, -4097, 16383, 16384,
		math.MaxInt16, math.MaxInt16 + 1, math.MinInt16, math.MinInt16 - 1, 1<<23 - 1, 1 << 23, -1 << 23, -1<<23 - 1,
		math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, math.MaxInt64, math.MinInt64,
	} {
		all = append(all, strconv.AppendInt(nil, v, 10))
	}
	for _, s := range []string{"", "-", "+1", "-0", "00", "0012", "1.0", "9223372036854775808", "-9223372036854775809", " 1", "1 "} {
		all = append(all, []byte(s))
	}
	for _, n := range []int{1, 19, 20, 21, 22, 24, 25, 63, 64, 65, 264, 265, 266, 4095, 4096, 8191, 8192, 8193, 16383, 16384, 65535, 65536, 70000, 1 << 20} {
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		all = append(all, noise, bytes.Repeat([]byte("a"), n), bytes.Repeat([]byte("abcd"), n/4+1)[:n])
	}
	for range 200 {
		all = append(all, element(rng, 300))
	}
	return all
}

// TestLiveStrings: what the server dumps is what it holds, and what we dump it
// takes in as the same.
func TestLiveStrings(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i, s := range stringCorpus(rng) {
			c.ok("SET", "k", s)
			theirs := []byte(c.ok("DUMP", "k").(string))
			want := &model{kind: KindString, str: s}
			if d := decode(t, theirs).differs(want); d != "" {
				t.Fatalf("string %d: %s", i, d)
			}
			body := AppendStringValue(nil, s)
			ours := AppendDump(nil, body)
			c.ok("RESTORE", "k2", 0, ours, "REPLACE")
			if d := c.fetch("k2").differs(want); d != "" {
				t.Fatalf("string %d restored: %s", i, d)
			}
			if d := decode(t, ours).differs(want); d != "" {
				t.Fatalf("string %d read back: %s", i, d)
			}
			// LZF leaves the choice of matches to the writer; all else is fixed.
			lzf := body[1] == 0xc0|strLZF
			theirBody, _, _ := VerifyDump(theirs)
			theirLZF := theirBody[1] == 0xc0|strLZF
			if !lzf && !theirLZF && !bytes.Equal(body, theirBody) {
				t.Fatalf("string %d %.40q: %.40x, server %.40x", i, s, body, theirBody)
			}
			if theirLZF && len(body) > len(theirBody)+len(theirBody)/4+8 {
				t.Fatalf("string %d %.40q: %d bytes, server %d", i, s, len(body), len(theirBody))
			}
		}
	})
}

// pairsOf ranges over a flat list of fields and values.
func pairsOf(flat [][]byte) func(func(f, v []byte) bool) {
	return func(yield func(f, v []byte) bool) {
		for i := 0; i+1 < len(flat); i += 2 {
			if !yield(flat[i], flat[i+1]) {
				return
			}
		}
	}
}

// distinct returns n elements, no two alike.
func distinct(rng *rand.Rand, n, maxLen int) [][]byte {
	seen := map[string]bool{}
	var out [][]byte
	for len(out) < n {
		e := element(rng, maxLen)
		if seen[string(e)] {
			e = strconv.AppendUint(e, rng.Uint64(), 36)
		}
		seen[string(e)] = true
		out = append(out, e)
	}
	return out
}

func args(cmd, key string, rest [][]byte) []any {
	out := []any{cmd, key}
	for _, r := range rest {
		out = append(out, r)
	}
	return out
}

// check compares server and us, both ways. sameBytes asks for byte equality too,
// which holds where compression is off.
func check(t *testing.T, c *conn, key string, body []byte, sameBytes bool) {
	t.Helper()
	want := c.fetch(key)
	theirs := []byte(c.ok("DUMP", key).(string))
	if d := decode(t, theirs).differs(want); d != "" {
		t.Fatalf("decoded: %s", d)
	}
	ours := AppendDump(nil, body)
	if d := decode(t, ours).differs(want); d != "" {
		t.Fatalf("read back: %s", d)
	}
	c.ok("RESTORE", "other", 0, ours, "REPLACE")
	if d := c.fetch("other").differs(want); d != "" {
		t.Fatalf("restored: %s", d)
	}
	if theirBody, _, _ := VerifyDump(theirs); sameBytes && !bytes.Equal(body, theirBody) {
		t.Fatalf("bytes differ:\n%.200x\nserver\n%.200x", body, theirBody)
	}
}

var sizes = []int{1, 2, 3, 10, 100, 128, 129, 512, 513, 2000}

func TestLiveHashes(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(3, 4))
		lim := Limits{Entries: 512, Value: 64} // the defaults of 7.0; 7.2 has 128
		for i := range 60 {
			n := sizes[i%len(sizes)]
			maxLen := []int{8, 64, 65, min(3000, 400_000/n)}[i%4]
			names := distinct(rng, n, maxLen)
			var flat [][]byte
			for _, f := range names {
				flat = append(flat, f, element(rng, maxLen))
			}
			c.ok("DEL", "h")
			c.ok(args("HSET", "h", flat)...)
			body := AppendHash(nil, n, pairsOf(flat), lim)
			same := body[0] == TypeHashListpack && c.ok("OBJECT", "ENCODING", "h") == "listpack" && body[1] != 0xc3
			check(t, c, "h", body, same)
			check(t, c, "h", AppendHash(nil, n, pairsOf(flat), Limits{}), false)
		}
	}, "--rdbcompression", "no")
}

func TestLiveLists(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range 60 {
			n := sizes[i%len(sizes)]
			maxLen := []int{8, 64, 400, 20000}[i%4]
			if maxLen*n > 4<<20 {
				maxLen = 2000
			}
			var items [][]byte
			for range n {
				items = append(items, element(rng, maxLen))
			}
			c.ok("DEL", "l")
			c.ok(args("RPUSH", "l", items)...)
			check(t, c, "l", AppendList(nil, slices.Values(items)), false)
			plain := AppendLength([]byte{TypeList}, uint64(n))
			for _, b := range items {
				plain = AppendString(plain, b)
			}
			check(t, c, "l", plain, false)
		}
		c.ok("DEL", "l")
		c.ok("RPUSH", "l", "a", 1, -5)
		check(t, c, "l", AppendList(nil, slices.Values([][]byte{[]byte("a"), []byte("1"), []byte("-5")})), true)
	})
}

func TestLiveSets(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(7, 8))
		v11 := decode11(c)
		for i := range 60 {
			n := sizes[i%len(sizes)]
			members := distinct(rng, n, 70)
			if i%3 == 0 {
				shift := 8 * (i % 8)
				seen := map[int64]bool{}
				members = nil
				for len(members) < n {
					v := int64(rng.Uint64()) >> min(shift, 50)
					if !seen[v] {
						seen[v] = true
						members = append(members, strconv.AppendInt(nil, v, 10))
					}
				}
			}
			c.ok("DEL", "s")
			c.ok(args("SADD", "s", members)...)
			lim := SetLimits{Intset: 512}
			if v11 {
				lim.Listpack = Limits{128, 64}
			}
			body := AppendSet(nil, n, slices.Values(members), lim)
			if v11 && body[0] == TypeSetListpack {
				// Stamped 11 on its own, so a server of 7.0 would refuse it.
				if _, v, _ := VerifyDump(AppendDump(nil, body)); v != 11 {
					t.Fatalf("set listpack stamped %d, want 11", v)
				}
			}
			check(t, c, "s", body, body[0] == TypeSetIntset && body[1] != 0xc3)
			check(t, c, "s", AppendSet(nil, n, slices.Values(members), SetLimits{}), false)
		}
	}, "--rdbcompression", "no")
}

// decode11 reports whether the server writes version 11 or later.
func decode11(c *conn) bool {
	c.ok("SET", "v", "x")
	_, v, err := VerifyDump([]byte(c.ok("DUMP", "v").(string)))
	c.ok("DEL", "v")
	return err == nil && v >= 11
}

func TestLiveZSets(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(9, 10))
		scores := []float64{
			0, 1, -1, 2.5, 0.1, 1e100, -1e-100, 127, 128, 1 << 52, 1<<52 + 1, 1 << 53, -1 << 52, 1e17, 1e21,
			math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 4503599627370495.5,
		}
		for i := range 60 {
			n := sizes[i%len(sizes)]
			type pair struct {
				m []byte
				s float64
			}
			var all []pair
			add := []any{"ZADD", "z"}
			for j, m := range distinct(rng, n, 70) {
				s := rng.NormFloat64() * math.Pow(10, float64(rng.IntN(30)-10))
				if j < len(scores) {
					s = scores[j]
				}
				all = append(all, pair{m, s})
				add = append(add, strconv.FormatFloat(s, 'g', -1, 64), m)
			}
			slices.SortFunc(all, func(a, b pair) int {
				if a.s != b.s {
					if a.s < b.s {
						return -1
					}
					return 1
				}
				return bytes.Compare(a.m, b.m)
			})
			seq := func(yield func([]byte, float64) bool) {
				for _, p := range all {
					if !yield(p.m, p.s) {
						return
					}
				}
			}
			c.ok("DEL", "z")
			c.ok(add...)
			check(t, c, "z", AppendZSet(nil, n, seq, Limits{128, 64}), false)
			check(t, c, "z", AppendZSet(nil, n, seq, Limits{}), false)
		}
	})
}

// TestLiveOldTypes gives the server what its ancestors wrote and compares what it
// makes of it with what we do.
func TestLiveOldTypes(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		for _, v := range oldValues() {
			payload := AppendDump(nil, v.body)
			if r := c.do("RESTORE", "old", 0, payload, "REPLACE"); r != "OK" {
				t.Fatalf("%s: server says %v", v.name, r)
			}
			if d := decode(t, payload).differs(c.fetch("old")); d != "" {
				t.Fatalf("%s: %s", v.name, d)
			}
		}
	})
}

// TestLiveRefusals: damaged values that a server with full sanitizing refuses are
// refused here, and those refused here are not silently different there.
func TestLiveRefusals(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		rng := rand.New(rand.NewPCG(11, 12))
		var accepted, refused, stricter int
		values := oldValues()
		for i := range 4000 {
			v := values[i%len(values)]
			body := bytes.Clone(v.body)
			for range 1 + rng.IntN(2) {
				body[rng.IntN(len(body))] ^= 1 << rng.IntN(8)
			}
			if isStreamOrModule(body[0]) {
				continue
			}
			payload := AppendDump(nil, body)
			m := &model{}
			err := DecodeDump(payload, m)
			r := c.do("RESTORE", "bad", 0, payload, "REPLACE")
			_, theirErr := r.(error)
			switch {
			case err == nil && theirErr:
				if body[0] < TypeHashDeadlines0 && !(body[0] == TypeSetListpack) {
					t.Fatalf("%s %x: accepted, server says %v", v.name, body, r)
				}
			case err == nil:
				accepted++
				if d := m.differs(c.fetch("bad")); d != "" {
					t.Fatalf("%s %x: %s", v.name, body, d)
				}
			case theirErr:
				refused++
			default:
				// Scores that are no number, bytes behind the value, a value
				// that runs into the footer, back lengths longer than needed.
				stricter++
			}
		}
		t.Logf("accepted by both %d, refused by both %d, refused only here %d", accepted, refused, stricter)
		if accepted == 0 || refused == 0 {
			t.Fatal("mutations did not reach both outcomes")
		}
	}, "--sanitize-dump-payload", "yes")
}

func isStreamOrModule(typ byte) bool {
	return typ == TypeStream || typ == TypeStream2 || typ == TypeStream3 || typ == TypeModule || typ == TypeModulePre
}

func TestLiveFooterErrors(t *testing.T) {
	eachServer(t, func(t *testing.T, c *conn) {
		good := AppendDump(nil, AppendStringValue(nil, []byte("hello")))
		zeroSum := append(bytes.Clone(good[:len(good)-8]), make([]byte, 8)...)
		newer := appendFooter(bytes.Clone(good[:len(good)-10]), MaxVersion+1, 0, good[:len(good)-10])
		empty := AppendDump(nil, []byte{TypeHash, 0})
		for _, p := range []struct {
			name    string
			payload []byte
			want    error
			text    string
		}{
			{"short", good[len(good)-9:], ErrDumpFooter, TextDumpFooter},
			{"zero checksum", zeroSum, ErrDumpFooter, TextDumpFooter},
			{"newer", newer, ErrDumpFooter, TextDumpFooter},
			{"empty hash", empty, ErrBadFormat, TextBadFormat},
			{"no value", appendFooter(nil, 10, 0, nil), ErrBadFormat, TextBadFormat},
			{"unknown type", AppendDump(nil, []byte{99, 1, 1}), ErrBadFormat, TextBadFormat},
		} {
			err := DecodeDump(p.payload, &model{})
			if !is(err, p.want) {
				t.Errorf("%s: %v, want %v", p.name, err, p.want)
			}
			if r := fmt.Sprint(c.do("RESTORE", "x", 0, p.payload, "REPLACE")); r != "ERR "+p.text {
				t.Errorf("%s: server says %q, want %q", p.name, r, "ERR "+p.text)
			}
		}
	})
}
