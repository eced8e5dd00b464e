package main

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// TestKnownServer: a server that closes in a minority passes.
func TestKnownServer(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := run(t.Context(), []string{
		"partitions", "--program", testkit.RedisPath(t), "--redis", "--untimed", "--only", "isolated", "--node-timeout", "1s", "--dir", t.TempDir(),
	}, &out)
	if code != 0 || !strings.Contains(out.String(), "all tables are equal") {
		t.Fatalf("status %d:\n%s", code, out.String())
	}
}

// TestFallingEpoch: a check that never fails would pass as well.
func TestFallingEpoch(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 1024)
		for epoch := 9; ; epoch-- {
			if _, err := c.Read(buf); err != nil {
				return
			}
			text := "cluster_current_epoch:" + strconv.Itoa(epoch) + "\r\n"
			_, _ = io.WriteString(c, "$"+strconv.Itoa(len(text))+"\r\n"+text+"\r\n")
		}
	}()
	if err := <-watchEpochs([]seat{{addr: l.Addr().String()}}).done; err == nil || !strings.Contains(err.Error(), "fell from 9 to 8") {
		t.Errorf("%v", err)
	}
}

// pair is two ends of a connection through a network, from node 0 to node 1.
func pair(t *testing.T, w *network) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	port, err := w.open(1, l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source(0))}}
	if a, err = d.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); err != nil {
		t.Skipf("no connection from %s: %v", source(0), err)
	}
	t.Cleanup(func() { a.Close() })
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return a, b
}

// TestNetwork: what is blocked waits, in its direction alone, and goes on afterwards.
func TestNetwork(t *testing.T) {
	t.Parallel()
	w := newNetwork(2)
	t.Cleanup(w.close)
	a, b := pair(t, w)
	send := func(c net.Conn, text string) {
		t.Helper()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	want := func(c net.Conn, text string) {
		t.Helper()
		buf := make([]byte, len(text))
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != text {
			t.Fatalf("%q, %v, want %q", buf, err, text)
		}
	}
	send(a, "there")
	want(b, "there")
	if err := w.block([]way{{0, 1}}, true); err != nil {
		t.Fatal(err)
	}
	send(a, "held")
	send(b, "back")
	want(a, "back")
	if err := b.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("what is blocked arrives")
	}
	if err := w.block(allWays(2), false); err != nil {
		t.Fatal(err)
	}
	want(b, "held")
	if err := w.jolt(1); err != nil {
		t.Fatal(err)
	}
	if err := b.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); err == nil {
		t.Error("a broken connection goes on")
	}
}
