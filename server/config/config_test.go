package config

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// load is Load with everything in the test's own folder.
func load(t *testing.T, file string, env []string, args ...string) (*Config, []Note, error) {
	t.Helper()
	if file != "" {
		args = append([]string{writeFile(t, "node.conf", file)}, args...)
	}
	return Load(args, env, strings.NewReader(""))
}

func mustLoad(t *testing.T, file string, env []string, args ...string) *Config {
	t.Helper()
	c, _, err := load(t, file, env, args...)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantValue(t *testing.T, c *Config, name, want string) {
	t.Helper()
	if got, ok := c.Value(name); !ok || got != want {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// A row is right in itself: its default reads back as itself, its names are
// unique, and exactly the rows that have an effect have a field.
func TestTable(t *testing.T) {
	d := newDirectory()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for i := range d.rows {
		p := &d.rows[i]
		names++
		if p.alias != "" {
			names++
		}
		args := []string{p.def}
		if p.is(multi) {
			args = strings.Fields(p.def)
		}
		if p.name != "dir" && p.name != "replicaof" {
			if got, err := p.parse(args, beforeSet(p, p.def)); err != nil || got != p.def {
				t.Errorf("%s: default %q reads as %q, %v", p.name, p.def, got, err)
			}
		}
		idle := p.is(ignored) || p.is(refused) || p.is(fixed)
		if (c.holders[i] == nil) != idle && !p.is(refused) {
			t.Errorf("%s: has a field: %v; has no effect: %v", p.name, c.holders[i] != nil, idle)
		}
		idle = idle || p.is(noted)
		if idle != (p.why != "") {
			t.Errorf("%s: reason %q, without effect %v", p.name, p.why, idle)
		}
	}
	if names != len(d.byName) {
		t.Errorf("%d names in rows, %d different ones", names, len(d.byName))
	}
}

func TestTypedDefaults(t *testing.T) {
	c := mustLoad(t, "", nil)
	v := &c.V
	wd, _ := os.Getwd()
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"port", v.Port.Load(), int64(6379)},
		{"protected-mode", v.ProtectedMode.Load(), true},
		{"dir", v.Dir.Load(), wd},
		{"policy", v.MaxMemoryPolicy.Load(), NoEviction},
		{"fsync", v.AppendFsync.Load(), FsyncEverysec},
		{"level", v.LogLevel.Load(), LogNotice},
		{"supervised", v.Supervised.Load(), SupervisedNo},
		{"pubsub", v.ACLPubSubDefault.Load(), ResetChannels},
		{"debug", v.EnableDebugCommand.Load(), AccessNo},
		{"endpoint", v.ClusterEndpointType.Load(), EndpointIP},
		{"replica hard", v.OutputLimits.Load().Replica.HardBytes, uint64(256 << 20)},
		{"save", len(v.Save.Load()), 3},
		{"bind", strings.Join(v.Bind.Load(), ","), "*,-::*"},
		{"pin", v.ReplPinLimit.Of(1000), int64(100)},
		{"sigterm", v.ShutdownOnSigterm.Load(), ShutdownFlags(0)},
		{"percentile", v.LatencyPercentiles.Load()[2], 99.9},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %v, want %v", x.what, x.got, x.want)
		}
	}
	if v.MemoryBudget.Load() < minMemoryBudget || v.ReplBacklogSize.Load() < minBacklog {
		t.Errorf("budget %d, backlog %d: not found at start", v.MemoryBudget.Load(), v.ReplBacklogSize.Load())
	}
	wantValue(t, c, "repl-backlog-size", strconv.FormatInt(v.ReplBacklogSize.Load(), 10))
}

func TestTypedValues(t *testing.T) {
	c := mustLoad(t, "", nil, "--shutdown-on-sigterm", "now", "save", "--unixsocketperm", "700",
		"--maxmemory", "18446744073709551615", "--maxmemory-clients", "25%",
		"--enable-debug-command", "local", "--notify-keyspace-events", "KEA", "--maxdata-policy", "ALLKEYS-LFU")
	v := &c.V
	if got := v.ShutdownOnSigterm.Load(); got != ShutdownSave|ShutdownNow {
		t.Errorf("shutdown flags %b", got)
	}
	if got := v.UnixSocketPerm.Load(); got != 0o700 {
		t.Errorf("socket permissions %o", got)
	}
	if got := v.MaxMemory.Load(); got != 1<<63-1 {
		t.Errorf("maxmemory %d", got)
	}
	if got := v.MaxMemoryClients.Of(4_000_000_000_000_000_001); got != 1_000_000_000_000_000_000 {
		t.Errorf("maxmemory-clients %d", got)
	}
	if a := v.EnableDebugCommand.Load(); a.Allows(false) || !a.Allows(true) {
		t.Errorf("local access %v", a)
	}
	if got := v.NotifyKeyspaceEvents.Load(); got != NotifyAll|NotifyKeyspace|NotifyKeyevent {
		t.Errorf("events %b", got)
	}
	if got := v.MaxDataPolicy.Load(); got != AllKeysLFU {
		t.Errorf("policy %v", got)
	}
}

func TestPrecedence(t *testing.T) {
	file := "port 1\nmaxclients 11\ntimeout 21\nsave 1 1\nsave 2 2\nport 2\n"
	env := []string{"CAIRN_MAXCLIENTS=12", "CAIRN_TIMEOUT=22", "PATH=/bin", "CAIRN_SERVER_CPULIST=0", "CAIRN_PORT=tcp://10.0.0.1:6379"}
	c := mustLoad(t, file, env, "--timeout", "23", "--save", "3 3")
	wantValue(t, c, "port", "2") // the last line, and no service link
	wantValue(t, c, "maxclients", "12")
	wantValue(t, c, "timeout", "23")
	wantValue(t, c, "save", "1 1 2 2 3 3")
	wantValue(t, c, "server_cpulist", "0")

	c = mustLoad(t, file, []string{"CAIRN_SAVE=9 9"})
	wantValue(t, c, "save", "9 9") // the environment replaces
	c = mustLoad(t, file, nil, "--save", "", "--save", "4 4")
	wantValue(t, c, "save", "4 4")
}

func TestUnknownVariable(t *testing.T) {
	_, notes, err := load(t, "", []string{"CAIRN_NOSUCH=1"})
	if err != nil || len(notes) != 1 || notes[0].Directive != "CAIRN_NOSUCH" {
		t.Errorf("notes %v, error %v", notes, err)
	}
}

func TestStandardInput(t *testing.T) {
	path := writeFile(t, "a.conf", "port 1\ntimeout 1\nmaxclients 1\n")
	for _, args := range [][]string{{path, "--maxclients", "3", "-"}, {"-", "--maxclients", "3", "--port", "1"}} {
		c, _, err := Load(args, nil, strings.NewReader("timeout 2\nmaxclients 2\n"))
		if err != nil {
			t.Fatal(err)
		}
		wantValue(t, c, "port", "1")
		wantValue(t, c, "timeout", "2")
		wantValue(t, c, "maxclients", "3")
	}
}

func TestCommandLine(t *testing.T) {
	for _, x := range []struct {
		args string // cut at |
		name string
		want string
	}{
		{"--save|60|1|--port|7", "save", "60 1"},
		{"--save|60 1", "save", "60 1"},
		{"--save||--port|7", "save", ""},
		{"--save|--port|7", "save", ""},
		{"--save|--port|7", "port", "7"},
		{"--port|7|--save", "save", ""},
		{"--port 8|--timeout|9", "timeout", "9"},
		{"--port 8|--timeout|9", "port", "8"},
		{"--save 900|1", "save", "900 1"},
		{"--requirepass|--abc|--port|7", "requirepass", "--abc"},
		{"--requirepass|a b|--port|7", "requirepass", "a b"},
		{"--PORT|7", "port", "7"},
		{"--port=7", "port", "7"},
		{"--slaveof|no|one", "replicaof", ""},
		{"--bind|127.0.0.1|-::1", "bind", "127.0.0.1 -::1"},
		{"--bind|127.0.0.1 -::1", "bind", "127.0.0.1 -::1"},
		{"--replicaof|no|one", "replicaof", ""},
		{"--client-output-buffer-limit|normal|1|2|3", "client-output-buffer-limit", "normal 1 2 3 slave 268435456 67108864 60 pubsub 33554432 8388608 60"},
	} {
		c, _, err := Load(strings.Split(x.args, "|"), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", x.args, err)
			continue
		}
		if got, _ := c.Value(x.name); got != x.want {
			t.Errorf("%s: %s is %q, want %q", x.args, x.name, got, x.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	inner := writeFile(t, "inner.conf", "\nmaxclients 0\n")
	path := writeFile(t, "node.conf", strings.Join([]string{
		"# comment", "port 99999", "nosuch 1", "loglevel loud", `masterauth a b`, `logfile "x`,
		"tls-port 1", "rename-command CONFIG ''", "user bob on >secret", "aclfile /a", "include " + inner,
		"hz 10 10", "loadmodule /x.so", "cluster-enabled yes", "requirepass 'p' ", "appendonly  ", "some.module 1", "replicaof h 1", "bind 127.0.0.1 # here",
	}, "\n"))
	_, _, err := Load([]string{path, "--timeout", "x", "stray"}, []string{"CAIRN_DATABASES=0"}, nil)
	var list Errors
	if !errors.As(err, &list) {
		t.Fatalf("error %v", err)
	}
	want := []string{
		path + `:2: port "99999": argument must be between 0 and 65535 inclusive`,
		path + `:3: nosuch: unknown directive`,
		path + `:4: loglevel "loud": argument(s) must be one of the following: debug, verbose, notice, warning, nothing`,
		path + `:5: masterauth (hidden): wrong number of arguments`,
		path + `:6: unbalanced quotes in the line that starts with "logfile"`,
		path + `:7: tls-port "1": only the default "0" is accepted: TLS is not supported yet, and ignoring it would send everything in the clear`,
		path + `:8: rename-command "CONFIG" ...: renaming or removing commands is not supported yet, and ignoring it would leave them open`,
		path + `:9: user "bob" ...: access control lists are not supported yet, and ignoring them would leave the server open`,
		path + `:10: aclfile "/a": access control lists are not supported yet, and ignoring them would leave the server open`,
		inner + `:2: maxclients "0": argument must be between 1 and 4294967295 inclusive`,
		path + `:12: hz "10" "10": wrong number of arguments`,
		path + `:13: loadmodule "/x.so": modules are not supported`,
		path + `:16: appendonly: wrong number of arguments`,
		path + `:17: some.module: unknown directive`,
		path + `:19: bind "127.0.0.1" "#" "here": bind address "#" is not an address; a comment stands on a line of its own`,
		`environment CAIRN_DATABASES: databases "0": argument must be between 1 and 2147483647 inclusive`,
		`command line: timeout "x" "stray": wrong number of arguments`,
	}
	if got := err.Error(); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("a password is shown")
	}
	var one *Error
	if !errors.As(err, &one) || one.Line != 2 {
		t.Errorf("first mistake %v", one)
	}
}

func TestStrayWord(t *testing.T) {
	_, _, err := Load([]string{"-p", "7000"}, nil, nil)
	if err == nil || err.Error() != `command line: unknown option "-p"; options begin with two dashes: --port` {
		t.Errorf("error %v", err)
	}
	if _, _, err := Load([]string{"--port"}, nil, nil); err == nil || err.Error() != "command line: port: needs a value" {
		t.Errorf("error %v", err)
	}
	if _, _, err := Load([]string{"/nonexistent.conf"}, nil, nil); err == nil || !strings.Contains(err.Error(), "/nonexistent.conf") {
		t.Errorf("error %v", err)
	}
}

func TestNotes(t *testing.T) {
	_, notes, err := load(t, "rdbcompression yes\nactivedefrag yes\nactivedefrag yes\ndatabases 16\nlua-replicate-commands yes\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := noteNames(notes); got != "activedefrag databases lua-replicate-commands" {
		t.Errorf("notes for %q", got)
	}
	// What is kept and has no effect yet is noted, its default is not.
	_, notes, err = load(t, "maxmemory 1gb\nappendonly yes\nsave 900 1\nhz 10\nmaxmemory-clients 0\npending-bytes-limit 2mb\ndisk-stall-timeout 5\n", nil,
		"--maxmemory-policy", "allkeys-lru", "--hz", "100")
	if got := noteNames(notes); err != nil || got != "maxmemory appendonly save pending-bytes-limit disk-stall-timeout maxmemory-policy hz" {
		t.Errorf("notes for %q, error %v", got, err)
	}
}

func noteNames(notes []Note) string {
	var names []string
	for _, n := range notes {
		names = append(names, n.Directive)
	}
	return strings.Join(names, " ")
}

// A limit that is not kept is refused, at start and later.
func TestMaxData(t *testing.T) {
	if _, _, err := load(t, "maxdata 1gb\n", nil); err == nil || !strings.Contains(err.Error(), "limits on data are not supported yet") {
		t.Errorf("error %v", err)
	}
	c := mustLoad(t, "maxdata 0\n", nil)
	if got := set(c, "maxdata", "1gb"); !strings.HasSuffix(got, "limits on data are not supported yet") {
		t.Errorf("CONFIG SET: %s", got)
	}
}

func TestSuggestion(t *testing.T) {
	d := newDirectory()
	for name, want := range map[string]string{
		"apendfsync": "appendfsync", "maxmemry": "maxmemory", "prot": "port", "nosuch": "", "x": "", "": "",
		strings.Repeat("a", 1<<20): "",
	} {
		if got := d.nearest(name); got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
}

// The file that Redis's own test runner writes, with the values it likes.
func TestRunnersFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("redis_0", 0o700); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, strings.Join([]string{
		"always-show-logo yes", "notify-keyspace-events KEA", "daemonize no", "pidfile /tmp/x.pid", "port 21111", "timeout 0", "bind 127.0.0.1",
		"loglevel verbose", "logfile ''", "databases 16", "latency-monitor-threshold 1", "repl-diskless-sync-delay 0", "save ''", "rdbcompression yes",
		"dbfilename dump.rdb", "dir ./redis_0", "slave-serve-stale-data yes", "appendonly no", "appendfsync everysec",
		"no-appendfsync-on-rewrite no", "activerehashing yes", "enable-protected-configs yes", "enable-debug-command yes", "enable-module-command yes",
		"propagation-error-behavior panic", "shutdown-on-sigterm force", "unixsocket \"/tmp/x sock\"", "cluster-enabled yes", "cluster-ping-interval 100",
		"cluster-node-timeout 3000", "cluster-port 12345", "cluster-replica-no-failover yes", "port 21112",
	}, "\n"), nil)
	wd, _ := os.Getwd()
	for _, want := range []Pair{
		{"port", "21112"},
		{"dir", filepath.Join(wd, "redis_0")},
		{"save", ""},
		{"logfile", ""},
		{"unixsocket", "/tmp/x sock"},
		{"notify-keyspace-events", "AKE"},
		{"shutdown-on-sigterm", "force"},
		{"cluster-ping-interval", "100"},
		{"replica-serve-stale-data", "yes"},
	} {
		wantValue(t, c, want.Name, want.Value)
	}
	if got := c.Path(c.V.ClusterConfigFile.Load()); got != filepath.Join(wd, "redis_0", "nodes.conf") {
		t.Errorf("nodes.conf at %s", got)
	}
}

func TestInclude(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.inc", "timeout 1\nmaxclients 1\n")
	write("b.inc", "timeout 2\n")
	main := write("main.conf", "timeout 9\ninclude "+dir+"/*.inc\nmaxclients 5\ninclude "+dir+"/*.none\n")
	c, _, err := Load([]string{main}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, c, "timeout", "2")
	wantValue(t, c, "maxclients", "5")

	loop := write("loop.conf", "include "+dir+"/loop.conf\n")
	if _, _, err := Load([]string{loop}, nil, nil); err == nil || !strings.Contains(err.Error(), "include each other") {
		t.Errorf("loop: %v", err)
	}
}

func TestStructuredFiles(t *testing.T) {
	for name, content := range map[string]string{
		"a.toml": "port = 7000\nappendonly = true\nsave = ['900 1', [300, 10]]\nbind = ['127.0.0.1', '-::1']\n" +
			"maxmemory = '1gb'\nmemory_budget = '128mb'\nrequirepass = 'Ab\"c'\n[cluster]\nenabled = true\nnode-timeout = 5000\n" +
			"[client]\noutput-buffer-limit = ['normal 1mb 0 0', 'replica 0 0 0']\n",
		"a.yaml": "port: 7000\nappendonly: yes\nsave: ['900 1', [300, 10]]\nbind: 127.0.0.1 -::1\nmaxmemory: 1gb\nmemory-budget: 128mb\n" +
			"requirepass: Ab\"c\ncluster:\n  enabled: yes\n  node-timeout: 5000\nclient-output-buffer-limit: [normal 1mb 0 0, replica 0 0 0]\n",
		"a.json": `{"port": 7000, "appendonly": true, "save": ["900 1", [300, 10]], "bind": ["127.0.0.1", "-::1"], "maxmemory": "1gb",
			"memory-budget": 134217728, "requirepass": "Ab\"c", "cluster": {"enabled": "yes", "node-timeout": 5000},
			"client-output-buffer-limit": "normal 1mb 0 0 replica 0 0 0"}`,
	} {
		c, _, err := Load([]string{writeFile(t, name, content), "--timeout", "3"}, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []Pair{
			{"port", "7000"},
			{"appendonly", "yes"},
			{"save", "900 1 300 10"},
			{"bind", "127.0.0.1 -::1"},
			{"maxmemory", "1073741824"},
			{"memory-budget", "134217728"},
			{"requirepass", `Ab"c`},
			{"cluster-enabled", "yes"},
			{"cluster-node-timeout", "5000"},
			{"timeout", "3"},
			{"client-output-buffer-limit", "normal 1048576 0 0 slave 0 0 0 pubsub 33554432 8388608 60"},
		} {
			if got, _ := c.Value(want.Name); got != want.Value {
				t.Errorf("%s: %s is %q, want %q", name, want.Name, got, want.Value)
			}
		}
		if err := c.Rewrite(); err == nil {
			t.Errorf("%s: rewritten", name)
		}
	}
	path := writeFile(t, "bad.toml", "port = 1\n\n[cluster]\nnode-timeout = 'x'\nnosuch = 1\n")
	_, _, err := Load([]string{path}, nil, nil)
	want := path + `:4: cluster-node-timeout "x": argument couldn't be parsed into an integer` + "\n" + path + `:5: cluster-nosuch: unknown directive`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMemoryLimit(t *testing.T) {
	root := t.TempDir()
	put := func(name, content string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(limit int64) {
		t.Helper()
		if got := memoryLimit(root); got != limit {
			t.Errorf("limit %d, want %d", got, limit)
		}
	}
	want(0)
	if got := defaultBudget(root); got != minMemoryBudget {
		t.Errorf("budget %d of nothing", got)
	}
	put("proc/meminfo", "MemFree: 1 kB\nMemTotal:       8388608 kB\n")
	want(8 << 30)
	put("proc/self/cgroup", "0::/a/b\n")
	put("sys/fs/cgroup/a/b/memory.max", "max\n")
	want(8 << 30)
	put("sys/fs/cgroup/a/memory.max", "1073741824\n")
	want(1 << 30)
	if got := defaultBudget(root); got != 512<<20 {
		t.Errorf("budget %d of a group of 1 GiB", got)
	}
	put("proc/self/cgroup", "5:cpu,memory:/x\n")
	put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n")
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n")
	want(512 << 20)
}

// TestNoValue has what the Tcl suites of Redis start servers with: directives of many values without any, and a
// first option without its dashes.
func TestNoValue(t *testing.T) {
	path := writeFile(t, "node.conf", "save 900 1\nsave \nbind\nlatency-tracking-info-percentiles\nclient-output-buffer-limit\n")
	c, _, err := Load([]string{path, "loglevel", "verbose", "--maxmemory '700mb'", "--maxmemory-policy 'volatile-lru'"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{
		{"save", ""},
		{"bind", ""},
		{"latency-tracking-info-percentiles", ""},
		{"loglevel", "verbose"},
		{"maxmemory", "734003200"},
		{"maxmemory-policy", "volatile-lru"},
		{"client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"},
	} {
		if got, _ := c.Value(x[0]); got != x[1] {
			t.Errorf("%s is %q, want %q", x[0], got, x[1])
		}
	}
}
