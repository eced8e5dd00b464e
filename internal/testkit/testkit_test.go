package testkit_test

import (
	"bufio"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/testkit"
)

func TestRedisAnswersAndDies(t *testing.T) {
	var r *testkit.Redis
	t.Run("running", func(t *testing.T) {
		r = testkit.StartRedis(t)
		c := testkit.Dial(t, r.Addr)
		if got := c.Do("PING").Raw; got != "+PONG\r\n" {
			t.Fatalf("PING: got %q, want +PONG", got)
		}
		c.Do("RPUSH", "list", "a", "b")
		got := c.Do("LRANGE", "list", "0", "-1")
		if want := []any{"a", "b"}; got.Raw != "*2\r\n$1\r\na\r\n$1\r\nb\r\n" || !reflect.DeepEqual(got.Value, want) {
			t.Fatalf("LRANGE: got %q, %v", got.Raw, got.Value)
		}
		if v, ok := c.Do("GET", "list").Value.(testkit.Error); !ok || !strings.HasPrefix(string(v), "WRONGTYPE ") {
			t.Fatalf("GET of a list: got %v, want WRONGTYPE", v)
		}
		hello := c.Do("HELLO", "3").Value
		if m, ok := hello.(testkit.Map); !ok || m[0] != "server" || m[1] != "redis" {
			t.Fatalf("HELLO 3: got %v, want a map that begins with server", hello)
		}
	})
	if r == nil {
		return // skipped
	}
	if r.Running() {
		t.Fatal("redis-server outlived its test")
	}
	if err := syscall.Kill(r.Pid(), 0); err == nil {
		t.Fatalf("process %d outlived its test", r.Pid())
	}
}

func TestRedisArgumentsWin(t *testing.T) {
	r := testkit.StartRedis(t, "--cluster-enabled", "yes", "--requirepass", "secret")
	c := testkit.Dial(t, r.Addr)
	c.Do("AUTH", "secret")
	if got := c.Do("CLUSTER", "KEYSLOT", "foo").Raw; got != ":12182\r\n" {
		t.Fatalf("CLUSTER KEYSLOT: got %q, want :12182", got)
	}
}

func TestProgram(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("no shell: %v", err)
	}
	p := testkit.StartProgram(t, sh, "-c", "echo out; echo err >&2; exit 3")
	if got := p.ExitCode(t, 10*time.Second); got != 3 {
		t.Fatalf("exit code %d, want 3", got)
	}
	if got := p.Log(); !strings.Contains(got, "out\n") || !strings.Contains(got, "err\n") {
		t.Fatalf("log %q, want out and err", got)
	}
	p.Kill() // of an ended process does nothing
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		seen[testkit.FreePort(t)] = true
	}
	if len(seen) != 20 {
		t.Fatalf("20 calls gave %d ports", len(seen))
	}
	first := testkit.FreePorts(t, 6)
	for port := range seen {
		if port >= first && port < first+6 {
			t.Errorf("port %d was given away twice", port)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want any
	}{
		{"+OK\r\n", "OK"},
		{"-ERR x\r\n", testkit.Error("ERR x")},
		{":-7\r\n", int64(-7)},
		{"$-1\r\n", nil},
		{"*-1\r\n", nil},
		{"_\r\n", nil},
		{"$4\r\na\r\nb\r\n", "a\r\nb"},
		{",1.5\r\n", 1.5},
		{"#t\r\n", true},
		{"(123\r\n", testkit.Big("123")},
		{"=5\r\ntxt:a\r\n", testkit.Verbatim("txt:a")},
		{"!3\r\nERR\r\n", testkit.Error("ERR")},
		{"*2\r\n*0\r\n:1\r\n", []any{[]any{}, int64(1)}},
		{"%1\r\n+k\r\n+v\r\n", testkit.Map{"k", "v"}},
		{"~1\r\n+m\r\n", testkit.Set{"m"}},
		{">1\r\n+p\r\n", testkit.Push{"p"}},
		{"|1\r\n+k\r\n+v\r\n:1\r\n", int64(1)},
	} {
		got, err := testkit.Decode(bufio.NewReader(strings.NewReader(c.raw)))
		if err != nil || got.Raw != c.raw || !reflect.DeepEqual(got.Value, c.want) {
			t.Errorf("%q: got %q, %#v, %v, want %#v", c.raw, got.Raw, got.Value, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("*2\r\n$1\r\na\r\n%1\r\n+k\r\n:1\r\n")
	f.Add("$99999999\r\nx\r\n")
	f.Add("*2000000000\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := testkit.Decode(bufio.NewReader(strings.NewReader(raw)))
		if err == nil && !strings.HasPrefix(raw, got.Raw) {
			t.Fatalf("%q: kept %q, which is no prefix", raw, got.Raw)
		}
	})
}
