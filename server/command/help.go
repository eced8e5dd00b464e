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

func emptyArray(c *Ctx) error {
	c.W.Array(0)
	return nil
}
