package server

import (
	"errors"
	"time"

	"cairn/engine"
	"cairn/internal/slot"
)

// The expirer deletes keys whose time has passed, found by the deadline index, a few at a time so that no
// slot is held long.
const (
	expirePeriod = 100 * time.Millisecond
	expireBatch  = 32
)

func (s *Server) expireLoop() {
	txn := s.store.NewTxn()
	tick := time.NewTicker(expirePeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if s.mayExpire() {
			s.expireRound(txn)
		}
	}
}

// mayExpire says whether the expirer may delete now: not when told not to.
func (s *Server) mayExpire() bool { return !s.stats.expiryOff.Load() && s.mayDelete() }

// mayDelete says whether this node may delete by itself now: not as a replica, not while clients are paused
// (the offset must stand still).
func (s *Server) mayDelete() bool {
	r := s.store.Routing()
	writes, _ := s.pause.paused()
	return !r.Replica && !r.WritesPaused && !writes
}

// expireMet deletes the keys that a command met with their time passed and did not delete itself: it reads only,
// or was refused for what it found. It comes before the command's reply, as in
// Redis: who was told that a key is gone does not find it counted, and its event has been sent. Each is an entry of
// its own, since they may be in any slots. A failure is left to the expirer, which meets it again.
func (s *Server) expireMet(c *client) {
	names := c.ctx.Expired
	c.ctx.Expired = nil
	if !s.mayDelete() || s.store.Reserve(0) != nil {
		return
	}
	txn := s.store.NewTxn() // the replies may still read from c.txn
	for _, name := range names {
		txn.Begin([]uint16{slot.Of(name)}, true, s.clock())
		_, err := txn.Key(name)
		if r := txn.Routing(); err != nil || r.Replica || r.WritesPaused {
			txn.End()
			return
		}
		end, err := txn.Commit()
		if err != nil {
			return
		}
		c.waitFor(end)
	}
	s.events.deliver(s)
}

func (s *Server) expireRound(txn *engine.Txn) {
	var due []uint16
	r := s.store.Routing()
	s.store.DueSlots(s.clock(), func(slot uint16) bool {
		if !r.Cluster || r.Slots[slot]&engine.SlotOwned != 0 { // nobody has looked at the others, so they are always due
			due = append(due, slot)
		}
		return true
	})
	for _, slot := range due {
		for more := true; more; {
			if !s.mayExpire() || s.draining.Load() {
				return
			}
			if s.store.Reserve(0) != nil {
				return
			}
			var err error
			_, more, _, err = s.store.Expire(txn, slot, s.clock(), expireBatch)
			if err != nil && !errors.Is(err, engine.ErrRerouted) {
				s.log.Warning("expiry of a slot failed", "slot", slot, "err", err)
				return
			}
			s.events.deliver(s)
		}
	}
}

// clockLoop advances the clock of OBJECT IDLETIME, whole seconds, often enough that two moments 1.1 s apart differ,
// as in Redis.
func (s *Server) clockLoop() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now := time.Now().Unix()
		s.accessClock.Store(now)
		s.store.SetClock(uint32(now))
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}
