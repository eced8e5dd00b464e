package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// TestFailoverOfRedis: the measurement itself, on a server that is known to fail over.
func TestFailoverOfRedis(t *testing.T) {
	t.Parallel()
	testkit.RedisPath(t)
	l, err := newLab(t.Context(), []string{"redis-server"}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	l.untimed = true
	if err := measureFailover(l, []side{redisSide()}, nodeTimeout, 1); err != nil || l.failed > 0 {
		t.Fatalf("%v, %d figures beyond their bars", err, l.failed)
	}
}

// TestVerify: what a failover may lose is the last of what the killed node acknowledged, and nothing else.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// of each write, in order: who acknowledged it, k the killed node, K the same with WAIT, o another
		acks, missing string
		tail, safe    int
		fault         string
	}{
		{"nothing lost", "kkkoo", "     ", 0, 0, ""},
		{"the last", "kkkoo", " xx  ", 2, 0, ""},
		{"all", "kkkoo", "xxx  ", 3, 0, ""},
		{"with WAIT", "kKoo", " x  ", 0, 1, ""},
		{"of who still serves", "kkoo", "  x ", 0, 0, "still serves"},
		{"in the middle", "kkkoo", " x   ", 0, 0, "not the end"},
	} {
		var acks []written
		missing := make([]bool, len(c.acks))
		for i, who := range c.acks {
			by := "killed"
			if who == 'o' {
				by = "other"
			}
			acks = append(acks, written{by: by, safe: who == 'K'})
			missing[i] = c.missing[i] == 'x'
		}
		got, err := judge(acks, missing, "killed")
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.fault)
		case c.fault == "" && (err != nil || got.lostTail != c.tail || got.lostSafe != c.safe || got.acked != len(acks)):
			t.Errorf("%s: %+v, %v; want %d lost, %d of them with WAIT", c.name, got, err, c.tail, c.safe)
		}
	}
}

func TestGaps(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }
	w := &clusterWriter{acks: []written{
		{asked: at(0), at: at(900), by: "k"}, {asked: at(905), at: at(910), by: "k"}, {asked: at(950), at: at(1400), by: "o"}, {asked: at(2000), at: at(2010), by: "o"},
	}}
	if got := w.longestWait(at(901)); got != 450*time.Millisecond {
		t.Errorf("gap %v, want 450ms", got)
	}
	l := &clusterLoad{writers: []*clusterWriter{w}}
	if got := l.outage(0, "k", at(912)); got != 488*time.Millisecond {
		t.Errorf("outage %v, want 488ms", got)
	}
	if got := medianTime([]time.Duration{3, 1, 2}); got != 2 {
		t.Errorf("median %v, want 2ns", got)
	}
}

// TestSlowLine: all bytes come through, and no faster than the line.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const size = 1 << 20
	go func() { // ends with its one connection
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Write(make([]byte, size)) // a short one is seen at the other end
			c.Close()
		}
	}()
	line, err := newSlowLine(l.Addr().String(), 4*size)
	if err != nil {
		t.Fatal(err)
	}
	defer line.close()
	began := time.Now()
	c, err := net.Dial("tcp", "127.0.0.1:"+line.portText())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := io.Copy(io.Discard, c); err != nil || n != size {
		t.Errorf("%d bytes, %v; want %d", n, err, size)
	}
	if took := time.Since(began); took < 200*time.Millisecond { // a quarter of a second, less what the buffers take
		t.Errorf("%d bytes took %v: the line is not slow", size, took)
	}
}

func TestCopyFolder(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "a"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over what is there
		if err := copyFolder(from, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(to, "sub", "a")); err != nil || string(got) != "1" {
			t.Fatalf("%q, %v", got, err)
		}
		if err := os.WriteFile(filepath.Join(to, "b"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
