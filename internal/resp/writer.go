package resp

import "strconv"

// Writer appends replies to Buf in the protocol of the connection. It is used by
// value next to the connection's state. No method but LongDouble allocates, unless
// Buf has to grow.
type Writer struct {
	Buf   []byte // replies not sent yet
	Proto int    // 2 or 3, as HELLO chose; all but 3 means 2
}

// OK appends +OK.
func (w *Writer) OK() { w.Buf = append(w.Buf, "+OK\r\n"...) }

// Simple appends a simple string. CR, LF and NUL in it become spaces.
func (w *Writer) Simple(s string) { w.Buf = AppendSimple(w.Buf, s) }

// Error appends an error. text begins with its code ("ERR ...", "WRONGTYPE ...")
// and goes out after "-". CR, LF and NUL in it become spaces.
func (w *Writer) Error(text string) { w.Buf = AppendError(w.Buf, text) }

// Int appends an integer.
func (w *Writer) Int(n int64) { w.Buf = appendHeader(w.Buf, ':', n) }

// Bulk appends a bulk string.
func (w *Writer) Bulk(b []byte) { w.Buf = AppendBulk(w.Buf, b) }

// BulkString appends a bulk string.
func (w *Writer) BulkString(s string) { w.Buf = AppendBulkString(w.Buf, s) }

// BulkHeader announces a bulk string of n bytes, which the caller appends to Buf
// or sends in pieces, and ends with BulkEnd.
func (w *Writer) BulkHeader(n int64) { w.Buf = appendHeader(w.Buf, '$', n) }

// BulkEnd ends what BulkHeader began.
func (w *Writer) BulkEnd() { w.Buf = append(w.Buf, '\r', '\n') }

// BulkInt appends an integer as a bulk string of its digits.
func (w *Writer) BulkInt(n int64) {
	var digits [20]byte
	w.Bulk(strconv.AppendInt(digits[:0], n, 10))
}

// Null appends the null that stands for a missing string.
func (w *Writer) Null() {
	if w.Proto == 3 {
		w.Buf = append(w.Buf, "_\r\n"...)
		return
	}
	w.Buf = append(w.Buf, "$-1\r\n"...)
}

// NullArray appends the null that stands for a missing array.
func (w *Writer) NullArray() {
	if w.Proto == 3 {
		w.Buf = append(w.Buf, "_\r\n"...)
		return
	}
	w.Buf = append(w.Buf, "*-1\r\n"...)
}

// Array announces n elements.
func (w *Writer) Array(n int) { w.Buf = appendHeader(w.Buf, '*', int64(n)) }

// Map announces n pairs: a key and a value each. RESP2 has an array of 2n.
func (w *Writer) Map(n int) {
	if w.Proto == 3 {
		w.Buf = appendHeader(w.Buf, '%', int64(n))
		return
	}
	w.Array(2 * n)
}

// Set announces n elements of a set. RESP2 has an array.
func (w *Writer) Set(n int) { w.aggregate('~', n) }

// Push announces n elements of an out-of-band message. RESP2 has an array.
func (w *Writer) Push(n int) { w.aggregate('>', n) }

// Attr announces n pairs of attributes of the value that follows them. RESP2 has
// nothing of the kind: then nothing is written, and false says to skip the pairs.
func (w *Writer) Attr(n int) bool {
	if w.Proto != 3 {
		return false
	}
	w.Buf = appendHeader(w.Buf, '|', int64(n))
	return true
}

func (w *Writer) aggregate(prefix byte, n int) {
	if w.Proto != 3 {
		prefix = '*'
	}
	w.Buf = appendHeader(w.Buf, prefix, int64(n))
}

// Double appends a score or another double, in the digits of AppendDouble. RESP2
// has a bulk string.
func (w *Writer) Double(v float64) {
	var digits [maxDoubleLen]byte
	w.number(AppendDouble(digits[:0], v))
}

// LongDouble appends the result of an addition in long double, or a coordinate.
// RESP2 has a bulk string.
func (w *Writer) LongDouble(x LongDouble) {
	var digits [64]byte
	w.number(x.Append(digits[:0]))
}

func (w *Writer) number(digits []byte) {
	if w.Proto != 3 {
		w.Bulk(digits)
		return
	}
	w.Buf = append(w.Buf, ',')
	w.Buf = append(w.Buf, digits...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// Bool appends a boolean. RESP2 has the integers 1 and 0.
func (w *Writer) Bool(v bool) {
	switch {
	case w.Proto == 3 && v:
		w.Buf = append(w.Buf, "#t\r\n"...)
	case w.Proto == 3:
		w.Buf = append(w.Buf, "#f\r\n"...)
	case v:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// BigNumber appends an integer of any length, given as its digits. RESP2 has a
// bulk string.
func (w *Writer) BigNumber(digits string) {
	if w.Proto != 3 {
		w.BulkString(digits)
		return
	}
	w.Buf = appendLine(w.Buf, '(', digits)
}

// Verbatim appends text with a format of three letters, like "txt"; a shorter
// format is padded with spaces, a longer one is cut. RESP2 has a bulk string.
func (w *Writer) Verbatim(format string, text []byte) {
	if w.Proto != 3 {
		w.Bulk(text)
		return
	}
	w.Buf = appendHeader(w.Buf, '=', int64(len(text))+4)
	for i := range 3 {
		c := byte(' ')
		if i < len(format) {
			c = clean(format[i])
		}
		w.Buf = append(w.Buf, c)
	}
	w.Buf = append(w.Buf, ':')
	w.Buf = append(w.Buf, text...)
	w.Buf = append(w.Buf, '\r', '\n')
}

// AppendSimple appends a simple string. CR, LF and NUL in it become spaces.
func AppendSimple(dst []byte, s string) []byte { return appendLine(dst, '+', s) }

// AppendError appends an error; text begins with its code. CR, LF and NUL in it
// become spaces, so that no text, wherever it came from, forges a second reply.
// Line ends around the text go, as in Redis.
func AppendError(dst []byte, text string) []byte {
	for len(text) > 0 && (text[0] == '\r' || text[0] == '\n') {
		text = text[1:]
	}
	for n := len(text); n > 0 && (text[n-1] == '\r' || text[n-1] == '\n'); n-- {
		text = text[:n-1]
	}
	return appendLine(dst, '-', text)
}

// AppendInt appends an integer reply.
func AppendInt(dst []byte, n int64) []byte { return appendHeader(dst, ':', n) }

// AppendArray appends the header of an array of n elements.
func AppendArray(dst []byte, n int) []byte { return appendHeader(dst, '*', int64(n)) }

// AppendBulk appends a bulk string.
func AppendBulk(dst, b []byte) []byte {
	dst = appendHeader(dst, '$', int64(len(b)))
	dst = append(dst, b...)
	return append(dst, '\r', '\n')
}

// AppendBulkString appends a bulk string.
func AppendBulkString(dst []byte, s string) []byte {
	dst = appendHeader(dst, '$', int64(len(s)))
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// appendHeader appends prefix, n and CR LF.
func appendHeader(dst []byte, prefix byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(dst, prefix, '0'+byte(n), '\r', '\n')
	}
	dst = append(dst, prefix)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

// appendLine appends prefix, the text as one line, and CR LF.
func appendLine(dst []byte, prefix byte, text string) []byte {
	dst = append(dst, prefix)
	from := len(dst)
	dst = append(dst, text...)
	for i := from; i < len(dst); i++ {
		dst[i] = clean(dst[i])
	}
	return append(dst, '\r', '\n')
}

// clean replaces a byte that would end a line.
func clean(c byte) byte {
	if c == '\r' || c == '\n' || c == 0 {
		return ' '
	}
	return c
}
