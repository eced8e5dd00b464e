package server

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/testkit"
	"cairn/wal"
)

// A streamed reply whose view of the data is too old ends with the connection: a part must not pass for the whole.
func TestStreamTooOld(t *testing.T) {
	n := newServer(t)
	n.tune = func(e *engine.Options, _ *wal.Options) { e.IteratorLifetime = time.Nanosecond }
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.WaitPing(t, n.Addr, 10*time.Second)
	c := n.dial(t)
	args := []string{"HSET", "h"}
	for i := range 2000 {
		args = append(args, strconv.Itoa(i), strings.Repeat("v", 100))
	}
	c.Do(args...)
	if r, err := c.Try("HGETALL", "h"); err == nil {
		t.Fatalf("HGETALL gives %d bytes, want the connection closed", len(r.Raw))
	}
	if got := n.dial(t).Do("HLEN", "h").Raw; got != ":2000\r\n" {
		t.Errorf("another connection: HLEN gives %q", got)
	}
}
