package command

import "sync/atomic"

// Stats counts the calls of one command, as INFO commandstats shows them.
type Stats struct {
	Calls    atomic.Int64
	Usec     atomic.Int64
	Rejected atomic.Int64
	Failed   atomic.Int64
}

// Stats gives the command's counters.
func (c *Command) Stats() *Stats { return c.stats }
