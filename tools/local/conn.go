package local

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"cairn/internal/resp"
)

const (
	replyLimit   = 10 * time.Second // for one reply of a node on this machine
	maxReplySize = 16 << 20         // bytes; CLUSTER NODES of a thousand nodes has less than one
)

// replyError is an error reply of a node.
type replyError string

func (e replyError) Error() string { return string(e) }

// conn is a connection to a node. One goroutine uses it.
type conn struct {
	net   net.Conn
	limit time.Duration // for one reply
	in    []byte
}

// dial connects and gives the password, if there is one.
func dial(port int, password string, limit time.Duration) (*conn, error) {
	n, err := net.DialTimeout("tcp", address(port), limit)
	if err != nil {
		return nil, err
	}
	c := &conn{net: n, limit: limit}
	if password != "" {
		if _, err := c.do("AUTH", password); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *conn) close() { _ = c.net.Close() }

// do sends a command and returns its reply; an error reply is a replyError.
func (c *conn) do(args ...string) (resp.Reply, error) {
	if err := c.net.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return resp.Reply{}, err
	}
	if _, err := c.net.Write(resp.AppendCommandStrings(nil, args...)); err != nil {
		return resp.Reply{}, err
	}
	c.in = c.in[:0]
	chunk := make([]byte, 16<<10)
	var scan resp.ReplyScanner
	for {
		n, err := c.net.Read(chunk)
		if err != nil {
			return resp.Reply{}, err
		}
		if len(c.in)+n > maxReplySize {
			return resp.Reply{}, fmt.Errorf("%s: a reply of more than %d bytes", args[0], maxReplySize)
		}
		c.in = append(c.in, chunk[:n]...)
		end, err := scan.End(c.in)
		if err != nil {
			return resp.Reply{}, err
		}
		if end == 0 {
			continue
		}
		reply, _, err := resp.ParseReply(c.in[:end])
		if err == nil && reply.Err() != "" {
			err = replyError(reply.Err())
		}
		return reply, err
	}
}

// text is do for commands that answer with a text.
func (c *conn) text(args ...string) (string, error) {
	reply, err := c.do(args...)
	return string(reply.Str), err
}

// field returns the value of a field of INFO's or CLUSTER INFO's text, "" when it is not there.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimRight(v, "\r\n")
		}
	}
	return ""
}

func isReply(err error) bool {
	var reply replyError
	return errors.As(err, &reply)
}

func address(port int) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
