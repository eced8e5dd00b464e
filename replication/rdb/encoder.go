package rdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Encoder writes values piece by piece and keeps the running checksum, so that a
// value of any size needs one buffer. A collection is opened with its exact count
// (BeginList and so on) and then given its elements; a string is opened with its
// exact length and then written. Methods return the first error met, again and
// again, as bufio.Writer does.
//
// Large collections are written unpacked, which every server can load.
type Encoder struct {
	w    io.Writer
	buf  []byte
	crc  uint64
	err  error
	key  []byte // stands between the type byte and the value in a stream
	left uint64 // elements, or bytes of a string, still to come
	part uint64 // bytes of the value of the last field still to come
	open byte   // the type of the last value begun

	keyed   bool   // each value needs a key in front (a stream)
	values  int    // values begun
	version uint16 // what the reader must know; 0 when the value decides
}

// encoderBuf is when buffered output is written down, in bytes.
const encoderBuf = 64 << 10

// ErrSequence says that the caller gave an Encoder something other than it had
// announced. The output is then of no use.
var ErrSequence = errors.New("rdb encoder: calls do not fit what was begun")

func (e *Encoder) fail(format string, args ...any) error {
	if e.err == nil {
		e.err = fmt.Errorf("%w: %s", ErrSequence, fmt.Sprintf(format, args...))
	}
	return e.err
}

// settle writes the buffer down when it is full enough.
func (e *Encoder) settle() error {
	if e.err == nil && len(e.buf) >= encoderBuf {
		e.flush()
	}
	return e.err
}

func (e *Encoder) flush() {
	if e.err != nil || len(e.buf) == 0 {
		return
	}
	e.crc = Checksum(e.crc, e.buf)
	_, e.err = e.w.Write(e.buf)
	e.buf = e.buf[:0]
	if cap(e.buf) > 1<<20 {
		e.buf = nil
	}
}

// begin opens a value of n elements or bytes.
func (e *Encoder) begin(typ byte, n uint64) error {
	if n == 0 && typ != TypeString {
		return e.fail("collection of type %d without elements", typ)
	}
	if err := e.head(typ); err != nil {
		return err
	}
	e.buf = AppendLength(e.buf, n)
	e.left = n
	return e.settle()
}

// head writes what precedes a value: its type and, in a stream, its key.
func (e *Encoder) head(typ byte) error {
	switch {
	case e.err != nil:
		return e.err
	case e.left > 0 || e.part > 0:
		return e.fail("type %d begun with %d missing of type %d, %d bytes of a value", typ, e.left, e.open, e.part)
	case e.keyed && e.key == nil:
		return e.fail("value of type %d without a key", typ)
	case !e.keyed && e.values > 0:
		return e.fail("second value, of type %d, in one payload", typ)
	}
	if e.version != 0 && firstVersion(typ) > e.version {
		e.err = fmt.Errorf("rdb encoder: version %d: %w", e.version, &UnsupportedTypeError{Type: typ})
		return e.err
	}
	e.values++
	e.open = typ
	e.buf = append(e.buf, typ)
	if e.key != nil {
		e.buf = AppendString(e.buf, e.key)
		e.key = nil
	}
	return nil
}

// one counts an element of typ.
func (e *Encoder) one(typ byte) error {
	if e.err != nil {
		return e.err
	}
	if e.left == 0 || e.open != typ || e.part > 0 {
		return e.fail("element of type %d, %d missing of type %d, %d bytes of a value", typ, e.left, e.open, e.part)
	}
	e.left--
	return nil
}

// Value writes a value that an Append function made, type byte first.
func (e *Encoder) Value(body []byte) error {
	if len(body) == 0 {
		return e.fail("value without a type")
	}
	if err := e.head(body[0]); err != nil {
		return err
	}
	return e.raw(body[1:])
}

// raw appends b, past the buffer when it is long.
func (e *Encoder) raw(b []byte) error {
	if len(b) < encoderBuf {
		e.buf = append(e.buf, b...)
		return e.settle()
	}
	e.flush()
	if e.err == nil {
		e.crc = Checksum(e.crc, b)
		_, e.err = e.w.Write(b)
	}
	return e.err
}

// BeginString opens a string of n bytes, to be given to Write.
func (e *Encoder) BeginString(n uint64) error { return e.begin(TypeString, n) }

// Write writes the next bytes of the string that is open.
func (e *Encoder) Write(b []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	if len(b) == 0 {
		return 0, nil
	}
	if e.open != TypeString || uint64(len(b)) > e.left {
		return 0, e.fail("%d bytes, %d missing of type %d", len(b), e.left, e.open)
	}
	e.left -= uint64(len(b))
	return len(b), e.raw(b)
}

// BeginList opens a list of n items, to be given to Item from head to tail.
func (e *Encoder) BeginList(n uint64) error { return e.begin(TypeList, n) }

// Item writes the next item of a list.
func (e *Encoder) Item(b []byte) error {
	if err := e.one(TypeList); err != nil {
		return err
	}
	e.buf = AppendString(e.buf, b)
	return e.settle()
}

// BeginSet opens a set of n members, to be given to Member.
func (e *Encoder) BeginSet(n uint64) error { return e.begin(TypeSet, n) }

// Member writes the next member of a set.
func (e *Encoder) Member(b []byte) error {
	if err := e.one(TypeSet); err != nil {
		return err
	}
	e.buf = AppendString(e.buf, b)
	return e.settle()
}

// BeginZSet opens a sorted set of n members, to be given to Scored. Real servers
// load it fastest from the highest score down.
func (e *Encoder) BeginZSet(n uint64) error { return e.begin(TypeZSet2, n) }

// Scored writes the next member of a sorted set.
func (e *Encoder) Scored(b []byte, score float64) error {
	if err := e.one(TypeZSet2); err != nil {
		return err
	}
	e.buf = AppendString(e.buf, b)
	e.buf = binary.LittleEndian.AppendUint64(e.buf, math.Float64bits(score))
	return e.settle()
}

// BeginHash opens a hash of n fields without deadlines, to be given to Pair.
func (e *Encoder) BeginHash(n uint64) error { return e.begin(TypeHash, n) }

// Pair writes the next field of a hash.
func (e *Encoder) Pair(field, value []byte) error {
	if err := e.one(TypeHash); err != nil {
		return err
	}
	if err := e.str(field); err != nil {
		return err
	}
	return e.str(value)
}

// BeginPair opens the next field of a hash whose value of n bytes is to be given to Part.
func (e *Encoder) BeginPair(field []byte, n uint64) error {
	if err := e.one(TypeHash); err != nil {
		return err
	}
	return e.beginValue(field, n)
}

// beginValue writes a field and the length of its value.
func (e *Encoder) beginValue(field []byte, n uint64) error {
	if err := e.str(field); err != nil {
		return err
	}
	e.buf = AppendLength(e.buf, n)
	e.part = n
	return e.settle()
}

// Part writes the next bytes of the value that BeginPair or BeginPairUntil has opened.
func (e *Encoder) Part(b []byte) error {
	if err := e.LeaveOut(uint64(len(b))); err != nil {
		return err
	}
	return e.raw(b)
}

// LeaveOut is Part for who only counts what is written: n bytes are not.
func (e *Encoder) LeaveOut(n uint64) error {
	if e.err != nil {
		return e.err
	}
	if n > e.part {
		return e.fail("%d bytes of a value, %d are missing", n, e.part)
	}
	e.part -= n
	return nil
}

// str writes an element. A long one goes past the buffer as it is: compressed, it would be held twice.
func (e *Encoder) str(b []byte) error {
	if len(b) < encoderBuf {
		e.buf = AppendString(e.buf, b)
		return e.settle()
	}
	e.buf = AppendLength(e.buf, uint64(len(b)))
	return e.raw(b)
}

// BeginHashDeadlines opens a hash of n fields of which some have a deadline, to be given to PairUntil. Only servers
// that read version 12 can load it.
func (e *Encoder) BeginHashDeadlines(n uint64) error {
	if n == 0 {
		return e.fail("collection of type %d without elements", TypeHashDeadlines)
	}
	if err := e.head(TypeHashDeadlines); err != nil {
		return err
	}
	// The smallest deadline stands in front, and the others count from it. It is a hint, and a field that is not
	// known yet may have it: all count from the first millisecond.
	e.buf = binary.LittleEndian.AppendUint64(e.buf, 1)
	e.buf = AppendLength(e.buf, n)
	e.left = n
	return e.settle()
}

// PairUntil writes the next field of a hash with deadlines, Unix milliseconds, 0 for none.
func (e *Encoder) PairUntil(field, value []byte, deadlineMs int64) error {
	if err := e.one(TypeHashDeadlines); err != nil {
		return err
	}
	e.buf = AppendLength(e.buf, uint64(deadlineMs))
	if err := e.str(field); err != nil {
		return err
	}
	return e.str(value)
}

// BeginPairUntil is PairUntil for a value of n bytes to be given to Part.
func (e *Encoder) BeginPairUntil(field []byte, n uint64, deadlineMs int64) error {
	if err := e.one(TypeHashDeadlines); err != nil {
		return err
	}
	e.buf = AppendLength(e.buf, uint64(deadlineMs))
	return e.beginValue(field, n)
}

// DumpWriter writes one payload: give it one value, then Close it.
type DumpWriter struct {
	Encoder
}

// NewDump returns a DumpWriter that stamps version; 0 means VersionOf the value.
func NewDump(w io.Writer, version uint16) *DumpWriter {
	return &DumpWriter{Encoder{w: w, version: version}}
}

// Close writes the footer. It does not close the writer below.
func (d *DumpWriter) Close() error {
	if d.left > 0 || d.part > 0 || d.values == 0 {
		return d.fail("closed with %d missing of type %d, %d bytes of a value, %d values", d.left, d.open, d.part, d.values)
	}
	d.flush()
	if d.err != nil {
		return d.err
	}
	version := d.version
	if version == 0 {
		version = VersionOf(d.open)
	}
	_, d.err = d.w.Write(appendFooter(nil, version, d.crc, nil))
	return d.err
}
