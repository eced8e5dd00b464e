package layout

import (
	"encoding/binary"
	"fmt"
)

// Type is the kind of value that a key holds. The numbers are on disk: append, never edit.
type Type uint8

// The types of Redis.
const (
	String Type = iota + 1
	List
	Set
	ZSet
	HashType
	Stream
)

// Form says where a value lives. The numbers are on disk.
type Form uint8

const (
	Inline   Form = iota // whole, in Record.Body
	ValueRow             // a string, in one row of SpaceBulk named by the key
	Rows                 // elements (or chunks of a string) under Record.Gen
)

// Record is the one row that every key has.
//
//	head(1) enc(1) [deadline(8)] [gen(8) count(uvarint) bytes(uvarint)] body
//
// head holds the type in its low four bits, the form in the next two, bit 6 when a deadline follows, and bit 7 when the
// key has arrived. A ValueRow has count (the string's length) but no generation.
type Record struct {
	Type     Type
	Form     Form
	Enc      uint8  // the family's own note, so that OBJECT ENCODING tells what Redis would
	Deadline int64  // Unix milliseconds; 0: lives on
	Arrived  bool   // brought by RESTORE-ASKING, and not written since
	Gen      uint64 // Rows only
	Count    uint64 // Rows: elements, or bytes of a string; ValueRow: bytes of the string
	Bytes    uint64 // Rows only: payload bytes, so that a drop knows what it is about
	Body     []byte // Inline: the packed value; Rows: the family's own summary
}

const (
	headDeadline = 1 << 6
	headArrived  = 1 << 7
	// RecordHeadMax is what a record costs beyond its body at most.
	RecordHeadMax = 2 + 8 + 8 + 2*binary.MaxVarintLen64
)

// Append appends the encoded record.
func (r *Record) Append(dst []byte) []byte {
	head := byte(r.Type)&0x0f | byte(r.Form)&3<<4
	if r.Deadline != 0 {
		head |= headDeadline
	}
	if r.Arrived {
		head |= headArrived
	}
	dst = append(dst, head, r.Enc)
	if r.Deadline != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.Deadline))
	}
	switch r.Form {
	case Rows:
		dst = binary.BigEndian.AppendUint64(dst, r.Gen)
		dst = binary.AppendUvarint(dst, r.Count)
		dst = binary.AppendUvarint(dst, r.Bytes)
	case ValueRow:
		dst = binary.AppendUvarint(dst, r.Count)
	}
	return append(dst, r.Body...)
}

// Decode fills r from src. Body aliases src.
func (r *Record) Decode(src []byte) error {
	if len(src) < 2 {
		return errShort("record", len(src), 2)
	}
	head := src[0]
	*r = Record{Type: Type(head & 0x0f), Form: Form(head >> 4 & 3), Enc: src[1]}
	r.Arrived = head&headArrived != 0
	if r.Type < String || r.Type > Stream || r.Form > Rows {
		return &Error{"record head", fmt.Sprintf("%#02x names no known type and form", head)}
	}
	src = src[2:]
	if head&headDeadline != 0 {
		if len(src) < 8 {
			return errShort("record deadline", len(src), 8)
		}
		r.Deadline = int64(binary.BigEndian.Uint64(src))
		src = src[8:]
	}
	if r.Form == Rows {
		if len(src) < 8 {
			return errShort("record generation", len(src), 8)
		}
		r.Gen = binary.BigEndian.Uint64(src)
		src = src[8:]
	}
	var err error
	if r.Form != Inline {
		if r.Count, src, err = uvarint("record count", src); err != nil {
			return err
		}
	}
	if r.Form == Rows {
		if r.Bytes, src, err = uvarint("record bytes", src); err != nil {
			return err
		}
	}
	r.Body = src
	return nil
}

func uvarint(part string, src []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(src)
	if n <= 0 {
		return 0, nil, &Error{part, "is not a varint"}
	}
	return v, src[n:], nil
}

// Chunks says whether the record's generation has chunk rows of a string rather than element rows.
func (r *Record) Chunks() bool { return r.Type == String }

// MayHavePieces says whether the record's generation may have pieces of long fields beside its element rows.
func (r *Record) MayHavePieces() bool {
	return r.Type == HashType && r.Form == Rows && r.Bytes > LongFieldOver
}

// Drop is the value of a row that lists something for dropping.
type Drop struct {
	Chunks bool   // of a generation: chunk rows rather than element rows
	Pieces bool   // of a generation: pieces of long fields beside element rows
	Count  uint64 // how many rows, about
}

// Flags of a drop row. Bit 1 is for the index of fields' deadlines.
const (
	dropChunks = 1 << 0
	dropPieces = 1 << 2
)

// Append appends the encoded drop.
func (d Drop) Append(dst []byte) []byte {
	var flags byte
	if d.Chunks {
		flags |= dropChunks
	}
	if d.Pieces {
		flags |= dropPieces
	}
	return binary.AppendUvarint(append(dst, flags), d.Count)
}

// DecodeDrop reads the value of a drop row.
func DecodeDrop(src []byte) (d Drop, err error) {
	if len(src) < 1 {
		return d, errShort("drop", 0, 2)
	}
	if src[0]&^(dropChunks|dropPieces) != 0 {
		return d, &Error{"drop", fmt.Sprintf("flags %#02x are not known", src[0])}
	}
	d.Chunks, d.Pieces = src[0]&dropChunks != 0, src[0]&dropPieces != 0
	d.Count, _, err = uvarint("drop count", src[1:])
	return d, err
}
