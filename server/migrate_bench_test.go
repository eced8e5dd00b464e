package server

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/resp"
)

// takeAll is a target that takes everything.
func takeAll(b *testing.B) (port string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return portOf(b, l.Addr().String())
}

// answer says OK to each command until the connection ends.
func answer(conn net.Conn) {
	defer conn.Close()
	in := resp.NewFramer(resp.Limits{})
	for {
		n, err := conn.Read(in.Space(64 << 10))
		if err != nil {
			return
		}
		in.Advance(n)
		var out []byte
		for {
			_, _, ok, err := in.Next()
			if err != nil || !ok {
				break
			}
			out = append(out, "+OK\r\n"...)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// What a key costs that moves, a hundred in a call.
func BenchmarkMigrate(b *testing.B) {
	for _, size := range []int{100, 16 << 10} {
		for _, copied := range []bool{false, true} {
			b.Run("bytes="+strconv.Itoa(size)+"/copy="+strconv.FormatBool(copied), func(b *testing.B) { benchMigrate(b, size, copied) })
		}
	}
}

func benchMigrate(b *testing.B, size int, copied bool) {
	const calls = 100
	n := startServer(b, "memory-budget 256mb")
	c := n.dial(b)
	port := takeAll(b)
	words := []string{"MIGRATE", "127.0.0.1", port, "", "0", "10000", "COPY", "KEYS"}
	set := []string{"MSET"}
	if !copied {
		words = append(words[:6:6], "KEYS")
	}
	var value strings.Builder
	for i := 0; value.Len() < size; i++ {
		value.WriteString(strconv.FormatInt(int64(i)*0x9E3779B97F4A7, 36))
	}
	for i := range calls {
		key := "{b}key:" + strconv.Itoa(i)
		words = append(words, key)
		set = append(set, key, value.String()[:size])
	}
	c.Do(set...)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for i := 0; i < b.N; i += calls {
		if !copied {
			b.StopTimer()
			c.Do(set...)
			b.StartTimer()
		}
		if got := c.Do(words...).Raw; got != "+OK\r\n" {
			b.Fatalf("got %q", got)
		}
	}
}
