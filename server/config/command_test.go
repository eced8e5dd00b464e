package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func set(c *Config, pairs ...string) string {
	if err := c.Set(pairs, Caller{}); err != nil {
		return err.Error()
	}
	return "OK"
}

func TestGet(t *testing.T) {
	c := mustLoad(t, "", nil, "--maxmemory", "5")
	names := func(patterns ...string) string {
		var out []string
		for _, p := range c.Get(patterns...) {
			out = append(out, p.Name)
		}
		return strings.Join(out, " ")
	}
	for _, x := range []struct{ ask, want string }{
		{"maxmemory", "maxmemory"},
		{"MAXMEMORY maxmemory maxmemor[y]", "MAXMEMORY"},
		{"slave-prio* nosuch", "slave-priority"},
		{"replica-prio* slave-priority", "replica-priority slave-priority"},
		{"*-max-intset-* hz", "hz set-max-intset-entries"},
		{"cluster-ping*", ""},
		{"cluster-ping-interval", "cluster-ping-interval"},
	} {
		if got := names(strings.Fields(x.ask)...); got != x.want {
			t.Errorf("%s: got %q, want %q", x.ask, got, x.want)
		}
	}
}

func TestSetAllOrNothing(t *testing.T) {
	c := mustLoad(t, "", nil)
	const failed = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and 4294967295 inclusive"
	if got := set(c, "timeout", "7", "maxclients", "0"); got != failed {
		t.Errorf("got %q", got)
	}
	wantValue(t, c, "timeout", "0")
	if c.V.Timeout.Load() != 0 {
		t.Error("the typed value changed")
	}
	if got := set(c, "timeout", "7", "slave-priority", "1", "replica-priority", "2"); got != "OK" {
		t.Errorf("got %q", got)
	}
	if c.V.Timeout.Load() != 7 || c.V.ReplicaPriority.Load() != 2 {
		t.Error("not all values changed")
	}
	if got := set(c, "timeout"); got != "ERR syntax error" {
		t.Errorf("got %q", got)
	}
	if err := c.Set([]string{"appendonly", "yes"}, Caller{Loading: true}); !errors.Is(err, ErrLoading) {
		t.Errorf("while loading: %v", err)
	}
	if got := set(c, "tls-port", "1"); !strings.Contains(got, "'tls-port') - TLS is not supported") {
		t.Errorf("got %q", got)
	}
	if got := set(c, "tls-port", "0"); got != "OK" {
		t.Errorf("got %q", got)
	}
}

func TestSetProtected(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		enable string
		local  bool
		ok     bool
	}{{"no", true, false}, {"local", false, false}, {"local", true, true}, {"yes", false, true}} {
		c := mustLoad(t, "", nil, "--enable-protected-configs", x.enable)
		err := c.Set([]string{"dir", dir}, Caller{Local: x.local})
		if (err == nil) != x.ok {
			t.Errorf("enable-protected-configs %s, local %v: %v", x.enable, x.local, err)
		}
		if got := c.Path("log.txt"); x.ok && got != filepath.Join(dir, "log.txt") {
			t.Errorf("path %s", got)
		}
	}
	c := mustLoad(t, "", nil, "--enable-protected-configs", "yes")
	if got := set(c, "dir", "/nonexistent"); !strings.HasSuffix(got, "'dir') - No such file or directory") {
		t.Errorf("got %q", got)
	}
}

func TestHooks(t *testing.T) {
	c := mustLoad(t, "", nil)
	var calls []string
	watch := func(name string, err error) {
		c.OnChange(name, func(old, now string) error {
			calls = append(calls, name+" "+old+">"+now)
			return err
		})
	}
	watch("timeout", nil)
	watch("port", errors.New("Unable to listen on this port. Check server logs."))
	if got := set(c, "timeout", "0"); got != "OK" || len(calls) != 0 {
		t.Errorf("unchanged: %q, calls %v", got, calls)
	}
	got := set(c, "timeout", "5", "port", "7", "hz", "20")
	if want := "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := strings.Join(calls, ", "); got != "timeout 0>5, port 6379>7, timeout 5>0" {
		t.Errorf("calls %s", got)
	}
	if c.V.Timeout.Load() != 0 || c.V.Port.Load() != 6379 || c.V.Hz.Load() != 10 {
		t.Error("not set back")
	}
}

func TestStoreAndAuto(t *testing.T) {
	c := mustLoad(t, "", nil)
	if err := c.Store("replicaof", "h", "1"); err != nil || c.V.ReplicaOf.Load().Host != "h" {
		t.Errorf("store: %v, %v", err, c.V.ReplicaOf.Load())
	}
	c.SetAuto("recovery-log-size", 1234)
	wantValue(t, c, "recovery-log-size", "1234")
	if got := set(c, "recovery-log-size", "32mb"); got != "OK" {
		t.Error(got)
	}
	wantValue(t, c, "recovery-log-size", "33554432")
	if got := set(c, "recovery-log-size", "0"); got != "OK" || c.V.RecoveryLogSize.Load() != 1234 {
		t.Errorf("%s, %d", got, c.V.RecoveryLogSize.Load())
	}
	if got := set(c, "recovery-log-size", "1"); !strings.Contains(got, "between 16777216 and") {
		t.Error(got)
	}
}

// Readers need no lock while CONFIG SET runs.
func TestConcurrentReaders(t *testing.T) {
	c := mustLoad(t, "", nil)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if l := c.V.OutputLimits.Load().Normal; l.HardBytes != l.SoftBytes {
					t.Errorf("half a value: %v", l)
					return
				}
				_, _ = c.V.MaxClients.Load(), c.V.RequirePass.Load()
				c.Get("max*")
			}
		})
	}
	for i := range 200 {
		n := string(rune('1' + i%9))
		if got := set(c, "client-output-buffer-limit", "normal "+n+" "+n+" 0", "maxclients", n, "requirepass", n); got != "OK" {
			t.Error(got)
		}
	}
	close(done)
	readers.Wait()
}

func TestRewrite(t *testing.T) {
	before := strings.Join([]string{
		"# a node", "slave-priority 100", "", "", "port 7000   ", "save 1 1", "save 2 2", "save 3 3", "maxmemory 1", "timeout 5",
		"timeout 6", "logfile ''", "rename is not a directive", "# end",
	}, "\n") + "\n"
	path := writeFile(t, "node.conf", strings.Replace(before, "rename is not a directive\n", "", 1))
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load([]string{path, "--dir", "/"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(before), 0o604); err != nil { // somebody added a line meanwhile
		t.Fatal(err)
	}
	if got := set(c, "save", "900 1", "replica-priority", "7", "maxmemory", "2gb", "requirepass", "a\"b\xff", "repl-pin-limit", "20%",
		"client-output-buffer-limit", "replica 1mb 0 5", "timeout", "0"); got != "OK" {
		t.Fatal(got)
	}
	if err := c.Rewrite(); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(path)
	want := strings.Join([]string{
		"# a node", "replica-priority 7", "", "port 7000", "save 900 1", "", "maxmemory 2gb", "timeout 0", "",
		"# ??? rename is not a directive", "# end", rewriteMark, `dir "/"`,
		"client-output-buffer-limit normal 0 0 0", "client-output-buffer-limit replica 1mb 0 5", "client-output-buffer-limit pubsub 32mb 8mb 60",
		`requirepass "a\"b\xff"`, "repl-pin-limit 20%",
	}, "\n") + "\n"
	wantSorted(t, string(after), want)
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o604 {
		t.Errorf("permissions %o", info.Mode().Perm())
	}
	again, _, err := Load([]string{path}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := again.Get("*")
	for i, p := range c.Get("*") {
		if now[i] != p {
			t.Errorf("%s: %q became %q", p.Name, p.Value, now[i].Value)
		}
	}
	if err := again.Rewrite(); err != nil {
		t.Fatal(err)
	}
	if twice, _ := os.ReadFile(path); string(twice) != string(after) {
		t.Errorf("a second rewrite changed the file:\n%s", twice)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// wantSorted compares a file in which the lines below the mark may come in any
// order.
func wantSorted(t *testing.T, got, want string) {
	t.Helper()
	gotHead, gotTail, _ := strings.Cut(got, rewriteMark)
	wantHead, wantTail, _ := strings.Cut(want, rewriteMark)
	seen := map[string]int{}
	for _, l := range strings.Split(gotTail, "\n") {
		seen[l]++
	}
	for _, l := range strings.Split(wantTail, "\n") {
		seen[l]--
	}
	for l, n := range seen {
		if n != 0 {
			t.Errorf("line %q: %d too many", l, n)
		}
	}
	if gotHead != wantHead {
		t.Errorf("got:\n%s\nwant:\n%s", gotHead, wantHead)
	}
}

// What an included file says must not win over a rewritten value.
func TestRewriteWithInclude(t *testing.T) {
	inner := writeFile(t, "inner.conf", "timeout 3\nmaxclients 9\n")
	path := writeFile(t, "node.conf", "timeout 1\ninclude "+inner+"\n")
	c, _, err := Load([]string{path}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := set(c, "timeout", "0"); got != "OK" {
		t.Fatal(got)
	}
	if err := c.Rewrite(); err != nil {
		t.Fatal(err)
	}
	again, _, err := Load([]string{path}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, again, "timeout", "0")
	wantValue(t, again, "maxclients", "9")
	if data, _ := os.ReadFile(inner); !strings.Contains(string(data), "timeout 3") {
		t.Error("the included file changed")
	}
}

func TestRewriteErrors(t *testing.T) {
	c := mustLoad(t, "", nil)
	if err := c.Rewrite(); !errors.Is(err, ErrNoFile) {
		t.Errorf("without a file: %v", err)
	}
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.conf"), filepath.Join(dir, "link.conf")
	if err := os.WriteFile(real, []byte("port 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	c, _, err := Load([]string{link}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Rewrite(); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link became a file")
	}
}

// What the file asks of databases stays, and save points stay on their line.
func TestRewriteKeepsLines(t *testing.T) {
	path := writeFile(t, "node.conf", "databases 16\nsave 900 1 300 10\n")
	c, _, err := Load([]string{path, "--dir", "/"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Rewrite(); err != nil {
			t.Fatal(err)
		}
		after, _ := os.ReadFile(path)
		if want := "databases 16\nsave 900 1 300 10\n" + rewriteMark + "\ndir \"/\"\n"; string(after) != want {
			t.Errorf("got:\n%swant:\n%s", after, want)
		}
	}
}
