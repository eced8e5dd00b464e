package resp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server is a real redis-server on a unix socket, for the length of one test.
type server struct {
	socket string
}

func startServer(t *testing.T, options ...string) server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server to compare with")
	}
	dir := t.TempDir()
	s := server{filepath.Join(dir, "s")}
	args := append([]string{"--port", "0", "--unixsocket", s.socket, "--dir", dir, "--save", "", "--enable-debug-command", "yes"}, options...)
	cmd := exec.Command(path, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "eady to accept connections") {
			return s
		}
	}
	t.Fatalf("redis-server did not start: %v", lines.Err())
	return s
}

func (s server) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends src and returns all that comes back. When as much came as want
// has, it ends its side, so that what comes on top of that is seen too.
func (s server) exchange(t *testing.T, src, want string) string {
	t.Helper()
	conn := s.dial(t)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(conn, src)
	}()
	got := make([]byte, len(want))
	n, err := io.ReadFull(conn, got)
	got = got[:n]
	if err == nil {
		<-sent
		_ = conn.CloseWrite()
		rest, _ := io.ReadAll(conn) // reset instead of closed, when bytes were left unread
		got = append(got, rest...)
	}
	conn.Close()
	<-sent
	return string(got)
}

// caller sends commands one at a time and parses the replies with this package.
type caller struct {
	t    *testing.T
	conn *net.UnixConn
	buf  []byte
}

func (c *caller) call(args ...string) Reply {
	r, raw := c.callRaw(args...)
	_ = raw
	return r
}

func (c *caller) callRaw(args ...string) (Reply, string) {
	c.t.Helper()
	if _, err := c.conn.Write(AppendCommandStrings(nil, args...)); err != nil {
		c.t.Fatal(err)
	}
	var s ReplyScanner
	for {
		n, err := s.End(c.buf)
		if err != nil {
			c.t.Fatal(err)
		}
		if n > 0 {
			v, m, err := ParseReply(c.buf)
			if err != nil || m != n {
				c.t.Fatalf("%q: parsed %d of %d bytes: %v", c.buf[:n], m, n, err)
			}
			raw := string(c.buf[:n])
			c.buf = bytes.Clone(c.buf[n:])
			return v, raw
		}
		room := make([]byte, 4096)
		k, err := c.conn.Read(room)
		if err != nil {
			c.t.Fatal(err)
		}
		c.buf = append(c.buf, room[:k]...)
	}
}

// answer is what a server with only PING and ECHO says to the stream src.
func answer(t *testing.T, lim Limits, src string, auth bool) string {
	f := NewFramer(lim)
	f.Advance(copy(f.Space(len(src)+1), src))
	var w Writer
	for {
		args, _, ok, err := f.Next()
		switch {
		case err != nil:
			w.Error("ERR " + err.Error())
			return string(w.Buf)
		case !ok:
			return string(w.Buf)
		case strings.EqualFold(string(args[0]), "echo") && len(args) != 2:
			w.Error("ERR wrong number of arguments for 'echo' command")
		case auth:
			w.Error("NOAUTH Authentication required.")
		case strings.EqualFold(string(args[0]), "ping") && len(args) == 1:
			w.Simple("PONG")
		case strings.EqualFold(string(args[0]), "echo"):
			w.Bulk(args[1])
		default:
			t.Fatalf("%.40q: unexpected command %q", src, args)
		}
	}
}

// Every stream of the corpus, and lines that are too long, get from a real server
// the very bytes that framer and writer give.
func TestLiveFraming(t *testing.T) {
	streams := []string{
		"*" + strings.Repeat("1", DefaultMaxInline),
		"*1\r\n$" + strings.Repeat("1", DefaultMaxInline),
		"*1\r\n" + strings.Repeat("x", DefaultMaxInline+1),
		strings.Repeat("a", DefaultMaxInline+1),
		"*" + strings.Repeat("1", DefaultMaxInline-1),
		"*11\r\n", "*10\r\n", "*1\r\n$16385\r\n", "*1\r\n$16384\r\n", "*2147483648\r\n", "*2147483647\r\n",
		"PING\r\n*1\r\n$-5\r\nPING\r\n",
	}
	for _, src := range corpus {
		if !strings.Contains(src, "MSET") && !strings.HasPrefix(src, "$4") && !strings.HasPrefix(src, "PING\r\r") {
			streams = append(streams, src)
		}
	}
	open, closed := startServer(t), startServer(t, "--requirepass", "secret")
	for _, src := range streams {
		ours := answer(t, Limits{}, src, false)
		if want := open.exchange(t, src, ours); ours != want {
			t.Errorf("%.60q: %.200q, redis-server says %.200q", src, ours, want)
		}
		if ours = answer(t, Limits{Unauthenticated: true}, src, true); len(ours) > 1000 {
			continue // servers may drop a peer that has much to read before it logged in
		}
		if want := closed.exchange(t, src, ours); ours != want {
			t.Errorf("without login, %.60q: %.200q, redis-server says %.200q", src, ours, want)
		}
	}
	for c := 1; c < 256; c++ { // the byte in place of $; a C string hides what follows a NUL
		src := "*1\r\n" + string([]byte{byte(c)}) + "4\r\nPING\r\n"
		ours := answer(t, Limits{}, src, false)
		if want := open.exchange(t, src, ours); ours != want {
			t.Errorf("%q: %q, redis-server says %q", src, ours, want)
		}
	}
}

func TestLiveInlineWords(t *testing.T) {
	s := startServer(t)
	rnd := rand.New(rand.NewPCG(7, 7))
	const alphabet = "ab\"\"''\\\\xn01fr\t \v\f\rtb"
	for range 500 {
		line := make([]byte, rnd.IntN(14))
		for i := range line {
			line[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		src := "EVAL \"return ARGV\" 0 " + string(line) + "\n"
		var w Writer
		f := NewFramer(Limits{})
		f.Advance(copy(f.Space(1), src))
		args, _, ok, err := f.Next()
		if err != nil {
			w.Error("ERR " + err.Error())
		} else if !ok {
			t.Fatalf("%q: incomplete", src)
		} else {
			w.Array(len(args) - 3)
			for _, a := range args[3:] {
				w.Bulk(a)
			}
		}
		if want := s.exchange(t, src, string(w.Buf)); string(w.Buf) != want {
			t.Errorf("%q: %q, redis-server says %q", src, w.Buf, want)
		}
	}
}

// Every kind of reply that DEBUG PROTOCOL can make, in both protocols.
func TestLiveWriter(t *testing.T) {
	s := startServer(t)
	for _, proto := range []int{2, 3} {
		c := &caller{t: t, conn: s.dial(t)}
		c.call("HELLO", strconv.Itoa(proto))
		for name, write := range map[string]func(w *Writer){
			"string":   func(w *Writer) { w.BulkString("Hello World") },
			"integer":  func(w *Writer) { w.Int(12345) },
			"double":   func(w *Writer) { w.Double(3.141) },
			"null":     func(w *Writer) { w.Null() },
			"array":    func(w *Writer) { w.Array(3); w.Int(0); w.Int(1); w.Int(2) },
			"set":      func(w *Writer) { w.Set(3); w.Int(0); w.Int(1); w.Int(2) },
			"true":     func(w *Writer) { w.Bool(true) },
			"false":    func(w *Writer) { w.Bool(false) },
			"verbatim": func(w *Writer) { w.Verbatim("txt", []byte("This is a verbatim\nstring")) },
			"bignum":   func(w *Writer) { w.BigNumber("1234567999999999999999999999999999999") },
			"map": func(w *Writer) {
				w.Map(3)
				for i := range int64(3) {
					w.Int(i)
					w.Bool(i == 1)
				}
			},
			"attrib": func(w *Writer) {
				if w.Attr(1) {
					w.BulkString("key-popularity")
					w.Array(2)
					w.BulkString("key:123")
					w.Int(90)
				}
				w.BulkString("Some real reply following the attribute")
			},
		} {
			if name == "double" && s.version(t) < "7.2" {
				continue // its digits are checked below
			}
			w := Writer{Proto: proto}
			write(&w)
			if _, want := c.callRaw("DEBUG", "PROTOCOL", name); string(w.Buf) != want {
				t.Errorf("RESP%d %s: %q, redis-server says %q", proto, name, w.Buf, want)
			}
		}
		w := Writer{Proto: proto}
		w.NullArray()
		if _, want := c.callRaw("LPOP", "none", "3"); string(w.Buf) != want {
			t.Errorf("RESP%d null array: %q, redis-server says %q", proto, w.Buf, want)
		}
	}
}

func (s server) version(t *testing.T) string {
	t.Helper()
	info := (&caller{t: t, conn: s.dial(t)}).call("INFO", "server")
	_, rest, _ := strings.Cut(string(info.Str), "redis_version:")
	v, _, _ := strings.Cut(rest, "\r\n")
	return v
}

func TestLiveLongDouble(t *testing.T) {
	c := &caller{t: t, conn: startServer(t).dial(t)}
	for _, text := range numberTexts {
		c.call("DEL", "k")
		r := c.call("INCRBYFLOAT", "k", text)
		got := "ERR value is not a valid float"
		if x, ok := ParseLongDouble([]byte(text)); ok {
			got = "ERR increment would produce NaN or Infinity"
			if sum, ok := (LongDouble{}).Add(x); ok {
				got = string(sum.Append(nil))
			}
		}
		if got != string(r.Str) {
			t.Errorf("%.60q: %.60q, redis-server says %.60q", text, got, r.Str)
		}
	}
	rnd := rand.New(rand.NewPCG(3, 9))
	number := func() string {
		switch rnd.IntN(5) {
		case 0:
			return strconv.Itoa(rnd.IntN(2000000) - 1000000)
		case 1:
			return strconv.FormatFloat(rnd.NormFloat64()*math.Pow(10, float64(rnd.IntN(60)-30)), 'g', -1, 64)
		case 2:
			return strconv.FormatFloat(rnd.NormFloat64()*1000, 'f', rnd.IntN(6), 64)
		case 3:
			return fmt.Sprintf("%d.%d%de%d", rnd.IntN(100), rnd.Int64(), rnd.Int64(), rnd.IntN(40)-20)
		}
		return strconv.FormatFloat(rnd.NormFloat64(), 'x', -1, 64)
	}
	for range 3000 {
		a, b := number(), number()
		c.call("SET", "k", a)
		r := c.call("INCRBYFLOAT", "k", b)
		x, ok1 := ParseLongDouble([]byte(a))
		y, ok2 := ParseLongDouble([]byte(b))
		sum, ok3 := x.Add(y)
		if !ok1 || !ok2 || !ok3 || string(sum.Append(nil)) != string(r.Str) {
			t.Errorf("%s + %s: %s, redis-server says %s", a, b, sum.Append(nil), r.Str)
		}
	}
}

func TestLiveDouble(t *testing.T) {
	s := startServer(t)
	c := &caller{t: t, conn: s.dial(t)}
	appendDouble := AppendDouble
	if s.version(t) < "7.2" {
		appendDouble = AppendDouble17
	}
	for _, text := range numberTexts {
		c.call("DEL", "z")
		r := c.call("ZADD", "z", text, "m")
		if r.Kind != KindError {
			r = c.call("ZSCORE", "z", "m")
		}
		got := "ERR value is not a valid float"
		if v, ok := ParseFloat([]byte(text)); ok {
			if v == 0 {
				v = 0 // a small sorted set keeps no sign of zero
			}
			got = string(appendDouble(nil, v))
		}
		if got != string(r.Str) {
			t.Errorf("%.60q: %q, redis-server says %q", text, got, r.Str)
		}
	}
	rnd := rand.New(rand.NewPCG(5, 5))
	const rounds = 5000
	longer := 0
	for i := range rounds {
		v := math.Float64frombits(rnd.Uint64())
		if i%2 == 0 {
			v = math.Round(rnd.NormFloat64()*1e6) / math.Pow(10, float64(rnd.IntN(12)))
		}
		if math.IsNaN(v) || v == 0 {
			continue
		}
		text := strconv.FormatFloat(v, 'g', 17, 64)
		c.call("ZADD", "z", text, "m")
		r := c.call("ZSCORE", "z", "m")
		got := string(appendDouble(nil, v))
		if got == string(r.Str) {
			continue
		}
		longer++ // see AppendDouble: an unneeded digit, but the same double
		if back, ok := ParseFloat(r.Str); !ok || back != v || len(r.Str) < len(got) {
			t.Errorf("%s: %q, redis-server says %q", text, got, r.Str)
		}
	}
	if longer > rounds/200 {
		t.Errorf("%d of %d doubles differ in their last digit", longer, rounds)
	}
	t.Logf("%d of %d doubles differ in their last digit", longer, rounds)
}

// CR and LF in an error text become spaces, as in Redis.
func TestLiveErrorText(t *testing.T) {
	c := &caller{t: t, conn: startServer(t).dial(t)}
	for _, name := range []string{"foo\r\nbar", "foo\n", "\r\n"} {
		_, want := c.callRaw(name)
		got := AppendError(nil, "ERR unknown command '"+name+"', with args beginning with: ")
		if string(got) != want {
			t.Errorf("%q: %q, redis-server says %q", name, got, want)
		}
	}
}
