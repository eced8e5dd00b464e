package command

import (
	"bytes"
	"cmp"
	"slices"

	"cairn/engine"
	"cairn/engine/layout"
)

// HSET of many bytes. Where they are much beside what the hash has, the hash is written anew with them, staged as
// stage_made.go says; else the fields change in place, and only long values among them are staged.

// fieldsAnew says whether setting pairs, fields and values in turn, writes the hash of this record anew. What may stay
// packed is not: it is small, or the same fields again and again.
func (c *Ctx) fieldsAnew(r *layout.Record, pairs [][]byte) bool {
	total := len(pairs) / 2 * rowCost
	for _, p := range pairs {
		total += len(p)
	}
	if total < engine.StageFrom {
		return false // nearly always
	}
	s := c.Host.Settings()
	small := int64(len(pairs)/2) <= s.HashMaxEntries.Load()
	for _, p := range pairs {
		small = small && int64(len(p)) <= s.HashMaxValue.Load()
	}
	return !small && rewrites(r, total)
}

// stageFields makes the hash that HSET and its like leave.
func stageFields(c *Ctx) error {
	if len(c.Args)%2 == 1 || !c.mayStage() {
		return nil
	}
	pairs := c.Args[2:]
	long := longBytes(pairs) >= engine.StageFrom
	if !long && !c.fieldsAnew(&layout.Record{}, pairs) {
		return nil // without a look at the key
	}
	var at engine.Key // of a hash that stays, with rows
	from, err := c.openOrigins(c.Args[1:2], func(keys []*engine.Key) bool {
		k := keys[0]
		if k.Exists() && k.Rec.Type != layout.HashType {
			return false
		}
		if c.fieldsAnew(&k.Rec, pairs) {
			return true
		}
		at = engine.Key{Name: k.Name, Slot: k.Slot, Rec: k.Rec}
		return false
	})
	if err != nil {
		return err
	}
	if from == nil {
		if long && at.Rec.Form == layout.Rows {
			return c.stageLong(at.Name, at.Slot, at.Rec.Gen, pairs)
		}
		return nil
	}
	return c.stageMade(c.Args[1], false, from, func(s *staged, put rowPut) error {
		return mergeFields(&from[0], pairs, s, put)
	})
}

// setAnew is stageFields for the command itself. It gives the number of fields that are new.
func (c *Ctx) setAnew(k *engine.Key, pairs [][]byte) (created int64, err error) {
	made, err := c.made(k, false, func(s *staged, put rowPut) error {
		o, err := c.openOrigin(k)
		if err == nil {
			err = mergeFields(&o, pairs, s, put)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	deadline := k.Rec.Deadline
	k.Rec = made.rec
	k.Rec.Deadline = deadline
	c.Txn.Put(k)
	return made.created, nil
}

// fieldPlace says where a field stands among pairs.
type fieldPlace struct {
	hash uint64
	at   int
}

// placeFields sorts the fields of pairs as their rows are; of those that come again only the last stays.
func placeFields(pairs [][]byte) []fieldPlace {
	places := make([]fieldPlace, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		places = append(places, fieldPlace{layout.Hash(pairs[i]), i})
	}
	slices.SortFunc(places, func(a, b fieldPlace) int {
		return cmp.Or(compareField(a, pairs, b.hash, pairs[b.at]), cmp.Compare(b.at, a.at))
	})
	return slices.CompactFunc(places, func(a, b fieldPlace) bool {
		return a.hash == b.hash && bytes.Equal(pairs[a.at], pairs[b.at])
	})
}

func compareField(p fieldPlace, pairs [][]byte, hash uint64, field []byte) int {
	return cmp.Or(cmp.Compare(p.hash, hash), bytes.Compare(pairs[p.at], field))
}

// mergeFields makes the rows of the hash that o is once pairs are set in it, and its record.
func mergeFields(o *origin, pairs [][]byte, s *staged, put rowPut) error {
	places := placeFields(pairs)
	s.rec = layout.Record{Type: layout.HashType, Enc: layout.HashHashtable, Form: layout.Rows, Count: uint64(len(places))}
	s.created = int64(len(places))
	// What is set anew is not kept.
	keep := func(pos uint64, field []byte, valueLen uint64) bool {
		_, set := slices.BinarySearchFunc(places, field, func(p fieldPlace, field []byte) int {
			return compareField(p, pairs, pos, field)
		})
		if set {
			s.created--
			return false
		}
		s.rec.Count++
		s.rec.Bytes += uint64(len(field)) + valueLen
		return true
	}
	if err := keepFields(o, keep, put); err != nil {
		return err
	}
	var element []byte
	for _, p := range places {
		field, value := pairs[p.at], pairs[p.at+1]
		s.rec.Bytes += uint64(len(field) + len(value))
		element = layout.AppendHashElement(element[:0], field)
		if err := putField(put, element, value, 0); err != nil {
			return err
		}
	}
	return nil
}

// keepFields puts the fields of o that keep says yes to.
func keepFields(o *origin, keep func(pos uint64, field []byte, valueLen uint64) bool, put rowPut) error {
	k := &engine.Key{Name: o.name} // for errors
	if o.view != nil {
		return keepRows(o.view, k, keep, put)
	}
	if o.rec.Type == 0 {
		return nil
	}
	p, err := layout.OpenPackedHash(o.value)
	for err == nil {
		f, ok, next := p.Next()
		if err = next; !ok || err != nil {
			break
		}
		if keep(layout.Hash(f.Name), f.Name, uint64(len(f.Value))) {
			if err := putField(put, layout.AppendHashElement(nil, f.Name), f.Value, f.Deadline); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return hashError(k, err)
	}
	return nil
}

func keepRows(v *engine.View, k *engine.Key, keep func(pos uint64, field []byte, valueLen uint64) bool, put rowPut) error {
	in := viewPieces(v)
	for ; v.Valid(); v.Next() {
		row := v.Value()
		if !v.Valid() {
			break // it could not be read
		}
		pos, field, err := layout.HashElementParts(v.Key())
		var value layout.HashValue
		if err == nil {
			value, err = layout.DecodeHashValue(row)
		}
		if err != nil {
			return hashError(k, err)
		}
		if keep(pos, field, value.Length) {
			if err := copyField(put, v.Key(), row, &value, in); err != nil {
				return err
			}
		}
	}
	if err := v.Close(); err != nil {
		return hashError(k, err)
	}
	return nil
}
