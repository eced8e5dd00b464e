package bench

import (
	"bytes"
	"fmt"

	"cairn/internal/resp"
)

// Replies are counted, not parsed: a client that copied values would measure itself. The scanner steps over
// them and looks only at what tells where the next one begins.

const (
	maxHeader = 256     // bytes kept of a line that came in pieces; errors are cut there
	maxBulk   = 1 << 30 // bytes, twice what a server may hold in one string
	maxOpen   = 1 << 32 // values of one reply
)

// replyCounts is what the scanner has seen.
type replyCounts struct {
	replies    int64 // complete ones, errors and nulls among them
	errors     int64
	nulls      int64 // $-1 and *-1 at the top: keys that were not there
	firstError string
}

// replyScanner counts the replies in a stream that comes in pieces. The zero value is ready.
type replyScanner struct {
	skip int64 // bytes of a string and its CR LF that are still to come
	open int64 // values still to come in the present reply; 0 between replies
	line []byte
}

// scan takes the next piece of the stream. An error is final.
func (s *replyScanner) scan(b []byte, c *replyCounts) error {
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, int64(len(b)))
			b = b[n:]
			if s.skip -= n; s.skip == 0 {
				s.value(c)
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			s.keep(b)
			return nil
		}
		line := b[:end+1]
		b = b[end+1:]
		if len(s.line) > 0 {
			s.keep(line)
			line = s.line
		}
		if err := s.header(line, c); err != nil {
			return err
		}
		s.line = s.line[:0]
	}
	return nil
}

// keep remembers a part of a line; of a long one the beginning and, so that its end is seen, the last two bytes.
func (s *replyScanner) keep(part []byte) {
	s.line = append(s.line, part[:min(len(part), maxHeader)]...)
	if len(part) > maxHeader {
		s.line = append(s.line, part[len(part)-2:]...)
	}
	if n := len(s.line); n > maxHeader {
		copy(s.line[maxHeader-2:], s.line[n-2:])
		s.line = s.line[:maxHeader]
	}
}

// header takes a whole line, LF included.
func (s *replyScanner) header(line []byte, c *replyCounts) error {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return fmt.Errorf("reply %d: line %.40q, want a kind, text and CR LF", c.replies, line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch resp.Kind(kind) {
	case resp.KindSimple, resp.KindInt:
		s.value(c)
	case resp.KindError:
		c.errors++
		if c.firstError == "" {
			c.firstError = string(text)
		}
		s.value(c)
	case resp.KindBulk, resp.KindArray:
		n, ok := resp.ParseInt(text)
		switch {
		case !ok || n < -1 || n > maxBulk:
			return fmt.Errorf("reply %d: length %.40q of kind %c, want -1 to %d", c.replies, text, kind, maxBulk)
		case n == -1:
			if s.open == 0 {
				c.nulls++
			}
			s.value(c)
		case resp.Kind(kind) == resp.KindBulk:
			s.skip = n + 2
		case n == 0:
			s.value(c)
		default:
			s.open = max(s.open, 1) - 1 + n // its elements take the place of the array
			if s.open > maxOpen {
				return fmt.Errorf("reply %d: %d values, want at most %d", c.replies, s.open, int64(maxOpen))
			}
		}
	default:
		return fmt.Errorf("reply %d: kind %q, want one of RESP2", c.replies, kind)
	}
	return nil
}

// value ends one value, and with the last of them the reply.
func (s *replyScanner) value(c *replyCounts) {
	if s.open > 1 {
		s.open--
		return
	}
	s.open = 0
	c.replies++
}
