package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"cairn/tools/node"
)

// The scene back. A client library sends operations that show in the data when they are lost or done twice. It is used as it
// comes, with what it does by itself about redirections; whatever reaches the caller counts as an error.

const (
	backClients = 8
	pipelined   = 10 // commands in a pipeline
)

// twin is a string and a hash in one slot, and what they must be. One client writes to it.
type twin struct {
	text, hash string // keys
	value      strings.Builder
	fields     map[string]string
}

// backClient sends one operation after the other.
type backClient struct {
	db    *redis.ClusterClient
	twins []*twin
	rng   *rand.Rand
	next  int // number of the next value
}

func (l *moveLab) back() error {
	if err := l.start("nodes", l.command, l.directives); err != nil {
		return err
	}
	db := redis.NewClusterClient(&redis.ClusterOptions{Addrs: l.cluster.Addrs()})
	defer db.Close()
	clients := l.backClients(db)
	if err := eachClient(clients, func(c *backClient) error { return c.fill(l.ctx) }); err != nil {
		return err
	}
	if err := l.underWay(clients); err != nil {
		return err
	}
	if err := l.sound(l.keys / 2 * 2); err != nil {
		return err
	}
	return eachClient(clients, func(c *backClient) error { return c.verify(l.ctx) })
}

func (l *moveLab) backClients(db *redis.ClusterClient) []*backClient {
	clients := make([]*backClient, backClients)
	for i := range clients {
		clients[i] = &backClient{db: db, rng: rand.New(rand.NewPCG(2, uint64(i)))}
	}
	for i := range l.keys / 2 {
		name := l.tags[i%len(l.tags)] + strconv.Itoa(i)
		c := clients[i%backClients]
		c.twins = append(c.twins, &twin{text: name + ":s", hash: name + ":h", fields: map[string]string{}})
	}
	return clients
}

func eachClient(clients []*backClient, f func(c *backClient) error) error {
	var tasks sync.WaitGroup
	faults := make(chan error, len(clients))
	for _, c := range clients {
		tasks.Go(func() { faults <- f(c) })
	}
	tasks.Wait()
	var all error
	for range clients {
		all = errors.Join(all, <-faults)
	}
	return all
}

// underWay lets the clients work while slots go there and back, until enough of both has happened.
func (l *moveLab) underWay(clients []*backClient) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	var done, moves atomic.Int64
	enough := func() bool {
		return ctx.Err() != nil || done.Load() >= int64(l.ops) && moves.Load() >= int64(2*l.rounds)
	}
	var tasks sync.WaitGroup
	faults := make(chan error, 2)
	run := func(f func() error) {
		tasks.Go(func() { // ends with enough
			if err := f(); err != nil {
				faults <- fmt.Errorf("%w, at %s", err, time.Now().Format("15:04:05.000"))
				cancel()
			}
		})
	}
	if !l.redis {
		run(func() error { return l.watchScans(enough) })
	}
	began := time.Now()
	run(func() error {
		return eachClient(clients, func(c *backClient) error { return c.run(ctx, enough, &done) })
	})
	for !enough() {
		if err := l.moveOnce(); err != nil {
			cancel()
			tasks.Wait()
			return errors.Join(err, fault(faults))
		}
		moves.Add(1)
	}
	tasks.Wait()
	if err := errors.Join(fault(faults), l.ctx.Err()); err != nil {
		return err
	}
	l.say("%d operations in %v, %d moves of %d slots meanwhile, no error", done.Load(), time.Since(began).Round(time.Millisecond), moves.Load(), l.slots)
	return nil
}

func fault(faults chan error) error {
	select {
	case err := <-faults:
		return err
	default:
		return nil
	}
}

func (l *moveLab) moveOnce() error {
	began := time.Now()
	tool, from, to, err := l.startMove()
	if err != nil {
		return err
	}
	if err := tool.Wait(toolLimit); err != nil {
		return err
	}
	l.say("%d slots from %s to %s: %v", l.slots, from.Name, to.Name, time.Since(began).Round(time.Millisecond))
	return l.calm()
}

// watchScans looks all the time whether a node shows keys of slots that are not its own.
func (l *moveLab) watchScans(enough func() bool) error {
	var ends []*node.Member
	for k := range 2 { // members of its own: one goroutine uses a member
		ends = append(ends, l.cluster.Members[k].Apart())
	}
	for !enough() {
		for _, m := range ends {
			if err := scanAll(m, map[string]bool{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *backClient) fill(ctx context.Context) error {
	for _, t := range c.twins {
		if err := errors.Join(c.append(ctx, c.db, t), c.set(ctx, c.db, t)); err != nil {
			return err
		}
	}
	return nil
}

// run sends operations until it is enough: single ones, pipelines over several slots, transactions.
func (c *backClient) run(ctx context.Context, enough func() bool, done *atomic.Int64) (err error) {
	for !enough() && err == nil {
		t, n := c.twins[c.rng.IntN(len(c.twins))], 1
		switch kind := c.rng.IntN(20); {
		case kind < 8:
			err = c.append(ctx, c.db, t)
		case kind < 16:
			err = c.set(ctx, c.db, t)
		case kind < 18:
			err = c.look(ctx, t)
		case kind < 19:
			n = pipelined
			_, err = c.db.Pipelined(ctx, func(p redis.Pipeliner) error { return c.several(ctx, p) })
		default:
			n = 2
			_, err = c.db.TxPipelined(ctx, func(p redis.Pipeliner) error {
				return errors.Join(c.append(ctx, p, t), c.append(ctx, p, t))
			})
		}
		done.Add(int64(n))
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// several is commands about different keys: those about one may change places when one of them is redirected.
func (c *backClient) several(ctx context.Context, p redis.Pipeliner) (err error) {
	first := c.rng.IntN(len(c.twins))
	for i := range min(pipelined, len(c.twins)) {
		t := c.twins[(first+i)%len(c.twins)]
		if i%2 == 0 {
			err = errors.Join(err, c.append(ctx, p, t))
		} else {
			err = errors.Join(err, c.set(ctx, p, t))
		}
	}
	return err
}

func (c *backClient) append(ctx context.Context, to redis.Cmdable, t *twin) error {
	c.next++
	token := strconv.Itoa(c.next) + ","
	t.value.WriteString(token)
	return to.Append(ctx, t.text, token).Err()
}

func (c *backClient) set(ctx context.Context, to redis.Cmdable, t *twin) error {
	c.next++
	field, value := "f"+strconv.Itoa(c.rng.IntN(20)), strconv.Itoa(c.next)
	t.fields[field] = value
	return to.HSet(ctx, t.hash, field, value).Err()
}

// look reads both keys.
func (c *backClient) look(ctx context.Context, t *twin) error {
	text, err := c.db.Get(ctx, t.text).Result()
	if err != nil {
		return err
	}
	if text != t.value.String() {
		return fmt.Errorf("%s has %d bytes, want %d: it ends with %q, want %q", t.text, len(text), t.value.Len(), last(text), last(t.value.String()))
	}
	fields, err := c.db.HGetAll(ctx, t.hash).Result()
	if err != nil {
		return err
	}
	if len(fields) != len(t.fields) {
		return fmt.Errorf("%s has %d fields, want %d", t.hash, len(fields), len(t.fields))
	}
	for f, want := range t.fields {
		if fields[f] != want {
			return fmt.Errorf("%s: field %s is %q, want %q", t.hash, f, fields[f], want)
		}
	}
	return nil
}

func last(text string) string { return text[max(0, len(text)-40):] }

func (c *backClient) verify(ctx context.Context) error {
	for _, t := range c.twins {
		if err := c.look(ctx, t); err != nil {
			return err
		}
	}
	return nil
}
