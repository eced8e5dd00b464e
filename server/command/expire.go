package command

import (
	"fmt"
	"math"

	"cairn/engine"
	"cairn/internal/resp"
)

// Deadlines of keys. Semantics follow Redis 7.2, expire.c; testdata/expire was recorded from redis-server.
//
// Units. A deadline is kept in Unix milliseconds. A key lives through the millisecond of its deadline and is
// gone after it; a new deadline that is not ahead of now deletes the key at once.
//
// What is logged is absolute: PEXPIREAT, or DEL where the key was deleted. A replica and recovery set whatever
// deadline they read and delete nothing by themselves: the primary's DEL follows.

func expireCommands() []Command {
	set := func(name, since, summary string, unitMs int64, relative bool) Command {
		return Command{
			Name: name, Arity: -3, Flags: Write | Fast | Keyspace, Keys: keyRWU, Group: "generic",
			Since: since, Summary: summary, Run: func(c *Ctx) error { return expire(c, unitMs, relative) },
		}
	}
	get := func(name, since, summary, tips string, unitMs int64, relative bool) Command {
		return Command{
			Name: name, Arity: 2, Flags: ReadOnly | Fast | Keyspace, Keys: keyRO, Group: "generic",
			Since: since, Summary: summary, Tips: tips, Run: func(c *Ctx) error { return deadline(c, unitMs, relative) },
		}
	}
	return []Command{
		set("expire", "1.0.0", "Sets a key's time to live in seconds.", 1000, true),
		set("pexpire", "2.6.0", "Sets a key's time to live in milliseconds.", 1, true),
		set("expireat", "1.2.0", "Sets a key's deadline in Unix seconds.", 1000, false),
		set("pexpireat", "2.6.0", "Sets a key's deadline in Unix milliseconds.", 1, false),
		get("ttl", "1.0.0", "Tells a key's time to live in seconds.", tipsUnsteady, 1000, true),
		get("pttl", "2.6.0", "Tells a key's time to live in milliseconds.", tipsUnsteady, 1, true),
		get("expiretime", "7.0.0", "Tells a key's deadline in Unix seconds.", "", 1000, false),
		get("pexpiretime", "7.0.0", "Tells a key's deadline in Unix milliseconds.", "", 1, false),
		{
			Name: "persist", Arity: 2, Flags: Write | Fast | Keyspace, Keys: keyRWU, Group: "generic", Since: "2.2.0",
			Summary: "Takes a key's deadline away.", Run: persist,
		},
	}
}

// expireIf are the conditions of an EXPIRE on the deadline that the key has.
type expireIf struct{ nx, xx, gt, lt bool }

func (e *expireIf) parse(args [][]byte) error {
	for _, a := range args {
		switch {
		case resp.IsWord(a, "nx"):
			e.nx = true
		case resp.IsWord(a, "xx"):
			e.xx = true
		case resp.IsWord(a, "gt"):
			e.gt = true
		case resp.IsWord(a, "lt"):
			e.lt = true
		default:
			return Reply(fmt.Sprintf("ERR Unsupported option %s", a))
		}
	}
	if e.nx && (e.xx || e.gt || e.lt) {
		return Reply("ERR NX and XX, GT or LT options at the same time are not compatible")
	}
	if e.gt && e.lt {
		return Reply("ERR GT and LT options at the same time are not compatible")
	}
	return nil
}

// allows says whether the deadline may become newAt; a key without one counts as living forever.
func (e *expireIf) allows(oldAt, newAt int64) bool {
	switch none := oldAt == 0; {
	case e.nx && !none, e.xx && none:
		return false
	case e.gt && (none || newAt <= oldAt), e.lt && !none && newAt >= oldAt:
		return false
	}
	return true
}

// expire is EXPIRE and its kin: the argument is in units of unitMs, from now when relative.
func expire(c *Ctx, unitMs int64, relative bool) error {
	var cond expireIf
	if err := cond.parse(c.Args[3:]); err != nil {
		return err
	}
	at, err := c.Int(2)
	if err != nil {
		return err
	}
	at, ok := deadlineAt(c, at, unitMs, relative)
	if !ok {
		return errExpireTime(c)
	}
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if !k.Exists() || !cond.allows(k.Rec.Deadline, at) {
		c.W.Int(0)
		return nil
	}
	if hasPassed(c, at) {
		c.Txn.Delete(k)
		c.Propagate("DEL", c.Args[1])
		c.Event('g', "del", c.Args[1])
		c.W.Int(1)
		return nil
	}
	setDeadline(k, at)
	c.Txn.Put(k)
	if relative || unitMs != 1 {
		args := append([][]byte{c.Args[1], formatInt(at)}, c.Args[3:]...)
		c.Propagate("PEXPIREAT", args...)
	}
	c.Event('g', "expire", c.Args[1])
	c.W.Int(1)
	return nil
}

// deadlineAt gives the Unix milliseconds of n units; ok is false when they do not fit.
func deadlineAt(c *Ctx, n, unitMs int64, relative bool) (at int64, ok bool) {
	if n > math.MaxInt64/unitMs || n < math.MinInt64/unitMs {
		return 0, false
	}
	at = n * unitMs
	if relative {
		if at > math.MaxInt64-c.NowMs {
			return 0, false
		}
		at += c.NowMs
	}
	return at, true
}

// setDeadline sets a deadline that may be 0 or negative when it comes from a log: such a key has been dead for
// long, but 0 in a record means that it lives on.
func setDeadline(k *engine.Key, at int64) { k.Rec.Deadline = max(at, 1) }

// hasPassed says whether a key with this deadline is deleted rather than kept. Only who executes for the first
// time may decide that; everyone else waits for the DEL.
func hasPassed(c *Ctx, at int64) bool {
	return at <= c.NowMs && !c.Replaying && !c.Txn.Routing().Replica
}

// deadline is TTL and its kin.
func deadline(c *Ctx, unitMs int64, relative bool) error {
	k, err := c.KeyNoTouch(c.Args[1])
	if err != nil {
		return err
	}
	switch {
	case !k.Exists():
		c.W.Int(-2)
	case k.Rec.Deadline == 0:
		c.W.Int(-1)
	default:
		n := k.Rec.Deadline
		if relative {
			n = max(n-c.NowMs, 0)
		}
		// To the nearest unit. Half of it is not added first: n may be as large as can be.
		c.W.Int(n/unitMs + 2*(n%unitMs)/unitMs)
	}
	return nil
}

func persist(c *Ctx) error {
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if k.Rec.Deadline == 0 {
		c.W.Int(0)
		return nil
	}
	k.Rec.Deadline = 0
	c.Txn.Put(k)
	c.Event('g', "persist", c.Args[1])
	c.W.Int(1)
	return nil
}
