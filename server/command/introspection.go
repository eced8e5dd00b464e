package command

import (
	"strings"

	"cairn/internal/glob"
)

// COMMAND: the table as clients see it. Names, arity, flags, key positions, categories and hints are Redis's
// 7.2; testdata/commands-7.0.tsv holds most of them, and a test compares.
//
// Deliberate differences. COMMAND DOCS has summaries of our own, and neither complexity, arguments nor history.

func introspectionCommands() []Command {
	return []Command{
		{
			Name: "command", Arity: -1, Flags: Loading | Stale, Group: "server", Since: "2.8.13",
			Summary: "Describes all commands.", ACL: "connection", Tips: "nondeterministic_output_order", Run: commandAll, Sub: []Command{
				{
					Name: "count", Arity: 2, Flags: Loading | Stale, Since: "2.8.13",
					Summary: "Counts the commands.", ACL: "connection", Run: commandCount,
				},
				{
					Name: "docs", Arity: -2, Flags: Loading | Stale, Since: "7.0.0",
					Summary: "Tells what commands are for.", ACL: "connection", Tips: "nondeterministic_output_order", Run: commandDocs,
				},
				{
					Name: "getkeys", Arity: -3, Flags: Loading | Stale, Since: "2.8.13",
					Summary: "Tells which words of a command are keys.", ACL: "connection", Run: func(c *Ctx) error { return commandGetKeys(c, false) },
				},
				{
					Name: "getkeysandflags", Arity: -3, Flags: Loading | Stale, Since: "7.0.0",
					Summary: "Tells which words of a command are keys, and what happens to them.", ACL: "connection", Run: func(c *Ctx) error { return commandGetKeys(c, true) },
				},
				{
					Name: "help", Arity: 2, Flags: Loading | Stale, Since: "5.0.0",
					Summary: "Explains the subcommands.", ACL: "connection", Run: commandHelp,
				},
				{
					Name: "info", Arity: -2, Flags: Loading | Stale, Since: "2.8.13",
					Summary: "Describes some commands.", ACL: "connection", Tips: "nondeterministic_output_order", Run: commandInfo,
				},
				{
					Name: "list", Arity: -2, Flags: Loading | Stale, Since: "7.0.0",
					Summary: "Lists the names of commands.", ACL: "connection", Tips: "nondeterministic_output_order", Run: commandList,
				},
			},
		},
	}
}

func commandAll(c *Ctx) error {
	all := c.Host.Table().All()
	c.W.Array(len(all))
	for _, cmd := range all {
		cmd.appendInfo(c.W)
	}
	return nil
}

func commandCount(c *Ctx) error {
	c.W.Int(int64(len(c.Host.Table().All())))
	return nil
}

func commandInfo(c *Ctx) error {
	if len(c.Args) == 2 {
		return commandAll(c)
	}
	c.W.Array(len(c.Args) - 2)
	for _, name := range c.Args[2:] {
		if cmd := c.Host.Table().ByFullName(string(name)); cmd != nil {
			cmd.appendInfo(c.W)
		} else {
			c.W.Null()
		}
	}
	return nil
}

func commandDocs(c *Ctx) error {
	found := c.Host.Table().All()
	if len(c.Args) > 2 {
		found = nil
		for _, name := range c.Args[2:] {
			if cmd := c.Host.Table().ByFullName(string(name)); cmd != nil {
				found = append(found, cmd)
			}
		}
	}
	c.W.Map(len(found))
	for _, cmd := range found {
		c.W.BulkString(cmd.FullName())
		cmd.appendDocs(c.W)
	}
	return nil
}

func commandList(c *Ctx) error {
	keep, err := listFilter(c)
	if err != nil {
		return err
	}
	var names []string
	visit := func(cmd *Command) {
		if keep(cmd) {
			names = append(names, cmd.FullName())
		}
	}
	for _, cmd := range c.Host.Table().All() {
		visit(cmd)
		for i := range cmd.Sub {
			visit(&cmd.Sub[i])
		}
	}
	c.W.Array(len(names))
	for _, n := range names {
		c.W.BulkString(n)
	}
	return nil
}

// listFilter reads FILTERBY. A later one replaces an earlier one.
func listFilter(c *Ctx) (keep func(*Command) bool, err error) {
	keep = func(*Command) bool { return true }
	for i := 2; i < len(c.Args); i += 3 {
		if !c.Is(i, "filterby") || i+3 != len(c.Args) {
			return nil, ErrSyntax
		}
		arg := c.Args[i+2]
		switch {
		case c.Is(i+1, "module"):
			keep = func(*Command) bool { return false }
		case c.Is(i+1, "aclcat"):
			category := strings.ToLower(string(arg))
			keep = func(cmd *Command) bool { return cmd.InCategory(category) }
		case c.Is(i+1, "pattern"):
			keep = func(cmd *Command) bool { return glob.Match(arg, []byte(cmd.FullName()), true) }
		default:
			return nil, ErrSyntax
		}
	}
	return keep, nil
}

// commandGetKeys answers which words of the command in the arguments are keys.
func commandGetKeys(c *Ctx, withFlags bool) error {
	args := c.Args[2:]
	cmd, ok := c.Host.Table().Lookup(args)
	switch {
	case cmd == nil || !ok:
		return Reply("ERR Invalid command specified")
	case !cmd.takesKeys():
		return Reply("ERR The command has no key arguments")
	case !cmd.ArityOK(len(args)):
		return Reply("ERR Invalid number of arguments specified for command")
	}
	keys, ok := cmd.keysOf(args)
	if !ok || len(keys) == 0 && !cmd.Is(NoMandatoryKeys) {
		return Reply("ERR Invalid arguments specified for command")
	}
	c.W.Array(len(keys))
	for _, k := range keys {
		if withFlags {
			c.W.Array(2)
		}
		c.W.Bulk(args[k.position])
		if withFlags {
			appendWords(c.W, k.flags)
		}
	}
	return nil
}

func commandHelp(c *Ctx) error {
	return c.help("COMMAND",
		"(no subcommand)", "Describe all commands.",
		"COUNT", "The number of commands.",
		"DOCS [<command-name> ...]", "What commands are for; without names, all.",
		"GETKEYS <full-command>", "Which words of a command are keys.",
		"GETKEYSANDFLAGS <full-command>", "The same, with what happens to each key.",
		"INFO [<command-name> ...]", "Describe commands; without names, all.",
		"LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]", "Names of commands.")
}
