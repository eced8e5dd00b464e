package rdb

import (
	"errors"
	"fmt"
)

// Versions of the format. DefaultVersion is what Redis 7.0 loads; a server
// refuses everything above its own, also when the types inside are old.
const (
	DefaultVersion = 10
	MaxVersion     = 12
)

// MaxElement bounds one element and one packed blob after decompression, in
// bytes. It is the limit Redis puts on a string by default.
const MaxElement = 512 << 20

// Types of values, the first byte of a payload and of a key record. They are the
// format: append, never edit.
const (
	TypeString         = 0
	TypeList           = 1 // count, then strings from head to tail
	TypeSet            = 2
	TypeZSet           = 3 // scores as text
	TypeHash           = 4
	TypeZSet2          = 5 // scores as 8 bytes
	TypeModulePre      = 6
	TypeModule         = 7
	TypeHashZipmap     = 9
	TypeListZiplist    = 10
	TypeSetIntset      = 11
	TypeZSetZiplist    = 12
	TypeHashZiplist    = 13
	TypeListQuicklist  = 14 // count, then ziplists
	TypeStream         = 15
	TypeHashListpack   = 16 // 16 to 19: since version 10
	TypeZSetListpack   = 17
	TypeListQuicklist2 = 18 // count, then (container, listpack or plain string)
	TypeStream2        = 19
	TypeSetListpack    = 20 // 20 and 21: since version 11
	TypeStream3        = 21
	TypeHashDeadlines0 = 22 // 22 to 25: since version 12; 22 and 23 only from release candidates
	TypeHashPackedDl0  = 23
	TypeHashDeadlines  = 24
	TypeHashPackedDl   = 25
)

// typeNames is for error texts only.
var typeNames = [...]string{
	TypeString: "string", TypeList: "list", TypeSet: "set", TypeZSet: "sorted set", TypeHash: "hash",
	TypeZSet2: "sorted set 2", TypeModulePre: "module pre-release", TypeModule: "module",
	TypeHashZipmap: "hash zipmap", TypeListZiplist: "list ziplist", TypeSetIntset: "set intset",
	TypeZSetZiplist: "sorted set ziplist", TypeHashZiplist: "hash ziplist", TypeListQuicklist: "list quicklist",
	TypeStream: "stream", TypeHashListpack: "hash listpack", TypeZSetListpack: "sorted set listpack",
	TypeListQuicklist2: "list quicklist 2", TypeStream2: "stream 2", TypeSetListpack: "set listpack",
	TypeStream3: "stream 3", TypeHashDeadlines0: "hash with field deadlines, pre-release",
	TypeHashPackedDl0: "packed hash with field deadlines, pre-release",
	TypeHashDeadlines: "hash with field deadlines", TypeHashPackedDl: "packed hash with field deadlines",
}

// Kind is what a client would call the type of a key.
type Kind uint8

// The kinds a Sink can be given.
const (
	KindString Kind = iota + 1
	KindList
	KindSet
	KindZSet
	KindHash
)

// String returns the word that TYPE answers.
func (k Kind) String() string {
	switch k {
	case KindString:
		return "string"
	case KindList:
		return "list"
	case KindSet:
		return "set"
	case KindZSet:
		return "zset"
	case KindHash:
		return "hash"
	}
	return "none"
}

// Texts of the two error replies of RESTORE, without the ERR in front.
const (
	TextDumpFooter = "DUMP payload version or checksum are wrong"
	TextBadFormat  = "Bad data format"
)

// ErrDumpFooter says that the last ten bytes of a payload do not fit: too short,
// a version above MaxVersion, or a wrong checksum. Answer it with TextDumpFooter.
var ErrDumpFooter = errors.New("dump payload: version or checksum are wrong")

// ErrBadFormat is what errors.Is finds in every *Error and *UnsupportedTypeError.
// Answer it with TextBadFormat.
var ErrBadFormat = errors.New("bad data format")

// errEmpty marks a collection without elements. A payload that holds one is bad;
// in a stream such a key is passed over, because older servers wrote them.
var errEmpty = errors.New("collection without elements")

// Error says what could not be decoded and where. Offset counts bytes of the
// payload or stream, up to the end of what had been read; inside a packed blob it
// is the byte of the blob.
type Error struct {
	What   string
	Offset int64
	Reason string
	Err    error // cause from below, or nil
}

// Error gives the text for logs.
func (e *Error) Error() string {
	return fmt.Sprintf("rdb: %s at byte %d: %s", e.What, e.Offset, e.Reason)
}

// Is reports that every Error is a case of ErrBadFormat.
func (e *Error) Is(target error) bool { return target == ErrBadFormat }

// Unwrap returns the cause, such as io.ErrUnexpectedEOF.
func (e *Error) Unwrap() error { return e.Err }

// UnsupportedTypeError names a value type that this package cannot take apart.
type UnsupportedTypeError struct {
	Type   byte
	Detail string // name of the module for module values, else empty
}

// Error gives the text for logs.
func (e *UnsupportedTypeError) Error() string {
	name := "unknown"
	if int(e.Type) < len(typeNames) && typeNames[e.Type] != "" {
		name = typeNames[e.Type]
	}
	if e.Detail != "" {
		name += " " + e.Detail
	}
	return fmt.Sprintf("rdb: value type %d (%s) is not supported", e.Type, name)
}

// Is makes RESTORE answer an unsupported type the way a server answers one that
// it does not know.
func (e *UnsupportedTypeError) Is(target error) bool { return target == ErrBadFormat }

// Sink receives one value. Begin comes first and names the kind; then come the
// calls of that kind alone, in the order of the input; then End. Slices are valid
// during the call only. An error of a Sink stops the decoder and is returned.
//
// When a decoder fails after Begin, End is never called: drop what was received.
// When a stream holds an empty collection, neither is called.
type Sink interface {
	// Begin tells the length in bytes of a string, exactly; the number of
	// elements of a collection, as the input claims it: 0 when it does not say,
	// and never a reason to allocate.
	Begin(kind Kind, size uint64) error
	// StringChunk gives the next piece of a string. An empty string has none.
	StringChunk(b []byte) error
	// ListItem gives the items from head to tail.
	ListItem(b []byte) error
	// SetMember gives members in no order.
	SetMember(b []byte) error
	// ZSetMember gives members in no order. The score is a number, maybe infinite.
	ZSetMember(b []byte, score float64) error
	// HashField gives fields in no order. deadlineMs is 0 for a field without one.
	HashField(field, value []byte, deadlineMs int64) error
	// End says that the value was whole and sound.
	End() error
}

// LongFields is what a Sink may be too: values of fields of more than LongField bytes then come in pieces, unless they
// sit in a packed blob.
type LongFields interface {
	// LongField begins a value of length bytes, which follow in calls of FieldChunk; it takes the place of HashField.
	// A value may also end too early: then the decoder fails.
	LongField(field []byte, length uint64, deadlineMs int64) error
	FieldChunk(b []byte) error
}

// LongField is how long a value may be, bytes, that is given as a whole to a Sink of LongFields.
const LongField = 64 << 10

// Discard is a Sink that drops the value; what it is given was still checked.
type Discard struct{}

// Begin, StringChunk, ListItem, SetMember, ZSetMember, HashField and End do nothing.
func (Discard) Begin(Kind, uint64) error              { return nil }
func (Discard) StringChunk([]byte) error              { return nil }
func (Discard) ListItem([]byte) error                 { return nil }
func (Discard) SetMember([]byte) error                { return nil }
func (Discard) ZSetMember([]byte, float64) error      { return nil }
func (Discard) HashField([]byte, []byte, int64) error { return nil }
func (Discard) End() error                            { return nil }
