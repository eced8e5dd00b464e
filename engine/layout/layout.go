// Package layout draws every row that cairn keeps in Pebble and turns it into bytes and back.
//
// Shape. A row's key opens with its space. All integers in keys are big endian, so that byte order is
// numeric order and a slot, a range of slots or the elements of one value are contiguous:
//
//	0x00 name                                node rows: state, counter pages
//	0x01 slot(2) 0x01 hash(6) key            key record, one for every key; value: Record
//	0x01 slot(2) 0x02 generation(8) element  element of a large value
//	0x01 slot(2) 0x03 deadline(8) key        expiry index, a hint: the key record decides; value: empty
//	0x01 slot(2) 0x04 generation(8)          a generation whose rows wait to be dropped; value: Drop
//	0x01 slot(2) 0x04 generation(8) number(8) the same of a field's pieces in it
//	0x02 slot(2) 0x01 key                    value of a string over InlineMax bytes, up to ChunkedOver
//	0x02 slot(2) 0x02 generation(8) chunk(4) chunk of a longer string, ChunkBytes each
//	0x02 slot(2) 0x02 generation(8) number(8) piece(4)
//	                                         piece of a long value of a hash's field, PieceBytes each
//
// Bulk values have a space of their own because Pebble chooses where a value lives by key span and ends a
// table at each border of such spans: one border in the whole store costs nothing, two in each of 16384 slots
// would shatter it into tiny tables.
//
// Units. Deadlines are Unix milliseconds. Lengths are bytes. A generation is a number unique in the node and
// never used twice.
//
// Errors. Decoders return *Error, which names the row's part and the reason. They never panic.
//
// Not here: the store, transactions, the meaning of elements (each command family owns that).
package layout

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Spaces, the first byte of each row key.
const (
	SpaceNode = 0x00
	SpaceSlot = 0x01
	SpaceBulk = 0x02
	spaceEnd  = 0x03
)

// Kinds, the fourth byte of a row key in SpaceSlot and SpaceBulk.
const (
	KindRecord   = 0x01
	KindElement  = 0x02
	KindDeadline = 0x03
	KindDrop     = 0x04

	KindValue = 0x01 // in SpaceBulk
	KindChunk = 0x02 // in SpaceBulk
)

// Limits that decide where a string lives.
const (
	InlineMax   = 512       // bytes; a longer string has its value in a row of its own
	ChunkedOver = 64 << 10  // bytes; a longer string is cut into chunks
	ChunkBytes  = 16 << 10  // bytes of each chunk but the last
	StringMax   = 512 << 20 // bytes; no string is longer
)

// PrefixLen is the length of space, slot and kind at the head of every row key outside SpaceNode.
const PrefixLen = 4

// Error says which part of a row could not be decoded, and why.
type Error struct {
	Part   string
	Reason string
}

func (e *Error) Error() string { return "row: " + e.Part + ": " + e.Reason }

func errShort(part string, got, want int) error {
	return &Error{part, fmt.Sprintf("%d bytes, want at least %d", got, want)}
}

// Hash is the fixed hash that orders keys within a slot and elements within a hash or a set. It has no seed:
// a cursor of SCAN is a position in this order and outlives restarts and failovers.
func Hash(b []byte) uint64 { return xxhash.Sum64(b) }

// Hash48 is the part of a key's hash that its record's row key holds.
func Hash48(h uint64) uint64 { return h >> 16 }

func appendPrefix(dst []byte, space byte, slot uint16, kind byte) []byte {
	return append(dst, space, byte(slot>>8), byte(slot), kind)
}

// AppendRecordKey appends the row key of the record of key, whose Hash is h.
func AppendRecordKey(dst []byte, slot uint16, h uint64, key []byte) []byte {
	dst = AppendRecordFrom(dst, slot, Hash48(h))
	return append(dst, key...)
}

// AppendRecordFrom appends the smallest row key of records in slot whose 48-bit hash is h48 or more.
func AppendRecordFrom(dst []byte, slot uint16, h48 uint64) []byte {
	dst = appendPrefix(dst, SpaceSlot, slot, KindRecord)
	return append(dst, byte(h48>>40), byte(h48>>32), byte(h48>>24), byte(h48>>16), byte(h48>>8), byte(h48))
}

// RecordKeyParts splits the row key of a record.
func RecordKeyParts(row []byte) (h48 uint64, key []byte, err error) {
	if len(row) < PrefixLen+6 {
		return 0, nil, errShort("record key", len(row), PrefixLen+6)
	}
	b := row[PrefixLen:]
	h48 = uint64(b[0])<<40 | uint64(b[1])<<32 | uint64(b[2])<<24 | uint64(b[3])<<16 | uint64(b[4])<<8 | uint64(b[5])
	return h48, b[6:], nil
}

// AppendElementKey appends the row key of an element of the value with this generation.
func AppendElementKey(dst []byte, slot uint16, gen uint64, element []byte) []byte {
	dst = appendPrefix(dst, SpaceSlot, slot, KindElement)
	dst = binary.BigEndian.AppendUint64(dst, gen)
	return append(dst, element...)
}

// IsElement says whether a row key is that of an element.
func IsElement(row []byte) bool {
	return len(row) > PrefixLen && row[0] == SpaceSlot && row[PrefixLen-1] == KindElement
}

// AppendDeadlineKey appends the row key of the expiry index for key.
func AppendDeadlineKey(dst []byte, slot uint16, deadlineMs int64, key []byte) []byte {
	dst = appendPrefix(dst, SpaceSlot, slot, KindDeadline)
	dst = binary.BigEndian.AppendUint64(dst, uint64(deadlineMs))
	return append(dst, key...)
}

// DeadlineKeyParts splits a row key of the expiry index.
func DeadlineKeyParts(row []byte) (deadlineMs int64, key []byte, err error) {
	if len(row) < PrefixLen+8 {
		return 0, nil, errShort("deadline key", len(row), PrefixLen+8)
	}
	return int64(binary.BigEndian.Uint64(row[PrefixLen:])), row[PrefixLen+8:], nil
}

// AppendDropKey appends the row key that lists a generation for dropping.
func AppendDropKey(dst []byte, slot uint16, gen uint64) []byte {
	dst = appendPrefix(dst, SpaceSlot, slot, KindDrop)
	return binary.BigEndian.AppendUint64(dst, gen)
}

// AppendPieceDropKey appends the row key that lists one field's pieces for dropping.
func AppendPieceDropKey(dst []byte, slot uint16, gen, number uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendDropKey(dst, slot, gen), number)
}

// DropKeyParts splits a row key that lists something for dropping; pieces says that it is a field's pieces and not all
// of a generation.
func DropKeyParts(row []byte) (gen, number uint64, pieces bool, err error) {
	switch len(row) {
	case PrefixLen + 8:
		return binary.BigEndian.Uint64(row[PrefixLen:]), 0, false, nil
	case PrefixLen + 16:
		return binary.BigEndian.Uint64(row[PrefixLen:]), binary.BigEndian.Uint64(row[PrefixLen+8:]), true, nil
	}
	return 0, 0, false, &Error{"drop key", fmt.Sprintf("%d bytes, want %d or %d", len(row), PrefixLen+8, PrefixLen+16)}
}

// AppendValueKey appends the row key of the value of the string at key.
func AppendValueKey(dst []byte, slot uint16, key []byte) []byte {
	dst = appendPrefix(dst, SpaceBulk, slot, KindValue)
	return append(dst, key...)
}

// AppendChunkKey appends the row key of a chunk of the string with this generation.
func AppendChunkKey(dst []byte, slot uint16, gen uint64, chunk uint32) []byte {
	dst = appendPrefix(dst, SpaceBulk, slot, KindChunk)
	dst = binary.BigEndian.AppendUint64(dst, gen)
	return binary.BigEndian.AppendUint32(dst, chunk)
}

// AppendPieceKey appends the row key of a piece of a field's value in the hash with this generation.
func AppendPieceKey(dst []byte, slot uint16, gen, number uint64, piece uint32) []byte {
	dst = appendPrefix(dst, SpaceBulk, slot, KindChunk)
	return AppendPiece(binary.BigEndian.AppendUint64(dst, gen), number, piece)
}

// PieceRange gives the bounds [lo, hi) of the pieces of one value. Numbers are below 2^63, as generations are.
func PieceRange(slot uint16, gen, number uint64) (lo, hi []byte) {
	lo = AppendPieceKey(nil, slot, gen, number, 0)
	hi = AppendPieceKey(nil, slot, gen, number+1, 0)
	return lo[:len(lo)-4], hi[:len(hi)-4]
}

// PieceKeyParts gives generation and number of a row key of SpaceBulk and KindChunk, ok false when it is a chunk of a
// string.
func PieceKeyParts(row []byte) (gen, number uint64, ok bool) {
	if len(row) != PrefixLen+8+PieceLen {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(row[PrefixLen:]), binary.BigEndian.Uint64(row[PrefixLen+8:]), true
}

// GenerationRange gives the bounds [lo, hi) of all rows of one generation, elements or chunks.
func GenerationRange(slot uint16, gen uint64, chunks bool) (lo, hi []byte) {
	space, kind := byte(SpaceSlot), byte(KindElement)
	if chunks {
		space, kind = SpaceBulk, KindChunk
	}
	lo = binary.BigEndian.AppendUint64(appendPrefix(nil, space, slot, kind), gen)
	hi = binary.BigEndian.AppendUint64(appendPrefix(nil, space, slot, kind), gen+1)
	return lo, hi
}

// KindRange gives the bounds [lo, hi) of all rows of one kind in one slot.
func KindRange(space byte, slot uint16, kind byte) (lo, hi []byte) {
	return appendPrefix(nil, space, slot, kind), appendPrefix(nil, space, slot, kind+1)
}

// SlotRange gives the bounds [lo, hi) in one space of all rows of the slots first to last, both included.
func SlotRange(space byte, first, last uint16) (lo, hi []byte) {
	lo = []byte{space, byte(first >> 8), byte(first)}
	if last == 0xffff {
		return lo, []byte{space + 1}
	}
	next := last + 1
	return lo, []byte{space, byte(next >> 8), byte(next)}
}

// SlotOf gives the slot of a row key outside SpaceNode.
func SlotOf(row []byte) (uint16, error) {
	if len(row) < PrefixLen {
		return 0, errShort("row key", len(row), PrefixLen)
	}
	if row[0] == SpaceNode || row[0] >= spaceEnd {
		return 0, &Error{"row key", fmt.Sprintf("space %d has no slots", row[0])}
	}
	return binary.BigEndian.Uint16(row[1:]), nil
}
