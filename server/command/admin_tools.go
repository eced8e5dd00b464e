package command

import (
	"strings"

	"cairn/engine/layout"
	"cairn/replication/rdb"
)

func toolCommands() []Command {
	return []Command{
		slowlogCommand(), latencyCommand(), memoryCommand(),
		// These are about what is not here, as far as clients ask whether it is.
		moduleCommand(), aclCommand(), functionCommand(), scriptCommand(),
	}
}

func slowlogCommand() Command {
	return Command{
		Name: "slowlog", Arity: -2, Group: "server", Since: "2.2.12",
		Summary: "Container of commands about slow commands.", Sub: []Command{
			{
				Name: "get", Arity: -2, Flags: Admin | Loading | Stale, Since: "2.2.12",
				Summary: "Lists the slowest commands of late.", Tips: "request_policy:all_nodes\nnondeterministic_output", Run: host(AdminHost.SlowlogGet),
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "6.2.0",
				Summary: "Explains the subcommands.", Run: slowlogHelp,
			},
			{
				Name: "len", Arity: 2, Flags: Admin | Loading | Stale, Since: "2.2.12",
				Summary: "Counts the entries of the slow log.", Tips: "request_policy:all_nodes\nresponse_policy:agg_sum\nnondeterministic_output", Run: host(AdminHost.SlowlogLen),
			},
			{
				Name: "reset", Arity: 2, Flags: Admin | Loading | Stale, Since: "2.2.12",
				Summary: "Empties the slow log.", Tips: "request_policy:all_nodes\nresponse_policy:all_succeeded", Run: host(AdminHost.SlowlogReset),
			},
		},
	}
}

func latencyCommand() Command {
	return Command{
		Name: "latency", Arity: -2, Group: "server", Since: "2.8.13",
		Summary: "Container of commands about delays.", Sub: []Command{
			{
				Name: "doctor", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.13",
				Summary: "Tells in words where delays came from.", Tips: "nondeterministic_output\nrequest_policy:all_nodes\nresponse_policy:special", Run: host(AdminHost.LatencyDoctor),
			},
			{
				Name: "graph", Arity: 3, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.13",
				Summary: "Draws the delays of an event.", Tips: "nondeterministic_output\nrequest_policy:all_nodes\nresponse_policy:special", Run: host(AdminHost.LatencyGraph),
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "2.8.13",
				Summary: "Explains the subcommands.", Run: latencyHelp,
			},
			{
				Name: "histogram", Arity: -2, Flags: Admin | NoScript | Loading | Stale, Since: "7.0.0",
				Summary: "Tells how long commands took, cumulated.", Tips: "nondeterministic_output\nrequest_policy:all_nodes\nresponse_policy:special", Run: host(AdminHost.LatencyHistogram),
			},
			{
				Name: "history", Arity: 3, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.13",
				Summary: "Lists the delays of an event.", Tips: "nondeterministic_output\nrequest_policy:all_nodes\nresponse_policy:special", Run: host(AdminHost.LatencyHistory),
			},
			{
				Name: "latest", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.13",
				Summary: "Lists the latest delay of each event.", Tips: "nondeterministic_output\nrequest_policy:all_nodes\nresponse_policy:special", Run: host(AdminHost.LatencyLatest),
			},
			{
				Name: "reset", Arity: -2, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.13",
				Summary: "Forgets delays.", Tips: "request_policy:all_nodes\nresponse_policy:agg_sum", Run: host(AdminHost.LatencyReset),
			},
		},
	}
}

func memoryCommand() Command {
	return Command{
		Name: "memory", Arity: -2, Group: "server", Since: "4.0.0",
		Summary: "Container of commands about memory.", Sub: []Command{
			{
				Name: "doctor", Arity: 2, Since: "4.0.0",
				Summary: "Tells in words what is wrong with the use of memory.", Tips: "nondeterministic_output\nrequest_policy:all_shards\nresponse_policy:special", Run: host(AdminHost.MemoryDoctor),
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "4.0.0",
				Summary: "Explains the subcommands.", Run: memoryHelp,
			},
			{
				Name: "malloc-stats", Arity: 2, Since: "4.0.0",
				Summary: "Tells the numbers of the allocator.", Tips: "nondeterministic_output\nrequest_policy:all_shards\nresponse_policy:special", Run: host(AdminHost.MemoryMallocStats),
			},
			{
				Name: "purge", Arity: 2, Since: "4.0.0",
				Summary: "Gives unused memory back to the system.", Tips: "request_policy:all_shards\nresponse_policy:all_succeeded", Run: host(AdminHost.MemoryPurge),
			},
			{
				Name: "stats", Arity: 2, Since: "4.0.0",
				Summary: "Tells what memory is used for.", Tips: "nondeterministic_output\nrequest_policy:all_shards\nresponse_policy:special", Run: host(AdminHost.MemoryStats),
			},
			{
				Name: "usage", Arity: -3, Flags: ReadOnly, Keys: []KeySpec{{Flags: "RO", BeginIndex: 2}}, Since: "4.0.0",
				Summary: "Estimates the bytes that a key and its value take.", Run: memoryUsage,
			},
		},
	}
}

func moduleCommand() Command {
	return Command{
		Name: "module", Arity: -2, Group: "server", Since: "4.0.0",
		Summary: "Container of commands about modules, of which there are none.", Sub: []Command{
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
				Summary: "Explains the subcommands.", Run: moduleHelp,
			},
			{
				Name: "list", Arity: 2, Flags: Admin | NoScript, Since: "4.0.0",
				Summary: "Lists the modules: none.", Tips: "nondeterministic_output_order", Run: emptyArray,
			},
		},
	}
}

func aclCommand() Command {
	return Command{
		Name: "acl", Arity: -2, Group: "server", Since: "6.0.0",
		Summary: "Container of commands about users and their rights.", Sub: []Command{
			{
				Name: "cat", Arity: -2, Flags: NoScript | Loading | Stale, Since: "6.0.0",
				Summary: "Lists the categories, or the commands of one.", Run: aclCat,
			},
			{
				Name: "getuser", Arity: 3, Flags: Admin | NoScript | Loading | Stale, Since: "6.0.0",
				Summary: "Tells the rights of a user.", Run: host(AdminHost.ACLGetUser),
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "6.0.0",
				Summary: "Explains the subcommands.", Run: aclHelp,
			},
			{
				Name: "list", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "6.0.0",
				Summary: "Lists the users with their rights.", Run: host(AdminHost.ACLList),
			},
			{
				Name: "users", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "6.0.0",
				Summary: "Lists the names of the users.", Run: aclUsers,
			},
			{
				Name: "whoami", Arity: 2, Flags: NoScript | Loading | Stale, Since: "6.0.0",
				Summary: "Tells the name of the user that asks.", Run: host(AdminHost.ACLWhoAmI),
			},
		},
	}
}

func functionCommand() Command {
	return Command{
		Name: "function", Arity: -2, Group: "scripting", Since: "7.0.0",
		Summary: "Container of commands about functions, of which there are none.", Sub: []Command{
			{
				Name: "delete", Arity: 3, Flags: NoScript | Write, Since: "7.0.0",
				Summary: "Deletes a library.", Tips: "request_policy:all_shards\nresponse_policy:all_succeeded", Run: functionDelete,
			},
			{
				Name: "dump", Arity: 2, Flags: NoScript, Since: "7.0.0",
				Summary: "Gives all libraries, for FUNCTION RESTORE: none.", Run: functionDump,
			},
			{
				Name: "flush", Arity: -2, Flags: NoScript | Write, Since: "7.0.0",
				Summary: "Deletes all libraries.", Tips: "request_policy:all_shards\nresponse_policy:all_succeeded", Run: functionFlush,
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "7.0.0",
				Summary: "Explains the subcommands.", Run: functionHelp,
			},
			{
				Name: "kill", Arity: 2, Flags: NoScript | AllowBusy, Since: "7.0.0",
				Summary: "Ends a function that runs.", Tips: "request_policy:all_shards\nresponse_policy:one_succeeded", Run: nothingRuns,
			},
			{
				Name: "list", Arity: -2, Flags: NoScript, Since: "7.0.0",
				Summary: "Lists the libraries: none.", Tips: "nondeterministic_output_order", Run: functionList,
			},
			{
				Name: "restore", Arity: -3, Flags: NoScript | Write | DenyOOM, Since: "7.0.0",
				Summary: "Takes the libraries of a payload, which must have none.", Tips: "request_policy:all_shards\nresponse_policy:all_succeeded", Run: functionRestore,
			},
			{
				Name: "stats", Arity: 2, Flags: NoScript | AllowBusy, Since: "7.0.0",
				Summary: "Tells about the function that runs and the engines.", Tips: "nondeterministic_output\nrequest_policy:all_shards\nresponse_policy:special", Run: functionStats,
			},
		},
	}
}

func scriptCommand() Command {
	return Command{
		Name: "script", Arity: -2, Group: "scripting", Since: "2.6.0",
		Summary: "Container of commands about scripts, of which there are none.", Sub: []Command{
			{
				Name: "exists", Arity: -3, Flags: NoScript, Since: "2.6.0",
				Summary: "Tells which scripts are known: none.", Tips: "request_policy:all_shards\nresponse_policy:agg_logical_and", Run: scriptExists,
			},
			{
				Name: "flush", Arity: -2, Flags: NoScript, Since: "2.6.0",
				Summary: "Forgets all scripts.", Tips: "request_policy:all_nodes\nresponse_policy:all_succeeded", Run: scriptFlush,
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
				Summary: "Explains the subcommands.", Run: scriptHelp,
			},
			{
				Name: "kill", Arity: 2, Flags: NoScript | AllowBusy, Since: "2.6.0",
				Summary: "Ends a script that runs.", Tips: "request_policy:all_shards\nresponse_policy:one_succeeded", Run: nothingRuns,
			},
		},
	}
}

func slowlogHelp(c *Ctx) error {
	return c.help("SLOWLOG",
		"GET [<count>]", "The newest entries (default: 10, -1: all): id, Unix time, microseconds, words, client, its name.",
		"LEN", "How many entries there are.",
		"RESET", "Delete all entries.")
}

func latencyHelp(c *Ctx) error {
	return c.help("LATENCY",
		"DOCTOR", "What delays there were, in words.",
		"GRAPH <event>", "A picture of the delays of an event.",
		"HISTOGRAM [<command> ...]", "How many calls took up to how many microseconds.",
		"HISTORY <event>", "Times and milliseconds of the delays of an event.",
		"LATEST", "The latest delay of each event.",
		"RESET [<event> ...]", "Forget the delays of events (default: of all).")
}

func memoryHelp(c *Ctx) error {
	return c.help("MEMORY",
		"DOCTOR", "What is wrong with the use of memory, in words.",
		"MALLOC-STATS", "Numbers of the allocator.",
		"PURGE", "Give unused memory back to the system.",
		"STATS", "What memory is used for.",
		"USAGE <key> [SAMPLES <count>]", "Bytes that a key and its value take, about. SAMPLES changes nothing.")
}

// What a key and its value cost beyond their bytes, about: a row in Pebble and in the cache each.
const (
	keyCost     = 48
	elementCost = 24
)

// memoryUsage reckons from the record alone, so it costs the same whatever the size of the value.
func memoryUsage(c *Ctx) error {
	for i := 3; i < len(c.Args); i += 2 {
		if !c.Is(i, "samples") || i+1 >= len(c.Args) {
			return ErrSyntax
		}
		n, err := c.Int(i + 1)
		if err != nil {
			return err
		}
		if n < 0 {
			return ErrSyntax
		}
	}
	k, err := c.Key(c.Args[2])
	if err != nil {
		return err
	}
	if !k.Exists() {
		c.W.Null()
		return nil
	}
	size := int64(keyCost + len(k.Name) + len(k.Rec.Body))
	switch k.Rec.Form {
	case layout.ValueRow:
		size += int64(k.Rec.Count)
	case layout.Rows:
		size += int64(k.Rec.Bytes)
		if !k.Rec.Chunks() {
			size += int64(k.Rec.Count) * elementCost
		}
	}
	c.W.Int(size)
	return nil
}

func moduleHelp(c *Ctx) error {
	return c.help("MODULE", "LIST", "The loaded modules: there are none.")
}

func aclHelp(c *Ctx) error {
	return c.help("ACL",
		"CAT [<category>]", "The categories, or the commands of one.",
		"GETUSER <username>", "The rights of a user.",
		"LIST", "All users with their rights.",
		"USERS", "The names of all users.",
		"WHOAMI", "The name of the user that asks.")
}

func aclCat(c *Ctx) error {
	if len(c.Args) > 3 {
		return Reply("ERR unknown subcommand or wrong number of arguments for 'CAT'. Try ACL HELP.")
	}
	if len(c.Args) == 2 {
		return c.list(Categories())
	}
	name := strings.ToLower(string(c.Args[2]))
	known := false
	for _, n := range Categories() {
		known = known || n == name
	}
	if !known {
		return Reply("ERR Unknown category '" + string(c.Args[2]) + "'")
	}
	var names []string
	for _, cmd := range c.Host.Table().All() {
		if cmd.InCategory(name) {
			names = append(names, cmd.FullName())
		}
		for i := range cmd.Sub {
			if cmd.Sub[i].InCategory(name) {
				names = append(names, cmd.Sub[i].FullName())
			}
		}
	}
	return c.list(names)
}

func (c *Ctx) list(words []string) error {
	c.W.Array(len(words))
	for _, s := range words {
		c.W.BulkString(s)
	}
	return nil
}

func aclUsers(c *Ctx) error { return c.list([]string{"default"}) }

func functionHelp(c *Ctx) error {
	return c.help("FUNCTION",
		"DELETE <library-name>", "Delete a library: there are none.",
		"DUMP", "All libraries in one payload: none.",
		"FLUSH [ASYNC|SYNC]", "Delete all libraries.",
		"KILL", "End the function that runs.",
		"LIST [LIBRARYNAME <pattern>] [WITHCODE]", "The libraries: there are none.",
		"RESTORE <serialized-value> [FLUSH|APPEND|REPLACE]", "Take the libraries of a payload: it must have none.",
		"STATS", "The function that runs, and the engines.")
}

// redis-cli --cluster add-node gives the functions of the cluster to each node that it adds: FUNCTION DUMP on the one,
// FUNCTION RESTORE on the other. Where there are none the payload is empty, and this must succeed.

func functionDump(c *Ctx) error {
	c.W.Bulk(rdb.AppendDump(nil, nil))
	return nil
}

func functionRestore(c *Ctx) error {
	if len(c.Args) > 4 {
		return Reply("ERR unknown subcommand or wrong number of arguments for '" + string(c.Args[1]) + "'. Try FUNCTION HELP.")
	}
	if len(c.Args) == 4 && !c.Is(3, "flush") && !c.Is(3, "append") && !c.Is(3, "replace") {
		return Reply("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
	}
	body, _, err := rdb.VerifyDump(c.Args[2])
	if err != nil {
		return Reply("ERR DUMP payload version or checksum are wrong")
	}
	if len(body) > 0 {
		return Reply("ERR the payload has functions, and this node can run none: a cluster with functions cannot have it as a member")
	}
	c.W.OK()
	return nil
}

func functionDelete(*Ctx) error { return Reply("ERR Library not found") }

func functionFlush(c *Ctx) error {
	if len(c.Args) > 3 || len(c.Args) == 3 && !c.Is(2, "sync") && !c.Is(2, "async") {
		return Reply("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
	}
	c.W.OK()
	return nil
}

func functionList(c *Ctx) error {
	seen := false
	for i := 2; i < len(c.Args); i++ {
		switch {
		case c.Is(i, "withcode"):
		case c.Is(i, "libraryname") && !seen:
			if i++; i >= len(c.Args) {
				return Reply("ERR library name argument was not given")
			}
			seen = true
		default:
			return Reply("ERR Unknown argument " + string(c.Args[i]))
		}
	}
	return emptyArray(c)
}

func functionStats(c *Ctx) error {
	c.W.Map(2)
	c.W.BulkString("running_script")
	c.W.Null()
	c.W.BulkString("engines")
	c.W.Map(0)
	return nil
}

func scriptHelp(c *Ctx) error {
	return c.help("SCRIPT",
		"EXISTS <sha1> [<sha1> ...]", "Which scripts are known: none.",
		"FLUSH [ASYNC|SYNC]", "Forget all scripts.",
		"KILL", "End the script that runs.")
}

func scriptExists(c *Ctx) error {
	c.W.Array(len(c.Args) - 2)
	for range c.Args[2:] {
		c.W.Int(0)
	}
	return nil
}

func scriptFlush(c *Ctx) error {
	if len(c.Args) > 3 || len(c.Args) == 3 && !c.Is(2, "sync") && !c.Is(2, "async") {
		return Reply("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
	}
	c.W.OK()
	return nil
}

func nothingRuns(*Ctx) error { return Reply("NOTBUSY No scripts in execution right now.") }
