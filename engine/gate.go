package engine

import (
	"errors"
	"time"
)

// ErrDiskFull is why a write is refused while the space gate is closed.
var ErrDiskFull = errors.New("disk is nearly full")

// gate closes writes before Pebble or the log meet a full disk, and opens by itself. What frees space (DEL,
// FLUSHALL, expiry) does not ask it: the reserve behind it is for them, for memtables, for a log segment and
// for a compaction.
const gatePeriod = 250 * time.Millisecond

// Gate says whether writes that grow the data may go on.
func (s *Store) Gate() error {
	if s.gateClosed.Load() {
		return ErrDiskFull
	}
	return nil
}

// diskReserve is how many bytes stay free on a disk of this size.
func (s *Store) diskReserve(total uint64) uint64 {
	if s.opts.DiskReserve > 0 {
		return uint64(s.opts.DiskReserve)
	}
	want := 64<<20 + 4*s.opts.memTableBytes() + 128<<20
	// The largest merge writes half of the flushes that wait, and the level that they go into, before it frees anything.
	merge := int64(s.opts.l0Threshold())/2*s.opts.memTableBytes()*3/4 + s.opts.baseLevelBytes()
	return min(uint64(max(want, 64<<20+merge)), total/5)
}

// watchDisk looks at the free space until the store closes.
func (s *Store) watchDisk() {
	defer s.background.Done()
	tick := time.NewTicker(gatePeriod)
	defer tick.Stop()
	for {
		s.LookAtDisk()
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

// LookAtDisk opens or closes the space gate by what the disk has free now. The background does this by itself.
func (s *Store) LookAtDisk() {
	usage, err := s.opts.FS.GetDiskUsage(s.opts.Dir)
	if err != nil {
		return // a file system that cannot tell has no gate
	}
	reserve := s.diskReserve(usage.TotalBytes)
	s.diskFree.Store(int64(usage.AvailBytes))
	closed := usage.AvailBytes < reserve
	// It opens again a little later than it closed, so that it does not flap.
	if s.gateClosed.Load() && usage.AvailBytes < reserve+reserve/8 {
		closed = true
	}
	if s.gateClosed.CompareAndSwap(!closed, closed) {
		s.opts.Logf("space gate", "closed", closed, "free", usage.AvailBytes, "reserve", reserve)
	}
	if closed {
		s.room.L.Lock()
		s.room.Broadcast() // who waits for the applier may wait for space that nobody frees
		s.room.L.Unlock()
	}
}

// DiskFree is how many bytes the disk had free when last looked at.
func (s *Store) DiskFree() int64 { return s.diskFree.Load() }
