package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/tools/node"
)

// The measurements themselves are run on a redis-server that keeps a log: it takes
// the same commands, and what it scores is of no interest here.
func newTestLab(t *testing.T, args ...string) (*lab, *server) {
	t.Helper()
	l, err := newLab(t.Context(), []string{testkit.RedisPath(t), "--save", ""}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	s, c, err := l.cairn("node", args...)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	return l, s
}

func TestFillAndRestart(t *testing.T) {
	t.Parallel()
	l, s := newTestLab(t, "--appendonly", "yes", "--appendfsync", "always")
	v := newValues()
	const keys = 1000
	if err := l.fill(s.Addr, "load", keys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, 500)) }); err != nil {
		t.Fatal(err)
	}
	right := func(text string) bool { return text == v.at(keys-1, 500) }
	if _, err := l.killAndStart(s, []string{"GET", keyName(keys - 1)}, right); err != nil {
		t.Fatal(err)
	}
	if _, err := l.killAndStart(s, []string{"GET", keyName(0)}, right); err == nil {
		t.Error("the value of another key passed as right")
	}
	if err := measureIncr(l, s, 50*time.Millisecond); err != nil {
		t.Error(err)
	}
}

// TestLostCounterIsSeen: a server without a log loses what it acknowledged.
func TestLostCounterIsSeen(t *testing.T) {
	t.Parallel()
	l, s := newTestLab(t, "--appendonly", "no")
	if err := measureIncr(l, s, 50*time.Millisecond); err == nil {
		t.Error("counters of a server without a log passed")
	}
}

func TestErrorReplyEndsFill(t *testing.T) {
	t.Parallel()
	l, s := newTestLab(t)
	if err := l.fill(s.Addr, "load", 10, func(c *node.Conn, i int) { c.Append("NO-SUCH-COMMAND", keyName(i)) }); err == nil {
		t.Error("error replies passed")
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	l, _ := newTestLab(t)
	if err := measureIdle(l, 20, 5, 50*time.Millisecond); err != nil {
		t.Error(err)
	}
}

func TestExpiredEvents(t *testing.T) {
	t.Parallel()
	l, s := newTestLab(t, "--notify-keyspace-events", "Ex")
	events, err := countExpired(s.Addr, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer events.conn.Close()
	// SET with a deadline in the past is an error; PEXPIRE with one deletes without an event of its own.
	for range 2 {
		if err := l.fill(s.Addr, "load", 2, func(c *node.Conn, i int) { c.Append("SET", keyName(i), "v", "PX", "1") }); err != nil {
			t.Fatal(err)
		}
		c, err := node.Dial(s.Addr, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 20*time.Second, func() bool {
			n, err := c.Int("DBSIZE")
			return err == nil && n == 0
		}, "expiry")
		c.Close()
	}
	if got, twice, err := events.result(); err != nil || got != 2 || twice != 2 {
		t.Errorf("%d keys, %d second events, %v; want 2, 2", got, twice, err)
	}
}

// TestInterrupted: a measurement that does not heed a signal ends nevertheless, and what it started with it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan error)
	t.Cleanup(func() { close(never) })
	var s *server
	var dir string
	c := subcommand{name: "never", prepare: func(*flag.FlagSet) func(l *lab) error {
		return func(l *lab) (err error) {
			dir = l.dir
			if s, _, err = l.cairn("node"); err != nil {
				return err
			}
			cancel()
			return <-never
		}
	}}
	if code := c.run(ctx, []string{"--dir", t.TempDir(), "--program", testkit.RedisPath(t)}); code != 130 {
		t.Fatalf("exit status %d, want 130", code)
	}
	select {
	case <-s.Done():
	default:
		t.Error("its server still runs")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder: %v, want that it is gone", err)
	}
}
