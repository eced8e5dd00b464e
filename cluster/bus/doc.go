// Package bus drives a node's cluster machine: sockets, time, and the file in which it keeps its state.
//
// Shape. A Driver owns one cluster.Machine and calls it under its mutex: ten times a second, for each message, for each
// command. It carries the machine's effects out:
//
//	messages      encoded once, into the queue of each link; a goroutine a link writes. A slow peer delays nobody
//	saves         on a goroutine of their own; what depends on a save is held until it is on disk
//	the node's    routing, role, pause, drops: on one goroutine, in their order, so that the bus never waits for data
//	publications  by the goroutine of the link on which they came, so that they hold up nothing else
//
// Files. nodes.conf is Redis's (cluster/nodesconf). Beside the node's data lie, under the same name, with .crc the
// checksums of the present and the next content, with .old the content before, with .lock the lock that this process
// holds. A file that is torn, altered or gone is never answered by a new id: the start is refused.
//
// Limits. A stranger is a link that somebody opened and whose node is not a member, as far as is known. It may take
// StrangerBytes of memory: packets of half of that, and answers that it does not read. It must say something within two
// timeouts, and all of a packet within five seconds. There are at most maxStrangers of them, and one more for each member;
// then the oldest goes. A member may send packets of 1 MiB, and publications of wire.MaxLength; a longer one is passed over
// unread. It must get on with what it sends and takes within a timeout. What waits to be sent on a link is at most
// Options.SendLimit, and never more than maxQueued.
//
// Errors. Load says what is wrong with file or lock, Start what is with the port. A save that fails later is final:
// Options.Failed is told, nothing that depends on it is sent any more, and commands that wait for it get an error.
//
// Not here: what the messages mean (cluster), their bytes (cluster/wire), clients (server).
package bus
