package server

import (
	"sync"

	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/slot"
)

// The routing value is made here and nowhere else: of the cluster's view, of the role, of a pause.

// routeChange is what changes of the routing value go by.
type routeChange struct {
	mu     sync.Mutex // one change at a time
	pauses pauseReason
}

// pauseReason says for whom writes are paused: each ends its own pause only.
type pauseReason uint8

const (
	pauseFailover pauseReason = 1 << iota // another node takes over
	pauseShutdown                         // replicas get the end of the stream
)

// changeRouting publishes a changed copy of the routing in force. When it returns, no write is committed under the old one.
func (s *Server) changeRouting(f func(r *engine.Routing)) {
	s.routes.mu.Lock()
	defer s.routes.mu.Unlock()
	r := *s.store.Routing()
	f(&r)
	s.store.SetRouting(&r)
}

// publishRole puts the role into the routing value.
func (s *Server) publishRole(replica bool) {
	s.changeRouting(func(r *engine.Routing) { r.Replica = replica })
}

// pauseWrites stops, or lets go on, all that enters the log: somebody waits for the offset to stand still.
func (s *Server) pauseWrites(why pauseReason, on bool) {
	s.changeRouting(func(r *engine.Routing) {
		if s.routes.pauses &^= why; on {
			s.routes.pauses |= why
		}
		r.WritesPaused = s.routes.pauses != 0
	})
	if !on {
		s.pause.wake()
	}
}

// releaseTail lets replicas have all that the log holds, after pauseWrites: their role waits for it. What nobody waits for, as
// the expirer's deletions, is handed over with the next write that somebody waits for, or once a second; while writes
// are paused there is none, and all clients would wait for that second. It does not wait for the disk.
func (s *Server) releaseTail() {
	s.startTask(func() { // ends by itself
		_ = s.wal.WaitDurable(s.wal.End()) // a failure of the log is told to the node by the log
	})
}

// publishView puts what the cluster knows into the routing value.
func (s *Server) publishView(v *cluster.View) {
	s.changeRouting(func(r *engine.Routing) {
		next := routingOf(v)
		if v.Unfinished != (slot.Bitmap{}) {
			s.doubts.note(r, next, s.clock())
		}
		next.WritesPaused = r.WritesPaused
		next.Replica = v.Replica() || s.isReplica()
		if r.Replica && !next.Replica {
			s.returns.leftBefore(v)
		}
		s.returns.note(r, next, s.clock())
		*r = *next
	})
}

// routingOf is what a view means for commands. A replica has the slots of its primary.
func routingOf(v *cluster.View) *engine.Routing {
	r := &engine.Routing{Cluster: true, Down: !v.OK, Replica: v.Replica(), Extra: v}
	mine := v.Shard()
	if mine != cluster.NoNode {
		for _, own := range v.Nodes[mine].Slots {
			for sl := int(own.First); sl <= int(own.Last); sl++ {
				r.Slots[sl] = engine.SlotOwned
			}
		}
	}
	if v.Assigned < slot.Count {
		for sl, owner := range &v.Owner {
			if owner == cluster.NoNode {
				r.Slots[sl] = engine.SlotUnserved
			}
		}
	}
	for sl := range v.Migrating {
		r.Slots[sl] |= engine.SlotMigrating
	}
	for sl := range v.Importing {
		r.Slots[sl] |= engine.SlotImporting
	}
	if v.Unfinished == (slot.Bitmap{}) {
		return r
	}
	for sl := range r.Slots {
		if v.Unfinished.Has(uint16(sl)) {
			r.Slots[sl] |= engine.SlotUnfinished
		}
	}
	return r
}

// viewOf is the view that a routing value was made of; nil without a cluster.
func viewOf(r *engine.Routing) *cluster.View {
	v, _ := r.Extra.(*cluster.View)
	return v
}
