package rows

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Writer writes a stream. It is for one goroutine; its destination's errors come back from the call that met them.
type Writer struct {
	to    io.Writer
	codec Codec
	zstd  *zstd.Encoder // nil: not needed

	raw    []byte // of the frame under way
	packed []byte
	head   []byte
	sum    uint32
	last   []byte // key of the row before
	rows   int64
	bytes  int64
}

// NewWriter begins a stream.
func NewWriter(to io.Writer, codec Codec, h Head) (*Writer, error) {
	w := &Writer{to: to, codec: codec, raw: make([]byte, 0, frameBytes)}
	switch codec {
	case Plain, S2:
	case Zstd:
		var err error
		w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(frameBytes), zstd.WithEncoderCRC(false),
			// Text without repetitions, hex say, gets smaller too. By default this level leaves it as it is.
			zstd.WithAllLitEntropyCompression(true))
		if err != nil {
			return nil, fmt.Errorf("begin a stream of rows: %w", err)
		}
	default:
		return nil, fmt.Errorf("begin a stream of rows: codec %d is none", codec)
	}
	w.sum = crc32.Update(0, castagnoli, []byte(Magic))
	if _, err := io.WriteString(to, Magic); err != nil {
		return nil, err
	}
	w.raw = binary.BigEndian.AppendUint16(w.raw, h.Layout)
	w.raw = binary.BigEndian.AppendUint64(w.raw, uint64(h.Bytes))
	return w, nil
}

// Row adds a row. Bytes are copied.
func (w *Writer) Row(key, val []byte) error {
	shared := 0
	for most := min(len(key), len(w.last)); shared < most && key[shared] == w.last[shared]; shared++ {
	}
	rest := key[shared:]
	w.last = append(w.last[:shared], rest...)
	w.rows++
	w.bytes += int64(len(key) + len(val))
	if len(w.raw)+3*binary.MaxVarintLen64 > frameBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.raw = binary.AppendUvarint(w.raw, uint64(shared))
	w.raw = binary.AppendUvarint(w.raw, uint64(len(rest)))
	w.raw = binary.AppendUvarint(w.raw, uint64(len(val)))
	if err := w.add(rest); err != nil {
		return err
	}
	return w.add(val)
}

// add adds bytes, over as many frames as they need.
func (w *Writer) add(b []byte) error {
	for len(w.raw)+len(b) > frameBytes {
		n := frameBytes - len(w.raw)
		w.raw = append(w.raw, b[:n]...)
		b = b[n:]
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.raw = append(w.raw, b...)
	return nil
}

// flush sends the frame under way.
func (w *Writer) flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	codec, stored := w.pack()
	err := w.frame(codec, len(w.raw), stored)
	w.raw = w.raw[:0]
	return err
}

func (w *Writer) pack() (Codec, []byte) {
	switch w.codec {
	case S2:
		if need := s2.MaxEncodedLen(len(w.raw)); cap(w.packed) < need {
			w.packed = make([]byte, need)
		}
		w.packed = s2.Encode(w.packed[:cap(w.packed)], w.raw)
	case Zstd:
		w.packed = w.zstd.EncodeAll(w.raw, w.packed[:0])
	default:
		return Plain, w.raw
	}
	if len(w.packed) >= len(w.raw) {
		return Plain, w.raw
	}
	return w.codec, w.packed
}

func (w *Writer) frame(codec Codec, raw int, stored []byte) error {
	w.head = append(w.head[:0], byte(codec))
	w.head = binary.BigEndian.AppendUint32(w.head, uint32(raw))
	w.head = binary.BigEndian.AppendUint32(w.head, uint32(len(stored)))
	w.sum = crc32.Update(crc32.Update(w.sum, castagnoli, w.head), castagnoli, stored)
	w.head = binary.BigEndian.AppendUint32(w.head, w.sum)
	if _, err := w.to.Write(w.head); err != nil {
		return err
	}
	_, err := w.to.Write(stored)
	return err
}

// Close writes the end. Without it the other side takes nothing.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	end := binary.BigEndian.AppendUint64(nil, uint64(w.rows))
	err := w.frame(endCodec, 0, binary.BigEndian.AppendUint64(end, uint64(w.bytes)))
	w.rows = math.MinInt64 // another call would be found by the reader
	if w.zstd != nil {
		_ = w.zstd.Close() // it has no destination that could fail
	}
	return err
}
