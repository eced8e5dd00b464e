// Package server is the front door: sockets, the loop that reads commands and writes replies, transactions,
// redirection, and the wiring of store, log and configuration.
//
// Shape. One goroutine serves a connection: it reads what has arrived, runs every complete command of it,
// waits once for the log to have what the replies rest on, and sends all replies with one write.
//
//	listen -> client.serve -> dispatch (checks) -> run (locks, routing, handler, commit) -> wait -> write
//
// Recovery and a primary's stream come in by the same table: see replay.go.
//
// Locks are listed in docs/locks.md. Time is read here and handed down; no lower package has a clock.
//
// Errors. What a client did wrong is a reply. What the disk does wrong ends the node, files kept.
//
// Not here: what commands do to data (server/command), what is on disk (engine, wal).
package server
