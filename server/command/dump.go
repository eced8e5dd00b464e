package command

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/replication/rdb"
)

// DUMP, and values on their way out in general. RESTORE is in dump_restore.go. Semantics follow Redis 7.2,
// cluster.c; the format is in package rdb.
//
// A payload's length stands in front of it in the reply, and an element is a different number of bytes in it
// than in its row. So a value of moderate size is built in memory, under the lock. A larger string is not
// compressed: its length is known from the record. A larger hash is walked twice, once to count and once to
// send, from two views opened under the lock; both walks come after the lock is gone.

func dumpCommands() []Command {
	keyRestore := []KeySpec{{Flags: "OW update", BeginIndex: 1}}
	return []Command{
		{
			Name: "dump", Arity: 2, Flags: ReadOnly | Keyspace, Keys: keyRO, Group: "generic", Since: "2.6.0",
			Summary: "Gives a key's value in the form that RESTORE takes.", Tips: tipsUnsteady, Run: dump,
		},
		{
			Name: "restore", Arity: -4, Flags: Write | DenyOOM | Keyspace | Dangerous, Keys: keyRestore,
			Group: "generic", Since: "2.6.0", Summary: "Makes a key of what DUMP gave.", Run: restore, Stage: stageRestore,
			LongArg: 3,
		},
		{
			Name: "restore-asking", Arity: -4, Flags: Write | DenyOOM | Asking | Keyspace | Dangerous, Keys: keyRestore,
			Group: "server", Since: "3.0.0", Summary: "RESTORE into a slot that is arriving.", Run: restore, Stage: stageRestore,
			LongArg: 3,
		},
	}
}

// ValueDump is one key's value on its way out, as it was when OpenDump looked. It may outlive the transaction,
// may be written once, and is closed by its user.
type ValueDump struct {
	body []byte // type byte and value, when it was built in memory

	str    *stringReader // a string in chunks
	length int64

	fields *engine.Iter // a hash in rows: one view to count, one to write
	again  *engine.Iter
	long   *fieldPieces // beside again
	count  uint64
}

// ErrNotDumpable names what the dump format, or this program, has no form for.
var ErrNotDumpable = errors.New("value cannot be dumped")

// dumpBuilt is up to where a hash in rows is built in memory, bytes of fields and values.
const dumpBuilt = 32 << 10

// OpenDump opens the value of k, which exists, for writing it out. It reads at most what is built in memory.
func OpenDump(t *engine.Txn, k *engine.Key) (*ValueDump, error) {
	switch k.Rec.Type {
	case layout.String:
		return openStringDump(t, k)
	case layout.HashType:
		return openHashDump(t, k)
	}
	return nil, fmt.Errorf("key %.64q of type %s: %w", k.Name, typeName(k.Rec.Type), ErrNotDumpable)
}

func openStringDump(t *engine.Txn, k *engine.Key) (*ValueDump, error) {
	if k.Rec.Form != layout.Rows {
		v, err := t.Value(k)
		if err != nil {
			return nil, err
		}
		return &ValueDump{body: rdb.AppendStringValue(nil, v)}, nil
	}
	r, err := openString(t, k, 0)
	if err != nil {
		return nil, err
	}
	return &ValueDump{str: &r, length: stringLen(k)}, nil
}

func openHashDump(t *engine.Txn, k *engine.Key) (*ValueDump, error) {
	var bad error
	var pairs iter.Seq2[[]byte, []byte]
	n := int(k.Rec.Count)
	switch {
	case k.Rec.Form == layout.Inline:
		p, err := layout.OpenPackedHash(k.Rec.Body)
		if err != nil {
			return nil, fmt.Errorf("read hash %.64q: %w", k.Name, err)
		}
		n, pairs = p.Left(), packedPairs(p, &bad)
	case k.Rec.Bytes <= dumpBuilt:
		pairs = rowPairs(t, k, &bad)
	default:
		return openRowsDump(t, k)
	}
	// Packed or not is what OBJECT ENCODING says, whatever the settings are by now.
	var lim rdb.Limits
	if k.Rec.Enc == layout.HashListpack {
		lim = rdb.Limits{Entries: math.MaxInt32, Value: math.MaxInt32}
	}
	d := &ValueDump{body: rdb.AppendHash(nil, n, pairs, lim)}
	if bad != nil {
		return nil, fmt.Errorf("read hash %.64q: %w", k.Name, bad)
	}
	return d, nil
}

// packedPairs ranges over a packed hash; what goes wrong is left in bad.
func packedPairs(p layout.PackedHash, bad *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(f, v []byte) bool) {
		for q := p; ; {
			f, ok, err := q.Next()
			if err == nil && ok && f.Deadline != 0 {
				err = errFieldDeadline
			}
			if err != nil {
				*bad = err
				return
			}
			if !ok || !yield(f.Name, f.Value) {
				return
			}
		}
	}
}

var errFieldDeadline = fmt.Errorf("field with a deadline: %w", ErrNotDumpable)

// rowPairs ranges over a hash in rows; what goes wrong is left in bad.
func rowPairs(t *engine.Txn, k *engine.Key, bad *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(f, v []byte) bool) {
		it, err := t.Elements(k, nil)
		if err == nil {
			err = eachPair(it, func(f []byte, v *layout.HashValue) error {
				if v.InPieces {
					return fmt.Errorf("value of %d bytes in pieces, %d in all", v.Length, k.Rec.Bytes)
				}
				if !yield(f, v.Value) {
					return io.EOF
				}
				return nil
			})
		}
		if err != nil && err != io.EOF {
			*bad = err
		}
	}
}

// eachPair walks the rows of a hash to their end and closes the walk.
func eachPair(it *engine.Iter, f func(field []byte, value *layout.HashValue) error) error {
	for ; it.Valid(); it.Next() {
		_, field, err := layout.HashElementParts(it.Key())
		if err == nil {
			value, bad := layout.DecodeHashValue(it.Value())
			switch {
			case !it.Valid():
				return it.Close() // the value could not be read
			case bad != nil:
				err = bad
			case value.Deadline != 0:
				err = errFieldDeadline
			default:
				err = f(field, &value)
			}
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return it.Close()
}

func openRowsDump(t *engine.Txn, k *engine.Key) (*ValueDump, error) {
	d := &ValueDump{count: k.Rec.Count}
	var err error
	if d.fields, err = t.Elements(k, nil); err != nil {
		return nil, err
	}
	if d.again, err = t.Elements(k, nil); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if k.Rec.MayHavePieces() {
		if d.long, err = openPieces(t, k, d.again); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Payload gives the whole payload of a value that was built in memory, and ok false for any other.
func (d *ValueDump) Payload() (payload []byte, ok bool) {
	if d.body == nil {
		return nil, false
	}
	return rdb.CloseDump(d.body, 0), true
}

// dumpFooter is what a payload has behind its value, bytes.
const dumpFooter = 10

// Size tells how many bytes Write will write. Of a hash in rows it reads all of them.
func (d *ValueDump) Size() (int64, error) {
	switch {
	case d.body != nil:
		return int64(len(d.body)) + dumpFooter, nil
	case d.str != nil:
		head := rdb.AppendLength(nil, uint64(d.length))
		return 1 + int64(len(head)) + d.length + dumpFooter, nil
	}
	var n byteCount
	long := uint64(0)
	err := writeRows(&n, d.fields, d.count, func(dw *rdb.DumpWriter, v *layout.HashValue) error {
		long += v.Length // not read for that
		return dw.LeaveOut(v.Length)
	})
	d.fields = nil
	return int64(n) + int64(long), err
}

type byteCount int64

func (n *byteCount) Write(b []byte) (int, error) {
	*n += byteCount(len(b))
	return len(b), nil
}

// Write writes the payload.
func (d *ValueDump) Write(w io.Writer) error {
	switch {
	case d.body != nil:
		_, err := w.Write(rdb.AppendDump(nil, d.body))
		return err
	case d.str != nil:
		return d.writeChunks(w)
	}
	it := d.again
	d.again = nil
	return writeRows(w, it, d.count, func(dw *rdb.DumpWriter, v *layout.HashValue) error {
		return d.long.each(v, func(_ uint32, part []byte) error { return dw.Part(part) })
	})
}

func (d *ValueDump) writeChunks(w io.Writer) error {
	dw := rdb.NewDump(w, 0)
	if err := dw.BeginString(uint64(d.length)); err != nil {
		return err
	}
	var buf resp.Writer
	for at := int64(0); at < d.length; {
		next := min(at+StreamFrom, d.length)
		buf.Buf = buf.Buf[:0]
		if err := d.str.copyTo(&buf, at, next, nil); err != nil {
			return err
		}
		if _, err := dw.Write(buf.Buf); err != nil {
			return err
		}
		at = next
	}
	return dw.Close()
}

// writeRows writes the payload of a hash in rows; long is called for the bytes of each long value.
func writeRows(w io.Writer, it *engine.Iter, count uint64, long func(*rdb.DumpWriter, *layout.HashValue) error) error {
	dw := rdb.NewDump(w, 0)
	if err := dw.BeginHash(count); err != nil {
		return errors.Join(err, it.Close())
	}
	err := eachPair(it, func(field []byte, value *layout.HashValue) error {
		if !value.InPieces {
			return dw.Pair(field, value.Value)
		}
		if err := dw.BeginPair(field, value.Length); err != nil {
			return err
		}
		return long(dw, value)
	})
	if err != nil {
		return err
	}
	return dw.Close()
}

// Close lets go of what the value was read from.
func (d *ValueDump) Close() error {
	var err error
	if d.str != nil {
		err = d.str.close()
	}
	for _, it := range []*engine.Iter{d.fields, d.again} {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	err = errors.Join(err, d.long.close())
	d.fields, d.again, d.long = nil, nil, nil
	return err
}

func dump(c *Ctx) error {
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if !k.Exists() || c.Replaying {
		c.W.Null()
		return nil
	}
	d, err := OpenDump(c.Txn, k)
	if errors.Is(err, ErrNotDumpable) {
		return Reply("ERR " + err.Error())
	}
	if err != nil {
		return err
	}
	if payload, ok := d.Payload(); ok {
		c.W.Bulk(payload)
		return nil
	}
	c.Stream(func(w *resp.Writer, flush func() error) error {
		size, err := d.Size()
		if err != nil {
			return err
		}
		w.BulkHeader(size)
		if err := d.Write(&streamWriter{w, flush}); err != nil {
			return err
		}
		w.BulkEnd()
		return nil
	}, d.Close)
	return nil
}

// streamWriter makes an io.Writer of a reply that is sent while it grows.
type streamWriter struct {
	w     *resp.Writer
	flush func() error
}

func (s *streamWriter) Write(b []byte) (int, error) {
	s.w.Buf = append(s.w.Buf, b...)
	if len(s.w.Buf) > StreamFrom {
		return len(b), s.flush()
	}
	return len(b), nil
}
