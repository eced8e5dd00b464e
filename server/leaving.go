package server

import (
	"sync"
	"sync/atomic"
	"time"

	"cairn/server/command"
)

// leavingKeys knows the keys that MIGRATE is taking away.
//
//	on its way   the value is being sent: commands that would change the key wait, those that read it go on
//	gone         it is deleted here, and no replica is known to have executed that: all commands that name it wait, since
//	             a client that is sent on to the target must find that nobody comes back with the old value
//
// Marks are set and looked at by who holds the key's slot: a command sees the mark, or MIGRATE sees what the command
// wrote. Whoever waits has let go of its locks, and tries again from the beginning.
//
// Commands on all slots do not wait: what FLUSHALL deletes while it is on its way was moved before.
type leavingKeys struct {
	n    atomic.Int64 // marks; while there is none, nobody looks further
	mu   sync.RWMutex
	keys map[string]*departure
}

// departure is what some keys of one MIGRATE have in common.
type departure struct {
	gone bool
	over chan struct{} // closed when the marks go, or mean something else
}

// mark says that keys are on their way. If one of them is already, nothing is marked, and the channel tells when to try
// again.
func (l *leavingKeys) mark(names []string) (d *departure, busy <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if other := l.keys[name]; other != nil {
			return nil, other.over
		}
	}
	d = &departure{over: make(chan struct{})}
	l.set(names, d)
	return d, nil
}

// part makes keys of d gone ones. The slots are locked for writing.
func (l *leavingKeys) part(names []string) *departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &departure{gone: true, over: make(chan struct{})}
	l.set(names, d)
	return d
}

func (l *leavingKeys) set(names []string, d *departure) {
	if l.keys == nil {
		l.keys = make(map[string]*departure)
	}
	for _, name := range names {
		l.keys[name] = d
	}
	l.n.Store(int64(len(l.keys)))
}

// rejoin takes keys of from back into d: their deletion was not committed.
func (l *leavingKeys) rejoin(names []string, from, d *departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(names, d)
	close(from.over)
}

// end takes the marks of d away, as far as names still have them, and wakes those who wait for it.
func (l *leavingKeys) end(names []string, d *departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if l.keys[name] == d {
			delete(l.keys, name)
		}
	}
	l.n.Store(int64(len(l.keys)))
	close(d.over)
}

// holds says for what a command has to wait because of the keys it names, which it may be about to change; nil: for
// nothing. Their slots are locked.
func (l *leavingKeys) holds(cmd *command.Command, args [][]byte, write bool) <-chan struct{} {
	if l.n.Load() == 0 || len(cmd.Keys) == 0 || ofChannels(cmd) {
		return nil
	}
	var buf [16]int
	pos, _ := cmd.KeyPositions(buf[:0], args)
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, p := range pos {
		if d := l.keys[string(args[p])]; d != nil && (write || d.gone) {
			return d.over
		}
	}
	return nil
}

// holdsQueued is holds for a transaction.
func (l *leavingKeys) holdsQueued(queue []queued) <-chan struct{} {
	if l.n.Load() == 0 {
		return nil
	}
	for _, q := range queue {
		if over := l.holds(q.cmd, q.args, q.cmd.Is(command.Write)); over != nil {
			return over
		}
	}
	return nil
}

// awaitLeft holds a client back until over is closed. No lock is held. false: its connection or the node ends, and the
// command is not executed.
func (s *Server) awaitLeft(c *client, over <-chan struct{}) bool {
	s.stats.blocked.Add(1)
	c.waiting.Store(true)
	c.wakeSubscribers()
	look := time.NewTicker(goneEvery)
	defer func() {
		look.Stop()
		s.stats.blocked.Add(-1)
		c.waiting.Store(false)
	}()
	for {
		select {
		case <-over:
			return true
		case <-look.C:
			if !c.killed.Load() && !hungUp(c.conn) {
				continue
			}
		case <-s.stop:
		}
		c.closing = true
		return false
	}
}
