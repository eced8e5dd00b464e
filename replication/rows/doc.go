// Package rows is a data set as one cairn node sends it to another: the rows of its store in order, so that the other
// side writes them to tables as they come. It is smaller than RDB and costs both sides a fraction of the work.
//
// Shape. A stream is a magic, then frames; the bytes of all frames but the last, one behind the other, are a head and
// rows. All integers of fixed length are big endian.
//
//	stream   "CAIRNROW" frame... end
//	frame    codec(1) raw length(4) stored length(4) sum(4) stored bytes
//	end      the same with codec 255 and raw length 0; stored bytes: rows(8) bytes of keys and values(8)
//
//	codec    0 as it is, 1 s2, 2 zstd
//	sum      crc32c of everything from the magic to here, sums left out: what is missing or comes twice is noticed, too
//
//	head     layout version(2) bytes expected(8)
//	row      shared(uvarint) rest length(uvarint) value length(uvarint) rest value
//
// A row's key is the first shared bytes of the key before, then rest. Where a frame ends says nothing about rows: one may
// go over many frames.
//
// Units. Lengths are bytes. The bytes expected are a hint, from before compression.
//
// Errors. A Reader returns *FormatError, or the error of its source: io.ErrUnexpectedEOF where that ends early. It never
// panics, and never has more memory than a frame and what has arrived of one row.
//
// Not here: what rows mean and whether their order is right (engine), who gets such a stream (replication).
package rows

import "hash/crc32"

// Magic is what a stream begins with; an RDB stream never does.
const Magic = "CAIRNROW"

// Is says whether a data set that begins with these bytes is a stream of rows.
func Is(first []byte) bool { return len(first) >= len(Magic) && string(first[:len(Magic)]) == Magic }

// Codec is how frames are packed.
type Codec byte

// The codecs. A frame that does not get smaller is sent as it is.
const (
	Plain Codec = 0
	S2    Codec = 1 // the fastest: a local network
	Zstd  Codec = 2 // smaller by a third, at several times the work: thin links

	endCodec Codec = 255
)

// Head is what a stream says of itself first.
type Head struct {
	Layout uint16 // version of the rows' format
	Bytes  int64  // of keys and values, about
}

const (
	// frameBytes is how much is packed at a time.
	frameBytes = 256 << 10
	// frameMost bounds a frame that is read, packed and unpacked.
	frameMost = 1 << 20

	frameHead = 1 + 4 + 4 // and the sum
	endBytes  = 8 + 8
	headBytes = 2 + 8

	// partMost bounds a key and a value: a name or an element of 512 MiB, with what stands around it.
	partMost = 512<<20 + 1<<10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
