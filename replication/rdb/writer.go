package rdb

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Opcodes of a stream.
const (
	opSlotInfo    = 0xf4
	opFunction    = 0xf5
	opFunctionPre = 0xf6
	opModuleAux   = 0xf7
	opIdle        = 0xf8
	opFreq        = 0xf9
	opAux         = 0xfa
	opResizeDB    = 0xfb
	opDeadlineMs  = 0xfc
	opDeadlineSec = 0xfd
	opSelectDB    = 0xfe
	opEOF         = 0xff

	magic = "REDIS"
)

// Key is the name of a key and what a stream tells about it besides its value.
type Key struct {
	Name       []byte
	DeadlineMs int64  // absolute Unix milliseconds, 0 for none
	HasIdle    bool   // IdleSec is given
	IdleSec    uint64 // seconds since the last access
	HasFreq    bool   // Freq is given
	Freq       uint8  // logarithmic access counter
}

// Writer writes a stream: NewWriter, Aux fields and functions, then per database
// SelectDB, ResizeDB, and per key Key followed by one value; at last Close.
type Writer struct {
	Encoder
}

// NewWriter starts a stream of the given version; 0 means DefaultVersion. A value
// of a type that the version lacks is an *UnsupportedTypeError.
func NewWriter(w io.Writer, version uint16) *Writer {
	if version == 0 {
		version = DefaultVersion
	}
	return &Writer{Encoder{w: w, keyed: true, version: version, buf: fmt.Appendf(nil, "%s%04d", magic, version)}}
}

// record refuses a record in the middle of a value.
func (w *Writer) record(name string) error {
	if w.err == nil && (w.left > 0 || w.part > 0 || w.key != nil) {
		return w.fail("%s with %d missing of type %d, %d bytes of a value", name, w.left, w.open, w.part)
	}
	return w.err
}

// Aux writes an aux field. Readers pass over names they do not know.
func (w *Writer) Aux(name, value string) error {
	if err := w.record("aux field"); err != nil {
		return err
	}
	w.buf = AppendString(append(w.buf, opAux), []byte(name))
	w.buf = AppendString(w.buf, []byte(value))
	return w.settle()
}

// Function writes the source of a function library.
func (w *Writer) Function(source []byte) error {
	if err := w.record("function"); err != nil {
		return err
	}
	w.buf = AppendString(append(w.buf, opFunction), source)
	return w.settle()
}

// SelectDB says which database the keys after it are in.
func (w *Writer) SelectDB(db uint64) error {
	if err := w.record("database"); err != nil {
		return err
	}
	w.buf = AppendLength(append(w.buf, opSelectDB), db)
	return w.settle()
}

// ResizeDB hints at the number of keys of the database and of those with a deadline.
func (w *Writer) ResizeDB(keys, withDeadline uint64) error {
	if err := w.record("database size"); err != nil {
		return err
	}
	w.buf = AppendLength(AppendLength(append(w.buf, opResizeDB), keys), withDeadline)
	return w.settle()
}

// Key announces a key; its value must follow.
func (w *Writer) Key(k Key) error {
	if err := w.record("key"); err != nil {
		return err
	}
	if k.DeadlineMs != 0 {
		w.buf = binary.LittleEndian.AppendUint64(append(w.buf, opDeadlineMs), uint64(k.DeadlineMs))
	}
	if k.HasIdle {
		w.buf = AppendLength(append(w.buf, opIdle), k.IdleSec)
	}
	if k.HasFreq {
		w.buf = append(w.buf, opFreq, k.Freq)
	}
	// The type byte comes first; the value knows it.
	w.key = append(make([]byte, 0, len(k.Name)+1), k.Name...)
	return w.settle()
}

// Close writes the end and the checksum. It does not close the writer below.
func (w *Writer) Close() error {
	if err := w.record("end"); err != nil {
		return err
	}
	w.buf = append(w.buf, opEOF)
	w.flush()
	if w.err != nil {
		return w.err
	}
	_, w.err = w.w.Write(binary.LittleEndian.AppendUint64(nil, w.crc))
	return w.err
}
