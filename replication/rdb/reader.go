package rdb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
)

// Handler receives the records of a stream in order. Slices are valid during the
// call only. An error stops the reading and is returned.
type Handler interface {
	// Aux gives an aux field, such as repl-stream-db. Unknown names are no error.
	Aux(name, value []byte) error
	// Function gives the source of a function library.
	Function(source []byte) error
	// SelectDB says which database the keys after it are in; before the first
	// one it is 0.
	SelectDB(db uint64) error
	// ResizeDB hints at the number of keys and of those with a deadline. It is
	// what the input claims: never a reason to allocate.
	ResizeDB(keys, withDeadline uint64) error
	// Key announces a key and returns where its value goes; nil drops it.
	Key(k Key) (Sink, error)
}

// ReadOptions tune the reading of a stream. The zero value is for full syncs.
type ReadOptions struct {
	// CheckPlain looks for duplicate elements in unpacked collections too, at
	// 8 bytes of memory per element of the value being read. Without it a Sink
	// must notice them itself, as one that sorts does. Packed collections are
	// always checked.
	CheckPlain bool
}

// Read reads one stream from br and hands its records to h. It consumes exactly
// the stream: what follows the checksum is left in br.
//
// The error is a *Error, an *UnsupportedTypeError, one from below, or h's. All
// that was handed over before it must be dropped: the checksum comes last.
func Read(br *bufio.Reader, h Handler, opt ReadOptions) error {
	r := &reader{src: &source{br: br}, h: h}
	r.dec = decoder{src: r.src, checkPlain: opt.CheckPlain}
	if err := r.header(); err != nil {
		return err
	}
	for {
		op, err := r.src.readByte("record")
		if err != nil {
			return err
		}
		if op == opEOF {
			return r.end()
		}
		if err := r.recordOf(op); err != nil {
			return err
		}
	}
}

type reader struct {
	src     *source
	h       Handler
	dec     decoder
	key     Key // what has been told about the next key
	version int
	a, b    []byte
}

func (r *reader) header() error {
	b, err := r.src.next(len(magic)+4, "header")
	if err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic {
		return r.src.failf("header", "%q where %q belongs", b[:len(magic)], magic)
	}
	for _, c := range b[len(magic):] {
		if c < '0' || c > '9' {
			return r.src.failf("header", "version %q", b[len(magic):])
		}
		r.version = r.version*10 + int(c-'0')
	}
	if r.version < 1 || r.version > MaxVersion {
		return r.src.failf("header", "version %d, want 1 to %d", r.version, MaxVersion)
	}
	return nil
}

// end checks the sum. Eight zeros mean that the writer did not compute it.
func (r *reader) end() error {
	if r.version < 5 {
		return nil
	}
	want := r.src.crc
	b, err := r.src.next(8, "checksum")
	if err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(b); got != 0 && got != want {
		return r.src.failf("checksum", "%016x, want %016x", got, want)
	}
	return nil
}

func (r *reader) recordOf(op byte) error {
	switch op {
	case opDeadlineMs:
		v, err := r.src.int64("deadline")
		r.key.DeadlineMs = r.deadline(v)
		return err
	case opDeadlineSec:
		b, err := r.src.next(4, "deadline")
		if err != nil {
			return err
		}
		r.key.DeadlineMs = r.deadline(int64(int32(binary.LittleEndian.Uint32(b))) * 1000)
		return nil
	case opIdle:
		v, err := r.src.length("idle time")
		r.key.HasIdle, r.key.IdleSec = true, v
		return err
	case opFreq:
		v, err := r.src.readByte("frequency")
		r.key.HasFreq, r.key.Freq = true, v
		return err
	case opAux:
		return r.aux()
	case opFunction:
		b, err := r.src.str(&r.a, "function")
		if err != nil {
			return err
		}
		return r.h.Function(b)
	case opSelectDB:
		v, err := r.src.length("database")
		if err != nil {
			return err
		}
		return r.h.SelectDB(v)
	case opResizeDB:
		v, err := r.lengths("database size", 2)
		if err != nil {
			return err
		}
		return r.h.ResizeDB(v[0], v[1])
	case opSlotInfo:
		_, err := r.lengths("slot info", 3) // a hint we have no use for
		return err
	case opModuleAux:
		return r.moduleAux()
	case opFunctionPre:
		return r.src.failf("function", "pre-release format")
	}
	return r.keyOf(op)
}

// deadline keeps a deadline of zero apart from none: both are long past, so one
// millisecond does not matter to the key and the difference does.
func (r *reader) deadline(ms int64) int64 {
	if ms == 0 {
		return 1
	}
	return ms
}

func (r *reader) lengths(what string, n int) (v [3]uint64, err error) {
	for i := range n {
		if v[i], err = r.src.length(what); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (r *reader) aux() error {
	name, err := r.src.str(&r.a, "aux name")
	if err != nil {
		return err
	}
	value, err := r.src.str(&r.b, "aux value")
	if err != nil {
		return err
	}
	err = r.h.Aux(name, value)
	r.a, r.b = keepSmall(r.a), keepSmall(r.b)
	return err
}

func (r *reader) keyOf(typ byte) error {
	name, err := r.src.str(&r.a, "key")
	if err != nil {
		return err
	}
	k := r.key
	r.key = Key{}
	k.Name = name
	sink, err := r.h.Key(k)
	if err != nil {
		return err
	}
	if sink == nil {
		sink = Discard{}
	}
	r.dec.sink = sink
	err = r.dec.value(typ)
	if errors.Is(err, errEmpty) {
		return nil
	}
	var bad *Error
	var unknown *UnsupportedTypeError
	if errors.As(err, &bad) || errors.As(err, &unknown) {
		return fmt.Errorf("key %q: %w", name[:min(len(name), 64)], err)
	}
	r.a = keepSmall(r.a)
	return err
}

// Opcodes inside what a module wrote.
const (
	modEnd    = 0
	modSint   = 1
	modUint   = 2
	modFloat  = 3
	modDouble = 4
	modString = 5
)

// moduleAux passes over data of a module that belongs to no key. Without the
// module it means nothing here.
func (r *reader) moduleAux() error {
	const what = "module aux field"
	if _, err := r.src.length(what); err != nil { // module id
		return err
	}
	for {
		op, err := r.src.length(what)
		if err != nil {
			return err
		}
		switch op {
		case modEnd:
			return nil
		case modSint, modUint:
			_, err = r.src.length(what)
		case modFloat:
			_, err = r.src.next(4, what)
		case modDouble:
			_, err = r.src.next(8, what)
		case modString:
			_, err = r.src.str(&r.b, what)
		default:
			return r.src.failf(what, "opcode %d is unknown", op)
		}
		if err != nil {
			return err
		}
	}
}
