package resp

import (
	"bytes"
	"fmt"
	"math"
)

// Kind is the first byte of a reply.
type Kind byte

// The kinds of RESP2, then those that RESP3 adds.
const (
	KindSimple Kind = '+'
	KindError  Kind = '-'
	KindInt    Kind = ':'
	KindBulk   Kind = '$'
	KindArray  Kind = '*'

	KindNull      Kind = '_'
	KindDouble    Kind = ','
	KindBool      Kind = '#'
	KindBigNumber Kind = '('
	KindVerbatim  Kind = '='
	KindBulkError Kind = '!'
	KindMap       Kind = '%'
	KindSet       Kind = '~'
	KindPush      Kind = '>'
	kindAttr      Kind = '|'
)

// Limits of ParseReply. A reply beyond them is refused.
const (
	MaxReplyDepth = 64       // arrays within arrays
	maxReplyLine  = 64 << 10 // bytes of a line: simple strings, errors, numbers
	minElement    = 3        // bytes of the shortest element, "+" CR LF
	firstElems    = 8        // elements to make room for before any was seen
)

// Reply is one parsed value.
type Reply struct {
	Kind  Kind
	Int   int64   // KindInt; KindBool: 0 or 1; KindNull: 0
	Float float64 // KindDouble
	Str   []byte  // text of strings, errors, big numbers, doubles; aliases the source
	Elems []Reply // elements of arrays, sets, pushes; keys and values of maps in turn
	Attrs []Reply // attributes that came before the value, keys and values in turn
}

// IsNull reports a null of either protocol: ParseReply turns "$-1" and "*-1" into
// KindNull.
func (r *Reply) IsNull() bool { return r.Kind == KindNull }

// Err returns the text of an error reply, without "-", or "".
func (r *Reply) Err() string {
	if r.Kind == KindError || r.Kind == KindBulkError {
		return string(r.Str)
	}
	return ""
}

// ParseReply reads one reply of RESP2 or RESP3 from the start of src. Texts alias
// src. n is its length; n is 0 without an error when src ends within the reply,
// and then the call is made again with more. What cannot become a reply is a
// *SyntaxError.
//
// Every call starts at the front. Where a peer may send a long reply in many
// pieces, ReplyScanner finds its end first.
func ParseReply(src []byte) (v Reply, n int, err error) {
	p := replyParser{src: src}
	v, ok := p.value(0)
	if p.err != nil || !ok {
		return Reply{}, 0, p.err
	}
	return v, p.at, nil
}

type replyParser struct {
	src []byte
	at  int
	err error
}

func (p *replyParser) fail(at int, format string, a ...any) bool {
	p.err = &SyntaxError{What: "reply", Offset: at, Reason: fmt.Sprintf(format, a...)}
	return false
}

// value parses the value at p.at. ok is false when it is not complete, or with
// p.err set.
func (p *replyParser) value(depth int) (v Reply, ok bool) {
	at := p.at
	line, next, err := replyLine(p.src, at)
	if err != nil {
		p.err = err
		return v, false
	}
	if next == 0 {
		return v, false
	}
	p.at = next
	v.Kind = Kind(line[0])
	text := line[1:]
	switch v.Kind {
	case KindSimple, KindError, KindBigNumber:
		v.Str = text
		return v, true
	case KindInt:
		v.Int, ok = ParseInt(text)
	case KindDouble:
		v.Str = text
		v.Float, ok = parseReplyFloat(text)
	case KindBool:
		ok = len(text) == 1 && (text[0] == 't' || text[0] == 'f')
		if ok && text[0] == 't' {
			v.Int = 1
		}
	case KindNull:
		ok = len(text) == 0
	default:
		n, good := replyLength(v.Kind, text)
		if !good {
			break
		}
		if n < 0 {
			return Reply{Kind: KindNull}, true
		}
		if isText(v.Kind) {
			v.Str, ok = p.bulk(n)
			return v, ok
		}
		return p.aggregate(v.Kind, at, n, depth)
	}
	if !ok {
		p.fail(at, "bad line %.40q", line)
	}
	return v, ok
}

// aggregate parses the n elements, or pairs, of the value whose header began at.
func (p *replyParser) aggregate(kind Kind, at int, n int64, depth int) (v Reply, ok bool) {
	if depth >= MaxReplyDepth {
		return v, p.fail(at, "nested deeper than %d", MaxReplyDepth)
	}
	if kind == KindMap || kind == kindAttr {
		n *= 2
	}
	left := int64(len(p.src) - p.at)
	if n > left/minElement {
		// Not all there, whatever the elements are. Syntax errors among those
		// that are will be seen when it is.
		return v, false
	}
	// Not all at once: nested headers could each ask for room the size of the rest.
	elems := make([]Reply, 0, min(n, firstElems))
	for range n {
		e, ok := p.value(depth + 1)
		if !ok {
			return v, false
		}
		elems = append(elems, e)
	}
	if kind != kindAttr {
		return Reply{Kind: kind, Elems: elems}, true
	}
	v, ok = p.value(depth + 1)
	v.Attrs = elems
	return v, ok
}

// bulk takes n bytes and their CR LF.
func (p *replyParser) bulk(n int64) ([]byte, bool) {
	if int64(len(p.src)-p.at)-2 < n {
		return nil, false
	}
	stop := p.at + int(n)
	if p.src[stop] != '\r' || p.src[stop+1] != '\n' {
		return nil, p.fail(stop, "%d bytes end in %q, want CR LF", n, p.src[stop:stop+2])
	}
	b := p.src[p.at:stop:stop]
	p.at = stop + 2
	return b, true
}

// replyLine gives the line at src[at:] without its CR LF, at least one byte, and
// where the next begins, which is 0 when the line is not complete.
func replyLine(src []byte, at int) (line []byte, next int, err error) {
	rest := src[at:min(len(src), at+maxReplyLine)]
	i := bytes.IndexByte(rest, '\n')
	switch {
	case i < 0 && len(rest) == maxReplyLine:
		return nil, 0, &SyntaxError{"reply", at, fmt.Sprintf("no line end within %d bytes", maxReplyLine)}
	case i < 0:
		return nil, 0, nil
	case i < 2 || rest[i-1] != '\r':
		return nil, 0, &SyntaxError{"reply", at, fmt.Sprintf("bad line %.40q", rest[:i+1])}
	}
	return rest[: i-1 : i-1], at + i + 1, nil
}

// replyLength reads the length or count of a kind that has one. Strings and
// arrays of RESP2 may be -1, for null.
func replyLength(kind Kind, text []byte) (n int64, ok bool) {
	switch kind {
	case KindBulk, KindArray, KindVerbatim, KindBulkError, KindMap, KindSet, KindPush, kindAttr:
	default:
		return 0, false
	}
	n, ok = ParseInt(text)
	if n == -1 && (kind == KindBulk || kind == KindArray) {
		return n, ok
	}
	return n, ok && n >= 0 && n <= math.MaxInt64/4
}

// isText tells kinds with a length in bytes from those with a count of elements.
func isText(kind Kind) bool {
	return kind == KindBulk || kind == KindVerbatim || kind == KindBulkError
}

// parseReplyFloat takes what Redis sends for a double.
func parseReplyFloat(text []byte) (float64, bool) {
	if IsWord(text, "nan") || IsWord(text, "-nan") {
		return math.NaN(), true
	}
	return ParseFloat(text)
}

// ReplyScanner finds the end of one reply that arrives in pieces, and looks at
// each byte once. The zero value is ready.
type ReplyScanner struct {
	at   int     // bytes of whole lines and texts passed
	seen int     // no line end between at and here
	left []int64 // elements missing at each depth
	err  error
}

// End returns the length of the reply at the start of src, or 0 while it is not
// complete. src begins with the same bytes on every call and may grow and move in
// between. After a length was returned the scanner starts anew. An error, a
// *SyntaxError, is final.
func (s *ReplyScanner) End(src []byte) (n int, err error) {
	for s.err == nil {
		more, ok := s.step(src)
		if !ok {
			return 0, s.err
		}
		for more == 0 && len(s.left) > 0 { // one value ended; perhaps it was the last of its parents
			top := len(s.left) - 1
			s.left[top]--
			if s.left[top] > 0 {
				more = 1
			} else {
				s.left = s.left[:top]
			}
		}
		if more == 0 {
			n = s.at
			*s = ReplyScanner{left: s.left[:0]}
			return n, nil
		}
	}
	return 0, s.err
}

// step passes one line and its text. more is 1 when it opened an aggregate.
func (s *ReplyScanner) step(src []byte) (more int, ok bool) {
	if s.seen < len(src) && bytes.IndexByte(src[s.seen:], '\n') < 0 && len(src)-s.at < maxReplyLine {
		s.seen = len(src)
		return 0, false
	}
	line, next, err := replyLine(src, s.at)
	if err != nil || next == 0 {
		s.err = err
		return 0, false
	}
	kind := Kind(line[0])
	n, good := replyLength(kind, line[1:])
	switch {
	case !good || n < 0:
		n = 0 // a line without a body; ParseReply judges what is on it
	case isText(kind):
		if int64(len(src)-next)-2 < n {
			return 0, false // the header is read again, which is short
		}
		next += int(n) + 2
	default:
		if kind == KindMap || kind == kindAttr {
			n *= 2
		}
		if kind == kindAttr {
			n++ // the value that the attributes belong to
		}
		if len(s.left) >= MaxReplyDepth {
			s.err = &SyntaxError{"reply", s.at, fmt.Sprintf("nested deeper than %d", MaxReplyDepth)}
			return 0, false
		}
		if n > 0 {
			s.left = append(s.left, n)
			more = 1
		}
	}
	s.at, s.seen = next, next
	return more, true
}
