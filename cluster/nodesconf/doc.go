// Package nodesconf is the text in which a node keeps what it knows of the cluster: Redis's nodes.conf, byte for
// byte, so that the file of a Redis node can be taken over as it is, and given back.
//
// Shape. A File is a line for each node and one of variables:
//
//	<id> <ip>:<port>@<bus port>[,<hostname>[,<name>=<value>]...] <flags> <primary id or -> <ping> <pong> <epoch>
//	    connected|disconnected [<slot> | <first>-<last> | [<slot>->-<id>] | [<slot>-<-<id>]] ...
//	vars currentEpoch <n> lastVoteEpoch <n>
//
// (a node is one line; it is broken here to fit). The auxiliary names are shard-id, nodename, tcp-port and
// tls-port; of the two ports, one stands in the address and the other among these.
//
// Units. Ping and pong are Unix milliseconds, 0 for never.
//
// Errors. Parse names the line, counted from 1, and what is wrong with it. A file without its line of variables,
// or whose last line does not end, was cut short and is refused: it is written last, so without it nothing
// proves that the nodes before it are all. Nothing panics, and nothing is allocated beyond the size of the input.
//
// Source. Redis 7.2.6, cluster.c: clusterLoadConfig, clusterSaveConfig, clusterGenNodeDescription. Older files,
// without bus port, shard id or ports among the auxiliary fields, are read as there.
//
// Not here: files, and whether what the text says makes sense together.
package nodesconf
