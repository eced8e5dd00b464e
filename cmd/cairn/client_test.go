package main

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	cli := lookPath(t, "redis-cli")
	n := start(t, t.TempDir())
	ask := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(cli, append([]string{"-p", strconv.Itoa(n.port)}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, c := range []struct{ command, want string }{
		{"PING", "PONG"},
		{"SET k v", "OK"},
		{"GET k", "v"},
		{"-3 HSET h f 1", "1"},
		{"-3 HGETALL h", "f 1"},
		{"DEL k h", "2"},
		{"GET k", ""},
	} {
		if got := ask(strings.Fields(c.command)...); got != c.want {
			t.Errorf("redis-cli %s: %q, want %q", c.command, got, c.want)
		}
	}
	if info := ask("INFO", "server"); !strings.Contains(info, "server_name:cairn") || !strings.Contains(info, "tcp_port:"+strconv.Itoa(n.port)) {
		t.Errorf("INFO server lacks server_name:cairn or tcp_port:%d:\n%s", n.port, info)
	}
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	for _, proto := range []int{2, 3} {
		t.Run("RESP"+strconv.Itoa(proto), func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: n.addr, Protocol: proto})
			defer client.Close()
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			goRedisValues(t, client)
			goRedisTransactions(t, client)
		})
	}
}

func goRedisValues(t *testing.T, client *redis.Client) {
	ctx := t.Context()
	if err := client.Set(ctx, "s", "v", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(ctx, "s").Result(); err != nil || got != "v" {
		t.Errorf("GET s: %q, %v", got, err)
	}
	if ttl, err := client.TTL(ctx, "s").Result(); err != nil || ttl <= 59*time.Minute || ttl > time.Hour {
		t.Errorf("TTL s: %v, %v", ttl, err)
	}
	if _, err := client.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET of no key: %v, want redis.Nil", err)
	}
	if err := client.HSet(ctx, "h", "a", 1, "b", "two").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := client.HGetAll(ctx, "h").Result(); err != nil || len(got) != 2 || got["a"] != "1" || got["b"] != "two" {
		t.Errorf("HGETALL h: %v, %v", got, err)
	}
	if err := client.Incr(ctx, "h").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("INCR of a hash: %v, want WRONGTYPE", err)
	}
	replies, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 100 {
			p.Incr(ctx, "n")
		}
		return nil
	})
	if err != nil || len(replies) != 100 || replies[99].(*redis.IntCmd).Val() != 100 {
		t.Errorf("100 INCR in a pipeline: %d replies, %v", len(replies), err)
	}
	found := map[string]bool{}
	for it := client.Scan(ctx, 0, "*", 1).Iterator(); it.Next(ctx); {
		found[it.Val()] = true
	}
	if len(found) != 3 || !found["s"] || !found["h"] || !found["n"] {
		t.Errorf("SCAN: %v, want s, h, n", found)
	}
}

func goRedisTransactions(t *testing.T, client *redis.Client) {
	ctx := t.Context()
	if _, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "{t}a", 1, 0)
		p.Set(ctx, "{t}b", 1, 0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		// Somebody else changes the key that is watched.
		if err := client.Set(context.WithoutCancel(ctx), "{t}a", 2, 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "{t}a", 3, 0)
			return nil
		})
		return err
	}, "{t}a")
	if !errors.Is(err, redis.TxFailedErr) {
		t.Errorf("EXEC after a change of a watched key: %v, want %v", err, redis.TxFailedErr)
	}
	if got, err := client.MGet(ctx, "{t}a", "{t}b").Result(); err != nil || got[0] != "2" || got[1] != "1" {
		t.Errorf("MGET: %v, %v; want 2, 1", got, err)
	}
}
