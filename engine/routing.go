package engine

// SlotState says what this node may do with a slot. The zero value: the slot is somebody else's, or nobody's.
type SlotState uint8

// Bits of a SlotState.
const (
	SlotOwned      SlotState = 1 << iota // this node's primary owns it
	SlotMigrating                        // leaving: keys that are gone are asked for elsewhere
	SlotImporting                        // arriving: served to who says ASKING
	SlotUnserved                         // no node owns it
	SlotUnfinished                       // it arrived, and its arriving was ended otherwise than by its last step
)

// Routing is who may run what here, one immutable value: whoever changes ownership, role or pause makes a new
// one and publishes it with Store.SetRouting. A transaction sees the same value from its locks to its commit,
// or is run again.
type Routing struct {
	Cluster      bool // cluster-enabled
	Down         bool // cluster state is not ok
	Replica      bool // this node is a replica
	WritesPaused bool // a failover waits: nothing enters the log, from anybody
	Slots        [16384]SlotState
	// Extra is the server's own: addresses for redirections. The engine does not look into it.
	Extra any
}

// Routing gives the value in force.
func (s *Store) Routing() *Routing { return s.routing.Load() }

// SetRouting publishes r. When it returns, every commit under the value before has its rows and its log entry
// in place, and no further one will come: an answer, an offset or the stream may now rest on r.
func (s *Store) SetRouting(r *Routing) {
	s.routing.Store(r)
	s.cut.lock()
	s.cut.unlock()
}
