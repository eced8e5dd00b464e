package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Hashes: fields with a value each, at most 512 MiB both. A small hash is packed in its key's record, any other
// has a row for each field (engine/layout, hash.go); hash-max-listpack-entries and hash-max-listpack-value
// decide, and layout.PackedHashMax. A hash goes back to packed only by being deleted. Semantics follow Redis
// 7.2, t_hash.c; testdata/hash was recorded from redis-server.
//
// hash_store.go reads and changes the two forms, hash_long.go long values, hash_walk.go has whole hashes and HSCAN,
// hash_random.go HRANDFIELD.

const (
	errHashNotInteger Reply = "ERR hash value is not an integer"
	errHashNotFloat   Reply = "ERR hash value is not a float"
	errWouldOverflow  Reply = "ERR increment or decrement would overflow"
	errIncrNotFinite  Reply = "ERR value is NaN or Infinity"
	errSumNotFinite   Reply = "ERR increment would produce NaN or Infinity"
)

func hashCommands() []Command {
	accessRW := []KeySpec{{Flags: "RW access update", BeginIndex: 1}}
	const noOrder, random = "nondeterministic_output_order", "nondeterministic_output"
	return []Command{
		{
			Name: "hset", Arity: -4, Flags: Write | DenyOOM | Fast, Keys: keyRWU, Group: "hash", Since: "2.0.0",
			Summary: "Sets fields of a hash, which it creates if there is none.", Run: hset, Stage: stageFields,
		},
		{
			Name: "hsetnx", Arity: 4, Flags: Write | DenyOOM | Fast, Keys: keyRWI, Group: "hash", Since: "2.0.0",
			Summary: "Sets a field of a hash unless it is there already.", Run: hsetnx, Stage: stageFields,
		},
		{
			Name: "hmset", Arity: -4, Flags: Write | DenyOOM | Fast, Keys: keyRWU, Group: "hash", Since: "2.0.0",
			Summary: "HSET with another reply, from before HSET took many fields.", Run: hmset, Stage: stageFields,
		},
		{
			Name: "hget", Arity: 3, Flags: ReadOnly | Fast, Keys: keyRO, Group: "hash", Since: "2.0.0",
			Summary: "Gives the value of a field.", Run: hget,
		},
		{
			Name: "hmget", Arity: -3, Flags: ReadOnly | Fast, Keys: keyRO, Group: "hash", Since: "2.0.0",
			Summary: "Gives the values of several fields.", Run: hmget,
		},
		{
			Name: "hgetall", Arity: 2, Flags: ReadOnly, Keys: keyRO, Group: "hash", Since: "2.0.0",
			Summary: "Gives all fields of a hash with their values.", Tips: noOrder, Run: hgetall,
		},
		{
			Name: "hkeys", Arity: 2, Flags: ReadOnly, Keys: keyRO, Group: "hash", Since: "2.0.0",
			Summary: "Gives all fields of a hash.", Tips: noOrder, Run: hkeys,
		},
		{
			Name: "hvals", Arity: 2, Flags: ReadOnly, Keys: keyRO, Group: "hash", Since: "2.0.0",
			Summary: "Gives all values of a hash.", Tips: noOrder, Run: hvals,
		},
		{
			Name: "hdel", Arity: -3, Flags: Write | Fast, Keys: keyRWD, Group: "hash", Since: "2.0.0",
			Summary: "Removes fields; with the last one the hash goes.", Run: hdel,
		},
		{
			Name: "hlen", Arity: 2, Flags: ReadOnly | Fast, Keys: keyROM, Group: "hash", Since: "2.0.0",
			Summary: "Counts the fields of a hash.", Run: hlen,
		},
		{
			Name: "hexists", Arity: 3, Flags: ReadOnly | Fast, Keys: keyROM, Group: "hash", Since: "2.0.0",
			Summary: "Says whether a hash has a field.", Run: hexists,
		},
		{
			Name: "hstrlen", Arity: 3, Flags: ReadOnly | Fast, Keys: keyROM, Group: "hash", Since: "3.2.0",
			Summary: "Gives the length of a field's value in bytes.", Run: hstrlen,
		},
		{
			Name: "hincrby", Arity: 4, Flags: Write | DenyOOM | Fast, Keys: accessRW, Group: "hash", Since: "2.0.0",
			Summary: "Adds an integer to a field; a missing one counts as 0.", Run: hincrby,
		},
		{
			Name: "hincrbyfloat", Arity: 4, Flags: Write | DenyOOM | Fast, Keys: accessRW, Group: "hash", Since: "2.6.0",
			Summary: "Adds a decimal number to a field; a missing one counts as 0.", Run: hincrbyfloat,
		},
		{
			Name: "hrandfield", Arity: -2, Flags: ReadOnly, Keys: keyRO, Group: "hash", Since: "6.2.0",
			Summary: "Gives fields of a hash picked by chance.", Tips: random, Run: hrandfield,
		},
		{
			Name: "hscan", Arity: -3, Flags: ReadOnly, Keys: keyRO, Group: "hash", Since: "2.8.0",
			Summary: "Walks the fields of a hash, some at each call.", Tips: random, Run: hscan,
		},
	}
}

func hset(c *Ctx) error {
	created, err := setFields(c)
	if err == nil {
		c.W.Int(created)
	}
	return err
}

func hmset(c *Ctx) error {
	_, err := setFields(c)
	if err == nil {
		c.W.OK()
	}
	return err
}

// setFields is HSET without its reply.
func setFields(c *Ctx) (created int64, err error) {
	if len(c.Args)%2 == 1 {
		return 0, errArity(c)
	}
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return 0, err
	}
	pairs := c.Args[2:]
	if c.fieldsAnew(&k.Rec, pairs) {
		if created, err = c.setAnew(k, pairs); err != nil {
			return 0, err
		}
		c.Event('h', "hset", k.Name)
		return created, nil
	}
	e, err := editHash(c, k, pairs...)
	if err != nil {
		return 0, err
	}
	if created, err = e.setAll(pairs); err != nil {
		return 0, err
	}
	e.put()
	c.Event('h', "hset", k.Name)
	return created, nil
}

// setAll sets fields to values, and counts the new ones.
func (e *hashEdit) setAll(pairs [][]byte) (created int64, err error) {
	if len(pairs) == 2 { // most often, and an order of one costs memory
		isNew, err := e.set(pairs[0], pairs[1])
		return b2i(isNew), err
	}
	for i := range inRowOrder(pairs, 2, e.body == nil) {
		isNew, err := e.set(pairs[i], pairs[i+1])
		if err != nil {
			return 0, err
		}
		created += b2i(isNew)
	}
	return created, nil
}

func hsetnx(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	_, ok, err := fieldValue(c, k, c.Args[2])
	if err != nil {
		return err
	}
	if !ok {
		if c.fieldsAnew(&k.Rec, c.Args[2:]) {
			_, err = c.setAnew(k, c.Args[2:])
		} else {
			err = setField(c, k, c.Args[2], c.Args[3])
		}
		if err != nil {
			return err
		}
		c.Event('h', "hset", k.Name)
	}
	c.W.Int(b2i(!ok))
	return nil
}

func hget(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	r := hashReply{c: c, k: k}
	if err := r.field(c.Args[2]); err != nil {
		return errors.Join(err, r.close())
	}
	return r.close()
}

func hmget(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	c.W.Array(len(c.Args) - 2)
	r := hashReply{c: c, k: k}
	if err := r.fields(c.Args[2:]); err != nil {
		return errors.Join(err, r.close())
	}
	return r.close()
}

// field replies with the value of a field, null when there is none.
func (r *hashReply) field(field []byte) error {
	v, ok, err := fieldValue(r.c, r.k, field)
	if err != nil {
		return err
	}
	return r.found(v, ok)
}

// found replies with a value that was looked for.
func (r *hashReply) found(v layout.HashValue, ok bool) error {
	if !ok {
		r.c.W.Null()
		return nil
	}
	return r.value(v)
}

func hdel(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	if !k.Exists() {
		c.W.Int(0)
		return nil
	}
	e, err := editHash(c, k)
	if err != nil {
		return err
	}
	var deleted int64
	fields := c.Args[2:]
	for i := range inRowOrder(fields, 1, e.body == nil) {
		ok, err := e.remove(fields[i])
		if err != nil {
			return err
		}
		deleted += b2i(ok)
		if e.len() == 0 {
			break
		}
	}
	if deleted > 0 {
		emptied := e.len() == 0
		e.put()
		c.Event('h', "hdel", k.Name)
		if emptied {
			c.Event('g', "del", k.Name)
		}
	}
	c.W.Int(deleted)
	return nil
}

func hlen(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	n, err := hashLen(k)
	if err == nil {
		c.W.Int(int64(n))
	}
	return err
}

func hexists(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	_, ok, err := fieldValue(c, k, c.Args[2])
	if err == nil {
		c.W.Int(b2i(ok))
	}
	return err
}

func hstrlen(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	v, _, err := fieldValue(c, k, c.Args[2])
	if err == nil {
		c.W.Int(int64(v.Length))
	}
	return err
}

func hincrby(c *Ctx) error {
	by, err := c.Int(3)
	if err != nil {
		return err
	}
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	old, ok, err := fieldValue(c, k, c.Args[2])
	if err != nil {
		return err
	}
	n := int64(0)
	if ok {
		if n, ok = resp.ParseInt(old.Value); !ok { // what is in pieces is longer than any number
			return errHashNotInteger
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return errWouldOverflow
	}
	n += by
	var digits [20]byte
	if err := setField(c, k, c.Args[2], strconv.AppendInt(digits[:0], n, 10)); err != nil {
		return err
	}
	c.Event('h', "hincrby", k.Name)
	c.W.Int(n)
	return nil
}

func hincrbyfloat(c *Ctx) error {
	by, ok := resp.ParseLongDouble(c.Args[3])
	if !ok {
		return ErrNotFloat
	}
	if by.IsInf() {
		return errIncrNotFinite
	}
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	old, ok, err := fieldValue(c, k, c.Args[2])
	if err != nil {
		return err
	}
	var n resp.LongDouble
	if ok {
		if n, ok = resp.ParseLongDouble(old.Value); !ok {
			return errHashNotFloat
		}
	}
	if n, ok = n.Add(by); !ok {
		return errSumNotFinite
	}
	value := n.Append(nil)
	if err := setField(c, k, c.Args[2], value); err != nil {
		return err
	}
	c.Event('h', "hincrbyfloat", k.Name)
	// Another program, or another machine, may round otherwise: what is logged is the result.
	c.Propagate("HSET", c.Args[1], c.Args[2], value)
	c.W.Bulk(value)
	return nil
}

// hashError says at which key a packed hash or a row could not be read.
func hashError(k *engine.Key, err error) error {
	return fmt.Errorf("read hash at key %.64q: %w", k.Name, err)
}
