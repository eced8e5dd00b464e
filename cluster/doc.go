// Package cluster is a node's part in a Redis Cluster, as a pure state machine: who is a member, who has failed, who
// owns which slot, who replaces whom.
//
// Shape. A Machine is fed what happens and answers with a list of effects:
//
//	           Tick(now)                          Send      a message on a link
//	time  ──▶  Accepted, Connected, Closed  ──▶   Connect   a link to open; Disconnect
//	links      Step(now, link, message)           Save      the state, durable, then Persisted(seq)
//	people     Command(now, command)              Route     ownership, role or state changed: publish it
//	disk       Persisted(now, seq)                Follow, Promote, Pause, Resume, DropSlot, Deliver ...
//	data       Synced(now), Paused(now)
//
// The machine holds no clock, socket, file, goroutine, random source or lock: time is an argument, chance is a function
// that Config brings, and whoever drives it (package cluster/bus, the simulation) makes one call at a time. So a whole
// cluster of a thousand nodes runs in one test, and the same inputs give the same effects.
//
// Durable first. An effect that tells others something that must not be taken back (a vote, an epoch, a claim of
// slots, a new role) carries the number of a save, After; the driver holds it until that save is on disk. All others
// leave at once. Effects with the same After are carried out in their order.
//
// Units. Times and durations are milliseconds; now is Unix time in milliseconds and may not be trusted to be true, only
// to go on. Offsets are of the replication stream.
//
// Errors. A Command answers an error whose text is the one that Redis gives. Nothing a peer sends is an error: what makes
// no sense is passed over, and counted.
//
// Source. Redis 7.0 and 7.2, cluster.c; Valkey 8 where it is safer, which docs/differences.md names.
//
// Not here: the bytes of messages (cluster/wire), sockets and saving (cluster/bus), what clients are told (server).
package cluster
