package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// Hashes. A small one is packed in its record's body (Inline), fields in the order in which they came:
//
//	flags(1) fields(2) { [deadline(8)] length(uvarint) field length(uvarint) value }...
//
// Any other has a row for each field (Rows), ordered by the hash of the field:
//
//	row key, last part: hash(8) field
//	row value:          flags(1) [deadline(8)] value, or number(8) length(uvarint)
//
// Bit 0 of flags says that deadlines are there, Unix milliseconds, 0 for a field that lives on: in a packed
// hash every field has one then, in a row it is this field's. Bit 1, in a row, says that the value is in
// pieces of PieceBytes, the last one shorter, which stand under the hash's generation in SpaceBulk, with a
// number that no other value under it ever had:
//
//	row key, last part: number(8) piece(4)
//
// So a hash's rows are two ranges, whatever its fields hold. The other bits are 0; what sets one of them is a
// later format, which these decoders refuse.

// Notes of hashes in Record.Enc: how Redis would hold the value. A hash of small fields that are too many bytes
// for PackedHashMax has rows and still says listpack.
const (
	HashListpack  uint8 = 0
	HashHashtable uint8 = 1
)

const (
	// PackedHashMax is how many bytes a packed hash takes at most, whatever the settings allow: each change
	// writes all of it.
	PackedHashMax = 8 << 10
	// PackedHashHead is how many bytes stand before the first field.
	PackedHashHead = 3

	// LongFieldOver is how long a value may be, bytes, to stand in its field's row; a longer one is in pieces.
	LongFieldOver = 64 << 10
	// PieceBytes is how many bytes each piece has but the last.
	PieceBytes = ChunkBytes

	hashDeadlines = 1 << 0 // in flags
	hashPieces    = 1 << 1

	piecesMax = PieceBytes << 32 // bytes: as many as piece numbers reach
)

// HashField is one field of a packed hash. The slices alias the hash.
type HashField struct {
	Name, Value []byte
	Deadline    int64 // Unix milliseconds; 0: lives on

	from, value, end int // places in the body: of the entry, of its value's length, behind it
}

// PackedHash walks the fields of a packed hash.
type PackedHash struct {
	body      []byte
	at        int
	left      int
	deadlines bool
}

// OpenPackedHash checks the head of body and stands before the first field. An empty body is no hash.
func OpenPackedHash(body []byte) (PackedHash, error) {
	if len(body) < PackedHashHead {
		return PackedHash{}, errShort("packed hash", len(body), PackedHashHead)
	}
	if body[0]&^hashDeadlines != 0 {
		return PackedHash{}, &Error{"packed hash", fmt.Sprintf("flags %#02x are not known", body[0])}
	}
	return PackedHash{
		body: body, at: PackedHashHead,
		left:      int(binary.BigEndian.Uint16(body[1:])),
		deadlines: body[0]&hashDeadlines != 0,
	}, nil
}

// Left counts the fields not walked yet.
func (p *PackedHash) Left() int { return p.left }

// Next gives the next field, ok false behind the last one.
func (p *PackedHash) Next() (f HashField, ok bool, err error) {
	if p.left == 0 {
		if p.at != len(p.body) {
			return f, false, &Error{"packed hash", fmt.Sprintf("%d bytes behind the last field", len(p.body)-p.at)}
		}
		return f, false, nil
	}
	f.from = p.at
	at := p.at
	if p.deadlines {
		if len(p.body)-at < 8 {
			return f, false, errShort("packed hash deadline", len(p.body)-at, 8)
		}
		f.Deadline = int64(binary.BigEndian.Uint64(p.body[at:]))
		at += 8
	}
	if f.Name, at, err = p.bytes("packed hash field", at); err != nil {
		return f, false, err
	}
	f.value = at
	if f.Value, at, err = p.bytes("packed hash value", at); err != nil {
		return f, false, err
	}
	f.end = at
	p.at = at
	p.left--
	return f, true, nil
}

// bytes reads a length and as many bytes.
func (p *PackedHash) bytes(part string, at int) ([]byte, int, error) {
	src := p.body[at:]
	n, width := uint64(0), 1
	if len(src) > 0 && src[0] < 0x80 {
		n = uint64(src[0]) // nearly all lengths
	} else if n, width = binary.Uvarint(src); width <= 0 {
		return nil, at, &Error{part, "its length is not a varint"}
	}
	if n > uint64(len(src)-width) {
		return nil, at, &Error{part, fmt.Sprintf("%d bytes, %d are left", n, len(src)-width)}
	}
	end := width + int(n)
	return src[width:end:end], at + end, nil
}

// FindPackedHash looks a field of a packed hash up.
func FindPackedHash(body, field []byte) (f HashField, ok bool, err error) {
	p, err := OpenPackedHash(body)
	if err != nil {
		return f, false, err
	}
	for {
		if f, ok, err = p.Next(); !ok || bytes.Equal(f.Name, field) {
			return f, ok, err
		}
	}
}

// NewPackedHash appends a packed hash without fields.
func NewPackedHash(dst []byte) []byte { return append(dst, 0, 0, 0) }

// PackedHashGrowth is how many bytes a packed hash grows by at most when the field is set.
func PackedHashGrowth(field, value []byte) int {
	return 8 + 2*binary.MaxVarintLen32 + len(field) + len(value)
}

// SetPackedHash sets a field and gives the hash, which is body, changed in place and grown by append, and says
// whether the field is new. A new field comes last, an old one keeps its place and loses its deadline.
func SetPackedHash(body, field, value []byte) (changed []byte, created bool, err error) {
	f, ok, err := FindPackedHash(body, field)
	if err != nil {
		return body, false, err
	}
	if !ok {
		n := binary.BigEndian.Uint16(body[1:])
		if n == math.MaxUint16 {
			return body, false, &Error{"packed hash", fmt.Sprintf("%d fields, no room for one more", n)}
		}
		binary.BigEndian.PutUint16(body[1:], n+1)
		if body[0]&hashDeadlines != 0 {
			body = binary.BigEndian.AppendUint64(body, 0)
		}
		body = append(binary.AppendUvarint(body, uint64(len(field))), field...)
		return append(binary.AppendUvarint(body, uint64(len(value))), value...), true, nil
	}
	if body[0]&hashDeadlines != 0 {
		binary.BigEndian.PutUint64(body[f.from:], 0)
	}
	var length [binary.MaxVarintLen64]byte
	head := binary.AppendUvarint(length[:0], uint64(len(value)))
	// What stands behind the value moves by the difference in length.
	oldLen, newLen := f.end-f.value, len(head)+len(value)
	if grow := newLen - oldLen; grow > 0 {
		body = append(body, make([]byte, grow)...)
		copy(body[f.end+grow:], body[f.end:len(body)-grow])
	} else {
		copy(body[f.end+grow:], body[f.end:])
		body = body[:len(body)+grow]
	}
	copy(body[f.value:], head)
	copy(body[f.value+len(head):], value)
	return body, false, nil
}

// DeletePackedHash removes a field and gives the hash, which is body, changed in place.
func DeletePackedHash(body, field []byte) (changed []byte, deleted bool, err error) {
	f, ok, err := FindPackedHash(body, field)
	if err != nil || !ok {
		return body, false, err
	}
	binary.BigEndian.PutUint16(body[1:], binary.BigEndian.Uint16(body[1:])-1)
	n := copy(body[f.from:], body[f.end:])
	return body[:f.from+n], true, nil
}

// HashPosLen is the length of the position at the head of a hash row's last part.
const HashPosLen = 8

// AppendHashElement appends the last part of the row key of a field.
func AppendHashElement(dst, field []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, Hash(field))
	return append(dst, field...)
}

// AppendHashFrom appends the smallest last part of rows at position pos or behind it.
func AppendHashFrom(dst []byte, pos uint64) []byte { return binary.BigEndian.AppendUint64(dst, pos) }

// HashElementParts splits the last part of the row key of a field. The position is the field's Hash.
func HashElementParts(element []byte) (pos uint64, field []byte, err error) {
	if len(element) < HashPosLen {
		return 0, nil, errShort("hash row key", len(element), HashPosLen)
	}
	return binary.BigEndian.Uint64(element), element[HashPosLen:], nil
}

// AppendHashValue appends the value of a field's row; deadlineMs 0 is none.
func AppendHashValue(dst, value []byte, deadlineMs int64) []byte {
	return append(appendHashHead(dst, 0, deadlineMs), value...)
}

// AppendHashPieces appends the row of a field whose value of length bytes is in pieces with this number.
func AppendHashPieces(dst []byte, number, length uint64, deadlineMs int64) []byte {
	dst = appendHashHead(dst, hashPieces, deadlineMs)
	return binary.AppendUvarint(binary.BigEndian.AppendUint64(dst, number), length)
}

func appendHashHead(dst []byte, flags byte, deadlineMs int64) []byte {
	if deadlineMs == 0 {
		return append(dst, flags)
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|hashDeadlines), uint64(deadlineMs))
}

// HashValue is the value of a field's row.
type HashValue struct {
	Value    []byte // unless it is in pieces; aliases the row
	Deadline int64  // Unix milliseconds; 0: lives on
	Length   uint64 // bytes of the value
	InPieces bool
	Number   uint64 // of the pieces
}

// Pieces counts the rows of a value in pieces.
func (v *HashValue) Pieces() uint64 { return (v.Length + PieceBytes - 1) / PieceBytes }

// DecodeHashValue splits the value of a field's row.
func DecodeHashValue(src []byte) (v HashValue, err error) {
	if len(src) < 1 {
		return v, errShort("hash row", 0, 1)
	}
	flags := src[0]
	src = src[1:]
	if flags == 0 { // nearly always
		return HashValue{Value: src, Length: uint64(len(src))}, nil
	}
	if flags&^(hashDeadlines|hashPieces) != 0 {
		return v, &Error{"hash row", fmt.Sprintf("flags %#02x are not known", flags)}
	}
	if flags&hashDeadlines != 0 {
		if len(src) < 8 {
			return v, errShort("hash row deadline", len(src), 8)
		}
		v.Deadline = int64(binary.BigEndian.Uint64(src))
		src = src[8:]
	}
	if flags&hashPieces == 0 {
		v.Value, v.Length = src, uint64(len(src))
		return v, nil
	}
	if len(src) < 8 {
		return v, errShort("hash row number", len(src), 8)
	}
	v.InPieces, v.Number = true, binary.BigEndian.Uint64(src)
	length, rest, err := uvarint("hash row length", src[8:])
	if err != nil {
		return v, err
	}
	if v.Length = length; length == 0 || length > piecesMax || len(rest) > 0 {
		return v, &Error{"hash row", fmt.Sprintf("%d bytes in pieces, %d bytes behind that", length, len(rest))}
	}
	return v, nil
}

// PieceLen is the length of the last part of a piece's row key.
const PieceLen = 8 + 4

// AppendPiece appends the last part of the row key of a piece.
func AppendPiece(dst []byte, number uint64, piece uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(dst, number), piece)
}

// PieceParts splits the last part of the row key of a piece.
func PieceParts(element []byte) (number uint64, piece uint32, err error) {
	if len(element) != PieceLen {
		return 0, 0, &Error{"piece", fmt.Sprintf("row key's last part has %d bytes, want %d", len(element), PieceLen)}
	}
	return binary.BigEndian.Uint64(element), binary.BigEndian.Uint32(element[8:]), nil
}
