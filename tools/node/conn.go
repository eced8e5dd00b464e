package node

import (
	"errors"
	"fmt"
	"net"
	"time"

	"cairn/internal/resp"
)

// replyLimit is how long a reply may take before the connection is given up.
const replyLimit = 60 * time.Second

// Conn is a connection to a server. One goroutine uses it, but one may Flush while another receives.
type Conn struct {
	conn    net.Conn
	out     []byte
	in      []byte // received; in[start:] is not used yet
	start   int
	timeout time.Duration
}

// Dial connects to addr, host:port.
func Dial(addr string, limit time.Duration) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &Conn{conn: conn, timeout: replyLimit}, nil
}

// Close closes the connection. It may be called more than once, and by anybody.
func (c *Conn) Close() { c.conn.Close() }

// Net returns the connection below, for a caller that writes its own bytes.
func (c *Conn) Net() net.Conn { return c.conn }

// SetTimeout changes how long each later reply may take, 60 s at first.
func (c *Conn) SetTimeout(d time.Duration) { c.timeout = d }

// Append adds a command to the next Flush.
func (c *Conn) Append(args ...string) { c.out = resp.AppendCommandStrings(c.out, args...) }

// Pending is the number of bytes that Flush will send.
func (c *Conn) Pending() int { return len(c.out) }

// Flush sends what Append collected.
func (c *Conn) Flush() error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	if cap(c.out) > 8<<20 {
		c.out = nil // one big pipeline must not be kept by a thousand connections
	}
	return err
}

// Receive returns the next reply. Its texts are valid until the next call.
func (c *Conn) Receive() (resp.Reply, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return resp.Reply{}, err
	}
	var scan resp.ReplyScanner
	for {
		n := 0
		if c.start < len(c.in) {
			var err error
			if n, err = scan.End(c.in[c.start:]); err != nil {
				return resp.Reply{}, err
			}
		}
		if n > 0 {
			reply, used, err := resp.ParseReply(c.in[c.start : c.start+n])
			if err == nil && used != n {
				err = errors.New("reply: end found and end parsed differ")
			}
			c.start += n
			return reply, err
		}
		if err := c.fill(); err != nil {
			return resp.Reply{}, err
		}
	}
}

// fill reads once. What is used up goes first, so that replies of earlier calls end here.
func (c *Conn) fill() error {
	if c.start > 0 {
		c.in = c.in[:copy(c.in, c.in[c.start:])]
		c.start = 0
	}
	if len(c.in) == cap(c.in) {
		grown := make([]byte, len(c.in), max(8<<10, 2*cap(c.in)))
		copy(grown, c.in)
		c.in = grown
	}
	n, err := c.conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// Do sends one command and returns its reply.
func (c *Conn) Do(args ...string) (resp.Reply, error) {
	c.Append(args...)
	if err := c.Flush(); err != nil {
		return resp.Reply{}, err
	}
	return c.Receive()
}

// Int is Do for commands that answer with a number.
func (c *Conn) Int(args ...string) (int64, error) {
	reply, err := c.Do(args...)
	if err == nil && reply.Kind != resp.KindInt {
		err = fmt.Errorf("%.60q: reply %c%.100s, want a number", args, reply.Kind, reply.Str)
	}
	return reply.Int, err
}

// Text is Do for commands that answer with a text.
func (c *Conn) Text(args ...string) (string, error) {
	reply, err := c.Do(args...)
	if err != nil {
		return "", err
	}
	if text := reply.Err(); text != "" {
		return "", fmt.Errorf("%.60q: %s", args, text)
	}
	return string(reply.Str), nil
}
