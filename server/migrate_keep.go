package server

import "time"

// What MIGRATE leaves behind for a while: keys that are gone here, until a replica knows, and connections that nobody uses.

// patience is how long others wait at most for a replica to know of the deletion.
func (m *move) patience() time.Duration {
	return millis(min(m.want.TimeoutMs, m.s.cfg.V.ClusterNodeTimeout.Load()))
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// goneKeys are keys that are deleted here, and not at any replica that is known of.
type goneKeys struct {
	names []string
	marks *departure
	end   int64     // of their deletion, in the log
	until time.Time // nobody waits for a replica for longer
}

// goneMost is how many calls may have left such keys before MIGRATE waits for the keeper.
const goneMost = 16

// keepGone hands them to the keeper. It waits for the keeper when that is far behind.
func (s *Server) keepGone(g goneKeys) {
	select {
	case s.gone <- g:
	case <-s.stop: // and with it all who wait
	}
}

// keepMoves is the keeper of what MIGRATE leaves behind.
func (s *Server) keepMoves() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			s.peers.closeAll()
			return
		case now := <-tick.C:
			s.peers.closeIdle(now)
		case g := <-s.gone:
			s.makeSafe(g)
		}
	}
}

// makeSafe ends the marks of gone keys once the deletion cannot be taken back any more.
func (s *Server) makeSafe(g goneKeys) {
	if s.wal.WaitDurable(g.end) != nil {
		return // the node ends; until it has, nobody is told anything about these keys
	}
	if !s.awaitReplica(g.end, time.Until(g.until), nil) {
		s.log.Notice("keys that were moved away are asked for at their new node although no replica is known to have deleted them",
			"keys", len(g.names), "offset", g.end)
	}
	s.leaving.end(g.names, g.marks)
}
