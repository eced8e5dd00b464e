package server

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cairn/server/config"
)

// pushQueue is the output of a connection that others write to as well: publishers, later whoever changes a
// tracked key. From its first subscription on everything goes this way, with one goroutine that writes:
//
//	replies of the connection --wait for room--+
//	                                           +--> tail, chunks --> writer --> socket
//	messages of others --never wait, limits----+
//
// The writer ends with the connection, or when nobody else may write any more and the queue is empty; replies
// then go straight to the socket again.
//
// Order. A message must not reach the client before the confirmation of its subscription, nor stand within a
// reply that is sent in parts. Between hold and release messages therefore gather in held, behind what the
// connection itself sends.
//
// A publisher never waits. A client over client-output-buffer-limit is closed instead. A client that publishes
// many messages in one batch wakes each writer once, at the end of them: see wakes.
type pushQueue struct {
	on atomic.Bool // everything goes through the queue; set by the connection, cleared by the writer

	mu      sync.Mutex
	changed sync.Cond
	chunks  [][]byte // in order; may be shared with other queues
	tail    []byte   // the last chunk, still growing
	held    [][]byte
	bytes   int64 // of all of it, with what the writer has in hand
	weight  int64 // what of that counts as this client's
	holding bool  // written by the connection's goroutine alone, which may read it without the lock
	wanted  bool  // others may write
	ending  bool  // nothing comes any more: the writer ends when the queue is empty
	dead    bool  // the socket takes nothing any more
	asleep  bool  // the writer waits
	owed    bool  // a publisher will wake it
	done    chan struct{}

	softSince time.Time // over the soft limit since then, zero when not
	softTimer bool      // somebody will look again
	memory    *clientMemory
	weighs    atomic.Int64 // weight, as far as it is in memory
	size      atomic.Int64
	count     atomic.Int64
}

const (
	shareFrom    = 4 << 10  // messages from this size on are referred to, smaller ones copied together
	chunkSize    = 16 << 10 // of what is copied together
	replyBacklog = 1 << 20  // replies wait while more than this is queued
	wakeFrom     = 64 << 10 // the writer is not left asleep with more than this
	lingerTime   = 5 * time.Second
)

func (q *pushQueue) init(m *clientMemory) { q.changed.L, q.memory = &q.mu, m }

// active says whether writes go through the queue.
func (q *pushQueue) active() bool { return q.on.Load() }

// hold begins, where need be, to send everything by the queue, and keeps messages of others back until the
// connection's goroutine, which calls it, has sent what it has: release.
func (q *pushQueue) hold(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holding, q.wanted = true, true
	if !q.on.Load() && !q.dead {
		q.on.Store(true)
		q.done = make(chan struct{})
		go q.write(c, q.done) // ends with the connection, or when the queue is not needed any more
	}
}

// pauseMessages is hold for a queue that is in use already.
func (q *pushQueue) pauseMessages() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holding = q.on.Load()
}

// release lets the messages kept back follow.
func (q *pushQueue) release() {
	if !q.holding {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holding = false
	for _, m := range q.held {
		q.append(m)
	}
	q.held = nil
	q.publishSize()
	q.changed.Broadcast()
}

// unwanted says that nobody else writes from now on.
func (q *pushQueue) unwanted() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = false
	q.changed.Broadcast()
}

// weightParts is among how many queues, at most, the bytes of a message that they share are divided. Its other receivers
// may have read it long ago.
const weightParts = 8

// message queues what somebody else has to say to so many clients, without waiting. The bytes must not change any more.
// later says that the caller can wake the writer later, and owes is true when it has to.
func (q *pushQueue) message(c *client, m []byte, receivers int, later bool) (owes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead || q.ending || !q.on.Load() {
		return false
	}
	q.bytes += int64(len(m))
	if len(m) >= shareFrom {
		q.weight += int64(len(m) / min(max(receivers, 1), weightParts))
	} else {
		q.weight += int64(len(m))
	}
	switch {
	case q.holding:
		q.held = append(q.held, m)
	case !later || q.bytes >= wakeFrom:
		q.append(m)
		q.changed.Broadcast()
	default:
		q.append(m)
		if q.asleep && !q.owed {
			q.owed, owes = true, true
		}
	}
	q.publishSize()
	q.limit(c)
	return owes
}

// wakeSubscribers wakes the writers that the client's messages left asleep. It is called before the client
// waits for anything.
func (c *client) wakeSubscribers() {
	for i, other := range c.wakes {
		q := &other.push
		q.mu.Lock()
		q.owed = false
		q.changed.Broadcast()
		q.mu.Unlock()
		c.wakes[i] = nil
	}
	c.wakes = c.wakes[:0]
}

// replies queues what the connection itself sends; it waits while much is queued already. taken is false when
// the queue is no longer in use.
func (q *pushQueue) replies(c *client, b []byte) (taken, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	room := int64(replyBacklog)
	if hard := int64(c.outputLimit().HardBytes); hard > 0 {
		room = min(room, hard/2)
	}
	for q.on.Load() && !q.dead && q.bytes > room {
		q.changed.Wait()
	}
	if q.dead {
		return true, false
	}
	if !q.on.Load() {
		return false, true
	}
	q.bytes += int64(len(b))
	q.weight += int64(len(b))
	if len(b) >= shareFrom {
		b = slices.Clone(b) // the caller uses its buffer again
	}
	q.append(b)
	q.publishSize()
	q.changed.Broadcast()
	return true, true
}

func (q *pushQueue) append(b []byte) {
	if len(b) >= shareFrom {
		q.seal()
		q.chunks = append(q.chunks, b)
		return
	}
	if len(q.tail)+len(b) > chunkSize {
		q.seal()
	}
	q.tail = append(q.tail, b...)
}

func (q *pushQueue) seal() {
	if len(q.tail) > 0 {
		q.chunks = append(q.chunks, q.tail)
		q.tail = nil
	}
}

// publishSize tells CLIENT LIST, which takes no lock.
func (q *pushQueue) publishSize() {
	n := len(q.chunks) + len(q.held)
	if len(q.tail) > 0 {
		n++
	}
	if more := q.weight - q.weighs.Swap(q.weight); more != 0 && q.memory.add(more) {
		q.memory.relieveLater()
	}
	q.size.Store(q.bytes)
	q.count.Store(int64(n))
}

// limit closes a client that reads too slowly for what others have to tell it.
func (q *pushQueue) limit(c *client) {
	l := c.outputLimit()
	size := uint64(max(q.bytes, 0))
	if l.HardBytes > 0 && size >= l.HardBytes {
		q.overrun(c, "hard", l)
		return
	}
	if l.SoftBytes == 0 || size < l.SoftBytes {
		q.softSince = time.Time{}
		return
	}
	now, allowed := time.Now(), time.Duration(l.SoftSeconds)*time.Second
	if q.softSince.IsZero() {
		q.softSince = now
	}
	left := allowed - now.Sub(q.softSince)
	if left < 0 {
		q.overrun(c, "soft", l)
		return
	}
	if !q.softTimer {
		q.softTimer = true
		time.AfterFunc(left+time.Millisecond, func() { q.lookAgain(c) })
	}
}

// lookAgain closes a client that is still over the soft limit although nobody has anything to tell it.
func (q *pushQueue) lookAgain(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.softTimer = false
	if !q.softSince.IsZero() && !q.dead && !q.ending {
		q.limit(c)
	}
}

func (q *pushQueue) overrun(c *client, which string, l config.OutputLimit) {
	c.s.stats.outputOverruns.Add(1)
	c.s.log.Warning("client closed: it reads too slowly for its subscriptions", "id", c.id, "addr", c.addr,
		"queued", q.bytes, "limit", which, "hard", l.HardBytes, "soft", l.SoftBytes, "soft-seconds", l.SoftSeconds)
	q.die()
	c.kill()
}

// die gives up all that is queued.
func (q *pushQueue) die() {
	q.dead = true
	q.chunks, q.tail, q.held, q.bytes, q.weight = nil, nil, nil, 0, 0
	q.softSince = time.Time{}
	q.publishSize()
	q.changed.Broadcast()
}

// write is the writer.
func (q *pushQueue) write(c *client, done chan struct{}) {
	defer close(done)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.chunks) == 0 && len(q.tail) == 0 && !q.dead && !q.idle() {
			q.asleep = true
			q.changed.Wait()
			q.asleep = false
		}
		if q.dead || len(q.chunks) == 0 && len(q.tail) == 0 {
			q.on.Store(false)
			return
		}
		q.seal()
		batch := net.Buffers(q.chunks)
		q.chunks = nil
		q.mu.Unlock()
		n, err := batch.WriteTo(c.conn)
		q.mu.Lock()
		q.sent(n)
		if err != nil {
			q.die()
			c.kill() // whoever reads from it should stop as well
			continue
		}
		if q.bytes == 0 || uint64(q.bytes) < c.outputLimit().SoftBytes {
			q.softSince = time.Time{}
		}
		q.publishSize()
		q.changed.Broadcast()
	}
}

// sent takes n bytes off.
func (q *pushQueue) sent(n int64) {
	if n >= q.bytes {
		q.bytes, q.weight = 0, 0
		return
	}
	q.weight -= int64(float64(q.weight) * float64(n) / float64(q.bytes))
	q.bytes -= n
}

// idle says whether an empty queue may be left.
func (q *pushQueue) idle() bool { return q.ending || !q.wanted && !q.holding }

// close ends the queue with the connection. What is in it is still sent, unless the client does not read. Nobody
// else may know the client any more.
func (q *pushQueue) close(c *client) {
	q.mu.Lock()
	done := q.done
	q.ending, q.holding = true, false
	q.held = nil
	if done != nil && q.on.Load() {
		_ = c.conn.SetWriteDeadline(time.Now().Add(lingerTime)) // fails on a closed socket, as will the write
	}
	q.changed.Broadcast()
	q.mu.Unlock()
	if done != nil {
		<-done
	}
	q.mu.Lock()
	q.bytes, q.weight = 0, 0
	q.publishSize()
	q.mu.Unlock()
}

// outputLimit is the limit of the client's class.
func (c *client) outputLimit() config.OutputLimit {
	l := c.s.cfg.V.OutputLimits.Load()
	if c.subscribed() {
		return l.PubSub
	}
	return l.Normal
}
