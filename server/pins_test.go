package server

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/testkit"
	"cairn/wal"
)

// While the disk is nearly full the log keeps nothing for others that frees space: pins go, the oldest first, and the
// log says for whom they were. One that holds nothing stays.
func TestFullDiskEndsPins(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 39)
	n := newServer(t, "repl-backlog-size 1")
	n.fs = cuttableDisk{vfs.Default, &free}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	low, err := n.wal.Pin(n.wal.End())
	if err != nil {
		t.Fatal(err)
	}
	low.Name("a copy for 10.1.2.3:6379")
	c := n.dial(t)
	for range 40 { // past the first segments, which are small
		c.Do("SET", "k", strings.Repeat("v", 200_000))
	}
	high, err := n.wal.Pin(n.wal.End())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Do("SAVE").Raw; got != "+OK\r\n" {
		t.Fatalf("SAVE: %q", got)
	}
	first := n.wal.First()
	free.Store(0)
	testkit.Eventually(t, 20*time.Second, func() bool { return lostPin(low) && n.wal.First() > first }, "the pin to be lost")
	n.freePins()
	if lostPin(high) || n.wal.First() <= first {
		t.Errorf("the other pin is lost: %v; the log begins at %d, then %d", lostPin(high), first, n.wal.First())
	}
	if !strings.Contains(n.log.String(), "a copy for 10.1.2.3:6379") {
		t.Error("the log does not name the pin")
	}
}

func lostPin(p *wal.Pin) bool {
	select {
	case <-p.Lost():
		return true
	default:
		return false
	}
}

// CONFIG SET repl-pin-limit is obeyed at once.
func TestPinLimitDirective(t *testing.T) {
	n := startServer(t)
	p, err := n.wal.Pin(n.wal.End())
	if err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	c.Do("SET", "k", strings.Repeat("v", 100_000))
	if got := c.Do("CONFIG", "SET", "repl-pin-limit", "50000").Raw; got != "+OK\r\n" {
		t.Fatalf("CONFIG SET: %q", got)
	}
	testkit.Eventually(t, 20*time.Second, func() bool { return lostPin(p) }, "the pin to be lost")
}
