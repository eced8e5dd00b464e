package server

import (
	"slices"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

func TestTransactions(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	b, other := newBoth(t, n, r), newBoth(t, n, r)
	b.all(`
		EXEC
		DISCARD
		UNWATCH
		MULTI
		MULTI
		WATCH a
		SET a 1
		INCR a
		HSET a f v
		GET a
		EXEC
		GET a
		MULTI
		SET a
		NOSUCH
		GET a
		EXEC
		MULTI
		SET a 9
		DISCARD
		GET a
		EXEC
		WATCH
		MULTI
		SUBSCRIBE
		EXEC
		MULTI
		EXEC
		MULTI x
		MULTI
		PING
		RESET
		EXEC
		MULTI
		CLIENT GETNAME
		CLIENT NOSUCH
		EXEC
	`)
	b.same("WATCH a b")
	other.same("SET b 1")
	b.all("MULTI\nGET a\nEXEC\nMULTI\nGET a\nEXEC")
	b.same("WATCH a b")
	other.same("SET b 1")
	b.all("UNWATCH\nMULTI\nGET a\nEXEC\nWATCH a")
	other.same("DEL a")
	other.same("FLUSHALL")
	b.all("DISCARD\nMULTI\nGET a\nEXEC\nWATCH none")
	other.same("FLUSHALL")
	b.all("MULTI\nGET a\nEXEC\nWATCH none")
	other.same("SET none 1")
	b.all("MULTI\nGET a\nEXEC")
	b.same("MULTI")
	b.same("GET none")
	if got := b.ours.Do("CLIENT", "INFO").Raw; got != "+QUEUED\r\n" {
		t.Errorf("CLIENT INFO in MULTI: %q", got)
	}
	lines := n.dial(t).Do("CLIENT", "LIST").Raw
	if !strings.Contains(lines, " flags=x ") || !strings.Contains(lines, " multi=2 ") {
		t.Errorf("no connection in MULTI with 2 commands: %q", lines)
	}
}

func TestShardChannelsInCluster(t *testing.T) {
	n, r := startServer(t, "cluster-enabled yes"), testkit.StartRedis(t, "--cluster-enabled", "yes")
	newBoth(t, n, r).all(`
		SSUBSCRIBE a
		SPUBLISH a x
		SUNSUBSCRIBE
		PUBLISH a x
		SUBSCRIBE a
		UNSUBSCRIBE a
		SELECT 0
		SELECT 1
	`)
}

// TestWatchExpired compares what counts as a change of a watched key whose time passes or has passed.
func TestWatchExpired(t *testing.T) {
	n := startServer(t, "enable-debug-command yes")
	r := testkit.StartRedis(t, "--enable-debug-command", "yes")
	b, other := newBoth(t, n, r), newBoth(t, n, r)
	b.same("DEBUG SET-ACTIVE-EXPIRE 0")
	for _, meanwhile := range []string{
		"PING", "EXISTS x", "GET x", "DEL x", "SET x new", "EXPIRE x 10", "FLUSHALL", "APPEND x y", "RENAME x y", "RENAME y x",
	} {
		b.all("FLUSHALL\nSET y v\nSET x v PXAT 1\nWATCH x")
		t.Logf("%s meanwhile:", meanwhile)
		other.same(meanwhile)
		b.all("MULTI\nPING\nEXEC")
		b.all("FLUSHALL\nSET y v\nSET x v\nWATCH x")
		other.same(meanwhile)
		b.all("MULTI\nPING\nEXEC\nSET x v\nWATCH x")
		other.same("SET x v PXAT 1")
		other.same(meanwhile)
		b.all("MULTI\nPING\nEXEC")
	}
	// A stale key that went and came back did change.
	b.all("SET x v PXAT 1\nWATCH x")
	other.all("GET x\nSET x v\nDEL x")
	b.all("MULTI\nPING\nEXEC\nSET x v PXAT 1\nWATCH x\nGET x\nMULTI\nPING\nEXEC")
}

// TestFailureCounts compares which commands and errors are counted as failed, inside EXEC and outside.
func TestFailureCounts(t *testing.T) {
	n, r := startServer(t), testkit.StartRedis(t)
	b := newBoth(t, n, r)
	b.all(`
		CONFIG RESETSTAT
		SET a x
		INCR a
		GET
		NOSUCH
		MULTI
		SET a b
		AUTH a
		INCR a
		HGET a f
		EXEC
		EXEC
		MULTI
		SET
		EXEC
		WATCH a
		SET a c
		MULTI
		GET a
		EXEC
		DISCARD
		OBJECT NOSUCH
		OBJECT
		OBJECT FREQ a
	`)
	counts := func(c *testkit.Conn) string {
		var out strings.Builder
		for _, section := range []string{"commandstats", "errorstats"} {
			text, _ := c.Do("INFO", section).Value.(string)
			var lines []string
			for line := range strings.Lines(text) {
				name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
				if name == "" || strings.HasPrefix(name, "#") || name == "cmdstat_info" {
					continue
				}
				for f := range strings.SplitSeq(fields, ",") {
					if !strings.HasPrefix(f, "usec") {
						name += " " + f
					}
				}
				lines = append(lines, name)
			}
			slices.Sort(lines)
			out.WriteString(strings.Join(lines, "\n") + "\n")
		}
		return out.String()
	}
	if ours, redis := counts(b.ours), counts(b.redis); ours != redis {
		t.Errorf("ours:\n%s\nredis:\n%s", ours, redis)
	}
}
