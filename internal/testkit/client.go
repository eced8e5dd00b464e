package testkit

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// replyLimit bounds the wait for a reply. A command that blocks longer on purpose
// needs SetTimeout.
const replyLimit = time.Minute

// Reply is one reply, both ways.
type Reply struct {
	Raw   string // the bytes on the wire
	Value any    // see Decode
}

// Conn is a connection of a test. One goroutine uses it.
type Conn struct {
	t       testing.TB // nil for one that only Try is called on
	conn    net.Conn
	rd      *bufio.Reader
	timeout time.Duration
}

// Dial connects to addr and closes the connection when the test ends.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	c, err := connect(addr, startLimit)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	c.t = t
	t.Cleanup(c.Close)
	return c
}

func connect(addr string, timeout time.Duration) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, rd: bufio.NewReader(conn), timeout: replyLimit}, nil
}

// Close closes the connection. It may be called more than once.
func (c *Conn) Close() { c.conn.Close() }

// Net returns the connection below, for a test that writes its own bytes.
func (c *Conn) Net() net.Conn { return c.conn }

// SetTimeout changes how long each later call waits for a reply, a minute at first.
func (c *Conn) SetTimeout(d time.Duration) { c.timeout = d }

// Do sends one command and returns its reply. It ends the test if there is none;
// an error reply is a reply.
func (c *Conn) Do(args ...string) Reply {
	c.t.Helper()
	reply, err := c.Try(args...)
	if err != nil {
		c.t.Fatalf("%.200q: %v", args, err)
	}
	return reply
}

// Try is Do with a returned error.
func (c *Conn) Try(args ...string) (Reply, error) {
	if err := c.Send(args...); err != nil {
		return Reply{}, err
	}
	return c.Receive()
}

// Send writes one command and reads nothing.
func (c *Conn) Send(args ...string) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(AppendCommand(nil, args...))
	return err
}

// Receive reads the next reply or push message.
func (c *Conn) Receive() (Reply, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return Reply{}, err
	}
	return Decode(c.rd)
}

// AppendCommand appends a command as an array of bulk strings to dst and returns
// the longer slice.
func AppendCommand(dst []byte, args ...string) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(args))
	for _, arg := range args {
		dst = fmt.Appendf(dst, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return dst
}

// Types of a decoded reply that Go's own do not tell apart. All others are nil,
// string, int64, float64, bool and []any.
type (
	Error    string // -ERR ... and !: without the leading sign
	Verbatim string // =: with its format, "txt:..."
	Big      string // (: decimal digits
	Map      []any  // %: key, value, key, value, in the order on the wire
	Set      []any  // ~
	Push     []any  // >
)

func (e Error) Error() string { return string(e) }

const (
	depthLimit = 64        // arrays within arrays
	bulkLimit  = 512 << 20 // bytes of one string
)

// Decode reads one reply of RESP2 or RESP3 and keeps its bytes. An attribute stays
// in Raw and is no part of Value.
func Decode(rd *bufio.Reader) (Reply, error) {
	d := decoder{rd: rd}
	v, err := d.value(0)
	return Reply{d.raw.String(), v}, err
}

type decoder struct {
	rd  *bufio.Reader
	raw strings.Builder
}

func (d *decoder) value(depth int) (any, error) {
	if depth > depthLimit {
		return nil, fmt.Errorf("reply: more than %d levels", depthLimit)
	}
	line, err := d.rd.ReadString('\n')
	d.raw.WriteString(line)
	if err != nil {
		return nil, fmt.Errorf("reply: %w", err)
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok || text == "" {
		return nil, fmt.Errorf("reply: line %.40q, want a type and CRLF", line)
	}
	kind, text := text[0], text[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return Error(text), nil
	case '(':
		return Big(text), nil
	case '_':
		return nil, nil
	case ',':
		return strconv.ParseFloat(text, 64)
	case '#':
		return text == "t", nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$', '=', '!':
		return d.bulk(kind, text)
	case '*', '~', '>', '%', '|':
		return d.list(kind, text, depth)
	}
	return nil, fmt.Errorf("reply: type %q is unknown", kind)
}

func (d *decoder) bulk(kind byte, text string) (any, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < -1 || n > bulkLimit {
		return nil, fmt.Errorf("reply: length %.40q outside [-1, %d]", text, bulkLimit)
	}
	if n == -1 {
		return nil, nil
	}
	at := d.raw.Len()
	// Copying grows with what arrives, so a false length allocates nothing.
	if _, err := io.CopyN(&d.raw, d.rd, int64(n)+2); err != nil {
		return nil, fmt.Errorf("reply: string of %d bytes: %w", n, err)
	}
	s := d.raw.String()[at:]
	if s[n:] != "\r\n" {
		return nil, fmt.Errorf("reply: string of %d bytes ends in %q, want CRLF", n, s[n:])
	}
	switch s = s[:n]; kind {
	case '!':
		return Error(s), nil
	case '=':
		return Verbatim(s), nil
	}
	return s, nil
}

func (d *decoder) list(kind byte, text string, depth int) (any, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < -1 {
		return nil, fmt.Errorf("reply: count %.40q, want -1 or more", text)
	}
	if n == -1 {
		return nil, nil
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	values := []any{}
	for range n {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	switch kind {
	case '~':
		return Set(values), nil
	case '>':
		return Push(values), nil
	case '%':
		return Map(values), nil
	case '|':
		return d.value(depth + 1) // the value that the attribute belongs to
	}
	return values, nil
}
