package replication

import (
	"bytes"
	"fmt"
	"io"

	"cairn/replication/psync"
)

// markedReader reads a data set whose end is a mark: the bytes up to it, then io.EOF. The mark may arrive in pieces.
// A primary sends nothing behind the mark until it was answered, so the mark is looked for only at the end of what has
// arrived, as Redis does; in the midst of the data it is data.
type markedReader struct {
	r    io.Reader
	mark []byte
	buf  []byte // received and not given out; the last MarkLen bytes of it may be the mark
	room []byte
	over bool
	err  error
}

const markedReads = 64 << 10

func newMarkedReader(r io.Reader, mark []byte) *markedReader {
	return &markedReader{r: r, mark: mark, room: make([]byte, markedReads+psync.MarkLen)}
}

// Read is io.Reader's.
func (m *markedReader) Read(p []byte) (int, error) {
	for {
		ready := m.buf
		if !m.over {
			ready = m.buf[:max(0, len(m.buf)-psync.MarkLen)]
		}
		if len(ready) > 0 {
			n := copy(p, ready)
			m.buf = m.buf[n:]
			return n, nil
		}
		if m.over {
			return 0, io.EOF
		}
		if m.err != nil {
			if m.err == io.EOF {
				m.err = io.ErrUnexpectedEOF
			}
			return 0, m.err
		}
		held := copy(m.room, m.buf)
		var n int
		n, m.err = m.r.Read(m.room[held:])
		m.buf = m.room[:held+n]
		if bytes.HasSuffix(m.buf, m.mark) {
			m.buf = m.buf[:len(m.buf)-psync.MarkLen]
			m.over = true
		}
	}
}

// lengthReader reads a data set of a length that was told before.
type lengthReader struct {
	r    io.Reader
	left int64
}

// Read is io.Reader's.
func (l *lengthReader) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	if err == io.EOF && l.left > 0 {
		err = fmt.Errorf("the connection ended %d bytes before the end of the data: %w", l.left, io.ErrUnexpectedEOF)
	}
	return n, err
}
