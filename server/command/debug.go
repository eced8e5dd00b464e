package command

// DebugHost is what DEBUG asks of the node around it. Its subcommands are not rows: Redis's table has none
// either.
type DebugHost interface {
	Debug(*Ctx) error
}

func debugCommands() []Command {
	return []Command{
		{
			Name: "debug", Arity: -2, Flags: Admin | NoScript | Loading | Stale | NoKeysTxn, Group: "server", Since: "1.0.0",
			Summary: "Container of commands for tests of the node itself.", Run: host(DebugHost.Debug),
		},
	}
}
