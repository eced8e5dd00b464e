package replication

import (
	"sync/atomic"
	"time"
)

// State is what the link is at; the words are ROLE's.
type State int32

// The states, in the order in which a link passes them.
const (
	Connect State = iota // waits before it connects
	Connecting
	Handshaking
	Syncing
	Connected
)

func (s State) String() string {
	return [...]string{"connect", "connecting", "handshake", "sync", "connected"}[s]
}

// counters are written by the link's goroutine and read by whoever asks.
type counters struct {
	read    atomic.Int64 // offset of the last byte received
	applied atomic.Int64 // of the last one executed
	settled atomic.Int64 // of the last one that is acknowledged
	synced  atomic.Int64 // of the last one that is synced, -1 when not told
	lastIO  atomic.Int64 // Unix milliseconds
	total   atomic.Int64 // bytes of the data set, -1 when not known
	got     atomic.Int64 // bytes of it received
	bytesIn atomic.Int64 // of all connections
}

// Status is a reading of the link.
type Status struct {
	Host    string
	Port    int
	State   State
	LastErr string // why the last connection ended; "" when the present one is up
	Local   string // address of this end; "" without a connection
	Remote  string // and of the other
	Since   time.Time
	// DownFrom is when the link went down, zero when it is up or never was.
	DownFrom time.Time
	LastIO   time.Time

	Read, Applied int64 // offsets
	SyncTotal     int64 // bytes of the data set that is being received, -1 when its primary does not say
	SyncRead      int64
	BytesIn       int64
}

// Status reads the link.
func (r *Replica) Status() Status {
	st := Status{
		Host: r.o.Host, Port: r.o.Port, State: State(r.state.Load()),
		Read: r.status.read.Load(), Applied: r.status.applied.Load(),
		SyncTotal: r.status.total.Load(), SyncRead: r.status.got.Load(), BytesIn: r.status.bytesIn.Load(),
		LastIO: time.UnixMilli(r.status.lastIO.Load()),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st.LastErr, st.Local, st.Remote, st.Since = r.lastErr, r.laddr, r.raddr, r.since
	if st.State == Connected {
		st.LastErr = ""
	} else {
		st.DownFrom = r.downFrom
	}
	return st
}

// Up says whether the stream flows.
func (r *Replica) Up() bool { return State(r.state.Load()) == Connected }
