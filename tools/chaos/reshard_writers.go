package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"cairn/internal/resp"
	"cairn/tools/node"
)

// Writers that know what each key of theirs must be. A key has a version; each write sends the next one, so a reader can
// tell how old a value is. A write whose reply was lost may have been executed or not.

const (
	writers     = 4
	writePause  = time.Millisecond
	againPause  = 5 * time.Millisecond
	writerLimit = 30 * time.Second // of a reply: longer than any node may let a write wait
	waitLimit   = "1000"           // of WAIT, in milliseconds
)

// item is a key. One writer has it.
type item struct {
	key   string
	hash  bool // the version is in a field
	size  int  // of the value
	rest  int  // other fields, which nobody touches
	acked int  // newest version with a reply
	safe  int  // newest version that a replica has, too
	tried int  // newest version sent
	by    string
}

const versionField = "version"

func (it *item) value(version int) string {
	return strconv.Itoa(version) + ":" + strings.Repeat("x", it.size)
}

func (it *item) write(version int) []string {
	if it.hash {
		return []string{"HSET", it.key, versionField, it.value(version)}
	}
	return []string{"SET", it.key, it.value(version)}
}

func (it *item) read() []string {
	if it.hash {
		return []string{"HGET", it.key, versionField}
	}
	return []string{"GET", it.key}
}

// version reads a value back.
func (it *item) version(reply resp.Reply) (int, error) {
	if reply.IsNull() {
		return 0, fmt.Errorf("%s is lost; version %d was acknowledged, %d a replica had", it.key, it.acked, it.safe)
	}
	head, _, _ := strings.Cut(string(reply.Str), ":")
	v, err := strconv.Atoi(head)
	if err != nil || string(reply.Str) != it.value(v) {
		return 0, fmt.Errorf("%s has a value that was never written: %.60q", it.key, reply.Str)
	}
	return v, nil
}

// newItems spreads keys over the slots: short and long strings, small and larger hashes.
func newItems(tags []string, keys int) []*item {
	items := make([]*item, keys)
	for i := range items {
		it := &item{key: tags[i%len(tags)] + strconv.Itoa(i), hash: i%3 == 2, size: 20}
		switch i % 51 { // a multiple of 3: 8 is a hash
		case 7:
			it.size = 20_000
		case 8:
			it.rest = 500
		}
		items[i] = it
	}
	return items
}

// writer is one client, that does one thing after the other.
type writer struct {
	items  []*item
	router *node.Router
	wait   bool // for a replica; then only what it answers for must stay
	rng    *rand.Rand
	acks   int
}

// load is all writers.
type load struct {
	all    []*writer
	stop   chan struct{}
	tasks  sync.WaitGroup
	faults chan error
}

func newLoad(c *node.Cluster, items []*item, wait bool) *load {
	l := &load{}
	for i := range writers {
		w := &writer{router: node.NewRouter(c.Addrs(), writerLimit), wait: wait, rng: rand.New(rand.NewPCG(1, uint64(i)))}
		for j := i; j < len(items); j += writers {
			w.items = append(w.items, items[j])
		}
		l.all = append(l.all, w)
	}
	return l
}

// each lets all writers do something, side by side.
func (l *load) each(f func(w *writer) error) error {
	faults := make(chan error, writers)
	for _, w := range l.all {
		l.tasks.Go(func() { faults <- f(w) })
	}
	l.tasks.Wait()
	var all error
	for range writers {
		all = errors.Join(all, <-faults)
	}
	return all
}

// fill writes every key for the first time.
func (l *load) fill() error { return l.each((*writer).fill) }

// verify reads every key.
func (l *load) verify() error { return l.each((*writer).verify) }

// begin lets the writers write until end.
func (l *load) begin() {
	l.stop, l.faults = make(chan struct{}), make(chan error, writers)
	for _, w := range l.all {
		l.tasks.Go(func() { // ends when stop is closed
			if err := w.run(l.stop); err != nil {
				l.faults <- err
			}
		})
	}
}

// end waits for the writers, and returns what one of them found wrong.
func (l *load) end() error {
	if l.stop == nil {
		return nil
	}
	close(l.stop)
	l.stop = nil
	l.tasks.Wait()
	select {
	case err := <-l.faults:
		return err
	default:
		return nil
	}
}

func (l *load) close() {
	_ = l.end() // who wants to know has asked before
	for _, w := range l.all {
		w.router.Close()
	}
}

func (l *load) acked() (n int) {
	for _, w := range l.all {
		n += w.acks
	}
	return n
}

func (w *writer) fill() error {
	for _, it := range w.items {
		commands := [][]string{it.write(0), {"WAIT", "1", "30000"}}
		for i := range it.rest {
			commands[0] = append(commands[0], "f"+strconv.Itoa(i), "a field that stays as it is")
		}
		replies, err := w.insist(it.key, commands...)
		if err != nil {
			return err
		}
		if replies[0].Err() != "" || replies[1].Kind != resp.KindInt || replies[1].Int < 1 {
			return fmt.Errorf("%q: %s, %d replicas have it", commands[0][:2], replies[0].Err(), replies[1].Int)
		}
	}
	return nil
}

// insist tries until the cluster answers.
func (w *writer) insist(key string, commands ...[]string) (replies []resp.Reply, err error) {
	for end := time.Now().Add(settle); time.Now().Before(end); time.Sleep(againPause) {
		if replies, _, err = w.router.Try(key, commands...); err == nil {
			return replies, nil
		}
	}
	return nil, fmt.Errorf("%s: not within %v: %w", key, settle, err)
}

func (w *writer) run(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		it, pause := w.items[w.rng.IntN(len(w.items))], writePause
		done, err := false, error(nil)
		if w.rng.IntN(4) == 0 {
			done, err = w.look(it)
		} else {
			done, err = w.write(it)
		}
		if err != nil {
			return err
		}
		if !done {
			pause = againPause
		}
		time.Sleep(pause) // clients do other things, too
	}
}

// write sends the next version once.
func (w *writer) write(it *item) (done bool, err error) {
	it.tried++
	commands := [][]string{it.write(it.tried)}
	if w.wait {
		commands = append(commands, []string{"WAIT", "1", waitLimit})
	}
	replies, addr, err := w.router.Try(it.key, commands...)
	for i, reply := range replies {
		switch {
		case i > 0 && strings.HasPrefix(reply.Err(), "UNBLOCKED "):
			return false, nil // a failover: whether a replica has it nobody said
		case reply.Err() != "":
			return false, fmt.Errorf("%q at %s: error reply: %s", commands[i][:2], addr, reply.Err())
		case i == 0:
			it.acked, it.by = it.tried, addr
			w.acks++
		case reply.Int > 0:
			it.safe = it.tried
		}
	}
	return err == nil, nil
}

// look reads a key once. What has come to another node than that which acknowledged it was moved, and must stay.
func (w *writer) look(it *item) (done bool, err error) {
	replies, addr, err := w.router.Try(it.key, it.read())
	if err != nil {
		return false, nil
	}
	if text := replies[0].Err(); text != "" {
		return false, fmt.Errorf("%q at %s: error reply: %s", it.read(), addr, text)
	}
	v, err := w.judge(it, replies[0])
	if err != nil {
		return false, fmt.Errorf("at %s: %w", addr, err)
	}
	if v == it.acked && addr != it.by && it.by != "" {
		it.safe = max(it.safe, v)
	}
	return true, nil
}

// judge holds a value against what was written.
func (w *writer) judge(it *item, reply resp.Reply) (v int, err error) {
	if v, err = it.version(reply); err != nil {
		return 0, err
	}
	low := it.acked
	if w.wait {
		low = it.safe
	}
	if v < low || v > it.tried {
		return 0, fmt.Errorf("%s has version %d; acknowledged was %d, a replica had %d, the newest that was sent is %d", it.key, v, it.acked, it.safe, it.tried)
	}
	return v, nil
}

// verify reads all keys in a cluster in which nothing happens, and goes on from what is there.
func (w *writer) verify() error {
	for _, it := range w.items {
		commands := [][]string{it.read()}
		if it.rest > 0 {
			commands = append(commands, []string{"HLEN", it.key})
		}
		replies, err := w.insist(it.key, commands...)
		if err != nil {
			return err
		}
		v, err := w.judge(it, replies[0])
		if err != nil {
			return err
		}
		if it.rest > 0 && replies[1].Int != int64(it.rest+1) {
			return fmt.Errorf("%s has %d fields, want %d", it.key, replies[1].Int, it.rest+1)
		}
		it.acked, it.safe, it.tried = v, v, v
	}
	return nil
}
