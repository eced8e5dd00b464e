package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// A segment header says whose stream the segment holds and which segment comes before it:
//
//	0    [8]byte   "cairnlog"
//	8    uint32    format version, 1 or 2
//	12   uint32    reserved, zero
//	16   uint64    sequence number, from 1, also the file's name
//	24   int64     stream offset of the first byte
//	32   uint64    seed of the checksums in this segment
//	40   uint64    sequence number of the segment before, 0 when the chain starts here
//	48   uint64    seed of the segment before
//	56   int64     stream offset known synced when this was written
//	64   uint64    history counter
//	72   int64     second offset, -1 when there is no second id
//	80   [40]byte  replication id
//	120  [40]byte  second replication id, NUL when there is none
//	160  uint32    CRC32C of bytes 0 to 159
//
// The start offset is also where the segment before ends, wherever its own blocks end: a cut is
// a new segment that starts earlier. Of two segments that name the same one before them, the one
// with the higher sequence number counts. So a cut is one write, and what was cut cannot come back.
//
// In a segment of version 2 the starts of blocks count from the segment's own start, and their synced is 0. Its blocks
// were written before anybody knew where in the stream they would lie: that is said by the header alone, so a file of any
// size gets its place by one small write.
const (
	posMagic      = 0
	posVersion    = 8
	posSequence   = 16
	posFirst      = 24
	posSeed       = 32
	posPrev       = 40
	posPrevSeed   = 48
	posHeadSynced = 56
	posCounter    = 64
	posOffset2    = 72
	posID         = 80
	posID2        = 120
	posSum        = 160

	// HeaderLen is the length in bytes of one copy of the header. It fits a sector.
	HeaderLen = 164

	// CopyAt is the position of the header's second copy, DataAt that of the first block.
	CopyAt = 4096
	DataAt = 8192

	// IDLen is the length of a replication id, 40 hex digits.
	IDLen = 40

	magic       = "cairnlog"
	version     = 1
	versionLaid = 2
)

var (
	_ [0]struct{} = [posID - posOffset2 - 8]struct{}{}
	_ [0]struct{} = [posID2 - posID - IDLen]struct{}{}
	_ [0]struct{} = [posSum - posID2 - IDLen]struct{}{}
	_ [0]struct{} = [HeaderLen - posSum - 4]struct{}{}
)

// History names the stream of a stretch of the log, as Redis does: its replication id, and the
// id that holds for everything before Offset2.
type History struct {
	ID      [IDLen]byte // hex digits
	ID2     [IDLen]byte // hex digits, all NUL or all '0' when there is none
	Offset2 int64       // Redis's second_repl_offset: the number of the first byte that is not of ID2; -1 none
	Counter uint64      // grows with every change of history; tells two visits to the same id apart
}

// Header describes one segment.
type Header struct {
	Sequence uint64
	Start    int64 // stream offset of the first byte
	Seed     Seed
	Prev     uint64 // 0: the chain starts here
	PrevSeed Seed
	Synced   int64 // stream offset known synced when the header was written
	History  History
	Laid     bool // the starts of blocks count from Start: format version 2
}

// Append appends both copies of the header with their padding, DataAt bytes.
func (h *Header) Append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, DataAt)...)
	b := dst[at:]
	le := binary.LittleEndian
	copy(b[posMagic:], magic)
	le.PutUint32(b[posVersion:], version)
	if h.Laid {
		le.PutUint32(b[posVersion:], versionLaid)
	}
	le.PutUint64(b[posSequence:], h.Sequence)
	le.PutUint64(b[posFirst:], uint64(h.Start))
	le.PutUint64(b[posSeed:], uint64(h.Seed))
	le.PutUint64(b[posPrev:], h.Prev)
	le.PutUint64(b[posPrevSeed:], uint64(h.PrevSeed))
	le.PutUint64(b[posHeadSynced:], uint64(h.Synced))
	le.PutUint64(b[posCounter:], h.History.Counter)
	le.PutUint64(b[posOffset2:], uint64(h.History.Offset2))
	copy(b[posID:], h.History.ID[:])
	copy(b[posID2:], h.History.ID2[:])
	le.PutUint32(b[posSum:], crc32.Checksum(b[:posSum], castagnoli()))
	copy(b[CopyAt:], b[:HeaderLen])
	return dst
}

// Decode fills h from one copy of a header at the start of src.
func (h *Header) Decode(src []byte) error {
	if len(src) < HeaderLen {
		return &Error{Field: "segment header bytes", Got: uint64(len(src)), Want: HeaderLen, Rule: "want"}
	}
	src = src[:HeaderLen]
	if allZero(src) {
		return ErrEmpty
	}
	le := binary.LittleEndian
	if got, want := le.Uint32(src[posSum:]), crc32.Checksum(src[:posSum], castagnoli()); got != want {
		return &Error{Field: sumSegment, Got: uint64(got), Want: uint64(want)}
	}
	if string(src[posMagic:posVersion]) != magic {
		return &Error{Field: "segment magic", Got: le.Uint64(src[posMagic:]), Want: le.Uint64([]byte(magic)), Rule: "want"}
	}
	v := le.Uint32(src[posVersion:])
	if v != version && v != versionLaid {
		return &Error{Field: "segment version", Got: uint64(v), Want: versionLaid, Rule: "limit"}
	}
	*h = Header{
		Sequence: le.Uint64(src[posSequence:]),
		Start:    int64(le.Uint64(src[posFirst:])),
		Seed:     Seed(le.Uint64(src[posSeed:])),
		Prev:     le.Uint64(src[posPrev:]),
		PrevSeed: Seed(le.Uint64(src[posPrevSeed:])),
		Synced:   int64(le.Uint64(src[posHeadSynced:])),
		Laid:     v == versionLaid,
		History: History{
			ID:      [IDLen]byte(src[posID:]),
			ID2:     [IDLen]byte(src[posID2:]),
			Offset2: int64(le.Uint64(src[posOffset2:])),
			Counter: le.Uint64(src[posCounter:]),
		},
	}
	switch {
	case h.Sequence == 0 || h.Prev >= h.Sequence:
		return &Error{Field: "segment sequence", Got: h.Sequence, Want: h.Prev, Rule: "must exceed"}
	case h.Start < 0:
		return &Error{Field: "segment start", Got: uint64(h.Start), Want: 0, Rule: "must not be below"}
	case h.Synced < 0 || h.Synced > h.Start:
		return &Error{Field: "segment synced offset", Got: uint64(h.Synced), Want: uint64(h.Start), Rule: "limit"}
	}
	return nil
}

// DecodeBlock reads the head of a block of this segment, see DecodeBlock, and gives its start in the stream.
func (h *Header) DecodeBlock(src []byte) (Block, error) {
	b, err := DecodeBlock(src, h.Seed)
	if err != nil || !h.Laid {
		return b, err
	}
	if limit := math.MaxInt64 - h.Start - int64(b.Length); b.Start > limit {
		return Block{}, &Error{Field: "start offset", Got: uint64(b.Start), Want: uint64(max(0, limit)), Rule: "limit"}
	}
	b.Start += h.Start
	return b, nil
}

// Plausible is Plausible for a block of this segment, with low and high in the stream.
func (h *Header) Plausible(src []byte, low, high int64) bool {
	if h.Laid {
		low, high = low-h.Start, high-h.Start
	}
	return Plausible(src, low, high)
}

// Follows says whether a segment of history h that starts at start may come behind one of history
// before: the same id, or one that names it as its second id at exactly that place.
func (h *History) Follows(before *History, start int64) bool {
	if h.ID == before.ID {
		return true
	}
	// Redis numbers bytes from 1, so the first byte behind offset start has the number start+1.
	return h.ID2 == before.ID && h.Offset2 == start+1
}
