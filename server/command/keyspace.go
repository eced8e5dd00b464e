package command

import (
	"bytes"

	"cairn/engine"
	"cairn/engine/layout"
)

// The keyspace: commands that work on keys whatever they hold. Semantics follow Redis 7.2, db.c;
// testdata/keyspace was recorded from redis-server.
//
// Limits. DEL, UNLINK and RENAME within a slot cost the same at any size: rows are unlinked or stay where they
// are. COPY, and RENAME from one slot to another, copy a large value row by row before they take a lock; when the
// source keeps changing meanwhile, under the lock.
//
// Deliberate differences. There is one database: COPY ... DB takes 0 only. UNLINK is DEL. FLUSHALL is as quick
// with SYNC as with ASYNC.

// KeyspaceHost is what these commands ask of the node around them.
type KeyspaceHost interface {
	// ReplyAfter says that the reply under way shows what the log has up to end, so that it must not leave
	// before the log has that much. Handlers whose transactions the server did not open call it.
	ReplyAfter(c *Ctx, end int64)
	// AccessInfo tells the seconds since the last access to a key and its access counter. Asking is no access.
	AccessInfo(slot uint16, key []byte) (idleSec, freq int64)
	// SetAccessInfo sets them once the change under way is committed; a negative number leaves its part alone.
	SetAccessInfo(c *Ctx, key []byte, idleSec, freq int64)
}

// The key specs that only this family has.
var (
	keysRO     = []KeySpec{{Flags: "RO", BeginIndex: 1, Last: -1, Step: 1}}
	keysDelete = []KeySpec{{Flags: "RM delete", BeginIndex: 1, Last: -1, Step: 1}}
	keysRename = []KeySpec{{Flags: "RW access delete", BeginIndex: 1}, {Flags: "OW update", BeginIndex: 2}}
	keysNewNX  = []KeySpec{{Flags: "RW access delete", BeginIndex: 1}, {Flags: "OW insert", BeginIndex: 2}}
	keysCopy   = []KeySpec{{Flags: "RO access", BeginIndex: 1}, {Flags: "OW update", BeginIndex: 2}}
	keyObject  = []KeySpec{{Flags: "RO", BeginIndex: 2}}
)

const (
	tipsSumOfShards = "request_policy:multi_shard\nresponse_policy:agg_sum"
	tipsFlush       = "request_policy:all_shards\nresponse_policy:all_succeeded"
	tipsScan        = "nondeterministic_output\nrequest_policy:special\nresponse_policy:special"
	tipsRandom      = "request_policy:all_shards\nresponse_policy:special\nnondeterministic_output"
	tipsUnsteady    = "nondeterministic_output"
)

func keyspaceCommands() []Command {
	return []Command{
		{
			Name: "del", Arity: -2, Flags: Write | Keyspace, Keys: keysDelete, Group: "generic", Since: "1.0.0",
			Summary: "Deletes keys.", Tips: tipsSumOfShards, Run: del,
		},
		{
			Name: "unlink", Arity: -2, Flags: Write | Fast | Keyspace, Keys: keysDelete, Group: "generic", Since: "4.0.0",
			Summary: "Deletes keys, their space is reclaimed later.", Tips: tipsSumOfShards, Run: del,
		},
		{
			Name: "exists", Arity: -2, Flags: ReadOnly | Fast | Keyspace, Keys: keysRO, Group: "generic", Since: "1.0.0",
			Summary: "Counts those of the named keys that exist.", Tips: tipsSumOfShards,
			Run: func(c *Ctx) error { return countExisting(c, false) },
		},
		{
			Name: "touch", Arity: -2, Flags: ReadOnly | Fast | Keyspace, Keys: keysRO, Group: "generic", Since: "3.2.1",
			Summary: "Counts those of the named keys that exist, as an access to each.", Tips: tipsSumOfShards,
			Run: func(c *Ctx) error { return countExisting(c, true) },
		},
		{
			Name: "type", Arity: 2, Flags: ReadOnly | Fast | Keyspace, Keys: keyROM, Group: "generic", Since: "1.0.0",
			Summary: "Tells the type of a key's value.", Run: typeOf,
		},
		{
			Name: "rename", Arity: 3, Flags: Write | Keyspace, Keys: keysRename, Group: "generic", Since: "1.0.0",
			Summary: "Gives a key another name, over whatever had it.", Run: func(c *Ctx) error { return rename(c, false) }, Stage: stageMoved, StageKeys: true,
		},
		{
			Name: "renamenx", Arity: 3, Flags: Write | Fast | Keyspace, Keys: keysNewNX, Group: "generic", Since: "1.0.0",
			Summary: "Gives a key another name that is free.", Run: func(c *Ctx) error { return rename(c, true) }, Stage: stageMoved, StageKeys: true,
		},
		{
			Name: "copy", Arity: -3, Flags: Write | DenyOOM | Keyspace, Keys: keysCopy, Group: "generic", Since: "6.2.0",
			Summary: "Copies a key's value and deadline to another key.", Run: copyKey, Stage: stageCopy, StageKeys: true,
		},
		{
			Name: "randomkey", Arity: 1, Flags: ReadOnly | NoKeysTxn | Keyspace, Group: "generic", Since: "1.0.0",
			Summary: "Picks a key at random.", Tips: tipsRandom, Run: randomKey,
		},
		{
			Name: "keys", Arity: 2, Flags: ReadOnly | NoKeysTxn | Keyspace | Dangerous, Group: "generic", Since: "1.0.0",
			Summary: "Lists all keys whose names match a pattern.",
			Tips:    "request_policy:all_shards\nnondeterministic_output_order", Run: keysMatching,
		},
		{
			Name: "scan", Arity: -2, Flags: ReadOnly | NoKeysTxn | Keyspace, Group: "generic", Since: "2.8.0",
			Summary: "Lists keys, some with each call.", Tips: tipsScan, Run: scan,
		},
		{
			Name: "dbsize", Arity: 1, Flags: ReadOnly | Fast | NoKeysTxn | Keyspace, Group: "server", Since: "1.0.0",
			Summary: "Counts all keys.", Tips: "request_policy:all_shards\nresponse_policy:agg_sum", Run: dbsize,
		},
		{
			Name: "flushall", Arity: -1, Flags: Write | AllSlots | Keyspace | Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Deletes all keys of all databases.", Tips: tipsFlush, Run: flush,
		},
		{
			Name: "flushdb", Arity: -1, Flags: Write | AllSlots | Keyspace | Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Deletes all keys.", Tips: tipsFlush, Run: flush,
		},
		objectCommand(),
	}
}

func del(c *Ctx) error {
	if err := c.LookAhead(c.Args[1:], 1); err != nil {
		return err
	}
	n := int64(0)
	for _, name := range c.Args[1:] {
		k, err := c.Key(name)
		if err != nil {
			return err
		}
		if k.Exists() {
			c.Txn.Delete(k)
			c.Event('g', "del", name)
			n++
		}
	}
	c.W.Int(n)
	return nil
}

// countExisting is EXISTS, and with touch TOUCH. A key named twice counts twice.
func countExisting(c *Ctx, touch bool) error {
	if err := c.Txn.LookAhead(c.Args[1:], 1, touch); err != nil {
		return err
	}
	lookup := c.KeyNoTouch
	if touch {
		lookup = c.Key
	}
	n := int64(0)
	for _, name := range c.Args[1:] {
		k, err := lookup(name)
		if err != nil {
			return err
		}
		if k.Exists() {
			n++
		}
	}
	c.W.Int(n)
	return nil
}

func typeOf(c *Ctx) error {
	k, err := c.KeyNoTouch(c.Args[1])
	if err != nil {
		return err
	}
	c.W.Simple(typeName(k.Rec.Type))
	return nil
}

// typeName is the word that TYPE answers; "none" for no value.
func typeName(t layout.Type) string {
	switch t {
	case layout.String:
		return "string"
	case layout.List:
		return "list"
	case layout.Set:
		return "set"
	case layout.ZSet:
		return "zset"
	case layout.HashType:
		return "hash"
	case layout.Stream:
		return "stream"
	}
	return "none"
}

func rename(c *Ctx, onlyNew bool) error {
	src, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if !src.Exists() {
		return ErrNoSuchKey
	}
	if bytes.Equal(c.Args[1], c.Args[2]) {
		renameReply(c, onlyNew, false)
		return nil
	}
	dst, err := c.Key(c.Args[2])
	if err != nil {
		return err
	}
	if onlyNew && dst.Exists() {
		renameReply(c, onlyNew, false)
		return nil
	}
	if src.Slot == dst.Slot {
		err = c.Txn.Move(src, dst)
	} else if err = copyValue(c, src, dst); err == nil {
		c.Txn.Delete(src)
	}
	if err != nil {
		return err
	}
	c.Event('n', "new", c.Args[2]) // to Redis the name that was there before is gone
	c.Event('g', "rename_from", c.Args[1])
	c.Event('g', "rename_to", c.Args[2])
	renameReply(c, onlyNew, true)
	return nil
}

func renameReply(c *Ctx, onlyNew, done bool) {
	switch {
	case !onlyNew:
		c.W.OK()
	case done:
		c.W.Int(1)
	default:
		c.W.Int(0)
	}
}

const (
	errSameObject Reply = "ERR source and destination objects are the same"
	errNoSuchDB   Reply = "ERR DB index is out of range"
)

func copyKey(c *Ctx) error {
	replace := false
	for i := 3; i < len(c.Args); i++ {
		switch {
		case c.Is(i, "replace"):
			replace = true
		case c.Is(i, "db") && i+1 < len(c.Args):
			i++
			db, err := c.Int(i)
			if err != nil {
				return err
			}
			if db != 0 {
				return errNoSuchDB
			}
		default:
			return ErrSyntax
		}
	}
	if bytes.Equal(c.Args[1], c.Args[2]) {
		return errSameObject
	}
	src, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	c.CountRead(src)
	if !src.Exists() {
		c.W.Int(0)
		return nil
	}
	dst, err := c.Key(c.Args[2])
	if err != nil {
		return err
	}
	if dst.Exists() && !replace {
		c.W.Int(0)
		return nil
	}
	if err := copyValue(c, src, dst); err != nil {
		return err
	}
	c.Event('n', "new", c.Args[2])
	c.Event('g', "copy_to", c.Args[2])
	c.W.Int(1)
	return nil
}

// copyValue gives dst the value and the deadline of src. The rows of a large value are copied under a
// generation of their own, which no family needs to know about.
func copyValue(c *Ctx, src, dst *engine.Key) error {
	rec := src.Rec
	switch {
	case copyIsStaged(&rec):
		made, err := c.made(dst, rec.Chunks(), func(s *staged, put rowPut) error {
			v, err := c.Txn.View(src)
			if err != nil {
				return err
			}
			s.rec = v.Rec
			return copyRows(src.Name, v, put)
		})
		if err != nil {
			return err
		}
		rec.Gen = made.rec.Gen
	case rec.Form == layout.ValueRow:
		v, err := c.Txn.Value(src)
		if err != nil {
			return err
		}
		c.Txn.SetValue(dst, v)
	case rec.Form == layout.Rows:
		v, err := c.Txn.View(src)
		if err != nil {
			return err
		}
		to := engine.Key{Name: dst.Name, Slot: dst.Slot, Hash: dst.Hash, Rec: rec}
		rec.Gen = c.Txn.NewGeneration()
		to.Rec.Gen = rec.Gen
		if err := copyRows(src.Name, v, &txnRows{c.Txn, &to}); err != nil {
			return err
		}
	}
	dst.Rec = rec
	c.Txn.Put(dst)
	return nil
}

// flush is FLUSHALL and FLUSHDB. It is logged also when there was nothing to delete: a replica may hold what
// its primary does not.
func flush(c *Ctx) error {
	if len(c.Args) > 2 || len(c.Args) == 2 && !c.Is(1, "sync") && !c.Is(1, "async") {
		return ErrSyntax
	}
	c.Txn.DropAll()
	c.W.OK()
	return nil
}

// keyCounts tells how many keys a slot shows, expired but undeleted ones included: none in a slot that belongs
// to another node, whose keys, left by an interrupted move, only cluster commands see.
type keyCounts struct {
	store   *engine.Store
	routing *engine.Routing
	// Inside EXEC the counters do not have what the transaction changed.
	changed map[uint16]int64
	flushed bool
}

func (c *Ctx) keyCounts() keyCounts {
	n := keyCounts{store: c.Host.Store(), routing: c.Host.Store().Routing()}
	if !c.Txn.Open() {
		return n
	}
	n.routing, n.flushed = c.Txn.Routing(), c.Txn.DroppedAll()
	n.changed = make(map[uint16]int64)
	c.Txn.EachChanged(func(k *engine.Key) {
		if k.Exists() {
			n.changed[k.Slot]++
		}
		if k.ExistedBefore() {
			n.changed[k.Slot]--
		}
	})
	return n
}

func (n *keyCounts) of(slot uint16) int64 {
	if n.routing.Cluster && n.routing.Slots[slot]&engine.SlotOwned == 0 {
		return 0
	}
	keys := int64(0)
	if !n.flushed {
		keys = n.store.SlotCounters(slot).Keys
	}
	if n.changed != nil {
		keys += n.changed[slot]
	}
	return keys
}

// all is the sum over all slots.
func (n *keyCounts) all() (keys int64) {
	if !n.routing.Cluster && n.changed == nil {
		return n.store.Keys()
	}
	for s := range slotCount {
		keys += n.of(uint16(s))
	}
	return keys
}

func dbsize(c *Ctx) error {
	counts := c.keyCounts()
	c.W.Int(counts.all())
	return nil
}
