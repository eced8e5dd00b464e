package bench

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// fakeServer answers every command with +OK, in the way that answer likes.
func fakeServer(t *testing.T, answer func(conn net.Conn, commands int) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection, which the client closes
				defer conn.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buf)
					if err != nil || answer(conn, strings.Count(string(buf[:n]), "*")) != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func reply(text string) func(net.Conn, int) error {
	return func(conn net.Conn, commands int) error {
		_, err := conn.Write([]byte(strings.Repeat(text, commands)))
		return err
	}
}

func ping(*rand.Rand) Source {
	return func(dst []byte) []byte { return append(dst, "*1\r\n$4\r\nPING\r\n"...) }
}

func TestLoadCounts(t *testing.T) {
	t.Parallel()
	addr := fakeServer(t, reply("+OK\r\n"))
	for _, threads := range []int{1, 3} {
		began := 0
		l := Load{Addr: addr, Conns: 7, Pipeline: 5, Threads: threads, Source: ping, Count: 1003, Began: func() { began++ }}
		out, err := l.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if out.Ops != 1003 || out.Latency.TotalCount() != 1003 || began != 1 || out.Took <= 0 {
			t.Errorf("%d threads: %d operations, %d latencies, began %d times, took %v; want 1003, 1003, 1", threads, out.Ops, out.Latency.TotalCount(), began, out.Took)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	l := Load{Addr: fakeServer(t, reply("-ERR no\r\n")), Conns: 2, Pipeline: 1, Source: ping, Count: 10}
	if out, err := l.Run(t.Context()); err != nil || out.Errors != 10 || out.FirstError != "ERR no" {
		t.Errorf("%+v, %v", out, err)
	}
	for name, answer := range map[string]func(net.Conn, int) error{
		"closes":      func(net.Conn, int) error { return net.ErrClosed },
		"talks trash": reply("trash\r\n"),
		"talks twice": reply("+OK\r\n+OK\r\n"),
	} {
		l.Addr = fakeServer(t, answer)
		if out, err := l.Run(t.Context()); err == nil {
			t.Errorf("a server that %s: %+v, want an error", name, out)
		}
	}
	l.Addr = "127.0.0.1:1"
	if _, err := l.Run(t.Context()); err == nil {
		t.Error("nobody there, want an error")
	}
}

func TestLoadStopsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	l := Load{Addr: fakeServer(t, func(net.Conn, int) error { cancel(); return nil }), Conns: 1, Pipeline: 1, Source: ping, Measure: time.Hour}
	if _, err := l.Run(ctx); err == nil {
		t.Error("no error")
	}
}

// TestOpenLoopCharges: who arrives while the server stands still is charged from the arrival, though there is one
// connection and the command was sent later.
func TestOpenLoopCharges(t *testing.T) {
	t.Parallel()
	const standstill = 200 * time.Millisecond
	stood := false // one connection, one goroutine
	addr := fakeServer(t, func(conn net.Conn, commands int) error {
		if !stood {
			stood = true
			<-time.After(standstill)
		}
		return reply("+OK\r\n")(conn, commands)
	})
	l := Load{Addr: addr, Conns: 1, Pipeline: 1, Source: ping, Rate: 1000, Measure: 600 * time.Millisecond}
	out, err := l.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := int64(0)
	for _, b := range out.Latency.Distribution() {
		if b.To >= (standstill / 4).Microseconds() {
			late += b.Count
		}
	}
	// About 150 arrive in the first three quarters of the standstill; a closed loop would have seen one.
	if late < 50 {
		t.Errorf("%d of %d latencies show the standstill, want at least 50", late, out.Latency.TotalCount())
	}
	if out.LongestGap < standstill/2 {
		t.Errorf("longest gap %v, want about %v", out.LongestGap, standstill)
	}
}
