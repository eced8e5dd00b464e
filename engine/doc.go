// Package engine keeps keys and values: transactions over 16384 slots in memory, a log that makes them
// durable, and Pebble behind it, written in groups.
//
// Shape. A command runs in a Txn on the slots of its keys. Commit appends the command's log entry, puts its
// rows where every later read finds them, and lets the slots go; the reply leaves once the log has the entry.
// In the background the applier cuts the pending rows at a log offset and writes them to Pebble as one batch
// that carries this offset. So the store always holds exactly the log up to one offset, and recovery executes
// what follows.
//
//	read:    the Txn's own rows, pending rows of this epoch, rows being applied, record cache, Pebble
//	commit:  log append -> rows and counters -> unlock        (all under the slots' locks and the cut lock's shared side)
//	apply:   cut -> one batch {drops, rows, counter pages, state} -> rows become clean
//
// Terms. Epoch: the time between two cuts. Applied offset: up to here everything is in Pebble and nothing
// after. Durable offset: the applied offset that a crash of the machine leaves. Slots, records, generations
// and row keys are drawn in engine/layout.
//
// Locks, outermost first: slot locks in slot order; one shard of the cut lock; shards of the record cache.
// Whoever holds the cut lock waits for nothing. docs/locks.md has them all.
//
// Errors. ErrRerouted: the routing value changed between locking and commit, run the command again.
// Anything else from Commit is a failed log: nothing may be acknowledged any more. Errors of reads are Pebble's,
// wrapped with the row they were about.
//
// Not here: commands, replies, the log's file format, sockets, clocks (time comes in with each transaction).
package engine
