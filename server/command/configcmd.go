package command

// CONFIG: the directives, which package config keeps.

// ConfigHost is what these commands ask of the node around them.
type ConfigHost interface {
	ConfigGet(*Ctx) error
	ConfigSet(*Ctx) error
	ConfigRewrite(*Ctx) error
	ConfigResetStat(*Ctx) error
}

func configCommands() []Command {
	return []Command{
		{
			Name: "config", Arity: -2, Group: "server", Since: "2.0.0",
			Summary: "Container of commands about the configuration.", Sub: []Command{
				{
					Name: "get", Arity: -3, Flags: Admin | NoScript | Loading | Stale, Since: "2.0.0",
					Summary: "Tells the values of directives.", Run: host(ConfigHost.ConfigGet),
				},
				{
					Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
					Summary: "Explains the subcommands.", Run: configHelp,
				},
				{
					Name: "resetstat", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "2.0.0",
					Summary: "Sets the counters of INFO back to zero.", Tips: "request_policy:all_nodes\nresponse_policy:all_succeeded", Run: host(ConfigHost.ConfigResetStat),
				},
				{
					Name: "rewrite", Arity: 2, Flags: Admin | NoScript | Loading | Stale, Since: "2.8.0",
					Summary: "Writes the directives in force to the configuration file.", Tips: "request_policy:all_nodes\nresponse_policy:all_succeeded", Run: host(ConfigHost.ConfigRewrite),
				},
				{
					Name: "set", Arity: -4, Flags: Admin | NoScript | Loading | Stale, Since: "2.0.0",
					Summary: "Changes directives while the node runs.", Tips: "request_policy:all_nodes\nresponse_policy:all_succeeded", Run: host(ConfigHost.ConfigSet),
				},
			},
		},
	}
}

func configHelp(c *Ctx) error {
	return c.help("CONFIG",
		"GET <pattern> [<pattern> ...]", "Values of the directives whose names match.",
		"SET <directive> <value> [<directive> <value> ...]", "Change directives, all or none.",
		"RESETSTAT", "Set the counters of INFO back to zero.",
		"REWRITE", "Write the directives in force to the configuration file.")
}
