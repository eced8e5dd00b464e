package command

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// HRANDFIELD: each field with the same chance, whatever the form of the hash.
//
//	no count, or 1    one pick
//	count < 0         that many picks, each from all fields, in the order of the picks
//	0 < count < n     that many different fields, every choice of them equally likely: by picks when they are
//	                  few beside n, else by one walk over the snapshot, in the order of the walk
//	count >= n        all

const (
	errRandRange Reply = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	errRandPairs Reply = "ERR value is out of range"
)

const (
	// picksAtOnce is how many picks happen under the lock; more are made while the reply is sent.
	picksAtOnce = 1000
	// pickSparse: a pick costs about as much as walking over so many fields.
	pickSparse = 64
)

func hrandfield(c *Ctx) error {
	count, values, err := randOptions(c)
	if err != nil {
		return err
	}
	k, err := c.TypedKey(c.Args[1], layout.HashType)
	if err != nil {
		return err
	}
	n, err := hashLen(k)
	if err != nil {
		return err
	}
	switch {
	case n == 0 && len(c.Args) == 2:
		c.W.Null()
		return nil
	case len(c.Args) == 2:
		return replyPicks(c, k, n, 1, hashParts{fields: true})
	case n == 0 || count == 0:
		c.W.Array(0)
		return nil
	}
	parts := hashParts{fields: true, values: values, pairs: values && c.W.Proto == 3}
	items := uint64(max(count, -count))
	if count > 1 {
		items = min(items, n)
	}
	if values && !parts.pairs {
		c.W.Array(int(items) * 2)
	} else {
		c.W.Array(int(items))
	}
	switch {
	case count < 0 || items == 1:
		return replyPicks(c, k, n, items, parts)
	case k.Rec.Form == layout.Rows && items <= picksAtOnce && items < n/pickSparse:
		return replyDistinct(c, k, items, parts)
	}
	return replyFields(c, k, n, items, parts)
}

// randOptions reads count and WITHVALUES; the order of the errors is Redis's.
func randOptions(c *Ctx) (count int64, values bool, err error) {
	if len(c.Args) < 3 {
		return 0, false, nil
	}
	if count, err = c.Int(2); err != nil {
		return 0, false, err
	}
	if count == math.MinInt64 {
		return 0, false, errRandRange
	}
	if len(c.Args) > 4 || len(c.Args) == 4 && !c.Is(3, "withvalues") {
		return 0, false, ErrSyntax
	}
	if values = len(c.Args) == 4; values && (count < -math.MaxInt64/2 || count > math.MaxInt64/2) {
		return 0, false, errRandPairs
	}
	return count, values, nil
}

// randomBelow gives a number in [0, n), each equally likely.
func randomBelow(n uint64) uint64 { return rand.Uint64N(n) }

// fieldPair is a field and its value, kept.
type fieldPair struct {
	field []byte
	value hashValue
}

// replyPicks appends picks fields, each picked from all n.
func replyPicks(c *Ctx, k *engine.Key, n, picks uint64, parts hashParts) error {
	atOnce := c.Replaying || picks <= picksAtOnce
	pick, close, err := fieldPicks(c, k, n, parts.values, !atOnce)
	if err != nil {
		return err
	}
	if atOnce {
		r := hashReply{c: c, k: k}
		for ; picks > 0 && err == nil; picks-- {
			var p fieldPair
			if p, err = pick(); err == nil {
				err = r.pair(&p, parts)
			}
		}
		if err = errors.Join(err, close(), r.close()); err != nil {
			return hashError(k, err)
		}
		return nil
	}
	c.Stream(func(w *resp.Writer, flush func() error) error {
		for range picks {
			p, err := pick()
			if err != nil {
				return err
			}
			if err := writeField(w, p.field, &p.value, parts, flush); err != nil {
				return err
			}
		}
		return nil
	}, close)
	return nil
}

// pair replies with a field, or its value, or both.
func (r *hashReply) pair(p *fieldPair, parts hashParts) error {
	if parts.pairs {
		r.c.W.Array(2)
	}
	if parts.fields {
		r.c.W.Bulk(p.field)
	}
	if parts.values {
		return r.value(p.value.HashValue)
	}
	return nil
}

// fieldPicks opens a hash for picks, each from all n fields as they are now; they may go on when the transaction
// has ended. A packed hash is held in memory, rows stay where they are. long: long values will be read from the picks.
func fieldPicks(c *Ctx, k *engine.Key, n uint64, values, long bool) (pick func() (fieldPair, error), close func() error, err error) {
	if k.Rec.Form == layout.Rows {
		it, err := c.Txn.Elements(k, nil)
		if err != nil {
			return nil, nil, hashError(k, err)
		}
		var in *fieldPieces
		if values && long && k.Rec.MayHavePieces() {
			if in, err = openPieces(c.Txn, k, it); err != nil {
				return nil, nil, errors.Join(err, it.Close())
			}
		}
		return func() (fieldPair, error) {
			p, _, err := pickRow(it, n, values)
			p.value.in = in
			return p, err
		}, func() error { return errors.Join(it.Close(), in.close()) }, nil
	}
	next, closeFields, err := hashFields(c.Txn, k, values)
	if err != nil {
		return nil, nil, err
	}
	held, err := holdFields(next, n, values)
	if err = errors.Join(err, closeFields()); err != nil {
		return nil, nil, hashError(k, err)
	}
	return func() (fieldPair, error) { return held[randomBelow(n)], nil }, func() error { return nil }, nil
}

// holdFields copies a whole hash to memory.
func holdFields(next nextField, n uint64, values bool) ([]fieldPair, error) {
	var held []fieldPair
	for {
		field, value, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		p := fieldPair{field: append([]byte(nil), field...)}
		if values {
			p.value = value
			p.value.Value = append([]byte(nil), value.Value...)
		}
		held = append(held, p)
	}
	if uint64(len(held)) != n {
		return nil, fmt.Errorf("hash of %d fields has %d", n, len(held))
	}
	return held, nil
}

// replyDistinct appends picks different fields of a hash with many more.
func replyDistinct(c *Ctx, k *engine.Key, picks uint64, parts hashParts) error {
	pick, close, err := fieldPicks(c, k, k.Rec.Count, parts.values, false)
	if err != nil {
		return err
	}
	r := hashReply{c: c, k: k}
	seen := make(map[string]bool, picks)
	for err == nil && uint64(len(seen)) < picks {
		var p fieldPair
		if p, err = pick(); err != nil || seen[string(p.field)] {
			continue
		}
		seen[string(p.field)] = true
		err = r.pair(&p, parts)
	}
	if err = errors.Join(err, close(), r.close()); err != nil {
		return hashError(k, err)
	}
	return nil
}

// How a pick from rows is made fair.
//
// The fields lie in the order of their 64-bit hashes. To take the first one behind a random position would favour
// fields behind wide gaps. Instead the space of hashes is cut into equal buckets of rowPickMean fields on average. A
// try takes a bucket and a number below rowPickDepth, both by chance, and wins if the bucket has a field of that
// number. So each field wins a try with the chance 1/(buckets*rowPickDepth), the same for all, wherever its
// neighbours are; and one of buckets*rowPickMean fields does with the chance rowPickMean/rowPickDepth, a quarter: four
// tries on average, at any size.
//
// A bucket with more than rowPickDepth fields would hide the rest of them. Hashes spread evenly, so the number in a
// bucket is about Poisson, and more than 64 where 16 are expected happens once in 10^19 buckets. Only somebody who
// chose fields for their hashes gets there, and spoils the chances in that hash alone; rowPickTries bounds what
// a pick costs even then. Honest hashes need more tries than that once in 10^25 picks.
const (
	rowPickMean  = 16
	rowPickDepth = 64
	rowPickTries = 200
)

// pickRow gives one of the n fields of a hash with rows, its value if that is wanted, and how many tries it took.
// The bytes are copies.
func pickRow(it *engine.Iter, n uint64, values bool) (p fieldPair, tries int, err error) {
	buckets, depth := uint64(1), n
	if depth > rowPickDepth {
		buckets, depth = depth/rowPickMean, rowPickDepth
	}
	for tries = 1; tries <= rowPickTries; tries++ {
		bucket := randomBelow(buckets)
		lo, _ := bits.Div64(bucket, 0, buckets)
		last := uint64(math.MaxUint64) // the last position in the bucket
		if bucket+1 < buckets {
			last, _ = bits.Div64(bucket+1, 0, buckets)
			last--
		}
		p, ok, err := rowAt(it, lo, last, randomBelow(depth), values)
		if err != nil || ok {
			return p, tries, err
		}
	}
	for _, from := range []uint64{rand.Uint64(), 0} {
		p, ok, err := rowAt(it, from, math.MaxUint64, 0, values)
		if err != nil || ok {
			return p, tries, err
		}
	}
	return p, tries, fmt.Errorf("there are no rows, its record says %d", n)
}

// rowAt gives the i-th field between two positions, both included; ok false when there are not so many. An error
// of the walk itself shows in its Close, and before that in Err.
func rowAt(it *engine.Iter, first, last, i uint64, values bool) (p fieldPair, ok bool, err error) {
	it.Seek(layout.AppendHashFrom(nil, first))
	if p, ok, err = rowFrom(it, last, i, values); err == nil {
		err = it.Err()
	}
	return p, ok && err == nil, err
}

func rowFrom(it *engine.Iter, last, i uint64, values bool) (p fieldPair, ok bool, err error) {
	for ; it.Valid(); it.Next() {
		pos, field, err := layout.HashElementParts(it.Key())
		if err != nil {
			return p, false, err
		}
		if pos > last {
			return p, false, nil
		}
		if i > 0 {
			i--
			continue
		}
		p.field = append([]byte(nil), field...)
		if !values {
			return p, true, nil
		}
		if p.value.HashValue, err = layout.DecodeHashValue(it.Value()); err != nil {
			return p, false, err
		}
		p.value.Value = append([]byte(nil), p.value.Value...)
		return p, true, nil
	}
	return p, false, nil
}
