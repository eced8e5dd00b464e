// Package replication keeps links: to the replicas of this node, and to its primary.
//
// Shape. Primary holds the replicas that are attached. Serve takes over a connection on which PSYNC or SYNC arrived,
// decides with package psync how the replica goes on, and feeds it until the connection ends:
//
//	            +-- partial: +CONTINUE ------------------------------+
//	PSYNC ------+                                                    +--> log, from an offset on --> socket
//	            +-- full: wait for a place, +FULLRESYNC, snapshot ---+
//	                      as RDB, first acknowledgement
//
// The stream goes from the log's files to the socket in pieces of feedBytes. Memory holds nothing that waits for a
// replica, and nothing of the node waits for one: a slow replica reads an older place of the log. What acknowledges
// is read by a second goroutine of the connection.
//
// Units. Offsets are bytes before a place of the stream, as in package wal. Times are Unix milliseconds.
//
// Errors. A link that fails is closed, with one line in the node's log that names the replica, the offset and the
// reason; the replica comes back and asks again. Nothing that a replica sends stops the node.
//
// Source. Redis 7.2, replication.c, for what is said on the wire; https://redis.io/docs/latest/operate/oss_and_stack/management/replication/.
//
// Not here: the decision what a replica gets and the handshake (psync), the format of the data set (rdb), commands,
// the role of the node.
package replication
