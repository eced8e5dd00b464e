package rdb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// pieceLen is the size of the pieces in which long strings are handed on, and the
// step in which memory for one follows its bytes.
const pieceLen = 64 << 10

// source is where a decoder reads from: a payload in memory, or a stream. A
// payload is aliased, never copied. A stream is summed as it is consumed.
type source struct {
	mem []byte        // the payload, when br is nil
	br  *bufio.Reader // the stream, else nil
	off int64         // bytes consumed
	crc uint64        // of the bytes consumed from br
	big []byte        // holds what does not fit into the buffer of br

	passed Passed // of mem
	told   int64  // passed knows up to here
}

// fail makes the error of a decoder. err may be nil, a cause, or an error of this
// package, which is kept as it is.
func (s *source) fail(what, reason string, err error) error {
	return &Error{What: what, Offset: s.off, Reason: reason, Err: err}
}

func (s *source) failf(what, format string, args ...any) error {
	return s.fail(what, fmt.Sprintf(format, args...), nil)
}

// short makes the error of an input that ended within what.
func (s *source) short(what string, want, got int, err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read %s at byte %d: %w", what, s.off, err)
	}
	return s.fail(what, fmt.Sprintf("%d bytes wanted, %d left", want, got), io.ErrUnexpectedEOF)
}

// readByte consumes one byte.
func (s *source) readByte(what string) (byte, error) {
	if s.br == nil {
		if s.off >= int64(len(s.mem)) {
			return 0, s.short(what, 1, 0, nil)
		}
		c := s.mem[s.off]
		s.off++
		return c, nil
	}
	b, err := s.next(1, what)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// next consumes n bytes. The slice is valid until the next call.
func (s *source) next(n int, what string) ([]byte, error) {
	if s.br == nil {
		if left := int64(len(s.mem)) - s.off; int64(n) > left {
			return nil, s.short(what, n, int(left), nil)
		}
		if s.passed != nil && s.off-s.told >= passStep {
			s.passed(s.mem[s.told:s.off])
			s.told = s.off
		}
		b := s.mem[s.off : s.off+int64(n) : s.off+int64(n)]
		s.off += int64(n)
		return b, nil
	}
	if n > s.br.Size() {
		return s.nextBig(n, what)
	}
	b, err := s.br.Peek(n)
	if err != nil {
		return nil, s.short(what, n, len(b), err)
	}
	s.crc = Checksum(s.crc, b)
	s.off += int64(n)
	_, err = s.br.Discard(n) // what Peek showed stays in place until the next read
	return b, err
}

// int64 consumes a little endian integer.
func (s *source) int64(what string) (int64, error) {
	b, err := s.next(8, what)
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// nextBig consumes n bytes of a stream that do not fit into its buffer.
func (s *source) nextBig(n int, what string) ([]byte, error) {
	b, err := s.fill(s.big, n, what)
	s.big = keepSmall(b)
	return b, err
}

// fill reads n bytes of a stream into buf, from its start, in memory that grows
// with what arrives.
func (s *source) fill(buf []byte, n int, what string) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		have := len(buf)
		step := min(n-have, max(have, pieceLen))
		buf = slices.Grow(buf, step)[:have+step]
		got, err := io.ReadFull(s.br, buf[have:])
		if err != nil {
			return nil, s.short(what, n, have+got, err)
		}
		s.crc = Checksum(s.crc, buf[have:])
		s.off += int64(step)
	}
	return buf, nil
}

// keepSmall returns b, or nil when it is so large that keeping its memory for the
// next string would be a waste.
func keepSmall(b []byte) []byte {
	if cap(b) > 1<<20 {
		return nil
	}
	return b
}
