package wal

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// window reads a file through one buffer of fixed size, whatever the file claims to be.
type window struct {
	f   vfs.File
	buf []byte
	at  int64 // position of buf[0]
	n   int   // bytes of buf that are filled
}

// windowBytes holds the longest block.
const windowBytes = 4 * (record.MaxPayload + record.BlockLen)

// newWindow returns a window on a file of size bytes.
func newWindow(f vfs.File, size int64) *window {
	return &window{f: f, buf: make([]byte, max(record.DataAt, min(windowBytes, size))), at: -1}
}

// bytes returns the n bytes at pos, fewer at the end of the file. They are valid until the next call.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	if w.at < 0 || pos < w.at || pos+int64(n) > w.at+int64(w.n) {
		got, err := w.f.ReadAt(w.buf, pos)
		if err != nil && !errors.Is(err, io.EOF) {
			w.at = -1
			return nil, fmt.Errorf("read at byte %d: %w", pos, err)
		}
		w.at, w.n = pos, got
	}
	from := int(pos - w.at)
	return w.buf[from:min(from+n, w.n)], nil
}

// scan is what reading a segment from its first block on found.
type scan struct {
	end      int64  // stream offset behind the last good block, at most limit
	boundary int64  // stream offset of the last end of an entry, at most end
	pos      int64  // where in the file the good blocks end
	reason   string // why they end there; "" at a proper end mark
	closed   bool   // the log was closed there
	proven   int64  // highest offset that a block declares synced
	index    []place
}

// scanSegment reads blocks until limit is reached or one does not read back. boundary is the last end
// of an entry before the segment.
func scanSegment(w *window, hdr *record.Header, limit, boundary int64) (scan, error) {
	s := scan{end: hdr.Start, boundary: boundary, pos: record.DataAt, proven: hdr.Synced}
	if boundary > hdr.Start {
		s.boundary = hdr.Start
	}
	seg := segment{hdr: *hdr}
	for s.end < limit {
		head, err := w.bytes(s.pos, record.BlockLen)
		if err != nil {
			return s, err
		}
		b, err := hdr.DecodeBlock(head)
		if errors.Is(err, record.ErrEmpty) {
			break
		}
		if err != nil {
			s.reason = err.Error()
			break
		}
		raw, err := w.bytes(s.pos, record.BlockLen+b.Length)
		if err != nil {
			return s, err
		}
		if err := b.CheckBody(raw, hdr.Seed); err != nil {
			s.reason = err.Error()
			s.proven = max(s.proven, b.Synced)
			break
		}
		if b.Start != s.end {
			s.reason = fmt.Sprintf("block start offset %d, want %d", b.Start, s.end)
			break
		}
		s.proven = max(s.proven, b.Synced)
		seg.note(place{start: b.Start, pos: s.pos})
		s.closed = b.Flags&record.Closed != 0
		s.end = b.End()
		s.pos += int64(len(raw))
		if b.Flags&record.EndsEntry != 0 {
			s.boundary = s.end
		}
	}
	if s.end > limit {
		// The next segment starts inside this block: the rest was cut, and cuts are made at the
		// end of an entry. A segment that begins where a block ends may begin inside a long entry.
		s.end, s.boundary = limit, limit
	}
	s.index = seg.index
	return s, nil
}

// found is what a search for blocks behind a bad place turned up.
type found struct {
	blocks int
	proven int64 // highest offset they declare synced
	end    int64 // highest offset they reach
}

// search looks at every byte from pos on for a head of the segment's present life whose start is at
// least low. A head has its own checksum, so it counts even when its payload is bad.
func search(w *window, hdr *record.Header, pos, low int64) (found, error) {
	f := found{proven: hdr.Synced, end: hdr.Start}
	step := len(w.buf)
	for {
		b, err := w.bytes(pos, step)
		if err != nil {
			return f, err
		}
		if len(b) < record.BlockLen {
			return f, nil
		}
		i := 0
		for i+record.BlockLen <= len(b) {
			if b[i] == 0 {
				// Long runs of zeros are the rule behind the end. A head may begin with zeros,
				// but is not all zeros.
				j := i
				for j < len(b) && b[j] == 0 {
					j++
				}
				if i = max(i, j-record.BlockLen+1); i+record.BlockLen > len(b) {
					break
				}
			}
			if hdr.Plausible(b[i:], low, math.MaxInt64-record.MaxPayload) {
				if blk, err := hdr.DecodeBlock(b[i:]); err == nil {
					f.blocks++
					f.proven, f.end = max(f.proven, blk.Synced), max(f.end, blk.End())
				}
			}
			i++
		}
		pos += int64(i)
	}
}
