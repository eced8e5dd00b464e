package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// FormatError says where a stream is not what the package comment draws.
type FormatError struct {
	Frame  int64 // counted from 0
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("stream of rows: frame %d: %s", e.Frame, e.Reason)
}

// Reader reads a stream, and nothing behind its end.
type Reader struct {
	from io.Reader
	zstd *zstd.Decoder // nil: not needed so far

	head   [frameHead + 4]byte
	stored []byte
	raw    []byte // unpacked, not given out yet
	room   []byte
	sum    uint32
	frame  int64
	ended  bool

	told  Head
	key   []byte
	long  []byte // a value that goes over frames
	rows  int64
	bytes int64
}

// NewReader reads the head of a stream.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: from}
	magic := make([]byte, len(Magic))
	if err := r.fill(magic); err != nil {
		return nil, err
	}
	if !Is(magic) {
		return nil, r.bad("it begins with %q", magic)
	}
	r.sum = crc32.Update(0, castagnoli, magic)
	if err := r.next(); err != nil {
		return nil, err
	}
	if len(r.raw) < headBytes {
		return nil, r.bad("%d bytes of head, want %d", len(r.raw), headBytes)
	}
	r.told = Head{binary.BigEndian.Uint16(r.raw), int64(binary.BigEndian.Uint64(r.raw[2:]) & math.MaxInt64)}
	r.raw = r.raw[headBytes:]
	return r, nil
}

// Head is what the stream says of itself.
func (r *Reader) Head() Head { return r.told }

// Close lets go of what unpacking needed.
func (r *Reader) Close() {
	if r.zstd != nil {
		r.zstd.Close()
	}
}

func (r *Reader) bad(format string, args ...any) error {
	return &FormatError{r.frame, fmt.Sprintf(format, args...)}
}

// fill reads into all of b. A source that ends is cut off: the end of a stream says so itself.
func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.from, b)
	if err == io.EOF { //nolint:errorlint // bare, by io.ReadFull's contract
		err = io.ErrUnexpectedEOF
	}
	return err
}

// next reads a frame. Behind the last one r.ended is true.
func (r *Reader) next() error {
	if err := r.fill(r.head[:]); err != nil {
		return err
	}
	codec := Codec(r.head[0])
	raw, stored := binary.BigEndian.Uint32(r.head[1:]), binary.BigEndian.Uint32(r.head[5:])
	if raw > frameMost || stored > frameMost {
		return r.bad("%d bytes in %d, at most %d each", raw, stored, frameMost)
	}
	r.stored = slices.Grow(r.stored[:0], int(stored))[:stored]
	if err := r.fill(r.stored); err != nil {
		return err
	}
	r.sum = crc32.Update(crc32.Update(r.sum, castagnoli, r.head[:frameHead]), castagnoli, r.stored)
	if want := binary.BigEndian.Uint32(r.head[frameHead:]); r.sum != want {
		return r.bad("checksum %08x, want %08x", r.sum, want)
	}
	if codec == endCodec {
		return r.end(raw)
	}
	if raw == 0 {
		return r.bad("it is empty")
	}
	if err := r.unpack(codec, int(raw)); err != nil {
		return err
	}
	r.frame++
	return nil
}

// unpack makes raw of stored. With the checksum right it fails for what was packed wrongly only.
func (r *Reader) unpack(codec Codec, raw int) (err error) {
	r.room = slices.Grow(r.room[:0], raw)
	switch codec {
	case Plain:
		r.raw = r.stored
	case S2:
		n, lenErr := s2.DecodedLen(r.stored)
		if lenErr != nil || n != raw {
			return r.bad("it unpacks to %d bytes, want %d: %v", n, raw, lenErr)
		}
		r.raw, err = s2.Decode(r.room[:raw], r.stored)
	case Zstd:
		if r.zstd == nil {
			r.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(frameMost), zstd.WithDecoderLowmem(true))
			if err != nil {
				return err
			}
		}
		r.raw, err = r.zstd.DecodeAll(r.stored, r.room)
	default:
		return r.bad("codec %d is unknown", codec)
	}
	if err != nil {
		return r.bad("it does not unpack: %v", err)
	}
	if len(r.raw) != raw {
		return r.bad("it unpacks to %d bytes, want %d", len(r.raw), raw)
	}
	return nil
}

func (r *Reader) end(raw uint32) error {
	if raw != 0 || len(r.stored) != endBytes {
		return r.bad("an end of %d bytes, want %d", len(r.stored), endBytes)
	}
	rows, bytes := binary.BigEndian.Uint64(r.stored), binary.BigEndian.Uint64(r.stored[8:])
	if rows != uint64(r.rows) || bytes != uint64(r.bytes) {
		return r.bad("the end counts %d rows and %d bytes, %d and %d came", rows, bytes, r.rows, r.bytes)
	}
	r.ended = true
	return nil
}

// errWithin is the end of a stream where more was to come.
var errWithin = errors.New("the stream ends within a row")

// more reads the next frame when nothing is left of this one.
func (r *Reader) more() error {
	if len(r.raw) > 0 {
		return nil
	}
	if err := r.next(); err != nil {
		return err
	}
	if r.ended {
		return r.bad("%v", errWithin)
	}
	return nil
}

// Next gives the next row, io.EOF behind the last one of a whole stream. Both slices are valid until the next call.
func (r *Reader) Next() (key, val []byte, err error) {
	if !r.ended && len(r.raw) == 0 {
		if err := r.next(); err != nil {
			return nil, nil, err
		}
	}
	if r.ended {
		return nil, nil, io.EOF
	}
	var n [3]uint64
	for i := range n {
		if n[i], err = r.uvarint(); err != nil {
			return nil, nil, err
		}
	}
	if n[0] > uint64(len(r.key)) || n[1] > partMost-n[0] || n[2] > partMost {
		return nil, nil, r.bad("row of %d and %d bytes of key behind a key of %d, and %d of value", n[0], n[1], len(r.key), n[2])
	}
	if r.key, err = r.gather(r.key[:n[0]], int(n[1])); err != nil {
		return nil, nil, err
	}
	if val, err = r.part(int(n[2])); err != nil {
		return nil, nil, err
	}
	r.rows++
	r.bytes += int64(len(r.key) + len(val))
	return r.key, val, nil
}

func (r *Reader) uvarint() (v uint64, err error) {
	for shift := 0; ; shift += 7 {
		if err := r.more(); err != nil {
			return 0, err
		}
		b := r.raw[0]
		r.raw = r.raw[1:]
		if shift >= 35 {
			return 0, r.bad("a length of more than 5 bytes")
		}
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, nil
		}
	}
}

// part gives n bytes as they lie, if they are in one frame.
func (r *Reader) part(n int) (b []byte, err error) {
	if n <= len(r.raw) {
		b, r.raw = r.raw[:n:n], r.raw[n:]
		return b, nil
	}
	if cap(r.long) > frameMost {
		r.long = nil // it was for one long value
	}
	r.long, err = r.gather(r.long[:0], n)
	return r.long, err
}

// gather appends the next n bytes to dst, which grows with what arrives.
func (r *Reader) gather(dst []byte, n int) ([]byte, error) {
	for n > 0 {
		if err := r.more(); err != nil {
			return dst, err
		}
		k := min(n, len(r.raw))
		dst = append(dst, r.raw[:k]...)
		r.raw = r.raw[k:]
		n -= k
	}
	return dst, nil
}
