package server

import (
	"testing"

	"cairn/internal/testkit"
)

// TestExpireMet compares what a command leaves of the expired keys that it meets while the expirer is off. A key
// set with a deadline that lies in the past is there, expired, until somebody meets it.
func TestExpireMet(t *testing.T) {
	n := startServer(t, "enable-debug-command yes")
	r := testkit.StartRedis(t, "--enable-debug-command", "yes")
	b, other, events := newBoth(t, n, r), newBoth(t, n, r), newBoth(t, n, r)
	b.all(`
		DEBUG SET-ACTIVE-EXPIRE 0
		CONFIG SET notify-keyspace-events KEx
	`)
	events.same("PSUBSCRIBE __key*")
	for _, c := range []struct {
		command string
		events  int
	}{
		{"GET a", 1},
		{"EXISTS a", 1},
		{"TTL a", 1},
		{"TYPE a", 1},
		{"OBJECT ENCODING a", 1},
		{"TOUCH a a", 1},
		{"MGET a none a", 1},
		{"STRLEN a", 1},
		{"HLEN a", 1},
		{"GETRANGE a 0 -1", 1},
		{"DUMP a", 1},
		{"BITCOUNT a", 1},
		{"SCAN 0", 1},
		{"SCAN 0 MATCH a*", 1},
		{"SCAN 0 MATCH b*", 0},
		{"SCAN 0 TYPE string", 1},
		{"SCAN 0 TYPE hash", 1},
		{"KEYS *", 0},
		{"DBSIZE", 0},
		{"DEL a", 1},
		{"SET a new", 1},
		{"SETNX a new", 1},
		{"APPEND a x", 1},
		{"RENAME a b", 1},
		{"COPY a b", 1},
		{"PERSIST a", 1},
		{"GETDEL a", 1},
		{"INCR a", 1},
	} {
		b.all("FLUSHALL\nSET a v PXAT 1\nDBSIZE")
		t.Logf("after %s:", c.command)
		b.same(c.command)
		b.same("DBSIZE")
		for range 2 * c.events {
			events.receive()
		}
	}
	b.all("FLUSHALL\nSET a v PXAT 1\nRANDOMKEY\nDBSIZE")
	for range 2 {
		events.receive()
	}
	b.all("SET a v PXAT 1\nMULTI\nGET a\nEXISTS a\nEXEC\nDBSIZE")
	for range 2 {
		events.receive()
	}
	b.all("SET a v PXAT 1\nCLIENT PAUSE 100000 WRITE\nGET a\nEXISTS a\nDBSIZE\nCLIENT UNPAUSE\nDBSIZE\nGET a\nDBSIZE")
	for range 2 {
		events.receive()
	}
	b.all("SET a v PXAT 1\nCONFIG SET notify-keyspace-events \"\"") // nothing but these events came
	other.same("GET a")
	other.same("PUBLISH __keyend end")
	events.receive()
}
