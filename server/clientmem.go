package server

import (
	"cmp"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cairn/engine"
)

// clientMemory bounds what clients hold together, since each of ten thousand may be harmless alone.
//
//	a client's buffers   room to read into, replies, its queue of messages, commands since MULTI, names watched and
//	                     listened to
//	clientOverhead       what a connection costs beside them
//
// With maxmemory-clients the limit and what happens at it are Redis's: buffers and overhead of all connections count, and
// at the limit clients are closed, the one that holds most first. Without it there is a limit all the same, a share of
// memory-budget, which somebody who asked for none should feel only when there is no other way:
//
//	below soft   everybody goes on
//	from soft    who needs more room to read into waits in line, and one at a time goes on: clientturn.go. So fifty clients
//	             that send a megabyte each at once are served one after the other, and not closed. Buffers go at once when
//	             they are empty
//	from hard    clients are closed, the one that holds most first, until soft is reached
//
// There the overhead does not count: maxclients bounds it, and a thousand idle connections would use up the share of the
// smallest budget. Nor does what one client holds, the one that has the turn or else the largest: a command may be longer
// than all others may hold together, and comes on top of the budget. What a client keeps from command to command is no
// part of one, names listened to and watched and the bookkeeping of commands since MULTI: who has more of that than all
// may hold goes, whoever it is. This is looked at whenever a client has gathered keptStep more of it, not only when it
// stops sending.
//
// All sizes are bytes.
type clientMemory struct {
	buffers atomic.Int64 // of all connections
	count   atomic.Int64 // connections

	soft, hard atomic.Int64
	strict     atomic.Bool // maxmemory-clients is set: soft and hard are the same

	running atomic.Int64 // of commands with many arguments that run
	telling sync.Mutex
	room    int64 // what the collector was told of last

	turn   turnQueue
	rested atomic.Int64 // when idle clients were made to rest last, Unix milliseconds

	evicting sync.Mutex // held by who closes clients
	evicted  atomic.Int64
	looked   time.Time     // when all were looked at last
	again    atomic.Bool   // somebody will look again
	told     time.Time     // when one of them was logged last
	untold   int64         // how many were not, since
	kick     chan struct{} // closes clients in the background, for those who cannot
}

const (
	clientLimitLeast = 128 << 10 // below it nobody could lift the limit again; Redis has the same
	evictionsEvery   = 100 * time.Millisecond
	restEvery        = 50 * time.Millisecond
	lookEvery        = 5 * time.Millisecond
	keptStep         = 256 << 10 // bytes
	keptLook         = 1024      // names of one command
)

func (m *clientMemory) init() {
	m.kick = make(chan struct{}, 1)
	m.soft.Store(1 << 62)
	m.hard.Store(1 << 62)
}

// clientShare is the soft limit that a budget gives; hard is half as much again. Both are of what is left in the split of
// engine/options.go.
func clientShare(budget int64) int64 {
	const program = 24 << 20
	return max(budget-program, budget/2) / 5
}

// setClientLimit reckons the limits after a change of the configuration, and enforces them.
func (s *Server) setClientLimit() {
	v, m := &s.cfg.V, &s.memory
	budget := v.MemoryBudget.Load()
	if v.MaxMemoryClients.Load() == 0 {
		soft := clientShare(budget)
		m.strict.Store(false)
		m.soft.Store(soft)
		m.hard.Store(soft + soft/2)
	} else {
		whole := v.MaxMemory.Load()
		if whole == 0 {
			whole = budget // Redis would have no limit then
		}
		limit := max(v.MaxMemoryClients.Of(whole), clientLimitLeast) + 1 // the limit itself is within it
		m.soft.Store(limit)
		m.hard.Store(limit)
		m.strict.Store(true)
	}
	s.relieve(nil, 0)
}

// total is what counts against the limit.
func (m *clientMemory) total() int64 {
	if m.strict.Load() {
		return m.all()
	}
	return m.buffers.Load()
}

// all is what all connections hold, their overhead included.
func (m *clientMemory) all() int64 { return m.buffers.Load() + m.count.Load()*clientOverhead }

// add counts n more, and says whether it is time to close somebody.
func (m *clientMemory) add(n int64) bool {
	m.buffers.Add(n)
	return n > 0 && m.total() >= m.hard.Load()
}

// crowded says that clients should make do with little.
func (m *clientMemory) crowded() bool { return m.buffers.Load() >= m.soft.Load() }

// relieveLater is for who holds locks.
func (m *clientMemory) relieveLater() {
	select {
	case m.kick <- struct{}{}:
	default: // somebody is on the way
	}
}

// lookAgain makes the background look a moment from now.
func (m *clientMemory) lookAgain() {
	if m.again.CompareAndSwap(false, true) {
		time.AfterFunc(lookEvery, func() {
			m.again.Store(false)
			m.relieveLater()
		})
	}
}

// Of a command with many arguments the node keeps manyRoom bytes for each while it runs: what was read of its keys.
const (
	manyArgs = 4096
	manyRoom = 384
)

// enterMany counts the room of a command of so many arguments, of which the collector hears at once.
func (s *Server) enterMany(args int) (done func()) {
	room := int64(args) * manyRoom
	s.memory.running.Add(room)
	s.tellCollector(true)
	return func() { s.memory.running.Add(-room) } // the next tick takes the collector's room back
}

// tellCollector lets the collector know what connections and the commands under way take beside the budget: it would work
// without end to make up for what cannot be freed. With rise it may have more room, and not less.
func (s *Server) tellCollector(rise bool) {
	m := &s.memory
	m.telling.Lock()
	defer m.telling.Unlock()
	want := m.count.Load()*clientOverhead + m.running.Load() + max(0, m.buffers.Load()-m.soft.Load())
	if want == m.room || rise && want < m.room {
		return
	}
	m.room = want
	debug.SetMemoryLimit(engine.GoMemoryLimit(s.cfg.V.MemoryBudget.Load()) + want)
}

// relieveLoop closes clients for those who cannot, and keeps the collector's room up to date and free memory where it is
// of use.
func (s *Server) relieveLoop() {
	var free freeKeeper
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.tellCollector(false)
			free.look(s.cfg.V.MemoryBudget.Load())
		case <-s.stop:
			return
		case <-s.memory.kick:
			s.relieve(nil, 0)
		}
	}
}

// holder is a client that may be closed, and what it holds.
type holder struct {
	c    *client
	size int64
	kept int64 // of size, what is no part of a command
	used int64 // when it last ran a command, Unix milliseconds
}

// compare says which of two is to be closed rather: above 0, a. It is the one that holds more. Unless strict, of two that
// hold about the same it is the one that has done nothing for longer.
func (a holder) compare(b holder, strict bool) int {
	if x, y := bits.Len64(uint64(a.size)), bits.Len64(uint64(b.size)); strict || x != y {
		return cmp.Compare(a.size, b.size)
	}
	return cmp.Compare(b.used, a.used)
}

// relieve closes clients when together, with so many bytes more that one is about to take, they hold too much.
func (s *Server) relieve(who *client, more int64) {
	m := &s.memory
	if m.total()+more < m.hard.Load() {
		return
	}
	m.evicting.Lock()
	defer m.evicting.Unlock()
	strict := m.strict.Load()
	if !strict {
		if time.Since(m.looked) < lookEvery { // thousands may come at once, and each look is at all of them
			m.lookAgain()
			return
		}
		m.looked = time.Now()
	}
	all, idle := s.clients.holders(strict, who, more)
	total := m.total() + more - idle
	slices.SortFunc(all, func(a, b holder) int { return b.compare(a, strict) })
	if !strict {
		keepsMuch := func(h holder) bool {
			if h.kept < m.hard.Load() {
				return false
			}
			total -= h.size
			s.evict(h, 1)
			return true
		}
		all = slices.DeleteFunc(all, keepsMuch)
		// One is spared: the owner of the turn, which is on its way through, or else the one that holds most.
		spared := slices.IndexFunc(all, func(h holder) bool { return h.c == m.turn.owner.Load() })
		if spared = max(spared, 0); len(all) > 0 {
			total -= all[spared].size
			all = slices.Delete(all, spared, spared+1)
		}
	}
	if total < m.hard.Load() {
		return
	}
	for i, h := range all {
		if total < m.soft.Load() {
			return
		}
		total -= h.size
		if strict {
			total -= clientOverhead
		}
		s.evict(h, len(all)-i-1)
	}
}

// holders lists the clients that may be closed; who is about to take more. Unless strict, those that wait
// for a command give their empty buffers back, idle bytes in all; and one that has no more than a short command needs,
// and has sent no part of one, is let be.
func (l *clientList) holders(strict bool, who *client, more int64) (all []holder, idle int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.byID {
		if c.killed.Load() || c.replica.Load() != nil {
			continue // a replica's link has limits of its own
		}
		size := c.size()
		if c == who {
			size += more
		} else if !strict && c.parsed.Load()+c.unparsed.Load() == 0 {
			spare := c.giveBack()
			idle += spare
			if size -= spare; size <= 2*roomless {
				continue
			}
		}
		if !c.noEvict.Load() {
			all = append(all, holder{c, size, c.kept.Load(), c.lastUsed.Load()})
		}
	}
	return all, idle
}

// giveBack makes a connection that waits for a command rest at once, and says how much that frees. It is told once: woken
// again and again it would not come to read what is there.
func (c *client) giveBack() (bytes int64) {
	bytes = c.inBuffer.Load() + c.outBuffer.Load()
	if bytes > 0 && c.wakened.CompareAndSwap(false, true) {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed one, which gives back more
	}
	return bytes
}

// restIdle makes those rest that wait for a command, now and then.
func (s *Server) restIdle() {
	now := time.Now().UnixMilli()
	if last := s.memory.rested.Load(); now-last < restEvery.Milliseconds() || !s.memory.rested.CompareAndSwap(last, now) {
		return
	}
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, c := range s.clients.byID {
		if c.parsed.Load()+c.unparsed.Load() == 0 && c.replica.Load() == nil { // what a replica sends is read elsewhere
			c.giveBack()
		}
	}
}

// evict closes a client. clientMemory.evicting is held.
func (s *Server) evict(h holder, left int) {
	m := &s.memory
	m.evicted.Add(1)
	if now := time.Now(); now.Sub(m.told) >= evictionsEvery {
		s.log.Notice("Evicting client: "+string(h.c.appendLine(nil, nil)), "others-since", m.untold)
		m.told, m.untold = now, 0
	} else {
		m.untold++ // thousands may go at once, and the log is no place to fill either
	}
	if left == 0 {
		s.log.Warning("over the limit of client memory after evicting all clients that may be", "limit", m.hard.Load(), "held", m.total())
	}
	h.c.kill()
	h.c.forget()
}

// size is what the connection holds, beside its overhead.
func (c *client) size() int64 { return c.held.Load() + c.push.weighs.Load() }

// forget counts the connection no more: it ends. Its queue of messages counts until that is given up.
func (c *client) forget() {
	m := &c.s.memory
	m.buffers.Add(-c.held.Swap(0))
	if c.counted.CompareAndSwap(true, false) {
		m.count.Add(-1)
	}
}

// account takes note of what the connection holds now. Its own goroutine calls it whenever that may have changed. false:
// the connection had to go.
func (c *client) account() bool {
	in, out := int64(c.framer.MemoryBytes()), int64(cap(c.w.Buf)+cap(c.part.Buf))
	set(&c.inBuffer, in)
	set(&c.outBuffer, out)
	kept := c.keeps()
	set(&c.kept, kept)
	return c.hold(in + out + c.multi.bytes + kept)
}

// keeps is what the connection keeps from command to command: names listened to and watched, and what the commands since
// MULTI take beside their arguments.
func (c *client) keeps() int64 { return c.multi.queueBytes + c.multi.watchBytes + c.subs.Bytes() }

// accountKept is account within a command, which may hold locks: others close who has to go.
func (c *client) accountKept() bool {
	kept := c.keeps()
	more := kept - c.kept.Swap(kept)
	if c.killed.Load() {
		return false
	}
	c.held.Add(more)
	if c.s.memory.add(more) {
		c.s.memory.relieveLater()
	}
	return true
}

// expect is account for room to read into that is about to be made. Where there is too little left, others go before this
// one counts: thousands that come at once must not make each other seem larger than they are.
func (c *client) expect(room int64) bool {
	more := room - c.inBuffer.Load()
	if more <= 0 {
		return true
	}
	if m := &c.s.memory; m.total()+more >= m.hard.Load() && !m.strict.Load() {
		c.s.relieve(c, more)
	}
	return c.hold(c.held.Load() + more)
}

// hold makes n what the connection's buffers count.
func (c *client) hold(n int64) bool {
	if n == c.held.Load() {
		return true
	}
	if c.killed.Load() {
		return false // what it held is counted no more
	}
	m := &c.s.memory
	if more := n - c.held.Swap(n); m.add(more) {
		c.s.relieve(nil, 0)
	} else if more < 0 && !m.crowded() && m.buffers.Load()-more >= m.soft.Load() {
		m.turn.callFirst()
	}
	return !c.killed.Load()
}

// tellPending tells CLIENT LIST what has been received and not been used.
func (c *client) tellPending() {
	parsed, raw := c.framer.Pending()
	set(&c.parsed, int64(parsed))
	set(&c.unparsed, int64(raw))
}

// set stores what has changed: a store costs more than a look.
func set(a *atomic.Int64, n int64) {
	if a.Load() != n {
		a.Store(n)
	}
}
