package command

// The commands about the cluster. All work is the server's; what each means is said at its row.

// ClusterHost is what these commands ask of the node around them.
type ClusterHost interface {
	ClusterEnabled() bool

	ClusterAddSlots(*Ctx) error
	ClusterAddSlotsRange(*Ctx) error
	ClusterBumpEpoch(*Ctx) error
	ClusterCountFailureReports(*Ctx) error
	ClusterCountKeysInSlot(*Ctx) error
	ClusterDelSlots(*Ctx) error
	ClusterDelSlotsRange(*Ctx) error
	ClusterFailover(*Ctx) error
	ClusterFlushSlots(*Ctx) error
	ClusterForget(*Ctx) error
	ClusterGetKeysInSlot(*Ctx) error
	ClusterInfo(*Ctx) error
	ClusterKeySlot(*Ctx) error
	ClusterLinks(*Ctx) error
	ClusterMeet(*Ctx) error
	ClusterMyID(*Ctx) error
	ClusterMyShardID(*Ctx) error
	ClusterNodes(*Ctx) error
	ClusterReplicas(*Ctx) error
	ClusterReplicate(*Ctx) error
	ClusterReset(*Ctx) error
	ClusterSaveConfig(*Ctx) error
	ClusterSetConfigEpoch(*Ctx) error
	ClusterSetSlot(*Ctx) error
	ClusterShards(*Ctx) error
	ClusterSlots(*Ctx) error
	Asking(*Ctx) error
	ReadOnly(*Ctx) error
	ReadWrite(*Ctx) error
}

func clusterCommands() []Command {
	return []Command{
		{
			Name: "cluster", Arity: -2, Group: "cluster", Since: "3.0.0",
			Summary: "Container of commands about the cluster.", Sub: append(clusterTelling(), clusterChanging()...),
		},
		{
			Name: "asking", Arity: 1, Flags: Fast, Group: "cluster", Since: "3.0.0",
			Summary: "Lets the next command use a slot that is arriving.", ACL: "connection", Run: host(ClusterHost.Asking),
		},
		{
			Name: "readonly", Arity: 1, Flags: Fast | Loading | Stale, Group: "cluster", Since: "3.0.0",
			Summary: "Lets a replica answer reads on this connection.", ACL: "connection", Run: host(ClusterHost.ReadOnly),
		},
		{
			Name: "readwrite", Arity: 1, Flags: Fast | Loading | Stale, Group: "cluster", Since: "3.0.0",
			Summary: "Ends what READONLY began.", ACL: "connection", Run: host(ClusterHost.ReadWrite),
		},
	}
}

// clusterTelling are the subcommands that change nothing.
func clusterTelling() []Command {
	return []Command{
		{
			Name: "count-failure-reports", Arity: 3, Flags: Admin | Stale, Since: "3.0.0",
			Summary: "Counts the nodes that reported a node as failing.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterCountFailureReports),
		},
		{
			Name: "countkeysinslot", Arity: 3, Flags: Stale, Since: "3.0.0",
			Summary: "Counts the keys of a slot.", Run: host(ClusterHost.ClusterCountKeysInSlot),
		},
		{
			Name: "getkeysinslot", Arity: 4, Flags: Stale | NoKeysTxn, Since: "3.0.0",
			Summary: "Lists keys of a slot.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterGetKeysInSlot),
		},
		{
			Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
			Summary: "Explains the subcommands.", Run: clusterHelp,
		},
		{
			Name: "info", Arity: 2, Flags: Stale, Since: "3.0.0",
			Summary: "Tells the state of the cluster.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterInfo),
		},
		{
			Name: "keyslot", Arity: 3, Flags: Stale, Since: "3.0.0",
			Summary: "Tells the slot of a key.", Run: host(ClusterHost.ClusterKeySlot),
		},
		{
			Name: "links", Arity: 2, Flags: Stale, Since: "7.0.0",
			Summary: "Lists the links to other nodes.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterLinks),
		},
		{
			Name: "myid", Arity: 2, Flags: Stale, Since: "3.0.0",
			Summary: "Tells the node's id.", Run: host(ClusterHost.ClusterMyID),
		},
		{
			Name: "myshardid", Arity: 2, Flags: Stale, Since: "7.2.0",
			Summary: "Tells the id of the node's shard.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterMyShardID),
		},
		{
			Name: "nodes", Arity: 2, Flags: Stale, Since: "3.0.0",
			Summary: "Lists the nodes with their slots.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterNodes),
		},
		{
			Name: "replicas", Arity: 3, Flags: Admin | Stale, Since: "5.0.0",
			Summary: "Lists the replicas of a primary.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterReplicas),
		},
		{
			Name: "shards", Arity: 2, Flags: Loading | Stale, Since: "7.0.0",
			Summary: "Lists the shards with their slots and nodes.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterShards),
		},
		{
			Name: "slaves", Arity: 3, Flags: Admin | Stale, Since: "3.0.0",
			Summary: "Lists the replicas of a primary.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterReplicas),
		},
		{
			Name: "slots", Arity: 2, Flags: Loading | Stale, Since: "3.0.0",
			Summary: "Lists the ranges of slots with their nodes.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterSlots),
		},
	}
}

func clusterChanging() []Command {
	return []Command{
		{
			Name: "addslots", Arity: -3, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Gives slots to this node.", Run: host(ClusterHost.ClusterAddSlots),
		},
		{
			Name: "addslotsrange", Arity: -4, Flags: NoAsyncLoading | Admin | Stale, Since: "7.0.0",
			Summary: "Gives ranges of slots to this node.", Run: host(ClusterHost.ClusterAddSlotsRange),
		},
		{
			Name: "bumpepoch", Arity: 2, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Moves the node's configuration epoch on.", Tips: "nondeterministic_output", Run: host(ClusterHost.ClusterBumpEpoch),
		},
		{
			Name: "delslots", Arity: -3, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Takes slots from whoever has them, as far as this node knows.", Run: host(ClusterHost.ClusterDelSlots),
		},
		{
			Name: "delslotsrange", Arity: -4, Flags: NoAsyncLoading | Admin | Stale, Since: "7.0.0",
			Summary: "Takes ranges of slots from whoever has them, as far as this node knows.", Run: host(ClusterHost.ClusterDelSlotsRange),
		},
		{
			Name: "failover", Arity: -2, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Makes a replica take over from its primary.", Run: host(ClusterHost.ClusterFailover),
		},
		{
			Name: "flushslots", Arity: 2, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Takes all slots from this node.", Run: host(ClusterHost.ClusterFlushSlots),
		},
		{
			Name: "forget", Arity: 3, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Forgets a node.", Run: host(ClusterHost.ClusterForget),
		},
		{
			Name: "meet", Arity: -4, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Makes two nodes know each other.", Run: host(ClusterHost.ClusterMeet),
		},
		{
			Name: "replicate", Arity: 3, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Makes the node a replica of another one.", Run: host(ClusterHost.ClusterReplicate),
		},
		{
			Name: "reset", Arity: -2, Flags: Admin | Stale | NoScript, Since: "3.0.0",
			Summary: "Makes the node forget the cluster.", Run: host(ClusterHost.ClusterReset),
		},
		{
			Name: "saveconfig", Arity: 2, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Saves the node's view of the cluster.", Run: host(ClusterHost.ClusterSaveConfig),
		},
		{
			Name: "set-config-epoch", Arity: 3, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Sets the configuration epoch of a new node.", Run: host(ClusterHost.ClusterSetConfigEpoch),
		},
		{
			Name: "setslot", Arity: -4, Flags: NoAsyncLoading | Admin | Stale, Since: "3.0.0",
			Summary: "Opens, closes or assigns a slot.", Run: host(ClusterHost.ClusterSetSlot),
		},
	}
}

func clusterHelp(c *Ctx) error {
	if !c.Host.ClusterEnabled() {
		return Reply("ERR This instance has cluster support disabled")
	}
	return c.help("CLUSTER",
		"ADDSLOTS <slot> [<slot> ...]", "Give slots to this node.",
		"ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]", "Give ranges of slots to this node.",
		"BUMPEPOCH", "Move the configuration epoch of this node on.",
		"COUNT-FAILURE-REPORTS <node-id>", "How many nodes report this one as failing.",
		"COUNTKEYSINSLOT <slot>", "How many keys a slot has here.",
		"DELSLOTS <slot> [<slot> ...]", "Take slots from their node, as far as this one knows.",
		"DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]", "The same for ranges of slots.",
		"FAILOVER [FORCE|TAKEOVER]", "Make this replica take over from its primary.",
		"FLUSHSLOTS", "Take all slots from this node.",
		"FORGET <node-id>", "Forget a node.",
		"GETKEYSINSLOT <slot> <count>", "Names of keys that a slot has here.",
		"INFO", "State of the cluster.",
		"KEYSLOT <key>", "The slot of a key.",
		"LINKS", "Links to the other nodes, a map for each.",
		"MEET <ip> <port> [<bus-port>]", "Make two nodes know each other.",
		"MYID", "The id of this node.",
		"MYSHARDID", "The id of the shard of this node.",
		"NODES", "All nodes, a line each: <id> <ip:port@bus-port[,hostname]> <flags> <primary> <pings> <pongs> <epoch> <link> <slot> ...",
		"REPLICAS <node-id>", "Replicas of a primary.",
		"REPLICATE <node-id>", "Make this node a replica.",
		"RESET [HARD|SOFT]", "Make this node forget the cluster (default: soft).",
		"SAVECONFIG", "Save what this node knows of the cluster.",
		"SET-CONFIG-EPOCH <epoch>", "Set the configuration epoch of a new node.",
		"SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)", "Open, close or assign a slot.",
		"SHARDS", "Shards with their slots and nodes.",
		"SLOTS", "Ranges of slots with their nodes.")
}
