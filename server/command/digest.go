package command

import (
	"crypto/sha1" //nolint:gosec // Redis's digest, compared with Redis's, nothing is protected by it
	"encoding/binary"
	"errors"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Digest is the sum that DEBUG DIGEST shows: equal on two nodes with equal data, whatever order and form that
// is in, and equal to Redis's.
type Digest [sha1.Size]byte

// Xor adds other, in which order counts for nothing.
func (d *Digest) Xor(other Digest) {
	for i := range d {
		d[i] ^= other[i]
	}
}

// XorSum adds the sum of data, in which order counts for nothing.
func (d *Digest) XorSum(data []byte) { d.Xor(sha1.Sum(data)) } //nolint:gosec // see the import

// Mix adds data, in which order counts.
func (d *Digest) Mix(data []byte) { d.mixSum(sha1.Sum(data)) } //nolint:gosec // see the import

func (d *Digest) mixSum(sum [sha1.Size]byte) {
	d.Xor(sum)
	*d = sha1.Sum(d[:]) //nolint:gosec // see the import
}

// numberOf is Redis's number of a type.
func numberOf(t layout.Type) uint32 {
	switch t {
	case layout.List:
		return 1
	case layout.Set:
		return 2
	case layout.ZSet:
		return 3
	case layout.HashType:
		return 4
	case layout.Stream:
		return 6
	}
	return 0
}

// MixValue adds the value of k, whose record is all that has to be filled in.
func (d *Digest) MixValue(t *engine.Txn, k *engine.Key) error {
	d.Mix(binary.BigEndian.AppendUint32(nil, numberOf(k.Rec.Type)))
	var err error
	switch k.Rec.Type {
	case layout.String:
		err = d.mixString(t, k)
	case layout.HashType:
		err = d.mixHash(t, k)
	default:
		err = Reply("ERR digest of a " + typeName(k.Rec.Type) + " is not supported yet")
	}
	if err == nil && k.Rec.Deadline != 0 {
		d.XorSum([]byte("!!expire!!"))
	}
	return err
}

func (d *Digest) mixString(t *engine.Txn, k *engine.Key) error {
	r, err := openString(t, k, 0)
	if err != nil {
		return err
	}
	sum := sha1.New() //nolint:gosec // see the import
	w := &resp.Writer{}
	drain := func() error {
		sum.Write(w.Buf) // never fails
		w.Buf = w.Buf[:0]
		return nil
	}
	if err := errors.Join(r.copyTo(w, 0, stringLen(k), drain), r.close()); err != nil {
		return err
	}
	_ = drain() // gives no error
	d.mixSum([sha1.Size]byte(sum.Sum(nil)))
	return nil
}

func (d *Digest) mixHash(t *engine.Txn, k *engine.Key) error {
	next, close, err := hashFields(t, k, true)
	if err != nil {
		return err
	}
	for {
		field, value, ok, err := next()
		if err != nil || !ok {
			return errors.Join(err, close())
		}
		var pair Digest
		pair.Mix(field)
		sum := sha1.New() //nolint:gosec // see the import
		err = value.each(func(part []byte) error {
			sum.Write(part) // never fails
			return nil
		})
		if err != nil {
			return errors.Join(err, close())
		}
		pair.mixSum([sha1.Size]byte(sum.Sum(nil)))
		d.XorSum(pair[:])
	}
}

// EncodingName is the word of OBJECT ENCODING for a value.
func EncodingName(r *layout.Record) string { return encodingName(r) }

// ValueBytes is about what a value holds, bytes, from its record alone.
func ValueBytes(r *layout.Record) int64 {
	switch r.Form {
	case layout.ValueRow:
		return int64(r.Count)
	case layout.Rows:
		return int64(r.Bytes)
	}
	return int64(len(r.Body))
}
