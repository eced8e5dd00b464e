package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// cable is a connection between two nodes with a namespace each.
type cable struct {
	t      *testing.T
	fabric fabric
	addr   string
	a, b   net.Conn // at node 0, at node 1
}

func newCable(t *testing.T) *cable {
	t.Helper()
	f, err := newSpaces(2)
	if errors.Is(err, errCannot) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	var l net.Listener
	inside := f.place(1)
	if err := inside.Enter(func() (err error) { l, err = net.Listen("tcp4", inside.Host+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a, err := f.place(0).Dial(l.Addr().String(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return &cable{t, f, l.Addr().String(), a.Net(), b}
}

func (c *cable) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cable) say(at net.Conn, text string) {
	c.t.Helper()
	_, err := io.WriteString(at, text)
	c.must(err)
}

func (c *cable) hear(at net.Conn, limit time.Duration, text string) error {
	c.t.Helper()
	c.must(at.SetReadDeadline(time.Now().Add(limit)))
	buf := make([]byte, len(text))
	_, err := io.ReadFull(at, buf)
	if err == nil && string(buf) != text {
		c.t.Fatalf("heard %q, want %q", buf, text)
	}
	return err
}

func (c *cable) arrives(at net.Conn, text string) {
	c.t.Helper()
	c.must(c.hear(at, 20*time.Second, text))
}

func (c *cable) stays(at net.Conn, text string) {
	c.t.Helper()
	if err := c.hear(at, 100*time.Millisecond, text); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q arrives: %v", text, err)
	}
}

// TestSpaces: what is cut is lost in one direction, without an error, and is sent again after the healing; nothing is seen of
// it outside.
func TestSpaces(t *testing.T) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	c := newCable(t)
	c.say(c.a, "there")
	c.arrives(c.b, "there")

	c.must(c.fabric.block([]way{{0, 1}}, true))
	c.say(c.a, "lost")
	c.say(c.b, "back")
	c.arrives(c.a, "back")
	c.stays(c.b, "lost")
	c.must(c.fabric.block(allWays(2), false))
	c.arrives(c.b, "lost")

	plug := c.fabric.(interface{ unplug(i int, out bool) error })
	c.must(plug.unplug(1, true))
	c.say(c.b, "unplugged")
	c.stays(c.a, "unplugged")
	c.must(plug.unplug(1, false))
	c.arrives(c.a, "unplugged")
	c.must(c.fabric.jolt(0))

	after, err := net.Interfaces()
	if err != nil || len(after) != len(before) {
		t.Errorf("%d interfaces here, before it %d: %v", len(after), len(before), err)
	}
	if out, err := net.DialTimeout("tcp", c.addr, 100*time.Millisecond); err == nil {
		out.Close()
		t.Error("the network of nodes is reached from here")
	}
}
