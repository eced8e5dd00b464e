package server

import (
	"sync"
	"sync/atomic"

	"cairn/engine"
	"cairn/internal/slot"
	"cairn/server/command"
)

// watchTable knows who watches which key. Its shards are locked inside slot locks.
type watchTable struct {
	n      atomic.Int64
	shards [64]struct {
		mu sync.Mutex
		// The value says that the key was there when WATCH was given, its time passed: that it goes is no change.
		byKey map[string]map[*client]bool
	}
}

// watched is one key that a connection watches.
type watched struct {
	key     string
	slot    uint16
	existed bool // it held a value when WATCH was given
}

// watchOverhead is about what a watched key costs beside its name, in the list and in the table.
const watchOverhead = 300

func (t *watchTable) init() {
	for i := range t.shards {
		t.shards[i].byKey = make(map[string]map[*client]bool)
	}
}

// touch says that a key changed; exists, that it holds a value now.
func (t *watchTable) touch(slot uint16, key []byte, exists bool) {
	sh := &t.shards[slot%uint16(len(t.shards))]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	watchers := sh.byKey[string(key)]
	for c, stale := range watchers {
		if stale && !exists {
			watchers[c] = false
			continue
		}
		c.dirtyCAS.Store(true)
	}
}

// touchAll is for a drop of all slots: whoever watched an existing key sees it changed.
func (t *watchTable) touchAll(s *Server) {
	for _, c := range s.clients.snapshot() {
		if c.watching.Load() > 0 && c.watchesExisting.Load() {
			c.dirtyCAS.Store(true)
		}
	}
}

// Watch makes EXEC depend on keys staying as they are.
func (s *Server) Watch(x *command.Ctx) error {
	c := clientOf(x)
	if c.multi.active {
		return command.Reply("ERR WATCH inside MULTI is not allowed")
	}
	if err := x.LookAhead(x.Args[1:], 1); err != nil {
		return err
	}
	for i, name := range x.Args[1:] {
		if err := s.watch(c, x.Txn, name); err != nil {
			return err
		}
		if i%keptLook == keptLook-1 && !c.accountKept() {
			return nil
		}
	}
	x.W.OK()
	return nil
}

func (s *Server) watch(c *client, txn *engine.Txn, name []byte) error {
	at := slot.Of(name)
	sh := &s.watches.shards[at%uint16(len(s.watches.shards))]
	sh.mu.Lock()
	_, has := sh.byKey[string(name)][c]
	sh.mu.Unlock()
	if has {
		return nil
	}
	k, err := txn.Key(name)
	if err != nil {
		return err
	}
	w := watched{key: string(name), slot: at, existed: k.Exists()}
	c.multi.watch = append(c.multi.watch, w)
	c.multi.watchBytes += int64(len(name)) + watchOverhead
	c.watching.Store(int32(len(c.multi.watch)))
	if w.existed {
		c.watchesExisting.Store(true)
	}
	sh.mu.Lock()
	if sh.byKey[w.key] == nil {
		sh.byKey[w.key] = make(map[*client]bool)
	}
	sh.byKey[w.key][c] = k.Expired()
	sh.mu.Unlock()
	s.watches.n.Add(1)
	return nil
}

// watchExpired says whether a watched key's time has passed since WATCH. The transaction holds its slot.
func (s *Server) watchExpired(c *client) bool {
	for _, w := range c.multi.watch {
		if !w.existed {
			continue
		}
		if k, err := c.txn.Key([]byte(w.key)); err == nil && k.Expired() {
			return true
		}
	}
	return false
}

// Unwatch forgets all watched keys.
func (s *Server) Unwatch(x *command.Ctx) error {
	s.unwatch(clientOf(x))
	x.W.OK()
	return nil
}

func (s *Server) unwatch(c *client) {
	for _, w := range c.multi.watch {
		sh := &s.watches.shards[w.slot%uint16(len(s.watches.shards))]
		sh.mu.Lock()
		delete(sh.byKey[w.key], c)
		if len(sh.byKey[w.key]) == 0 {
			delete(sh.byKey, w.key)
		}
		sh.mu.Unlock()
	}
	s.watches.n.Add(int64(-len(c.multi.watch)))
	c.multi.watch, c.multi.watchBytes = nil, 0
	c.watching.Store(0)
	c.watchesExisting.Store(false)
	c.dirtyCAS.Store(false)
}

// Committed hears of each commit, under its slot locks.
func (s *Server) Committed(t *engine.Txn) {
	s.stats.changes.Add(int64(t.Dirty()))
	if s.watches.n.Load() > 0 {
		t.EachChanged(func(k *engine.Key) {
			s.watches.touch(k.Slot, k.Name, k.Exists())
		})
		if t.DroppedAll() {
			s.watches.touchAll(s)
		}
	}
	s.queueEvents(t.Events())
}
