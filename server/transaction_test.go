package server

import (
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
