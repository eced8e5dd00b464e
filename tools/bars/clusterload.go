package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/internal/resp"
	"cairn/tools/node"
)

// The load on a cluster: writers that write keys 0, 1, 2... of their own into one shard, each key once, and remember what
// was acknowledged, when, and by whom. One kind sends batches; of these a failover may lose the last. The other kind
// sends a key and WAIT 1, and nothing of what WAIT answered for may be lost.

const (
	writerBatch = 8   // keys in a pipeline
	writerValue = 200 // bytes
	writerPause = 2 * time.Millisecond
	retryPause  = 10 * time.Millisecond // a client library waits a little, too
	waitMillis  = "1000"
	readBatch   = 500
)

// written is an acknowledged key.
type written struct {
	asked time.Time // when it was first sent
	at    time.Time
	by    string // address of the node
	safe  bool   // a replica has it, WAIT said
}

// clusterWriter is one writer. acks is safe to read when its goroutine has ended.
type clusterWriter struct {
	shard  int
	tag    string
	head   string // of its keys
	wait   bool
	router *node.Router
	values values

	asked  time.Time    // when the next key was first sent, zero before
	acks   []written    // of key i
	newest atomic.Int64 // Unix nanoseconds of the newest acknowledgement
	by     atomic.Pointer[string]
}

func (w *clusterWriter) key(i int) string   { return w.head + strconv.Itoa(i) }
func (w *clusterWriter) value(i int) string { return w.values.at(i, writerValue) }

// run writes until stop is closed. A reply that no failover explains ends it.
func (w *clusterWriter) run(stop <-chan struct{}) error {
	tick := time.NewTicker(writerPause)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		if err := w.write(); err != nil {
			if fatal := w.fatal(err); fatal != nil {
				return fatal
			}
			select {
			case <-stop:
				return nil
			case <-time.After(retryPause):
			}
		}
	}
}

// fatal tells errors apart that end a writer.
func (w *clusterWriter) fatal(err error) error {
	var wrong errReply
	if errors.As(err, &wrong) {
		return fmt.Errorf("writer %s: %w", w.tag, err)
	}
	return nil
}

// errReply is an error reply that a client library hands to its caller.
type errReply string

func (e errReply) Error() string { return "error reply: " + string(e) }

// write sends the next keys once.
func (w *clusterWriter) write() error {
	n, batch := len(w.acks), writerBatch
	if w.wait {
		batch = 1
	}
	var commands [][]string
	for i := range batch {
		commands = append(commands, []string{"SET", w.key(n + i), w.value(n + i)})
	}
	if w.asked.IsZero() {
		w.asked = time.Now()
	}
	replies, addr, err := w.router.Try(w.key(n), commands...)
	now := time.Now()
	for _, reply := range replies {
		if text := reply.Err(); text != "" {
			return errReply(text)
		}
		w.acks = append(w.acks, written{asked: w.asked, at: now, by: addr})
	}
	if len(w.acks) > n {
		w.by.Store(&addr)
		w.newest.Store(now.UnixNano())
		w.asked = time.Time{} // what is left of the batch begins a new one
	}
	if err == nil && w.wait {
		return w.await(n, addr)
	}
	return err
}

// await asks whether a replica has key n. It is a command of its own: the key is acknowledged without it, and right after a
// failover there is no replica. WAIT means the connection that wrote; Router has one to each node, and returns an error
// when it breaks.
func (w *clusterWriter) await(n int, by string) error {
	replies, addr, err := w.router.Try(w.key(n), []string{"WAIT", "1", waitMillis})
	if err == nil && addr == by {
		w.acks[n].safe = replies[0].Kind == resp.KindInt && replies[0].Int >= 1 // a node that is a replica now refuses
	}
	return err
}

// longestWait is the longest time that a key acknowledged after from waited for that, with all tries.
func (w *clusterWriter) longestWait(from time.Time) (wait time.Duration) {
	for _, a := range w.acks {
		if a.at.After(from) {
			wait = max(wait, a.at.Sub(a.asked))
		}
	}
	return wait
}

// losses is what became of what was acknowledged.
type losses struct {
	acked, safe        int
	lostSafe, lostTail int // lostTail: the last of what the killed node acknowledged, without WAIT
}

func (a *losses) add(b losses) {
	a.acked += b.acked
	a.safe += b.safe
	a.lostSafe += b.lostSafe
	a.lostTail += b.lostTail
}

func (a losses) String() string {
	return fmt.Sprintf("%d acked, %d with WAIT; lost %d with WAIT, %d without", a.acked, a.safe, a.lostSafe, a.lostTail)
}

// verify reads everything back. A lost write that is neither a part of the last that killed acknowledged, nor covered by
// WAIT, is an error, as is a wrong value; so is one that killed acknowledged after it gave up its role.
func (w *clusterWriter) verify(killed string) (l losses, err error) {
	missing := make([]bool, len(w.acks))
	for first := 0; first < len(w.acks); first += readBatch {
		last := min(first+readBatch, len(w.acks))
		args := []string{"MGET"}
		for i := first; i < last; i++ {
			args = append(args, w.key(i))
		}
		elems, err := w.read(args)
		if err != nil {
			return l, err
		}
		if len(elems) != last-first {
			return l, fmt.Errorf("MGET of %d keys: %d values", last-first, len(elems))
		}
		for i, e := range elems {
			missing[first+i] = e.IsNull()
			if !e.IsNull() && string(e.Str) != w.value(first+i) {
				return l, fmt.Errorf("%s: value %.40q, want %.40q", w.key(first+i), e.Str, w.value(first+i))
			}
		}
	}
	if l, err = judge(w.acks, missing, killed); err != nil {
		err = fmt.Errorf("keys %s: %w", w.head, err)
	}
	return l, err
}

// judge says what the missing of the acknowledged keys mean, which are in the order of their writes.
func judge(acks []written, missing []bool, killed string) (l losses, err error) {
	l.acked = len(acks)
	tail := false
	for i, a := range acks {
		if a.safe {
			l.safe++
		}
		switch {
		case missing[i] && a.by != killed:
			return l, fmt.Errorf("key %d was acknowledged by %s, which still serves, and is lost", i, a.by)
		case missing[i] && a.safe:
			l.lostSafe++
		case missing[i]:
			l.lostTail++
		case tail && a.by == killed:
			return l, fmt.Errorf("key %d is there, and an earlier one is lost: not the end of the stream is missing", i)
		}
		tail = tail || missing[i]
	}
	return l, nil
}

// read asks until the cluster answers.
func (w *clusterWriter) read(args []string) (elems []resp.Reply, err error) {
	for end := time.Now().Add(clusterLimit); time.Now().Before(end); time.Sleep(retryPause) {
		var replies []resp.Reply
		replies, _, err = w.router.Try(args[1], args)
		if err == nil && replies[0].Err() != "" {
			return nil, errors.New(replies[0].Err())
		}
		if err == nil {
			return replies[0].Elems, nil
		}
	}
	return nil, err
}

// clusterLoad is writers at work.
type clusterLoad struct {
	writers []*clusterWriter
	stop    chan struct{}
	all     sync.WaitGroup
	faults  chan error
	ended   bool
}

// startLoad starts a writer of each kind in each shard. name sets its keys apart from those of others.
func startLoad(c *node.Cluster, name string, v values) *clusterLoad {
	var writers []*clusterWriter
	for k := range shards {
		for i := range 2 {
			tag := tagIn(c.Slots(k), name+"-", k*2+i)
			writers = append(writers, &clusterWriter{
				shard: k, tag: tag, head: "{" + tag + "}:", wait: i == 0, values: v,
				router: node.NewRouter(c.Addrs(), 20*time.Second),
			})
		}
	}
	return beginLoad(writers)
}

// beginLoad lets writers work.
func beginLoad(writers []*clusterWriter) *clusterLoad {
	l := &clusterLoad{writers: writers, stop: make(chan struct{}), faults: make(chan error, len(writers))}
	for _, w := range l.writers {
		l.all.Go(func() { // ends when stop is closed
			if err := w.run(l.stop); err != nil {
				l.faults <- err
			}
		})
	}
	return l
}

// end stops the writers and waits for them.
func (l *clusterLoad) end() error {
	if !l.ended {
		l.ended = true
		close(l.stop)
	}
	l.all.Wait()
	select {
	case err := <-l.faults:
		return err
	default:
		return nil
	}
}

// close ends everything.
func (l *clusterLoad) close() {
	_ = l.end() // who wants to know has asked before
	for _, w := range l.writers {
		w.router.Close()
	}
}

// wrote waits until every writer of the shard has written to another node than the killed one, after since. A shard of -1
// means all, killed "" nobody.
func (l *clusterLoad) wrote(shard int, killed string, since time.Time) error {
	for _, w := range l.writers {
		if shard >= 0 && w.shard != shard {
			continue
		}
		for {
			at := w.newest.Load()
			if by := w.by.Load(); by != nil && *by != killed && at > since.UnixNano() {
				break
			}
			select {
			case err := <-l.faults:
				return err
			default:
			}
			if time.Since(since) > clusterLimit {
				return fmt.Errorf("shard %d: writer %s wrote nothing in %v", w.shard, w.tag, clusterLimit)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// outage is how long the writers of a shard were without an acknowledgement after since, once they have ended: the longest
// until the first by another than killed.
func (l *clusterLoad) outage(shard int, killed string, since time.Time) (longest time.Duration) {
	for _, w := range l.writers {
		if w.shard != shard {
			continue
		}
		for _, a := range w.acks {
			if a.at.After(since) && a.by != killed {
				longest = max(longest, a.at.Sub(since))
				break
			}
		}
	}
	return longest
}

// gap is how long a writer of the shard waited for an acknowledgement, at the longest, once they have ended.
func (l *clusterLoad) gap(shard int, from time.Time) (longest time.Duration) {
	for _, w := range l.writers {
		if w.shard == shard {
			longest = max(longest, w.longestWait(from))
		}
	}
	return longest
}

// verify reads everything back, what each writer wrote beside the others'.
func (l *clusterLoad) verify(killed string) (sum losses, err error) {
	lost, faults := make([]losses, len(l.writers)), make([]error, len(l.writers))
	var readers sync.WaitGroup
	for i, w := range l.writers {
		readers.Go(func() { lost[i], faults[i] = w.verify(killed) })
	}
	readers.Wait()
	for i, w := range l.writers {
		if faults[i] != nil {
			return sum, fmt.Errorf("shard %d: %w", w.shard, faults[i])
		}
		sum.add(lost[i])
	}
	return sum, nil
}
