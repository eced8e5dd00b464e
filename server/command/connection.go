package command

// Commands about the connection itself. Semantics follow Redis 7.2, networking.c and db.c.
//
// Deliberate differences. There is one database: SELECT takes 0 only.

// ConnectionHost is what these commands, and those in client.go, ask of the node around them.
type ConnectionHost interface {
	ClientHost

	Auth(*Ctx) error
	Hello(*Ctx) error
	Ping(*Ctx) error
	Quit(*Ctx) error
	Reset(*Ctx) error
	Select(*Ctx) error
}

func connectionCommands() []Command {
	const before = NoScript | Loading | Stale | Fast | NoAuth | AllowBusy // may come before the login
	return []Command{
		{
			Name: "ping", Arity: -1, Flags: Fast, Group: "connection", Since: "1.0.0",
			Summary: "Answers, with the message that came along if there is one.",
			Tips:    "request_policy:all_shards\nresponse_policy:all_succeeded", Run: host(ConnectionHost.Ping),
		},
		{
			Name: "echo", Arity: 2, Flags: Loading | Stale | Fast, Group: "connection", Since: "1.0.0",
			Summary: "Answers with the message given.", Run: echo,
		},
		{
			Name: "auth", Arity: -2, Flags: before, Group: "connection", Since: "1.0.0",
			Summary: "Logs the connection in.", Run: host(ConnectionHost.Auth),
		},
		{
			Name: "hello", Arity: -1, Flags: before, Group: "connection", Since: "6.0.0",
			Summary: "Chooses the protocol, logs in and names the connection.", Run: host(ConnectionHost.Hello),
		},
		{
			Name: "select", Arity: 2, Flags: Loading | Stale | Fast, Group: "connection", Since: "1.0.0",
			Summary: "Chooses the database: there is number 0.", Run: host(ConnectionHost.Select),
		},
		{
			Name: "reset", Arity: 1, Flags: before, Group: "connection", Since: "6.2.0",
			Summary: "Makes the connection as it was when new.", Run: host(ConnectionHost.Reset),
		},
		{
			Name: "quit", Arity: -1, Flags: before, Group: "connection", Since: "1.0.0",
			Summary: "Ends the connection.", Run: host(ConnectionHost.Quit),
		},
	}
}

func echo(c *Ctx) error {
	c.W.Bulk(c.Args[1])
	return nil
}
