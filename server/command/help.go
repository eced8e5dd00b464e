package command

// help answers a HELP subcommand: texts are a usage and what it does, in turn.
func (c *Ctx) help(container string, texts ...string) error {
	c.W.Array(len(texts) + 3)
	c.W.Simple(container + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for i, text := range texts {
		if i%2 == 1 {
			text = "    " + text
		}
		c.W.Simple(text)
	}
	c.W.Simple("HELP")
	c.W.Simple("    This text.")
	return nil
}

// notSupported is the handler of a command whose name is known and whose work is not done yet.
func notSupported(name string) Handler {
	return func(*Ctx) error { return Reply("ERR " + name + " is not supported yet") }
}

func emptyArray(c *Ctx) error {
	c.W.Array(0)
	return nil
}
