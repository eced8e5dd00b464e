package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// go-redis in the scene clients: the same as the programs in tools/clients do, in this process.

const goWorkers, goKeys = 4, 250

// goClient is one of its workers.
type goClient struct {
	db       *redis.ClusterClient
	phase    string
	number   int
	rng      *rand.Rand
	texts    [goKeys]string
	counts   [goKeys]int
	doubtful [goKeys]bool // whether the last write was done is not known
	seen     clientReport
}

func (l *moveLab) startGoRedis(phase string, addrs []string) (*outsider, error) {
	db := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	stop, all := make(chan struct{}), make([]*goClient, goWorkers)
	var tasks sync.WaitGroup
	for i := range all {
		all[i] = &goClient{db: db, phase: phase, number: i, rng: rand.New(rand.NewPCG(3, uint64(i))), seen: clientReport{Errors: map[string]int{}}}
		if err := all[i].fill(l.ctx); err != nil {
			db.Close()
			return nil, err
		}
	}
	for _, c := range all {
		tasks.Go(func() { c.run(l.ctx, stop) }) // ends when stop is closed
	}
	return &outsider{name: "go-redis", stop: func() (clientReport, error) {
		close(stop)
		tasks.Wait()
		sum := clientReport{Errors: map[string]int{}}
		for _, c := range all {
			sum.Ops += c.seen.Ops
			sum.Wrong = append(sum.Wrong, c.seen.Wrong...)
			for text, n := range c.seen.Errors {
				sum.Errors[text] += n
			}
		}
		return sum, db.Close()
	}}, nil
}

// key gives keys of one number the same slot, for transactions.
func (c *goClient) key(kind string, i int) string {
	return fmt.Sprintf("{go-%s-%d-%d}%s", c.phase, c.number, i, kind)
}

func (c *goClient) fill(ctx context.Context) error {
	for i := range goKeys {
		c.texts[i] = "0"
		if err := errors.Join(c.put(ctx, c.db, i), c.db.Set(ctx, c.key("n", i), 0, 0).Err()); err != nil {
			return err
		}
	}
	return nil
}

func (c *goClient) put(ctx context.Context, to redis.Cmdable, i int) error {
	return errors.Join(to.Set(ctx, c.key("s", i), c.texts[i], 0).Err(), to.HSet(ctx, c.key("h", i), "f", c.texts[i]).Err())
}

func (c *goClient) run(ctx context.Context, stop chan struct{}) {
	kinds := []struct {
		name string
		do   func(ctx context.Context, i int) error
	}{{"read", c.read}, {"write", c.write}, {"count", c.count}, {"pipeline", c.pipeline}, {"transaction", c.transaction}, {"watch", c.watch}}
	for ctx.Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		i, kind := c.rng.IntN(goKeys), kinds[c.rng.IntN(len(kinds))]
		if err := kind.do(ctx, i); err != nil {
			c.seen.Errors[err.Error()]++
			c.doubtful[i] = true
			if kind.name == "pipeline" {
				for j := range pipelined {
					c.doubtful[(i+j)%goKeys] = true
				}
			}
		}
		c.seen.Ops++
	}
}

func (c *goClient) text() string { return strconv.FormatUint(c.rng.Uint64(), 36) }

func (c *goClient) read(ctx context.Context, i int) error {
	text, err := c.db.Get(ctx, c.key("s", i)).Result()
	field, err2 := c.db.HGet(ctx, c.key("h", i), "f").Result()
	count, err3 := c.db.Get(ctx, c.key("n", i)).Int()
	if err := errors.Join(err, err2, err3); err != nil && (c.phase != phaseFailovers || !errors.Is(err, redis.Nil)) {
		return err
	}
	if c.phase != phaseFailovers && !c.doubtful[i] && (text != c.texts[i] || field != c.texts[i] || count != c.counts[i]) {
		c.seen.Wrong = append(c.seen.Wrong, fmt.Sprintf("%s: %q, %q, %d, want twice %q and %d", c.key("", i), text, field, count, c.texts[i], c.counts[i]))
	}
	return nil
}

func (c *goClient) write(ctx context.Context, i int) error {
	c.texts[i] = c.text()
	return c.put(ctx, c.db, i)
}

func (c *goClient) count(ctx context.Context, i int) error {
	c.counts[i]++
	return c.db.Incr(ctx, c.key("n", i)).Err()
}

func (c *goClient) pipeline(ctx context.Context, i int) error {
	_, err := c.db.Pipelined(ctx, func(p redis.Pipeliner) (err error) {
		for j := range pipelined {
			k := (i + j) % goKeys
			c.texts[k] = c.text()
			err = errors.Join(err, c.put(ctx, p, k))
		}
		return err
	})
	return err
}

func (c *goClient) all(ctx context.Context, i int) func(p redis.Pipeliner) error {
	c.texts[i] = c.text()
	c.counts[i]++
	return func(p redis.Pipeliner) error {
		return errors.Join(c.put(ctx, p, i), p.Incr(ctx, c.key("n", i)).Err())
	}
}

func (c *goClient) transaction(ctx context.Context, i int) error {
	_, err := c.db.TxPipelined(ctx, c.all(ctx, i))
	return err
}

// watch is a transaction that reads first.
func (c *goClient) watch(ctx context.Context, i int) error {
	queue := c.all(ctx, i) // once: the library may call what follows again
	return c.db.Watch(ctx, func(tx *redis.Tx) error {
		if err := tx.Get(ctx, c.key("n", i)).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		_, err := tx.TxPipelined(ctx, queue)
		return err
	}, c.key("n", i), c.key("s", i))
}
