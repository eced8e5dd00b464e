package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// pair is a node and a live redis-server that are asked the same.
type pair struct {
	t     *testing.T
	cairn *testkit.Conn
	redis *testkit.Conn
	seven bool // the server is 7.2 or later, not 7.0
}

func startPair(t *testing.T, directives ...string) *pair {
	t.Helper()
	var args []string
	for _, d := range directives {
		name, value, _ := strings.Cut(d, " ")
		args = append(args, "--"+name, value)
	}
	r := testkit.StartRedis(t, args...)
	n := startServer(t, directives...)
	p := &pair{t: t, cairn: n.dial(t), redis: testkit.Dial(t, r.Addr)}
	p.seven = !strings.Contains(p.redis.Do("INFO", "server").Raw, "redis_version:7.0")
	return p
}

// same compares the raw replies to lines of words.
func (p *pair) same(lines string) {
	p.t.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		words := strings.Fields(line)
		for i := range words {
			if words[i] == `""` {
				words[i] = ""
			}
		}
		got, want := p.cairn.Do(words...).Raw, p.redis.Do(words...).Raw
		if got != want {
			p.t.Errorf("%s\ngot  %q\nwant %q", strings.TrimSpace(line), got, want)
		}
	}
}

// script reads lines of commands.
func script(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func infoFields(text string) map[string]string {
	fields, section := map[string]string{}, ""
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			section = name
		} else if name, value, ok := strings.Cut(line, ":"); ok {
			fields[section+" "+name] = value
		}
	}
	return fields
}

func TestInfoHasRedisFields(t *testing.T) {
	p := startPair(t)
	for _, c := range []*testkit.Conn{p.cairn, p.redis} {
		c.Do("SET", "k", "v")
		c.Do("NOSUCH")
	}
	for _, args := range [][]string{{"INFO"}, {"INFO", "everything"}, {"INFO", "all"}, {"INFO", "stats", "commandstats"}, {"INFO", "default", "latencystats"}} {
		got, want := infoFields(p.cairn.Do(args...).Value.(string)), infoFields(p.redis.Do(args...).Value.(string))
		for name := range want {
			_, ok := got[name]
			// These are of what this test has not done here, or of the server's build.
			skip := strings.HasPrefix(name, "Commandstats ") || strings.HasPrefix(name, "Latencystats ") || strings.HasPrefix(name, "Modules ")
			if !ok && !skip {
				t.Errorf("%s: no field %q", args, name)
			}
		}
		for name := range got {
			section, _, _ := strings.Cut(name, " ")
			if !slices.ContainsFunc(keysOf(want), func(w string) bool { return strings.HasPrefix(w, section+" ") }) && section != "Cairn" {
				t.Errorf("%s: section %s is not asked for", args, section)
			}
		}
	}
	fields := infoFields(p.cairn.Do("INFO", "everything").Value.(string))
	for name, want := range map[string]string{
		"Server redis_version": "7.2.4", "Server server_name": "cairn", "Keyspace db0": "keys=1,expires=0,avg_ttl=0",
		"Errorstats errorstat_ERR": "count=1", "Replication role": "master", "Cairn gate": "open",
	} {
		if fields[name] != want {
			t.Errorf("%s: got %q, want %q", name, fields[name], want)
		}
	}
	if !strings.HasPrefix(fields["Commandstats cmdstat_set"], "calls=1,") || !strings.HasPrefix(fields["Latencystats latency_percentiles_usec_set"], "p50=") {
		t.Errorf("got %q and %q", fields["Commandstats cmdstat_set"], fields["Latencystats latency_percentiles_usec_set"])
	}
	if got := p.cairn.Do("INFO", "nosuchsection").Raw; got != "$0\r\n\r\n" {
		t.Errorf("unknown section: got %q", got)
	}
}

// TestInfoCountsDeadlines holds the number of keys with a deadline, and their mean time to live, against redis-server's after
// every way in which a key gets, changes, keeps and loses one.
func TestInfoCountsDeadlines(t *testing.T) {
	p := startPair(t)
	const far = "4000000000000"
	long := strings.Repeat("x", 70_000)
	for _, line := range []string{
		"SET a 1 PXAT " + far, "SET b 1", "PEXPIREAT b " + far, "PEXPIREAT b 5000000000000", "SET a 2 KEEPTTL", "APPEND a 3",
		"HSET h f v", "EXPIREAT h 4000000000", "HSET h f w g x", "HDEL h f", "SET l " + long, "EXPIREAT l 4000000000", "APPEND l y",
		"RENAME l m", "COPY m n", "PERSIST m", "SET b 2", "GETEX n PERSIST", "SET b 1 EX 100000", "SET gone 1 PX 1", "DEL h",
		"SET c 1 EXAT 9000000000000", "GETDEL c", "MSET a 1 b 2", "SET a 1 PXAT " + far, "FLUSHALL", "SET a 1 PXAT " + far,
	} {
		words := strings.Fields(line)
		if got, want := p.cairn.Do(words...).Raw, p.redis.Do(words...).Raw; got != want {
			t.Fatalf("%.40s: got %.80q, want %.80q", line, got, want)
		}
		if strings.Contains(line, "gone") {
			for _, c := range []*testkit.Conn{p.cairn, p.redis} {
				testkit.Eventually(t, replyWait, func() bool { return c.Do("EXISTS", "gone").Value == int64(0) }, "the key goes")
			}
		}
		var got, want [3]int64
		testkit.Eventually(t, replyWait, func() bool { // what has expired goes in the background
			got, want = p.keyspace(p.cairn), p.keyspace(p.redis)
			return got[0] == want[0] && got[1] == want[1]
		}, "as many keys, and keys with a deadline, as redis-server has after "+words[0])
	}
	// Of one key alone the mean is no estimate.
	ttl := p.cairn.Do("PTTL", "a").Value.(int64)
	if mean := p.keyspace(p.cairn)[2]; mean < ttl-2000 || mean > ttl+2000 {
		t.Errorf("avg_ttl is %d, the only key has %d ms to live", mean, ttl)
	}
}

// keyspace gives the figures of db0's line: keys, expires, avg_ttl.
func (p *pair) keyspace(c *testkit.Conn) (n [3]int64) {
	line := infoFields(c.Do("INFO", "keyspace").Value.(string))["Keyspace db0"]
	if _, err := fmt.Sscanf(line, "keys=%d,expires=%d,avg_ttl=%d", &n[0], &n[1], &n[2]); err != nil && line != "" {
		p.t.Fatalf("%q: %v", line, err)
	}
	return n
}

func keysOf(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func TestAdminRepliesAreRedis(t *testing.T) {
	p := startPair(t, "enable-debug-command yes", "latency-monitor-threshold 0")
	p.same(script(t, "admin.txt"))
	if p.seven {
		p.same(`
CONFIG SET slowlog-max-len 10 loglevel nosuch
ACL LIST
ACL GETUSER default
COMMAND GETKEYS GET
WAITAOF 2 0 0
WAITAOF x 0 0
WAITAOF 0 -1 0
WAITAOF 0 0 -1
CLUSTER NOSUCH`[1:])
	}
	if got := p.cairn.Do("WAITAOF", "1", "0", "0").Raw; got != "*2\r\n:1\r\n:0\r\n" {
		t.Errorf("WAITAOF: got %q", got)
	}
	p.cairn.Do("HELLO", "3")
	p.redis.Do("HELLO", "3")
	p.same(`
DEBUG PROTOCOL attrib
DEBUG PROTOCOL map
DEBUG PROTOCOL verbatim
CONFIG GET hz
FUNCTION LIST
COMMAND INFO nosuch get
LATENCY HISTOGRAM nosuch`[1:])
	if p.seven {
		for range 2 { // the reply, and the message behind it
			p.same("DEBUG PROTOCOL push")
		}
	}
}

// unordered makes what comes in no order comparable.
func unordered(v any) any {
	switch v := v.(type) {
	case testkit.Set:
		return unordered([]any(v))
	case testkit.Map:
		return unordered([]any(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = unordered(v[i])
		}
		slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return out
	}
	return v
}

// COMMAND INFO of every command that is here is Redis's, in both protocols. The listing for 7.0 has its own test
// beside the table; here the whole replies are compared, as far as the live server has the same version.
func TestCommandInfoIsRedis(t *testing.T) {
	p := startPair(t)
	for _, proto := range []string{"2", "3"} {
		p.cairn.Do("HELLO", proto)
		p.redis.Do("HELLO", proto)
		for _, name := range p.cairn.Do("COMMAND", "LIST").Value.([]any) {
			name := name.(string)
			if !p.seven && !slices.Contains([]string{"get", "set", "del", "mset", "hset", "exec", "subscribe", "memory|usage", "debug", "time"}, name) {
				continue
			}
			got, want := p.cairn.Do("COMMAND", "INFO", name).Value.([]any)[0], p.redis.Do("COMMAND", "INFO", name).Value.([]any)[0]
			if want == nil {
				t.Errorf("%s is not known to Redis", name)
				continue
			}
			g, w := got.([]any), want.([]any)
			if len(w) == 10 && len(asList(w[9])) > 0 {
				g[9], w[9] = nil, nil // a container: its subcommands are compared by themselves
			}
			withoutNotes(w[8])
			if name == "msetnx" {
				g[7], w[7] = nil, nil // the hints of 7.0
			}
			if !reflect.DeepEqual(unordered(g), unordered(w)) {
				t.Errorf("%s, RESP%s:\ngot  %v\nwant %v", name, proto, g, w)
			}
		}
	}
}

// withoutNotes takes Redis's prose out of key specs, whose maps become lists of what is left.
func withoutNotes(specs any) {
	list := asList(specs)
	for i := range list {
		switch spec := list[i].(type) {
		case testkit.Map:
			if spec[0] == "notes" {
				list[i] = spec[2:]
			}
		case []any:
			if spec[0] == "notes" {
				list[i] = spec[2:]
			}
		}
	}
}

func asList(v any) []any {
	switch v := v.(type) {
	case testkit.Set:
		return v
	case []any:
		return v
	}
	return nil
}

func TestCommandDocs(t *testing.T) {
	c := startServer(t).dial(t)
	docs := c.Do("COMMAND", "DOCS", "get", "config", "nosuch").Value.([]any)
	if len(docs) != 4 || docs[0] != "get" || docs[2] != "config" {
		t.Fatalf("got %v", docs)
	}
	if got := docs[1].([]any)[:6]; got[0] != "summary" || got[2] != "since" || got[3] != "1.0.0" || got[5] != "string" {
		t.Errorf("get: got %v", got)
	}
	if count := c.Do("COMMAND", "COUNT").Value.(int64); int(count)*2 != len(c.Do("COMMAND", "DOCS").Value.([]any)) {
		t.Errorf("COMMAND COUNT gives %d, which is not how many COMMAND DOCS describes", count)
	}
}

func TestSlowlog(t *testing.T) {
	c := startServer(t, "slowlog-log-slower-than 0", "slowlog-max-len 4").dial(t)
	c.Do("CLIENT", "SETNAME", "slow")
	c.Do("SLOWLOG", "RESET")
	c.Do("CONFIG", "SET", "masterauth", "secret", "hz", "11")
	c.Do("AUTH", "user", "secret")
	long := append([]string{"DEL", strings.Repeat("k", 200)}, strings.Split(strings.Repeat("x ", 40), " ")...)
	c.Do(long...)
	entries := c.Do("SLOWLOG", "GET", "10").Value.([]any)
	if len(entries) != 4 {
		t.Fatalf("%d entries, want 4: %v", len(entries), entries)
	}
	words := func(i int) []any { return entries[i].([]any)[3].([]any) }
	if w := words(0); len(w) != 32 || w[31] != "... (12 more arguments)" || w[1] != strings.Repeat("k", 128)+"... (72 more bytes)" {
		t.Errorf("got %v", w)
	}
	if w := fmt.Sprint(words(1)); w != "[AUTH (redacted) (redacted)]" {
		t.Errorf("got %s", w)
	}
	if w := fmt.Sprint(words(2)); w != "[CONFIG SET masterauth (redacted) hz 11]" {
		t.Errorf("got %s", w)
	}
	if e := entries[0].([]any); len(e) != 6 || e[5] != "slow" {
		t.Errorf("got %v", e)
	}
}

func TestLatencyMonitor(t *testing.T) {
	c := startServer(t, "enable-debug-command local", "latency-monitor-threshold 20").dial(t)
	c.Do("DEBUG", "SLEEP", "0.03")
	c.Do("DEBUG", "SLEEP", "0.04")
	latest := c.Do("LATENCY", "LATEST").Value.([]any)
	if len(latest) != 1 || latest[0].([]any)[0] != "command" || latest[0].([]any)[3].(int64) < 40 {
		t.Fatalf("got %v", latest)
	}
	if h := c.Do("LATENCY", "HISTORY", "command").Value.([]any); len(h) == 0 {
		t.Error("no history")
	}
	if g := c.Do("LATENCY", "GRAPH", "command").Value.(string); !regexp.MustCompile(`(?s)command.*high.*low`).MatchString(g) {
		t.Errorf("got %s", g)
	}
	if d := c.Do("LATENCY", "DOCTOR").Value.(string); !strings.Contains(d, "command") {
		t.Errorf("got %s", d)
	}
	if h := fmt.Sprint(c.Do("LATENCY", "HISTOGRAM", "debug").Value); !strings.HasPrefix(h, "[debug [calls 2 histogram_usec [") {
		t.Errorf("got %s", h)
	}
	if n := c.Do("LATENCY", "RESET").Raw; n != ":1\r\n" {
		t.Errorf("got %q", n)
	}
}

func TestDebugIsGuarded(t *testing.T) {
	p := startPair(t)
	p.same("DEBUG SLEEP 0\nDEBUG HELP\nDEBUG")
}

func TestShutdownIsHandedOn(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	if err := c.Send("SHUTDOWN", "NOSAVE"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.ShutdownRequested():
	case <-time.After(replyWait):
		t.Fatal("nobody was told")
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Receive(); err == nil {
		t.Fatalf("got a reply: %q", r.Raw)
	}
}

func TestConfigHooks(t *testing.T) {
	n := startServer(t, "timeout 0", "requirepass old")
	c := n.dial(t)
	if r := c.Do("AUTH", "old").Raw; r != "+OK\r\n" {
		t.Fatal(r)
	}
	c.Do("CONFIG", "SET", "requirepass", "new")
	if r := c.Do("PING").Raw; r != "+PONG\r\n" {
		t.Errorf("a connection lost its login: %q", r)
	}
	if r := c.Do("CONFIG", "SET", "dir", "/").Raw; !strings.Contains(r, "protected") {
		t.Errorf("dir: got %q", r)
	}
	idle := n.dial(t)
	idle.Do("AUTH", "new")
	c.Do("CONFIG", "SET", "timeout", "1")
	testkit.Eventually(t, 10*time.Second, func() bool {
		c.Do("PING")
		return n.clients.count() == 1
	}, "the idle connection is closed")
}

// CONFIG SET port and bind move the sockets; what cannot be had changes nothing.
func TestRelisten(t *testing.T) {
	n := startServer(t)
	c := n.dial(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, busy, _ := net.SplitHostPort(taken.Addr().String())
	if r := c.Do("CONFIG", "SET", "maxmemory", "10000001", "port", busy).Raw; !strings.Contains(r, "'port') - Unable to listen on this port") {
		t.Errorf("got %q", r)
	}
	if r := fmt.Sprint(c.Do("CONFIG", "GET", "port", "maxmemory").Value); r != fmt.Sprintf("[port %d maxmemory 0]", n.Port) {
		t.Errorf("got %s", r)
	}
	n.dial(t).Do("PING")
	if r := c.Do("CONFIG", "SET", "bind", "127.0.0.1 192.0.2.1").Raw; !strings.Contains(r, "Failed to bind") {
		t.Errorf("got %q", r)
	}
	n.dial(t).Do("PING")
	if r := c.Do("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2").Raw; r != "+OK\r\n" {
		t.Errorf("got %q", r)
	}
	testkit.Dial(t, fmt.Sprintf("127.0.0.2:%d", n.Port)).Do("PING")
	next := testkit.FreePort(t)
	if r := c.Do("CONFIG", "SET", "port", fmt.Sprint(next), "bind", "127.0.0.1").Raw; r != "+OK\r\n" {
		t.Errorf("got %q", r)
	}
	testkit.Dial(t, fmt.Sprintf("127.0.0.1:%d", next)).Do("PING")
	if old, err := net.Dial("tcp", n.Addr); err == nil {
		old.Close()
		t.Error("the old port still answers")
	}
	if r := c.Do("CONFIG", "SET", "bind", "").Raw; r != "+OK\r\n" {
		t.Errorf("got %q", r)
	}
	if none, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", next)); err == nil {
		none.Close()
		t.Error("a node bound to no address answers")
	}
	c.Do("PING")
	if r := c.Do("CONFIG", "SET", "port", "0").Raw; r != "+OK\r\n" {
		t.Errorf("got %q", r)
	}
	c.Do("PING")
}

func TestSaveKinds(t *testing.T) {
	c := startServer(t).dial(t)
	c.Do("SET", "a", "b")
	if f := infoFields(c.Do("INFO", "persistence").Value.(string)); f["Persistence rdb_changes_since_last_save"] != "1" {
		t.Errorf("got %q changes", f["Persistence rdb_changes_since_last_save"])
	}
	if r := c.Do("SAVE").Raw; r != "+OK\r\n" {
		t.Errorf("SAVE: %q", r)
	}
	if f := infoFields(c.Do("INFO").Value.(string)); f["Persistence rdb_changes_since_last_save"] != "0" || f["Cairn durable_offset"] != f["Cairn log_end_offset"] {
		t.Errorf("got %v", f)
	}
	if r := c.Do("BGSAVE").Raw; r != "+Background saving started\r\n" {
		t.Errorf("BGSAVE: %q", r)
	}
	if r := c.Do("BGREWRITEAOF").Raw; !strings.HasPrefix(r, "+Background append only file rewriting") {
		t.Errorf("BGREWRITEAOF: %q", r)
	}
}
