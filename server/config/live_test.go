package config

import (
	"os"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// liveGet asks a real server.
func liveGet(t *testing.T, conn *testkit.Conn, pattern string) map[string]string {
	t.Helper()
	list, ok := conn.Do("CONFIG", "GET", pattern).Value.([]any)
	if !ok {
		t.Fatalf("CONFIG GET %s: no list", pattern)
	}
	out := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		out[list[i].(string)] = list[i+1].(string)
	}
	return out
}

// liveSet sets a value in a real server and returns the reply in words.
func liveSet(conn *testkit.Conn, pairs ...string) string {
	switch v := conn.Do(append([]string{"CONFIG", "SET"}, pairs...)...).Value.(type) {
	case string:
		return v
	case error:
		// 7.2 says argument(s) where 7.0 said argument, and has one log level more.
		text := strings.Replace(v.Error(), "argument must be one of", "argument(s) must be one of", 1)
		if levels := "notice, warning"; strings.HasSuffix(text, levels) {
			text += ", nothing"
		}
		return text
	}
	return "?"
}

// differences are the defaults that differ from Redis's on purpose, or by the way
// in which the test starts the server.
func differences() map[string]string {
	return map[string]string{
		"repl-backlog-size": "the backlog is on disk, so it can be larger",
		"databases":         "there is one",
		"bind":              "the test's server listens on one address",
		"port":              "the test's server has a port of its own",
		"dir":               "the test's server has a folder of its own",
		"save":              "the test's server does not save",
		"maxclients":        "the test's server may have too few file descriptors",
	}
}

func TestDefaultsOfRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	c := mustLoad(t, "", nil)
	for name, want := range liveGet(t, testkit.Dial(t, server.Addr), "*") {
		got, known := c.Value(name)
		if !known {
			t.Errorf("%s is unknown", name)
			continue
		}
		if differences()[name] == "" && got != want {
			t.Errorf("%s: default %q, redis has %q", name, got, want)
		}
	}
}

func TestNamesOfRedis(t *testing.T) {
	data, err := os.ReadFile("testdata/redis-7.2-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := newDirectory()
	for name := range strings.FieldsSeq(string(data)) {
		if p, _ := d.find(name); p == nil && !isStatement(name) {
			t.Errorf("%s is unknown", name)
		}
	}
}

// The same wrong values are refused with the same words.
func TestRefusalsOfRedis(t *testing.T) {
	server := testkit.StartRedis(t, "--unixsocketperm", "700", "--enable-protected-configs", "yes")
	conn := testkit.Dial(t, server.Addr)
	c := mustLoad(t, "", nil, "--enable-protected-configs", "yes")
	for _, x := range [][]string{
		{"foo", "bar"},
		{"timeout", "1", "foo", "bar"},
		{"timeout"},
		{"timeout", "1", "port"},
		{"maxclients", "0"},
		{"Maxclients", "0"},
		{"maxclients", "4294967296"},
		{"maxclients", "-1"},
		{"maxclients", "1", "maxclients", "2"},
		{"CLUSTER-enabled", "yes"},
		{"daemonize", "yes"},
		{"unixsocketperm", "999"},
		{"slaveof", "a 1"},
		{"timeout", "x"},
		{"timeout", "01"},
		{"timeout", "+1"},
		{"timeout", " 1"},
		{"timeout", ""},
		{"timeout", "-1"},
		{"timeout", "2147483648"},
		{"timeout", "9223372036854775808"},
		{"hz", "-1"},
		{"slave-priority", "x"},
		{"slowlog-log-slower-than", "-2"},
		{"lua-time-limit", "-1"},
		{"list-max-ziplist-size", "2147483648"},
		{"active-defrag-cycle-min", "0"},
		{"slowlog-max-len", "-1"},
		{"set-max-intset-entries", "-1"},
		{"appendonly", "maybe"},
		{"appendonly", ""},
		{"loglevel", "loud"},
		{"loglevel", ""},
		{"maxmemory-policy", "x"},
		{"appendfsync", "sometimes"},
		{"maxmemory", "-1"},
		{"maxmemory", "1x"},
		{"maxmemory", "1 gb"},
		{"maxmemory", "1tb"},
		{"proto-max-bulk-len", "1"},
		{"proto-max-bulk-len", "x"},
		{"client-query-buffer-limit", "9223372036854775808"},
		{"hash-max-ziplist-value", "-1"},
		{"maxmemory-clients", "-1"},
		{"maxmemory-clients", "101%"},
		{"maxmemory-clients", "x%"},
		{"maxmemory-clients", "%"},
		{"maxmemory-clients", "-5%"},
		{"save", "900"},
		{"save", "900  1"},
		{"save", "0 1"},
		{"save", "1 -1"},
		{"save", "a b"},
		{"client-output-buffer-limit", "normal 0 0"},
		{"client-output-buffer-limit", "master 0 0 0"},
		{"client-output-buffer-limit", "x 0 0 0"},
		{"client-output-buffer-limit", "normal 0 0 x"},
		{"client-output-buffer-limit", "normal 0 -1 0"},
		{"client-output-buffer-limit", "normal 0 0 -1"},
		{"notify-keyspace-events", "Q"},
		{"bind", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"},
		{"latency-tracking-info-percentiles", "x"},
		{"latency-tracking-info-percentiles", "101"},
		{"latency-tracking-info-percentiles", "-1"},
		{"oom-score-adj-values", "1 2"},
		{"oom-score-adj-values", "1 2 x"},
		{"oom-score-adj-values", "1 2 2001"},
		{"oom-score-adj", "x"},
		{"cluster-announce-hostname", "a b"},
		{"cluster-announce-hostname", strings.Repeat("a", 256)},
		{"shutdown-on-sigterm", "save nosave"},
		{"shutdown-on-sigterm", "x"},
		{"shutdown-on-sigterm", ""},
		{"proc-title-template", "{foo}"},
		{"proc-title-template", "x {title"},
		{"proc-title-template", ""},
		{"dbfilename", "a/b"},
		{"dir", "/nonexistent"},
		{"dir", "/dev/null"},
		{"dir", ""},
		{"cluster-announce-port", "65536"},
		{"sanitize-dump-payload", "x"},
		{"enable-debug-command", "yes"},
		{"cluster-preferred-endpoint-type", "x"},
		{"tcp-keepalive", "1s"},
	} {
		want, got := liveSet(conn, x...), set(c, x...)
		if len(x) == 1 {
			want, got = "", "" // arity is checked before the command runs
		}
		if want == "OK" || got != want {
			t.Errorf("%q:\n got   %s\n redis %s", x, got, want)
		}
	}
}

// samples are values to set, some of which need not be accepted.
func samples(p *param) []string {
	switch p.kind {
	case kindBool:
		return []string{"YES", "no"}
	case kindInt:
		return []string{"0", "1", "77", "2147483647"}
	case kindMemory, kindPercent:
		return []string{"2mb", "3M", "1gb", "5g", "4k", "8kb", "100", "7b", "", "0", "25%"}
	case kindEnum, kindBits:
		var words []string
		for i := range p.choices {
			words = append(words, strings.ToUpper(p.word(i)))
		}
		return words
	case kindString:
		return []string{"a b\"c", "x.y-z", ""}
	}
	return map[string][]string{
		"save":                              {"", "900 1", "900 1 5 0", "900 ", "+1 2"},
		"client-output-buffer-limit":        {"normal 1kb 2 3", "", "slave 1gb 0 1 PubSub 0 0 0", "replica 5 6 7 normal 0 0 0"},
		"notify-keyspace-events":            {"A", "KEA", "gKlx", "mn", "KEg$lshzxetdnm", ""},
		"latency-tracking-info-percentiles": {"", "1 99.99 0.5", "100", "1e1", "33.3333333"},
		"oom-score-adj-values":              {"0 1 2", "-2000 0 +7"},
	}[p.name]
}

// A node name with a blank or a comma would fall apart in nodes.conf, so it is
// refused; Redis takes it.
func TestNodename(t *testing.T) {
	c := mustLoad(t, "", nil)
	for name, ok := range map[string]bool{"": true, "a-1.b_c/d": true, "a b": false, "a,b": false, "a\nb": false, "a#": false} {
		if got := set(c, "cluster-announce-human-nodename", name); (got == "OK") != ok {
			t.Errorf("%q: %s", name, got)
		}
	}
}

// The announced address is a field of nodes.conf and of the bus's messages, and holds nothing that means something there.
func TestAnnouncedIP(t *testing.T) {
	c := mustLoad(t, "", nil)
	for address, ok := range map[string]bool{
		"": true, "10.0.0.1": true, "fe80::1%eth0": true, "node-1.example": true, strings.Repeat("1", 45): true,
		strings.Repeat("1", 46): false, "1.1.1.1 x": false, "a,b": false, "1.1.1.1\nfoo": false, "h@1": false,
	} {
		if got := set(c, "cluster-announce-ip", address); (got == "OK") != ok {
			t.Errorf("%q: %s", address, got)
		}
	}
}

// What is accepted is shown as Redis shows it.
func TestRoundTripWithRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	conn := testkit.Dial(t, server.Addr)
	c := mustLoad(t, "", nil)
	// Setting these would change how the real server listens, forks or lives; of
	// the node name and the announced address see TestNodename and TestAnnouncedIP.
	skip := " cluster-announce-human-nodename cluster-announce-ip port bind dir appendonly maxclients maxmemory requirepass oom-score-adj oom-score-adj-values databases " +
		"bind-source-addr activedefrag rdb-key-save-delay key-load-delay watchdog-period locale-collate repl-backlog-size jemalloc-bg-thread crash-log-enabled "
	known := liveGet(t, conn, "*")
	tried := 0
	for i := range c.t.rows {
		p := &c.t.rows[i]
		if p.is(immutable) || p.is(refused) || p.is(protected) || p.is(own) || strings.Contains(skip, " "+p.name+" ") {
			continue
		}
		if _, ok := known[p.name]; !ok && !p.is(hidden) {
			continue
		}
		for _, name := range []string{p.name, p.alias} {
			for _, value := range samples(p) {
				if name == "" || name == "loglevel" && value == "NOTHING" {
					continue // 7.0 has no such level
				}
				want := liveSet(conn, name, value)
				if p.is(hidden) && strings.Contains(want, "Unknown option") {
					continue // new in 7.2
				}
				tried++
				got := set(c, name, value)
				if got != want {
					t.Errorf("set %s %q:\n got   %s\n redis %s", name, value, got, want)
				}
				if now, _ := c.Value(name); now != liveGet(t, conn, name)[name] {
					t.Errorf("%s %q: shown as %q, redis shows %q", name, value, now, liveGet(t, conn, name)[name])
				}
			}
		}
	}
	if tried < 300 {
		t.Errorf("only %d values tried", tried)
	}
}

// The configuration of the system's redis-server package loads as it is, and so
// does what CONFIG REWRITE makes of it.
func TestInstalledFile(t *testing.T) {
	const installed = "/etc/redis/redis.conf"
	data, err := os.ReadFile(installed)
	if err != nil {
		t.Skipf("no readable %s: %v", installed, err)
	}
	if _, err := os.Stat("/var/lib/redis"); err != nil {
		t.Skip(err)
	}
	path := writeFile(t, "redis.conf", string(data))
	c, notes, err := Load([]string{path, "--supervised", "systemd", "--daemonize", "no"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range notes {
		if n.Directive != "databases" {
			t.Errorf("note %s", n)
		}
	}
	wantValue(t, c, "bind", "127.0.0.1 -::1")
	wantValue(t, c, "supervised", "systemd")
	wantValue(t, c, "dir", "/var/lib/redis")
	wantValue(t, c, "pidfile", "/run/redis/redis-server.pid")
	if err := c.Rewrite(); err != nil {
		t.Fatal(err)
	}
	again, _, err := Load([]string{path}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, again, "supervised", "systemd")
	after, _ := os.ReadFile(path)
	if n := strings.Count(string(after), "#"); n < strings.Count(string(data), "#") {
		t.Errorf("%d comment signs are left", n)
	}
	// A real server reads the rewritten file, too, apart from what is cairn's.
	started := testkit.StartProgram(t, testkit.RedisPath(t), path, "--port", "0", "--dir", t.TempDir(), "--logfile", "",
		"--pidfile", "", "--supervised", "no", "--unixsocket", t.TempDir()+"/s")
	testkit.Eventually(t, 20e9, func() bool {
		return strings.Contains(started.Log(), "now ready to accept") || !started.Running()
	}, "redis-server with the rewritten file")
	if !started.Running() {
		t.Errorf("redis-server refuses the rewritten file:\n%s", started.Log())
	}
}
