package cache

import "sync/atomic"

// Access times and counters, for OBJECT IDLETIME and FREQ and for the policies that rest on them. Redis keeps one of
// the two in an object, by its maxmemory-policy; a row has both, so that a change of policy finds its numbers.

const (
	freqNew       = 5 // counter of a new key, so that it lives through its first minutes
	freqMax       = 255
	maxLogFactor  = 1 << 20
	secondsPerMin = 60
)

type accessClock struct {
	now       atomic.Uint32 // seconds
	logFactor atomic.Uint32
	decayMin  atomic.Uint32 // minutes for the counter to lose one, 0 never
}

func (a *accessClock) init() {
	a.logFactor.Store(10)
	a.decayMin.Store(1)
}

// SetNow advances the clock, in seconds since 1970 so that the minutes are those of the wall.
func (c *Cache) SetNow(sec uint32) { c.clock.now.Store(sec) }

// SetLFU sets lfu-log-factor (default 10, above 2^20 as 2^20) and lfu-decay-time (minutes, default 1, 0 never).
func (c *Cache) SetLFU(logFactor, decayMinutes uint32) {
	c.clock.logFactor.Store(min(logFactor, maxLogFactor))
	c.clock.decayMin.Store(decayMinutes)
}

// Access returns the seconds since the last access to a row and its frequency counter. ok is false when the cache
// does not hold the row: the numbers of an evicted row are forgotten.
func (c *Cache) Access(kind uint8, slot uint16, h uint64, key []byte) (idle uint32, freq uint8, ok bool) {
	s, tag := c.home(kind, h)
	ver := c.versions[slot].Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(tag, kind, ver, h, key)
	if r == nil || r.is(flagDeleted) {
		return 0, 0, false
	}
	return s.idle(r), s.decayed(r), true
}

// SetAccess sets what Access returns, for RESTORE with IDLETIME or FREQ. It says whether the cache holds the row.
func (c *Cache) SetAccess(kind uint8, slot uint16, h uint64, key []byte, idle uint32, freq uint8) bool {
	s, tag := c.home(kind, h)
	ver := c.versions[slot].Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(tag, kind, ver, h, key)
	if r == nil || r.is(flagDeleted) {
		return false
	}
	r.setAccess(c.clock.now.Load() - min(idle, c.clock.now.Load()))
	r[offFreq] = freq
	return true
}

// idle is 0 for a time ahead of the clock, which the caller may have set back.
func (s *shard) idle(r row) uint32 {
	now, at := s.c.clock.now.Load(), r.access()
	if at > now {
		return 0
	}
	return now - at
}

// touch counts an access: the counter first loses what time took, then grows by one with a chance that falls with
// its height. Source: Redis 7.0.15, evict.c, LFULogIncr, and db.c, updateLFU.
func (s *shard) touch(r row) {
	freq := s.decayed(r)
	if freq < freqMax {
		above := uint64(0)
		if freq > freqNew {
			above = uint64(freq) - freqNew
		}
		if uint64(s.rand())*(above*uint64(s.c.clock.logFactor.Load())+1) < 1<<32 {
			freq++
		}
	}
	r[offFreq] = freq
	r[offFlags] |= flagReferenced
	r.setAccess(s.c.clock.now.Load())
}

// decayed is the counter now: one less for each decay time since the last access. Minutes are compared, not
// differences of seconds, as Redis does.
func (s *shard) decayed(r row) uint8 {
	freq := r[offFreq]
	now, at := s.c.clock.now.Load(), r.access()
	if at >= now {
		return freq
	}
	decay := s.c.clock.decayMin.Load()
	if decay == 0 {
		return freq
	}
	periods := (now/secondsPerMin - at/secondsPerMin) / decay
	return freq - uint8(min(periods, uint32(freq)))
}

// rand is xorshift: the chance of the counter needs no better, and the state is the shard's own.
func (s *shard) rand() uint32 {
	x := s.random
	x ^= x << 13
	x ^= x >> 17
	x ^= x << 5
	s.random = x
	return x
}
