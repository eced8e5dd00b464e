package rdb

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// serversEnv lists further redis-server programs to test against, separated as in
// PATH. Without it only the redis-server in PATH is used.
const serversEnv = "CAIRN_TEST_REDIS_SERVERS"

// eachServer runs f once for every server that is there, with a fresh one.
func eachServer(t *testing.T, f func(t *testing.T, c *conn), args ...string) {
	t.Helper()
	var programs []string
	if p, err := exec.LookPath("redis-server"); err == nil {
		programs = append(programs, p)
	}
	programs = append(programs, filepath.SplitList(os.Getenv(serversEnv))...)
	if len(programs) == 0 {
		t.Skip("no redis-server in PATH")
	}
	for i, p := range programs {
		t.Run(fmt.Sprintf("server%d", i), func(t *testing.T) {
			f(t, startRedis(t, p, t.TempDir(), args...))
		})
	}
}

// startRedis starts a server in dir on a unix socket. It is killed and waited for
// when the test ends.
func startRedis(t *testing.T, program, dir string, args ...string) *conn {
	t.Helper()
	sockDir, err := os.MkdirTemp("", "rdb") // a socket path has about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	sock := filepath.Join(sockDir, "s")
	args = append([]string{
		"--port", "0", "--unixsocket", sock, "--dir", dir, "--save", "", "--daemonize", "no",
		"--logfile", "",
	}, args...)
	cmd := exec.Command(program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(sockDir)
	})
	log := bufio.NewReader(out)
	var lines strings.Builder
	for {
		line, err := log.ReadString('\n')
		lines.WriteString(line)
		if err != nil {
			t.Fatalf("%s ended at start: %v\n%s", program, err, lines.String())
		}
		if strings.Contains(line, "eady to accept connections") {
			break
		}
	}
	// Ends when the process does and its side of the pipe closes.
	go io.Copy(io.Discard, log)
	nc, err := net.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &conn{t: t, nc: nc, r: bufio.NewReaderSize(nc, 1<<16), program: program, dir: dir}
}

// conn is just enough of a client.
type conn struct {
	t       *testing.T
	nc      net.Conn
	r       *bufio.Reader
	program string
	dir     string
}

// do sends a command and returns its reply: string, int64, []any, nil, or error.
func (c *conn) do(args ...any) any {
	c.t.Helper()
	var b []byte
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, a := range args {
		var s []byte
		switch a := a.(type) {
		case []byte:
			s = a
		default:
			s = fmt.Append(nil, a)
		}
		b = fmt.Appendf(b, "$%d\r\n", len(s))
		b = append(append(b, s...), '\r', '\n')
	}
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
	return c.reply()
}

func (c *conn) reply() any {
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '+':
		return line[1:]
	case '-':
		return fmt.Errorf("%s", line[1:])
	case ':':
		n, _ := strconv.ParseInt(line[1:], 10, 64)
		return n
	}
	n, _ := strconv.Atoi(line[1:])
	if n < 0 {
		return nil
	}
	if line[0] == '*' {
		list := make([]any, n)
		for i := range list {
			list[i] = c.reply()
		}
		return list
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		c.t.Fatal(err)
	}
	return string(b[:n])
}

// ok is do for commands that must not fail.
func (c *conn) ok(args ...any) any {
	c.t.Helper()
	r := c.do(args...)
	if err, bad := r.(error); bad {
		c.t.Fatalf("%.60v: %v", args[0], err)
	}
	return r
}

func (c *conn) strings(args ...any) []string {
	c.t.Helper()
	var out []string
	for _, v := range c.ok(args...).([]any) {
		out = append(out, v.(string))
	}
	return out
}

// fetch reads the whole value of a key by ordinary commands.
func (c *conn) fetch(key string) *model {
	c.t.Helper()
	m := &model{}
	switch typ := c.ok("TYPE", key).(string); typ {
	case "string":
		m.kind, m.str = KindString, []byte(c.ok("GET", key).(string))
	case "list":
		m.kind, m.list = KindList, c.strings("LRANGE", key, 0, -1)
	case "set":
		m.kind, m.list = KindSet, c.strings("SMEMBERS", key)
	case "zset":
		m.kind = KindZSet
		all := c.strings("ZRANGE", key, 0, -1, "WITHSCORES")
		for i := 0; i < len(all); i += 2 {
			v, err := strconv.ParseFloat(all[i+1], 64)
			if err != nil {
				c.t.Fatal(err)
			}
			m.ZSetMember([]byte(all[i]), v)
		}
	case "hash":
		m.kind = KindHash
		all := c.strings("HGETALL", key)
		for i := 0; i < len(all); i += 2 {
			m.HashField([]byte(all[i]), []byte(all[i+1]), 0)
		}
	default:
		c.t.Fatalf("key %q: type %s", key, typ)
	}
	return m
}

// model is a Sink that keeps a value in a form that can be compared.
type model struct {
	kind  Kind
	size  uint64
	str   []byte
	list  []string // items, members, or members and fields in one text each
	began int
	ended int
}

func (m *model) Begin(k Kind, size uint64) error {
	m.kind, m.size = k, size
	m.began++
	return nil
}
func (m *model) StringChunk(b []byte) error { m.str = append(m.str, b...); return nil }
func (m *model) ListItem(b []byte) error    { m.list = append(m.list, string(b)); return nil }
func (m *model) SetMember(b []byte) error   { m.list = append(m.list, string(b)); return nil }
func (m *model) ZSetMember(b []byte, v float64) error {
	m.list = append(m.list, fmt.Sprintf("%q %v", b, v))
	return nil
}

func (m *model) HashField(f, v []byte, at int64) error {
	m.list = append(m.list, fmt.Sprintf("%q %q %d", f, v, at))
	return nil
}
func (m *model) End() error { m.ended++; return nil }

func (m *model) canonical() []string {
	l := append([]string{}, m.list...)
	if m.kind != KindList {
		sort.Strings(l)
	}
	return l
}

// differs explains how two values differ, or returns "".
func (m *model) differs(o *model) string {
	if m.kind != o.kind {
		return fmt.Sprintf("kind %v, other %v", m.kind, o.kind)
	}
	if !bytes.Equal(m.str, o.str) {
		return fmt.Sprintf("string of %d bytes %.40q, other %d bytes %.40q", len(m.str), m.str, len(o.str), o.str)
	}
	a, b := m.canonical(), o.canonical()
	if len(a) != len(b) {
		return fmt.Sprintf("%d elements, other %d", len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			return fmt.Sprintf("element %d is %.60q, other %.60q", i, a[i], b[i])
		}
	}
	return ""
}

// decode is DecodeDump into a model, checking that Begin and End come once.
func decode(t testing.TB, payload []byte) *model {
	t.Helper()
	m := &model{}
	if err := DecodeDump(payload, m); err != nil {
		t.Fatalf("decode %.80x: %v", payload, err)
	}
	if m.began != 1 || m.ended != 1 {
		t.Fatalf("begun %d times, ended %d times", m.began, m.ended)
	}
	if m.kind == KindString && m.size != uint64(len(m.str)) {
		t.Fatalf("string announced with %d bytes, got %d", m.size, len(m.str))
	}
	return m
}

// element makes strings of the sorts that matter to the encodings.
func element(rng *rand.Rand, maxLen int) []byte {
	switch rng.IntN(6) {
	case 0:
		return strconv.AppendInt(nil, int64(rng.Uint64())>>rng.IntN(64), 10)
	case 1:
		return bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(maxLen+1))
	case 2:
		return []byte(fmt.Sprintf("field:%d:%d", rng.IntN(1000), rng.IntN(1000)))
	case 3: // text that compresses
		var b []byte
		for n := rng.IntN(maxLen + 1); len(b) < n; {
			b = append(b, []string{"user", "name", "0000", "=", ";", "value-", "\x00"}[rng.IntN(7)]...)
		}
		return b
	}
	b := make([]byte, rng.IntN(maxLen+1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
