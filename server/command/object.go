package command

import (
	"math"

	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/slot"
)

// OBJECT: what Redis tells of the inside of a value. Encodings are those that Redis would have chosen for the
// value, noted by each family in Record.Enc, so that tools and tests that look at them see what they know.

func objectCommand() Command {
	return Command{
		Name: "object", Arity: -2, Group: "generic", Since: "2.2.3",
		Summary: "Container of commands about the inside of values.",
		Sub: []Command{
			{
				Name: "encoding", Arity: 3, Flags: ReadOnly | Keyspace, Keys: keyObject, Since: "2.2.3",
				Summary: "Tells the encoding that Redis has for the value.", Tips: tipsUnsteady, Run: objectEncoding,
			},
			{
				Name: "freq", Arity: 3, Flags: ReadOnly | Keyspace, Keys: keyObject, Since: "4.0.0",
				Summary: "Tells the key's logarithmic access counter.", Tips: tipsUnsteady, Run: objectFreq,
			},
			{
				Name: "help", Arity: 2, Flags: Loading | Stale | Keyspace, Since: "6.2.0",
				Summary: "Explains the subcommands.", Run: objectHelp,
			},
			{
				Name: "idletime", Arity: 3, Flags: ReadOnly | Keyspace, Keys: keyObject, Since: "2.2.3",
				Summary: "Tells the seconds since the last access to the key.", Tips: tipsUnsteady, Run: objectIdleTime,
			},
			{
				Name: "refcount", Arity: 3, Flags: ReadOnly | Keyspace, Keys: keyObject, Since: "2.2.3",
				Summary: "Tells the number of references that Redis has to the value.", Tips: tipsUnsteady, Run: objectRefCount,
			},
		},
	}
}

func objectEncoding(c *Ctx) error {
	k, err := c.KeyNoTouch(c.Args[2])
	if err != nil {
		return err
	}
	if !k.Exists() {
		c.W.Null()
		return nil
	}
	c.W.BulkString(encodingName(&k.Rec))
	return nil
}

// encodingName is the word of OBJECT ENCODING.
func encodingName(r *layout.Record) string {
	switch r.Type {
	case layout.String:
		switch r.Enc {
		case EncInt:
			return "int"
		case EncEmbstr:
			return "embstr"
		}
		return "raw"
	case layout.HashType:
		if r.Enc == layout.HashListpack {
			return "listpack"
		}
		return "hashtable"
	}
	return "raw"
}

// sharedInts is how many integers Redis keeps one shared object of, whose references it does not count. (What
// COPY made of one is an object of its own there, and the same here.)
const sharedInts = 10000

func objectRefCount(c *Ctx) error {
	k, err := c.KeyNoTouch(c.Args[2])
	if err != nil {
		return err
	}
	switch {
	case !k.Exists():
		c.W.Null()
	case isSharedInt(&k.Rec):
		c.W.Int(math.MaxInt32)
	default:
		c.W.Int(1)
	}
	return nil
}

func isSharedInt(r *layout.Record) bool {
	if r.Type != layout.String || r.Enc != EncInt {
		return false
	}
	n, ok := resp.ParseInt(r.Body)
	return ok && 0 <= n && n < sharedInts
}

// The policy decides which of the two numbers Redis keeps; asking for the other one is an error there.
const (
	errOnlyLFU Reply = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. " + errPolicyNote
	errNoLFU   Reply = "ERR An LFU maxmemory policy is selected, idle time not tracked. " + errPolicyNote

	errPolicyNote = "Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust."
)

func objectIdleTime(c *Ctx) error {
	return objectAccess(c, false, errNoLFU)
}

func objectFreq(c *Ctx) error {
	return objectAccess(c, true, errOnlyLFU)
}

func objectAccess(c *Ctx, lfu bool, refusal Reply) error {
	idle, freq := c.Host.AccessInfo(slot.Of(c.Args[2]), c.Args[2])
	k, err := c.KeyNoTouch(c.Args[2])
	if err != nil {
		return err
	}
	switch {
	case !k.Exists():
		c.W.Null()
	case lfu != c.Host.Settings().MaxmemoryLFU.Load():
		return refusal
	case lfu:
		c.W.Int(freq)
	default:
		c.W.Int(idle)
	}
	return nil
}

func objectHelp(c *Ctx) error {
	return c.help("OBJECT",
		"ENCODING <key>", "The encoding that Redis would have for the value of the key.",
		"FREQ <key>", "The key's access counter: it grows with the logarithm of accesses and falls with time.",
		"IDLETIME <key>", "Seconds since the last access to the key, about.",
		"REFCOUNT <key>", "References to the value of the key.")
}
