package command

import "slices"

// Commands about the node as a whole. What needs the node's parts is the server's; what does not is here.

// AdminHost is what these commands, and those in admin_tools.go, ask of the node around them.
type AdminHost interface {
	ConfigHost
	DebugHost

	ACLGetUser(*Ctx) error
	ACLList(*Ctx) error
	ACLWhoAmI(*Ctx) error
	BackgroundSave(*Ctx) error
	Info(*Ctx) error
	LastSave(*Ctx) error
	LatencyDoctor(*Ctx) error
	LatencyGraph(*Ctx) error
	LatencyHistogram(*Ctx) error
	LatencyHistory(*Ctx) error
	LatencyLatest(*Ctx) error
	LatencyReset(*Ctx) error
	Lolwut(*Ctx) error
	MemoryDoctor(*Ctx) error
	MemoryMallocStats(*Ctx) error
	MemoryPurge(*Ctx) error
	MemoryStats(*Ctx) error
	Failover(*Ctx) error
	PSync(*Ctx) error
	ReplConf(*Ctx) error
	ReplicaOf(*Ctx) error
	RewriteLog(*Ctx) error
	Monitor(*Ctx) error
	Role(*Ctx) error
	Save(*Ctx) error
	Shutdown(*Ctx) error
	Sync(*Ctx) error
	SlowlogGet(*Ctx) error
	SlowlogLen(*Ctx) error
	SlowlogReset(*Ctx) error
	Time(*Ctx) error
	Wait(*Ctx) error
	WaitLog(*Ctx) error
}

func adminCommands() []Command {
	return slices.Concat(processCommands(), replicationCommands(), toolCommands())
}

func processCommands() []Command {
	return []Command{
		{
			Name: "info", Arity: -1, Flags: Loading | Stale | Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Tells the state of the node, in sections.", Tips: "nondeterministic_output\nrequest_policy:all_shards\nresponse_policy:special", Run: host(AdminHost.Info),
		},
		{
			Name: "time", Arity: 1, Flags: Loading | Stale | Fast, Group: "server", Since: "2.6.0",
			Summary: "Tells the time of the node.", Tips: "nondeterministic_output", Run: host(AdminHost.Time),
		},
		{
			Name: "role", Arity: 1, Flags: NoScript | Loading | Stale | Fast | Dangerous, Group: "server", Since: "2.8.12",
			Summary: "Tells the role of the node in replication.", ACL: "admin", Run: host(AdminHost.Role),
		},
		{
			Name: "lastsave", Arity: 1, Flags: Loading | Stale | Fast | Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Tells when the data was last flushed on request.", ACL: "admin", Tips: "nondeterministic_output", Run: host(AdminHost.LastSave),
		},
		{
			Name: "save", Arity: 1, Flags: NoAsyncLoading | Admin | NoScript | NoMulti, Group: "server", Since: "1.0.0",
			Summary: "Applies and flushes everything, then answers.", Run: host(AdminHost.Save),
		},
		{
			Name: "bgsave", Arity: -1, Flags: NoAsyncLoading | Admin | NoScript, Group: "server", Since: "1.0.0",
			Summary: "Applies and flushes everything in the background.", Run: host(AdminHost.BackgroundSave),
		},
		{
			Name: "bgrewriteaof", Arity: 1, Flags: NoAsyncLoading | Admin | NoScript, Group: "server", Since: "1.0.0",
			Summary: "Does nothing: the log is trimmed as it is applied.", Run: host(AdminHost.RewriteLog),
		},
		{
			Name: "shutdown", Arity: -1, Flags: Admin | NoScript | Loading | Stale | NoMulti | AllowBusy, Group: "server", Since: "1.0.0",
			Summary: "Ends the node in order.", Run: host(AdminHost.Shutdown),
		},
	}
}

// replicationCommands are about other nodes and other databases.
func replicationCommands() []Command {
	return []Command{
		{
			Name: "wait", Arity: 3, Group: "generic", Since: "3.0.0",
			Summary: "Waits until replicas have the writes before it.", ACL: "connection", Tips: "request_policy:all_shards\nresponse_policy:agg_min", Run: host(AdminHost.Wait),
		},
		{
			Name: "waitaof", Arity: 4, Flags: NoScript, Group: "generic", Since: "7.2.0",
			Summary: "Waits until the writes before it are on disk, here and on replicas.", ACL: "connection", Tips: "request_policy:all_shards\nresponse_policy:agg_min", Run: host(AdminHost.WaitLog),
		},
		{
			Name: "replicaof", Arity: 3, Flags: NoAsyncLoading | Admin | NoScript | Stale, Group: "server", Since: "5.0.0",
			Summary: "Makes the node a replica of another one, or a primary.", Run: host(AdminHost.ReplicaOf),
		},
		{
			Name: "slaveof", Arity: 3, Flags: NoAsyncLoading | Admin | NoScript | Stale, Group: "server", Since: "1.0.0",
			Summary: "Makes the node a replica of another one, or a primary.", Run: host(AdminHost.ReplicaOf),
		},
		{
			Name: "replconf", Arity: -1, Flags: Admin | NoScript | Loading | Stale | AllowBusy, Group: "server", Since: "3.0.0",
			Summary: "Serves replicas: tells about the link.", Run: host(AdminHost.ReplConf),
		},
		{
			Name: "psync", Arity: -3, Flags: NoAsyncLoading | Admin | NoMulti | NoScript, Group: "server", Since: "2.8.0",
			Summary: "Serves replicas: begins the stream.", Run: host(AdminHost.PSync),
		},
		{
			Name: "sync", Arity: 1, Flags: NoAsyncLoading | Admin | NoMulti | NoScript, Group: "server", Since: "1.0.0",
			Summary: "Serves replicas: begins the stream with a full copy.", Run: host(AdminHost.Sync),
		},
		{
			Name: "failover", Arity: -1, Flags: Admin | NoScript | Stale, Group: "server", Since: "6.2.0",
			Summary: "Hands the role of primary over to a replica.", Run: host(AdminHost.Failover),
		},
		{
			Name: "monitor", Arity: 1, Flags: Admin | NoScript | Loading | Stale, Group: "server", Since: "1.0.0",
			Summary: "Shows every command that the node executes.", Run: host(AdminHost.Monitor),
		},
		{
			Name: "swapdb", Arity: 3, Flags: Write | Fast | Keyspace | Dangerous, Group: "server", Since: "4.0.0",
			Summary: "Swaps two databases, of which there is one.", Run: swapDB,
		},
		{
			Name: "move", Arity: 3, Flags: Write | Fast | Keyspace, Keys: []KeySpec{{Flags: "RW access update", BeginIndex: 1}}, Group: "generic", Since: "1.0.0",
			Summary: "Moves a key to another database, of which there is none.", Run: moveKey,
		},
		{
			Name: "lolwut", Arity: -1, Flags: ReadOnly | Fast, Group: "server", Since: "5.0.0",
			Summary: "Shows the version, and a picture.", Run: host(AdminHost.Lolwut),
		},
	}
}

// swapDB has nothing to swap: there is database 0 only.
func swapDB(c *Ctx) error {
	for i, which := range []string{"first", "second"} {
		n, err := c.Int(i + 1)
		if err != nil {
			return Reply("ERR invalid " + which + " DB index")
		}
		if n != 0 {
			return errNoSuchDB
		}
	}
	c.W.OK()
	return nil
}

func moveKey(c *Ctx) error {
	n, err := c.Int(2)
	if err != nil {
		return ErrNotInteger
	}
	if n != 0 {
		return errNoSuchDB
	}
	return errSameObject
}
