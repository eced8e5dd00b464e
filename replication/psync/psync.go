// Package psync decides how a replica and its primary come together: which line is said next, and what an answer
// means. It speaks; it does not talk: the driver owns the socket and the clock.
//
// Shape. A Handshake is the replica's side of one connection, from PING to the first byte of data or stream. It
// is given what happens (Connected, Line, Tick) and gives back an Effect: bytes to write, and what to do next.
//
//	Connected ─▶ PING ─▶ [AUTH] REPLCONF ... (written at once, answered one by one) ─▶ PSYNC ─┬▶ Continue: the stream follows
//	                                                                                        ├▶ Full: a payload line, then the data
//	                                                             SYNC, when PSYNC is unknown ─┘
//
// Units. Times are milliseconds of any steady clock. Offsets are those of the log: bytes produced so far. On the
// wire PSYNC asks for the number of the next byte, which is one more; that is translated here and nowhere else.
//
// Errors. None are returned: a line that makes no sense ends the handshake with a Retry that names the reason. No
// line makes it panic, and no line longer than MaxLine is looked at.
//
// Source. Redis 7.0.15 and 7.2.6, replication.c, and what these servers sent when they were asked.
//
// Not here: sockets, clocks, the data, the stream.
package psync

// MaxLine is the longest line of a handshake, bytes without its end.
const MaxLine = 1024

// RowsCapa is the capability to take a data set as rows of this program's, in the first version of their stream. Other
// primaries pass over it.
const RowsCapa = "cairn-rows-1"

// stepMs bounds each step of the handshake but the last: a primary that accepts a connection and says nothing.
// While a primary makes its snapshot ready it may take Hello.TimeoutMs from one sign of life to the next.
const stepMs = 5000

// idLen is the length of a replication id, hex digits.
const idLen = 40

// noOffset is an offset that is not known: of a primary that speaks SYNC only.
const noOffset = -1
