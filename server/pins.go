package server

import (
	"time"

	"cairn/server/config"
)

// gateLook is how often the space gate is looked at, as often as the store looks at the disk.
const gateLook = 250 * time.Millisecond

// pinLoop gives up what the log keeps for others while the disk is too full for the node's own writes: the oldest pin
// first, and no more of them than it takes.
func (s *Server) pinLoop() {
	tick := time.NewTicker(gateLook)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.freePins()
		}
	}
}

// freePins ends pins until the space gate is open, or none is left that holds anything.
func (s *Server) freePins() {
	for s.store.Gate() != nil {
		ended, err := s.wal.EndOldestPin("the disk is nearly full")
		if err != nil || !ended {
			return // a failure of the log is told by the log
		}
		s.store.LookAtDisk()
	}
}

// pinLimit is how many bytes pins may hold.
func (s *Server) pinLimit() int64 {
	return s.cfg.V.ReplPinLimit.Of(config.DiskSize(s.cfg.V.Dir.Load()))
}
