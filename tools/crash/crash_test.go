package main

import (
	"strconv"
	"strings"
	"testing"

	"cairn/internal/resp"
	"cairn/internal/testkit"
)

func runOn(t *testing.T, flags ...string) error {
	t.Helper()
	o, set := newOptions()
	args := append([]string{
		"--program", testkit.RedisPath(t), "--redis", "--quiet",
		"--writers", "2", "--longest", "300ms", "--mode", "standalone", "--dir", t.TempDir(),
	}, flags...)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(nil); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(o)
	if err != nil {
		t.Fatal(err)
	}
	return r.all(t.Context())
}

// TestKnownServer: a server that keeps what it acknowledges passes.
func TestKnownServer(t *testing.T) {
	t.Parallel()
	if err := runOn(t, "--rounds", "3", "--seed", "1"); err != nil {
		t.Fatal(err)
	}
}

// TestLossIsSeen: a check that never fails would pass as well.
func TestLossIsSeen(t *testing.T) {
	t.Parallel()
	err := runOn(t, "--rounds", "3", "--seed", "1", "--extra", "--appendonly no")
	if err == nil || !strings.Contains(err.Error(), "no key, want") {
		t.Fatalf("a server without a log: %v, want lost keys", err)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	str := func(s string) value { return value{kind: text, str: s} }
	due := value{kind: text, str: "v", lo: 1000, hi: 1010}
	fields := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name string
		want value
		got  seen
		ok   bool
	}{
		{"same text", str("v"), seen{kind: text, str: "v"}, true},
		{"other text", str("v"), seen{kind: text, str: "w"}, false},
		{"lost", str("v"), seen{}, false},
		{"invented", value{}, seen{kind: text, str: "v"}, false},
		{"both absent", value{}, seen{}, true},
		{"before the deadline", due, seen{kind: text, str: "v", deadline: 1005, from: 500, to: 510}, true},
		{"gone before the deadline", due, seen{from: 500, to: 510}, false},
		{"gone after the deadline", due, seen{from: 2000, to: 2010}, true},
		{"there after the deadline", due, seen{kind: text, str: "v", deadline: 1005, from: 2000, to: 2010}, false},
		{"deadline lost", due, seen{kind: text, str: "v", from: 500, to: 510}, false},
		{"other deadline", due, seen{kind: text, str: "v", deadline: 1500, from: 500, to: 510}, false},
		{"deadline invented", str("v"), seen{kind: text, str: "v", deadline: 1005}, false},
		{"same hash", value{kind: hash, hash: fields("a", "1")}, seen{kind: hash, hash: fields("a", "1")}, true},
		{"field lost", value{kind: hash, hash: fields("a", "1", "b", "2")}, seen{kind: hash, hash: fields("a", "1")}, false},
		{"field back", value{kind: hash, hash: fields("a", "1")}, seen{kind: hash, hash: fields("a", "1", "b", "2")}, false},
	} {
		if why := c.want.match(c.got); (why == "") != c.ok {
			t.Errorf("%s: %q, want a match: %v", c.name, why, c.ok)
		}
	}
}

// TestPrefix: of a pipeline in flight, only its beginning may be there.
func TestPrefix(t *testing.T) {
	t.Parallel()
	w := newWriter(0, 1, newFiller(1))
	w.flight = []op{
		{verb: vIncr, key: "cnt:0:0"},
		{verb: vIncr, key: "cnt:0:1"},
		{verb: vIncr, key: "cnt:0:0"},
	}
	for _, c := range []struct {
		a, b   string
		prefix int // -1: none fits
	}{
		{"", "", 0}, {"1", "", 1}, {"1", "1", 2}, {"2", "1", 3}, {"", "1", -1}, {"2", "", -1}, {"3", "1", -1},
	} {
		all := map[string]seen{}
		for key, v := range map[string]string{"cnt:0:0": c.a, "cnt:0:1": c.b} {
			if v != "" {
				all[key] = seen{kind: text, str: v}
			}
		}
		touched := map[string]bool{"cnt:0:0": true, "cnt:0:1": true}
		got, err := w.findPrefix(all, touched, 0)
		if (err != nil) != (c.prefix < 0) || err == nil && got != c.prefix {
			t.Errorf("counters %q and %q: prefix %d, %v; want %d", c.a, c.b, got, err, c.prefix)
		}
	}
}

// TestApply holds replies of the model against what Redis answers to the same commands.
func TestApply(t *testing.T) {
	t.Parallel()
	c := testkit.Dial(t, testkit.StartRedis(t).Addr)
	have := value{}
	for i, o := range []op{
		{verb: vAppend, arg: "5"},
		{verb: vIncr},
		{verb: vGet},
		{verb: vExpire, ms: 1_000_000},
		{verb: vPersist},
		{verb: vPersist},
		{verb: vExpire, ms: -1},
		{verb: vDel},
		{verb: vHSet, fields: []string{"a", "1", "b", "2"}},
		{verb: vHSet, fields: []string{"a", "1", "c", "2"}},
		{verb: vHDel, fields: []string{"a", "x"}},
		{verb: vHDel, fields: []string{"b", "c"}},
		{verb: vDel},
		{verb: vSet, arg: "v"},
		{verb: vDel},
	} {
		args := []string{string(o.verb), "k"}
		switch o.verb {
		case vSet, vAppend:
			args = append(args, o.arg)
		case vExpire:
			args = append(args, strconv.FormatInt(o.ms, 10))
		case vHSet, vHDel:
			args = append(args, o.fields...)
		}
		t0 := now()
		raw := c.Do(args...).Raw
		reply, _, err := resp.ParseReply([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		next, want := o.apply(have, t0, now())
		if fault := checkReply(want, reply); want == "" || fault != "" {
			t.Errorf("command %d, %v: %s (model: %q)", i, args, fault, want)
		}
		have = next
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want int64 // -1: refused
	}{
		{"32mb", 32 << 20}, {"1gb", 1 << 30}, {"100k", 100_000}, {"7", 7}, {"7b", 7}, {"", -1}, {"mb", -1}, {"-1mb", -1}, {"99999999999gb", -1},
	} {
		got, err := parseSize(c.text)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%q: %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

// FuzzParseSize: a flag is text from outside, too.
func FuzzParseSize(f *testing.F) {
	f.Add("32mb")
	f.Add("9223372036854775807gb")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseSize(text); err == nil && n < 0 {
			t.Fatalf("%q: %d", text, n)
		}
	})
}
