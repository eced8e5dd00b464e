package cluster

import "cairn/cluster/wire"

// Config is what the operator set. It may be replaced between any two calls by Machine.Configure.
type Config struct {
	NodeTimeout       int64  // cluster-node-timeout
	PingInterval      int64  // cluster-ping-interval of 7.2; 0: half of NodeTimeout
	MigrationBarrier  int    // replicas that a primary keeps before one of them leaves for an orphan
	ValidityFactor    int64  // cluster-replica-validity-factor; 0: any age
	ReplicaPingPeriod int64  // repl-ping-replica-period
	FullCoverage      bool   // cluster-require-full-coverage
	ReplicaMigration  bool   // cluster-allow-replica-migration
	NoFailover        bool   // cluster-replica-no-failover
	ManualTimeout     int64  // of a manual failover
	BlacklistTTL      int64  // how long a forgotten node stays forgotten
	Port              int    // of clients, as announced, for the transport of the cluster
	PPort             int    // of clients, for the other transport; 0: none
	BusPort           int    // as announced
	IP                string // announced; "": what peers see
	Hostname          string
	Nodename          string
	LightHeaders      bool  // Valkey's short publish header is understood
	NoteLevel         Level // notes below it are not made
}

// Data is what the machine asks about this node's data. Its answers are facts of the moment; it never waits.
type Data interface {
	// Offset is that of the replication stream: produced by a primary, executed by a replica.
	Offset() int64
	// PrimaryLink tells of a replica's link to its primary: whether it is up, and since when (Unix ms) it is down, or when
	// the primary was last heard on it. A link that was never up: false, 0.
	PrimaryLink() (up bool, since int64)
	// Keys counts all keys.
	Keys() int64
	// SlotKeys counts the keys of a slot.
	SlotKeys(slot uint16) int64
}

// Random gives 64 random bits. The driver brings it; the machine has no other chance.
type Random func() uint64

// id makes a node or shard id.
func (r Random) id() (id wire.ID) {
	const digits = "0123456789abcdef"
	for i := 0; i < len(id); i += 10 {
		bits := r()
		for j := range 10 {
			id[i+j] = digits[bits>>(4*j)&15]
		}
	}
	return id
}
