package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestGoRedis uses a node as programs do: by a client library, in both protocols.
func TestGoRedis(t *testing.T) {
	n := startServer(t, "requirepass secret")
	for _, proto := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", proto), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), replyWait)
			defer cancel()
			c := redis.NewClient(&redis.Options{Addr: n.Addr, Protocol: proto, Password: "secret", ClientName: "smoke"})
			defer c.Close()
			checkPipeline(t, ctx, c)
			checkTransaction(t, ctx, c)
			checkWatch(t, ctx, c)
			checkMessages(t, ctx, c)
			if name, err := c.ClientGetName(ctx).Result(); err != nil || name != "smoke" {
				t.Errorf("name %q, %v", name, err)
			}
		})
	}
}

func checkPipeline(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	p := c.Pipeline()
	var sets []*redis.StatusCmd
	for i := range 200 {
		sets = append(sets, p.Set(ctx, fmt.Sprint("k", i), i, 0))
	}
	get, missing := p.Get(ctx, "k199"), p.Get(ctx, "none")
	if _, err := p.Exec(ctx); !errors.Is(err, redis.Nil) {
		t.Fatalf("pipeline: %v", err)
	}
	for _, s := range sets {
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	if get.Val() != "199" || !errors.Is(missing.Err(), redis.Nil) {
		t.Errorf("GET: %q, %v", get.Val(), missing.Err())
	}
}

func checkTransaction(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	c.Del(ctx, "n", "h")
	var incr *redis.IntCmd
	var all *redis.MapStringStringCmd
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.IncrBy(ctx, "n", 41)
		incr = p.Incr(ctx, "n")
		p.HSet(ctx, "h", "f", "v")
		all = p.HGetAll(ctx, "h")
		return nil
	})
	if err != nil || incr.Val() != 42 || all.Val()["f"] != "v" {
		t.Errorf("transaction: %v, %d, %v", err, incr.Val(), all.Val())
	}
}

func checkWatch(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	change := func(other bool) error {
		return c.Watch(ctx, func(tx *redis.Tx) error {
			if other {
				if err := c.Set(ctx, "n", "7", 0).Err(); err != nil {
					return err
				}
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "n", "8", 0)
				return nil
			})
			return err
		}, "n")
	}
	if err := change(true); !errors.Is(err, redis.TxFailedErr) {
		t.Errorf("EXEC after a change of the watched key: %v", err)
	}
	if err := change(false); err != nil {
		t.Errorf("EXEC without a change: %v", err)
	}
}

func checkMessages(t *testing.T, ctx context.Context, c *redis.Client) {
	t.Helper()
	sub := c.Subscribe(ctx, "a", "b")
	defer sub.Close()
	if err := sub.PSubscribe(ctx, "p*"); err != nil {
		t.Fatal(err)
	}
	if err := sub.SSubscribe(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, send := range []*redis.IntCmd{c.Publish(ctx, "a", "1"), c.Publish(ctx, "px", "2"), c.SPublish(ctx, "s", "3")} {
		if n, err := send.Result(); n != 1 || err != nil {
			t.Errorf("%v: %d, %v", send.Args(), n, err)
		}
	}
	for _, want := range []string{"1", "2", "3"} {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil || m.Payload != want {
			t.Errorf("message %v, %v, want %s", m, err, want)
		}
	}
	if err := sub.Ping(ctx, "x"); err != nil {
		t.Error(err)
	}
}
