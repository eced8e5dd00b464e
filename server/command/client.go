package command

// CLIENT: what connections there are, and what they are like. Semantics follow Redis 7.2, networking.c.

// ClientHost is what the subcommands ask of the node around them.
type ClientHost interface {
	ClientCaching(*Ctx) error
	ClientGetName(*Ctx) error
	ClientGetRedir(*Ctx) error
	ClientInfo(*Ctx) error
	ClientKill(*Ctx) error
	ClientList(*Ctx) error
	ClientNoEvict(*Ctx) error
	ClientNoTouch(*Ctx) error
	ClientPause(*Ctx) error
	ClientReply(*Ctx) error
	ClientSetInfo(*Ctx) error
	ClientSetName(*Ctx) error
	ClientTracking(*Ctx) error
	ClientTrackingInfo(*Ctx) error
	ClientUnblock(*Ctx) error
	ClientUnpause(*Ctx) error
}

func clientCommands() []Command {
	return []Command{{
		Name: "client", Arity: -2, Group: "connection", Since: "2.4.0", Summary: "Commands about connections.",
		Sub: append(ownClientCommands(), otherClientCommands()...),
	}}
}

// ownClientCommands are about the connection that sends them.
func ownClientCommands() []Command {
	const plain = NoScript | Loading | Stale
	const everywhere = "request_policy:all_nodes\nresponse_policy:all_succeeded"
	return []Command{
		{
			Name: "caching", Arity: 3, Flags: plain, Since: "6.0.0",
			Summary: "Says whether the keys of the next command are tracked.", Run: host(ClientHost.ClientCaching),
		},
		{
			Name: "getname", Arity: 2, Flags: plain, Since: "2.6.9",
			Summary: "Tells the connection's name.", Run: host(ClientHost.ClientGetName),
		},
		{
			Name: "getredir", Arity: 2, Flags: plain, Since: "6.0.0",
			Summary: "Tells where tracking messages go.", Run: host(ClientHost.ClientGetRedir),
		},
		{
			Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
			Summary: "Explains the subcommands.", Run: clientHelp,
		},
		{
			Name: "id", Arity: 2, Flags: plain, Since: "5.0.0",
			Summary: "Tells the connection's number.", Run: clientID,
		},
		{
			Name: "info", Arity: 2, Flags: plain, Since: "6.2.0",
			Summary: "Describes this connection.", Tips: "nondeterministic_output", Run: host(ClientHost.ClientInfo),
		},
		{
			Name: "no-touch", Arity: 3, Flags: plain, Since: "7.2.0",
			Summary: "Says whether the connection's commands count as accesses to keys.", Run: host(ClientHost.ClientNoTouch),
		},
		{
			Name: "reply", Arity: 3, Flags: plain, Since: "3.2.0",
			Summary: "Says whether commands are answered.", Run: host(ClientHost.ClientReply),
		},
		{
			Name: "setinfo", Arity: 4, Flags: plain, Since: "7.2.0",
			Summary: "Notes what library the client uses.", Tips: everywhere, Run: host(ClientHost.ClientSetInfo),
		},
		{
			Name: "setname", Arity: 3, Flags: plain, Since: "2.6.9",
			Summary: "Names the connection.", Tips: everywhere, Run: host(ClientHost.ClientSetName),
		},
		{
			Name: "tracking", Arity: -3, Flags: plain, Since: "6.0.0",
			Summary: "Tells the connection when keys that it read change.", Run: host(ClientHost.ClientTracking),
		},
		{
			Name: "trackinginfo", Arity: 2, Flags: plain, Since: "6.2.0",
			Summary: "Tells how the connection tracks keys.", Run: host(ClientHost.ClientTrackingInfo),
		},
	}
}

// otherClientCommands are about other connections, or need as much trust.
func otherClientCommands() []Command {
	const admin = Admin | NoScript | Loading | Stale
	return []Command{
		{
			Name: "kill", Arity: -3, Flags: admin, Since: "2.4.0",
			Summary: "Ends connections.", Run: host(ClientHost.ClientKill),
		},
		{
			Name: "list", Arity: -2, Flags: admin, Since: "2.4.0",
			Summary: "Describes the connections, a line each.", Tips: "nondeterministic_output", Run: host(ClientHost.ClientList),
		},
		{
			Name: "no-evict", Arity: 3, Flags: admin, Since: "7.0.0",
			Summary: "Excepts the connection from being closed for the memory it takes.", Run: host(ClientHost.ClientNoEvict),
		},
		{
			Name: "pause", Arity: -3, Flags: admin, Since: "3.0.0",
			Summary: "Makes all commands wait, or those that write.", Run: host(ClientHost.ClientPause),
		},
		{
			Name: "unblock", Arity: -3, Flags: admin, Since: "5.0.0",
			Summary: "Ends the wait of a blocked connection.", Run: host(ClientHost.ClientUnblock),
		},
		{
			Name: "unpause", Arity: 2, Flags: admin, Since: "6.2.0",
			Summary: "Ends a pause.", Run: host(ClientHost.ClientUnpause),
		},
	}
}

func clientID(c *Ctx) error {
	c.W.Int(c.Client.ID())
	return nil
}

func clientHelp(c *Ctx) error {
	return c.help("CLIENT",
		"CACHING (YES|NO)", "Whether the keys of the next command are tracked, in OPTIN and OPTOUT mode.",
		"GETNAME", "The name of this connection.",
		"GETREDIR", "The connection that tracking messages go to.",
		"ID", "The number of this connection.",
		"INFO", "A line about this connection.",
		"KILL <ip:port>", "End the connection from an address.",
		"KILL <option> <value> [<option> <value> [...]]", "End connections: ID, TYPE, ADDR, LADDR, USER; SKIPME (YES|NO), yes by default.",
		"LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)|ID <id> [<id> ...]]", "A line about each connection.",
		"NO-EVICT (ON|OFF)", "Whether this connection is never closed for the memory it takes.",
		"NO-TOUCH (ON|OFF)", "Whether this connection's reads are no accesses.",
		"PAUSE <milliseconds> [WRITE|ALL]", "Make commands wait.",
		"REPLY (ON|OFF|SKIP)", "Whether this connection gets replies.",
		"SETINFO (LIB-NAME|LIB-VER) <value>", "Note the client's library.",
		"SETNAME <name>", "Name this connection; an empty name takes it away.",
		"TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]", "Tell this connection of changed keys.",
		"TRACKINGINFO", "How this connection tracks keys.",
		"UNBLOCK <id> [TIMEOUT|ERROR]", "End the wait of a connection.",
		"UNPAUSE", "End a pause.")
}

// ErrSubcommand is the answer to a subcommand with words that make no sense.
func (c *Ctx) ErrSubcommand() Reply {
	name := []byte(c.Cmd.Parent().Name)
	for i, b := range name {
		if 'a' <= b && b <= 'z' {
			name[i] = b - 'a' + 'A'
		}
	}
	sub := c.Args[1]
	if len(sub) > 128 {
		sub = sub[:128]
	}
	return Reply("ERR unknown subcommand or wrong number of arguments for '" + string(sub) + "'. Try " + string(name) + " HELP.")
}
