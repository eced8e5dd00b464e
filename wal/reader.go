package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// errShort says that a file ends inside a block that was written.
var errShort = errors.New("the file ends inside a block")

// Reader reads the stream from an offset on, for one goroutine. It holds no part of the log: what is
// trimmed under it is gone, see Pin. With Always it sees synced bytes only, so that no replica
// ever has what this node could lose.
type Reader struct {
	l       *Log
	off     int64
	changes int // of the log when the reader was opened

	seg  *segment
	f    vfs.File
	pos  int64  // where the block with off, or one before it, lies
	buf  []byte // bytes of the file from pos on
	upTo int64  // blocks of buf up to this offset were written before buf was read
	data []byte // verified bytes of the stream from off on
	room []byte
}

// readerBytes is how much a reader takes from the file at once: at least the longest block.
const readerBytes = 2 * (record.MaxPayload + record.BlockLen)

// NewReader returns a reader that starts at offset: *TrimmedError when the log no longer has it,
// ErrAhead when it does not have it yet.
func (l *Log) NewReader(offset int64) (*Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.segments[0].hdr.Start; offset < first {
		return nil, &TrimmedError{Want: offset, First: first}
	}
	if offset > l.end.Load() {
		return nil, ErrAhead
	}
	return &Reader{l: l, off: offset, changes: l.changes}, nil
}

// Offset is the offset of the next byte Read returns.
func (r *Reader) Offset() int64 { return r.off }

// Close closes the reader's file.
func (r *Reader) Close() error {
	closeAll(r.f)
	r.f, r.seg, r.data, r.buf = nil, nil, nil, nil
	return nil
}

// readable is the offset up to which readers may read.
func (l *Log) readable() int64 {
	if l.Policy() == Always {
		return l.synced.Load()
	}
	return l.written.Load()
}

// wakeReaders wakes all readers that wait. Log.mu is held.
func (l *Log) wakeReaders() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// Wait returns nil when Read has something, ErrCanceled when cancel is closed first, and else why
// there will be nothing.
func (r *Reader) Wait(cancel <-chan struct{}) error {
	l := r.l
	for {
		l.mu.Lock()
		if err := r.valid(); err != nil {
			l.mu.Unlock()
			return err
		}
		if len(r.data) > 0 || r.off < l.readable() {
			l.mu.Unlock()
			return nil
		}
		if l.closed {
			l.mu.Unlock()
			return ErrClosed
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-cancel:
			return ErrCanceled
		}
	}
}

// valid says why the reader can give nothing more. Log.mu is held.
func (r *Reader) valid() error {
	if f := r.l.failed.Load(); f != nil {
		return f
	}
	if r.changes != r.l.changes {
		return ErrChanged
	}
	if first := r.l.segments[0].hdr.Start; r.off < first {
		return &TrimmedError{Want: r.off, First: first}
	}
	return nil
}

// Read reads the next bytes of the stream into p. It returns 0 and nil when there are none yet: see
// Wait. Bytes that do not read back are *DamageError.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.l.mu.Lock()
	err := r.valid()
	r.l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if len(r.data) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	r.off += int64(n)
	return n, nil
}

// fill makes data the verified bytes from off to the end of a block, or leaves it empty at the end.
func (r *Reader) fill() error {
	limit, err := r.seek()
	if err != nil || limit <= r.off {
		return err
	}
	for len(r.data) == 0 {
		raw, b, err := r.block(limit)
		if err == nil && b.Start > r.off {
			err = &record.Error{Field: "block start offset", Got: uint64(b.Start), Want: uint64(r.off), Rule: "limit"}
		}
		if err != nil {
			return r.why(err)
		}
		r.pos += int64(len(raw))
		r.buf = r.buf[len(raw):]
		if end := min(b.End(), limit); end > r.off {
			r.data = raw[record.BlockLen+r.off-b.Start : record.BlockLen+end-b.Start]
		}
		if b.End() >= r.upTo {
			r.buf = nil // what lies behind may have been half written when it was read
		}
	}
	return nil
}

// block returns the block at pos, verified. Until the offset looked for is reached the block at pos was
// written whole, so that anything wrong with it is damage.
func (r *Reader) block(limit int64) (raw []byte, b record.Block, err error) {
	whole := false // as much was read as the longest block has
	for want := firstRead(limit - r.off); ; want = readerBytes {
		if len(r.buf) >= record.BlockLen {
			if b, err = r.seg.hdr.DecodeBlock(r.buf); err != nil {
				return nil, b, err
			}
			if n := record.BlockLen + b.Length; n <= len(r.buf) {
				raw = r.buf[:n]
				return raw, b, b.CheckBody(raw, r.seg.hdr.Seed)
			}
		}
		if whole {
			return nil, b, errShort
		}
		whole = want == readerBytes
		if err := r.load(want); err != nil {
			return nil, b, err
		}
		r.upTo = limit
	}
}

// firstRead is how much of the file is read for n bytes of the stream: a reader that follows the end must not copy
// readerBytes for each small entry. Where it is too little, readerBytes are read.
func firstRead(n int64) int {
	const least = 4 << 10
	return int(min(readerBytes, least+2*n))
}

func (r *Reader) load(want int) error {
	if r.room == nil {
		r.room = make([]byte, readerBytes)
	}
	n, err := r.f.ReadAt(r.room[:want], r.pos)
	if n == 0 && err != nil {
		return fmt.Errorf("read: %w", err)
	}
	r.buf = r.room[:n]
	return nil
}

// seek opens the segment with off and returns the offset up to which it may be read.
func (r *Reader) seek() (limit int64, err error) {
	l := r.l
	l.mu.Lock()
	i := len(l.segments) - 1
	for i > 0 && l.segments[i].hdr.Start > r.off {
		i--
	}
	seg := l.segments[i]
	limit = min(limitOf(l.segments, i), l.readable())
	l.mu.Unlock()
	if limit <= r.off || seg == r.seg {
		return limit, nil
	}
	closeAll(r.f)
	r.seg, r.buf = seg, nil
	if r.f, err = l.o.FS.Open(l.o.FS.PathJoin(l.o.Dir, seg.name)); err != nil {
		r.f, r.seg = nil, nil
		return 0, r.why(err)
	}
	if err := r.buildIndex(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	r.pos = seg.at(r.off).pos
	l.mu.Unlock()
	return limit, nil
}

// buildIndex reads the heads of a segment that was not needed for recovery, the first time that
// somebody wants it.
func (r *Reader) buildIndex() error {
	l, seg := r.l, r.seg
	l.mu.Lock()
	done, from := seg.indexed, seg.at(r.off)
	l.mu.Unlock()
	if done {
		return nil
	}
	w := newWindow(r.f, windowBytes)
	built := segment{hdr: seg.hdr}
	for off, pos := from.start, from.pos; off <= r.off; {
		head, err := w.bytes(pos, record.BlockLen)
		if err != nil {
			return r.why(err)
		}
		b, err := seg.hdr.DecodeBlock(head)
		if err != nil {
			// The reader comes to this place by itself and says what is wrong with it.
			break
		}
		built.note(place{start: b.Start, pos: pos})
		off, pos = b.End(), pos+int64(record.BlockLen+b.Length)
	}
	l.mu.Lock()
	for _, p := range built.index {
		if n := len(seg.index); n == 0 || p.start > seg.index[n-1].start {
			seg.note(p)
		}
	}
	l.mu.Unlock()
	return nil
}

// why turns an error of reading into what the caller can act upon: a file that was trimmed, recycled
// or cut under the reader reads as damage.
func (r *Reader) why(err error) error {
	name, pos := "", r.pos
	if r.seg != nil {
		name = r.seg.name
	}
	closeAll(r.f)
	r.f, r.seg, r.buf, r.data = nil, nil, nil, nil
	r.l.mu.Lock()
	gone := r.valid()
	proven := r.l.synced.Load()
	r.l.mu.Unlock()
	var bad *record.Error
	switch {
	case gone != nil:
		return gone
	case errors.As(err, &bad) || errors.Is(err, record.ErrEmpty) || errors.Is(err, errShort) || errors.Is(err, io.EOF):
		return damage(name, pos, r.off, proven, err.Error())
	}
	return fmt.Errorf("read log segment %s: byte %d: %w", name, pos, err)
}
