// Package record is the byte format of the node's log: segment headers and blocks.
//
// Shape. A segment file is two copies of its header and then blocks, one after another.
// All integers are little endian.
//
//	0      Header, padded with NUL to a page
//	4096   the same Header again, so that one bad sector does not cost the segment
//	8192   block, block, block, 32 zero bytes, then anything
//
// The zero bytes behind the last block are part of every write. They tell the end of the log
// from a block that was there and can no longer be read, also in a recycled file whose rest is
// full of old blocks.
//
// A block is a fixed head and its payload, a run of bytes of the replication stream:
//
//	0   uint32  head checksum: seed, then bytes 4 to 31
//	4   uint32  body checksum: seed, then bytes 8 to 31, then the payload
//	8   int64   start: stream offset of the first payload byte
//	16  int64   synced: the highest stream offset known to be on stable storage when this was written
//	24  uint32  payload length, at most MaxPayload, 0 for a mark that only carries synced
//	28  uint32  flags
//	32  payload
//
// Units. Offsets count bytes of the replication stream, exactly as Redis counts them: offset n
// is the place behind the n-th byte. Positions count bytes of a file.
//
// Seed. Every use of a segment file draws a new seed, and both checksums start from it. For the
// same bytes two seeds never give the same CRC, so that a block of the file's former life does not
// pass for one of its present life, and recycling needs no zeroing.
//
// Errors. Decoders return ErrEmpty where nothing was written, else *Error, which names the field
// and both values. They never panic and allocate nothing.
//
// Not here: files, chains of segments, what the payload means.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Field positions of a block. They are the format: append, never edit.
const (
	posHeadSum = 0
	posBodySum = 4
	posStart   = 8
	posSynced  = 16
	posLength  = 24
	posFlags   = 28

	// BlockLen is the length in bytes of a block's head.
	BlockLen = 32

	// MaxPayload is the longest payload of one block, in bytes. A reader verifies a block as a
	// whole, so this is also what one random read costs at most.
	MaxPayload = 128 << 10
)

// Neighbouring fields must touch. These lines stop compiling when they do not.
var (
	_ [0]struct{} = [posStart - posBodySum - 4]struct{}{}
	_ [0]struct{} = [posLength - posSynced - 8]struct{}{}
	_ [0]struct{} = [BlockLen - posFlags - 4]struct{}{}
)

// Flags of a block.
const (
	// EndsEntry: the payload's last byte is the last byte of an entry. Recovery cuts only there.
	EndsEntry uint32 = 1 << iota
	// Closed: the log was closed behind this block, nothing follows in this segment.
	Closed

	knownFlags = EndsEntry | Closed
)

// ErrEmpty says that nothing was ever written at this place.
var ErrEmpty = errors.New("log record: empty")

// Error says which field could not be accepted, and both values.
type Error struct {
	Field     string
	Got, Want uint64
	Rule      string // how Got and Want relate, "want" or "limit"
}

func (e *Error) Error() string {
	if e.Field == sumHead || e.Field == sumBody || e.Field == sumSegment {
		return fmt.Sprintf("log record: %s %08x, want %08x", e.Field, e.Got, e.Want)
	}
	return fmt.Sprintf("log record: %s %d, %s %d", e.Field, e.Got, e.Rule, e.Want)
}

const (
	sumHead    = "head checksum"
	sumBody    = "body checksum"
	sumSegment = "segment header checksum"
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) } // the library keeps one table

// Seed starts the checksums of one life of a segment file.
type Seed uint64

// state is the CRC state after the seed itself. It goes by the table, for the library's Update would have the seed's
// bytes on the heap.
func (s Seed) state() uint32 {
	table, crc := castagnoli(), ^uint32(0)
	for range 8 {
		crc = table[byte(crc)^byte(s)] ^ crc>>8
		s >>= 8
	}
	return ^crc
}

// Block is the head of a block.
type Block struct {
	Start  int64 // stream offset of the first payload byte
	Synced int64 // stream offset known synced when written, at most Start
	Length int   // payload bytes
	Flags  uint32

	bodySum uint32
}

// End is the stream offset behind the payload.
func (b Block) End() int64 { return b.Start + int64(b.Length) }

// Append appends the block with its payload to dst. b.Length is taken from the payload.
func (b Block) Append(dst []byte, seed Seed, payload []byte) []byte {
	at := len(dst)
	var head [BlockLen]byte
	dst = append(dst, head[:]...)
	dst = append(dst, payload...)
	Seal(dst[at:], b, seed)
	return dst
}

// Seal fills in the head of raw, which is BlockLen bytes of room and the payload behind them. The
// log lays its buffer out this way, so that what was appended is what is written, without a copy.
func Seal(raw []byte, b Block, seed Seed) {
	le := binary.LittleEndian
	le.PutUint64(raw[posStart:], uint64(b.Start))
	le.PutUint64(raw[posSynced:], uint64(b.Synced))
	le.PutUint32(raw[posLength:], uint32(len(raw)-BlockLen))
	le.PutUint32(raw[posFlags:], b.Flags)
	state := seed.state()
	le.PutUint32(raw[posBodySum:], crc32.Update(state, castagnoli(), raw[posStart:]))
	le.PutUint32(raw[posHeadSum:], crc32.Update(state, castagnoli(), raw[posBodySum:BlockLen]))
}

// Plausible is a quick look at whether src could start with a head whose start lies in [low, high].
// It is for searching: most places fail it without a checksum.
func Plausible(src []byte, low, high int64) bool {
	if len(src) < BlockLen {
		return false
	}
	start := int64(binary.LittleEndian.Uint64(src[posStart:]))
	return start >= low && start <= high &&
		binary.LittleEndian.Uint32(src[posLength:]) <= MaxPayload &&
		binary.LittleEndian.Uint32(src[posFlags:])&^knownFlags == 0
}

// DecodeBlock reads the head at the start of src and checks it against its own checksum. The
// payload is not looked at: see CheckBody.
func DecodeBlock(src []byte, seed Seed) (Block, error) {
	if len(src) < BlockLen {
		return Block{}, &Error{Field: "head bytes", Got: uint64(len(src)), Want: BlockLen, Rule: "want"}
	}
	src = src[:BlockLen]
	if allZero(src) {
		return Block{}, ErrEmpty
	}
	le := binary.LittleEndian
	got, want := le.Uint32(src[posHeadSum:]), crc32.Update(seed.state(), castagnoli(), src[posBodySum:])
	if got != want {
		return Block{}, &Error{Field: sumHead, Got: uint64(got), Want: uint64(want)}
	}
	start, synced := le.Uint64(src[posStart:]), le.Uint64(src[posSynced:])
	length, flags := le.Uint32(src[posLength:]), le.Uint32(src[posFlags:])
	switch {
	case length > MaxPayload:
		return Block{}, &Error{Field: "payload length", Got: uint64(length), Want: MaxPayload, Rule: "limit"}
	case start > math.MaxInt64-uint64(length):
		return Block{}, &Error{Field: "start offset", Got: start, Want: math.MaxInt64 - uint64(length), Rule: "limit"}
	case synced > start:
		return Block{}, &Error{Field: "synced offset", Got: synced, Want: start, Rule: "limit"}
	case flags&^knownFlags != 0:
		return Block{}, &Error{Field: "flags", Got: uint64(flags), Want: uint64(knownFlags), Rule: "limit"}
	}
	return Block{
		Start: int64(start), Synced: int64(synced), Length: int(length), Flags: flags,
		bodySum: le.Uint32(src[posBodySum:]),
	}, nil
}

// CheckBody verifies the payload of a decoded block. raw is the head and the payload together.
func (b Block) CheckBody(raw []byte, seed Seed) error {
	if len(raw) != BlockLen+b.Length {
		return &Error{Field: "block bytes", Got: uint64(len(raw)), Want: uint64(BlockLen + b.Length), Rule: "want"}
	}
	if want := crc32.Update(seed.state(), castagnoli(), raw[posStart:]); want != b.bodySum {
		return &Error{Field: sumBody, Got: uint64(b.bodySum), Want: uint64(want)}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
