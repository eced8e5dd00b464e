package command

import (
	"math"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Strings. Semantics follow Redis 7.2; the replies in testdata/string were recorded from redis-server. How a
// string is stored stands in chunks.go, options of SET and GETEX in string_options.go, numbers in string_number.go.

// What a string's record notes in Enc, so that OBJECT ENCODING tells what Redis would. Numbers are on disk.
const (
	EncRaw    uint8 = 0
	EncInt    uint8 = 1 // the canonical text of a 64-bit integer
	EncEmbstr uint8 = 2 // up to embstrMax bytes, set at once
)

const (
	embstrMax  = 44 // bytes
	intTextMax = 20 // bytes of the longest 64-bit integer
)

// stringEncoding is the Enc of a value that was set at once.
func stringEncoding(value []byte) uint8 {
	if len(value) > embstrMax {
		return EncRaw
	}
	if _, ok := resp.ParseInt(value); ok {
		return EncInt
	}
	return EncEmbstr
}

var (
	keyGetDel = []KeySpec{{Flags: "RW access delete", BeginIndex: 1}}
	keySet    = []KeySpec{{Flags: "RW access update variable_flags", BeginIndex: 1}}
	keysROAll = []KeySpec{{Flags: "RO access", BeginIndex: 1, Last: -1, Step: 1}}
	keysROTwo = []KeySpec{{Flags: "RO access", BeginIndex: 1, Last: 1, Step: 1}}
	keysMSet  = []KeySpec{{Flags: "OW update", BeginIndex: 1, Last: -1, Step: 2}}
	keysMSetN = []KeySpec{{Flags: "OW insert", BeginIndex: 1, Last: -1, Step: 2}}
)

func stringCommands() []Command {
	const multi = "request_policy:multi_shard"
	rows := []Command{
		{Name: "get", Arity: 2, Flags: ReadOnly | Fast, Keys: keyRO, Since: "1.0.0", Summary: "The value of a string.", Run: get},
		{Name: "set", Arity: -3, Flags: Write | DenyOOM, Keys: keySet, Since: "1.0.0", Summary: "Sets a string, whatever the key held, with options for conditions and expiry.", Run: set, Stage: stageArg(2)},
		{Name: "setnx", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyOWI, Since: "1.0.0", Summary: "Sets a string unless the key exists.", Run: setnx, Stage: stageArg(2)},
		{Name: "setex", Arity: 4, Flags: Write | DenyOOM, Keys: keyOW, Since: "2.0.0", Summary: "Sets a string and its time to live in seconds.", Run: setWithTTL(expireEX), Stage: stageArg(3)},
		{Name: "psetex", Arity: 4, Flags: Write | DenyOOM, Keys: keyOW, Since: "2.6.0", Summary: "Sets a string and its time to live in milliseconds.", Run: setWithTTL(expirePX), Stage: stageArg(3)},
		{Name: "getset", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "1.0.0", Summary: "Sets a string and gives the one before.", Run: getset, Stage: stageArg(2)},
		{Name: "getdel", Arity: 2, Flags: Write | Fast, Keys: keyGetDel, Since: "6.2.0", Summary: "Gives a string and deletes it.", Run: getdel},
		{Name: "getex", Arity: -2, Flags: Write | Fast, Keys: keyRW, Since: "6.2.0", Summary: "Gives a string and sets or removes its expiry.", Run: getex},
		{Name: "mget", Arity: -2, Flags: ReadOnly | Fast, Keys: keysROAll, Since: "1.0.0", Summary: "The values of several strings.", Tips: multi, Run: mget},
		{Name: "mset", Arity: -3, Flags: Write | DenyOOM, Keys: keysMSet, Since: "1.0.1", Summary: "Sets several strings at once.", Tips: multi + "\nresponse_policy:all_succeeded", Run: mset, Stage: stagePairs},
		{Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, Keys: keysMSetN, Since: "1.0.1", Summary: "Sets several strings unless one of the keys exists.", Tips: multi + "\nresponse_policy:agg_min", Run: msetnx, Stage: stagePairs},
		{Name: "append", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyRWI, Since: "2.0.0", Summary: "Appends to a string.", Run: appendString, Stage: stageAppend},
		{Name: "strlen", Arity: 2, Flags: ReadOnly | Fast, Keys: keyROM, Since: "2.2.0", Summary: "The length of a string in bytes.", Run: strlen},
		{Name: "getrange", Arity: 4, Flags: ReadOnly, Keys: keyRO, Since: "2.4.0", Summary: "A part of a string.", Run: getrange},
		{Name: "substr", Arity: 4, Flags: ReadOnly, Keys: keyRO, Since: "1.0.0", Summary: "A part of a string, the older name of GETRANGE.", Run: getrange},
		{Name: "setrange", Arity: 4, Flags: Write | DenyOOM, Keys: keyRWU, Since: "2.2.0", Summary: "Overwrites a part of a string.", Run: setrange, Stage: stageSetrange},
		{Name: "incr", Arity: 2, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "1.0.0", Summary: "Adds one to an integer.", Run: addFixed(1)},
		{Name: "decr", Arity: 2, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "1.0.0", Summary: "Takes one from an integer.", Run: addFixed(-1)},
		{Name: "incrby", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "1.0.0", Summary: "Adds to an integer.", Run: incrby},
		{Name: "decrby", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "1.0.0", Summary: "Takes from an integer.", Run: decrby},
		{Name: "incrbyfloat", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: keyRW, Since: "2.6.0", Summary: "Adds to a number with a fraction.", Run: incrbyfloat},
		{Name: "lcs", Arity: -3, Flags: ReadOnly, Keys: keysROTwo, Since: "7.0.0", Summary: "The longest common subsequence of two strings.", Run: lcs},
	}
	for i := range rows {
		rows[i].Group = "string"
	}
	return rows
}

func get(c *Ctx) error {
	k, err := c.KeyForValue(c.Args[1])
	if err != nil {
		return err
	}
	if k.Exists() && k.Rec.Type != layout.String {
		return ErrWrongType
	}
	return replyWhole(c, k)
}

// replyWhole replies with the string at k, with null when there is none.
func replyWhole(c *Ctx, k *engine.Key) error {
	if !k.Exists() {
		c.W.Null()
		return nil
	}
	return replyString(c, k, 0, stringLen(k))
}

// storeString sets a string and tells who listens. Where Redis would note a new key, so do we.
func storeString(c *Ctx, k *engine.Key, value []byte, enc uint8, deadline int64) {
	noteNew(c, k)
	if c.adopt(k, value) {
		k.Rec.Deadline = deadline
		c.Txn.Put(k)
		return
	}
	setString(c.Txn, k, value, enc, deadline)
}

// noteNew queues the event of a key that is about to come into being.
func noteNew(c *Ctx, k *engine.Key) {
	if !k.Exists() {
		c.Event('n', "new", k.Name)
	}
}

func set(c *Ctx) error {
	var o stringOptions
	if len(c.Args) > 3 {
		if err := o.parse(c, 3, true); err != nil {
			return err
		}
	}
	return setGeneric(c, c.Args[2], &o)
}

// setGeneric is SET with its options, and what SETEX and PSETEX are made of.
func setGeneric(c *Ctx, value []byte, o *stringOptions) error {
	deadline, err := o.deadline(c)
	if err != nil {
		return err
	}
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if o.get {
		c.CountRead(k)
		if k.Exists() && k.Rec.Type != layout.String {
			return ErrWrongType
		}
		if err := replyWhole(c, k); err != nil {
			return err
		}
	}
	if k.Exists() && o.nx || !k.Exists() && o.xx {
		if !o.get {
			c.W.Null()
		}
		return nil
	}
	if o.keepTTL {
		deadline = k.Rec.Deadline
	}
	storeString(c, k, value, stringEncoding(value), deadline)
	c.Event('$', "set", k.Name)
	switch {
	case o.expire != expireNone:
		// Replicas run this later, so they get the absolute time. Its conditions are met here and not theirs to check.
		if o.expire != expirePXAT {
			c.Propagate("SET", k.Name, value, []byte("PXAT"), formatInt(deadline))
		}
		c.Event('g', "expire", k.Name)
	case o.get:
		c.Propagate("SET", withoutGet(c.Args)...)
	}
	if !o.get {
		c.W.OK()
	}
	return nil
}

// withoutGet gives the arguments of SET that others get: they do not care for the old value.
func withoutGet(args [][]byte) [][]byte {
	out := append(make([][]byte, 0, len(args)), args[1:3]...)
	for _, a := range args[3:] {
		if !resp.IsWord(a, "get") {
			out = append(out, a)
		}
	}
	return out
}

func setnx(c *Ctx) error {
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if k.Exists() {
		c.W.Int(0)
		return nil
	}
	storeString(c, k, c.Args[2], stringEncoding(c.Args[2]), 0)
	c.Event('$', "set", k.Name)
	c.W.Int(1)
	return nil
}

func setWithTTL(kind expireKind) Handler {
	return func(c *Ctx) error { return setGeneric(c, c.Args[3], &stringOptions{expire: kind, at: 2}) }
}

func getset(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	c.CountRead(k)
	if err := replyWhole(c, k); err != nil {
		return err
	}
	storeString(c, k, c.Args[2], stringEncoding(c.Args[2]), 0)
	c.Event('$', "set", k.Name)
	c.Propagate("SET", k.Name, c.Args[2])
	return nil
}

func getdel(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	c.CountRead(k)
	if err := replyWhole(c, k); err != nil || !k.Exists() {
		return err
	}
	deleteString(c, k)
	return nil
}

// deleteString deletes a key that a command other than DEL found reason to delete.
func deleteString(c *Ctx, k *engine.Key) {
	c.Txn.Delete(k)
	c.Propagate("DEL", k.Name)
	c.Event('g', "del", k.Name)
}

func mget(c *Ctx) error {
	if err := c.Txn.LookAheadForValue(c.Args[1:], c.touches()); err != nil {
		return err
	}
	c.W.Array(len(c.Args) - 1)
	for _, name := range c.Args[1:] {
		k, err := c.KeyForValue(name)
		if err != nil {
			return err
		}
		if k.Rec.Type != layout.String {
			c.W.Null()
			continue
		}
		if err := replyString(c, k, 0, stringLen(k)); err != nil {
			return err
		}
	}
	return nil
}

func mset(c *Ctx) error {
	if len(c.Args)%2 == 0 {
		return errArity(c)
	}
	if err := setPairs(c); err != nil {
		return err
	}
	c.W.OK()
	return nil
}

func msetnx(c *Ctx) error {
	if len(c.Args)%2 == 0 {
		return errArity(c)
	}
	if err := c.LookAhead(c.Args[1:], 2); err != nil {
		return err
	}
	for i := 1; i < len(c.Args); i += 2 {
		k, err := c.Key(c.Args[i])
		if err != nil {
			return err
		}
		if k.Exists() {
			c.W.Int(0)
			return nil
		}
	}
	if err := setPairs(c); err != nil {
		return err
	}
	c.W.Int(1)
	return nil
}

func errArity(c *Ctx) error {
	return Reply("ERR wrong number of arguments for '" + c.Cmd.FullName() + "' command")
}

func setPairs(c *Ctx) error {
	if err := c.LookAhead(c.Args[1:], 2); err != nil {
		return err
	}
	for i := 1; i < len(c.Args); i += 2 {
		k, err := c.Key(c.Args[i])
		if err != nil {
			return err
		}
		storeString(c, k, c.Args[i+1], stringEncoding(c.Args[i+1]), 0)
		c.Event('$', "set", k.Name)
	}
	return nil
}

func appendString(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	more, size := c.Args[2], stringLen(k)
	if k.Exists() {
		if err := checkStringLen(c, size, len(more)); err != nil {
			return err
		}
		if err := overwrite(c, k, size, more); err != nil {
			return err
		}
	} else if len(more) >= engine.StageFrom {
		noteNew(c, k)
		if err := overwrite(c, k, 0, more); err != nil {
			return err
		}
	} else {
		storeString(c, k, more, stringEncoding(more), 0)
	}
	c.Event('$', "append", k.Name)
	c.W.Int(size + int64(len(more)))
	return nil
}

func strlen(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	c.W.Int(stringLen(k))
	return nil
}

func getrange(c *Ctx) error {
	start, err := c.Int(2)
	if err != nil {
		return err
	}
	end, err := c.Int(3)
	if err != nil {
		return err
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	from, to := clampRange(start, end, stringLen(k))
	if from >= to {
		c.W.Bulk(nil)
		return nil
	}
	return replyString(c, k, from, to)
}

// clampRange turns a range whose bounds are both included and may count from the end into [from, to) within
// size; it is empty when from is not below to.
func clampRange(start, end, size int64) (from, to int64) {
	if start < 0 && end < 0 && start > end {
		return 0, 0
	}
	if start < 0 {
		start = max(start+size, 0)
	}
	if end < 0 {
		end = max(end+size, 0)
	}
	return start, min(end, size-1) + 1
}

func setrange(c *Ctx) error {
	off, err := c.Int(2)
	if err != nil {
		return err
	}
	if off < 0 {
		return Reply("ERR offset is out of range")
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	value := c.Args[3]
	if len(value) == 0 {
		c.W.Int(stringLen(k))
		return nil
	}
	if off > math.MaxInt64-int64(len(value)) {
		return ErrTooBig
	}
	if err := checkStringLen(c, off, len(value)); err != nil {
		return err
	}
	noteNew(c, k)
	if err := overwrite(c, k, off, value); err != nil {
		return err
	}
	c.Event('$', "setrange", k.Name)
	c.W.Int(stringLen(k))
	return nil
}
