// Package wire is the byte format of the Redis Cluster bus: what nodes say to each other.
//
// Shape. A Message is one packet, decoded: the header that every packet has, and what its type adds. Append and
// Decode are each other's inverse. A packet begins with a length, so a stream of them is cut by Length.
//
//	header, 2256 bytes                                        then, by type
//	   0  "RCmb"                  2128  primary's id(40)        ping, pong, meet: gossip entries of 104 bytes,
//	   4  length of all(4)        2168  announced ip(46)                          then extensions
//	   8  version(2), 1           2214  extensions(2)           fail:    id(40)
//	  10  port(2)                 2216  zero(30)                publish: lengths(4, 4), channel, message
//	  12  type(2)                 2246  second port(2)          update:  epoch(8), id(40), slots(2048)
//	  14  gossip entries(2)       2248  bus port(2)             module:  id(8), length(4), type(1), bytes
//	  16  current epoch(8)        2250  flags(2)                auth-req, auth-ack, mfstart: nothing
//	  24  config epoch(8)         2252  state(1)
//	  32  replication offset(8)   2253  message flags(3)
//	  40  sender's id(40)
//	  80  slots(2048)             light header (publish only), 16 bytes: as above, type | 0x8000
//
// All integers are big endian. In a slot bitmap, slot s is bit s%8 of byte s/8.
//
// Limits. A packet is at most MaxLength bytes; Length refuses a longer one before anything is read for it.
//
// Errors. Decode says what is wrong, with the number and what it should be. Nothing panics on bytes from outside,
// and nothing is allocated beyond the size of the packet.
//
// Source. Redis 7.0 and 7.2, Valkey 8: cluster.h; checked against real servers.
//
// Not here: sockets, and whether a message may be believed.
package wire
