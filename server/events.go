package server

import (
	"sync"
	"sync/atomic"

	"cairn/engine"
	"cairn/server/config"
)

// eventQueue carries keyspace events from commits, where they are queued under the slot locks in the order of
// commits, to subscribers, before the writer's reply.
type eventQueue struct {
	waiting    atomic.Int64
	mu         sync.Mutex
	queue      []keyEvent
	delivering sync.Mutex
}

type keyEvent struct {
	flag config.NotifyFlags
	name string
	key  string
}

// queueEvents keeps the events that somebody asked for.
func (s *Server) queueEvents(events []engine.Event) {
	for _, e := range events {
		if e.Class == 'x' && e.Name == "expired" {
			s.stats.expiredKeys.Add(1)
		}
	}
	set := s.cfg.V.NotifyKeyspaceEvents.Load()
	if set&(config.NotifyKeyspace|config.NotifyKeyevent) == 0 || len(events) == 0 {
		return
	}
	q := &s.events
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		if f := config.NotifyFlag(e.Class); f&set != 0 {
			q.queue = append(q.queue, keyEvent{f, e.Name, string(e.Key)})
			q.waiting.Add(1)
		}
	}
}

// deliver publishes what is queued. One at a time delivers, so that order holds; who finds somebody at it waits
// for the end, since its own events may be among those.
func (q *eventQueue) deliver(s *Server) {
	if q.waiting.Load() == 0 {
		return
	}
	q.delivering.Lock()
	defer q.delivering.Unlock()
	q.mu.Lock()
	batch := q.queue
	q.queue = nil
	q.mu.Unlock()
	set := s.cfg.V.NotifyKeyspaceEvents.Load()
	for _, e := range batch {
		if set&config.NotifyKeyspace != 0 {
			s.publish([]byte("__keyspace@0__:"+e.key), []byte(e.name))
		}
		if set&config.NotifyKeyevent != 0 {
			s.publish([]byte("__keyevent@0__:"+e.name), []byte(e.key))
		}
	}
	q.waiting.Add(int64(-len(batch)))
}
