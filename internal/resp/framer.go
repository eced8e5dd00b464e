package resp

import (
	"bytes"
	"errors"
	"math"
)

// Defaults of Limits, and the tighter bounds for a peer that has to log in
// first. All of them are Redis's.
const (
	DefaultMaxInline = 64 << 10
	DefaultMaxArgs   = math.MaxInt32
	DefaultMaxBulk   = 512 << 20
	DefaultMaxQuery  = 1 << 30

	unauthMaxArgs = 10
	unauthMaxBulk = 16 << 10
)

// ErrQueryLimit says that one command, with the slice headers of its arguments,
// would exceed Limits.MaxQuery. Redis closes the connection without a reply.
var ErrQueryLimit = errors.New("query buffer limit reached")

// ProtocolError is a request that cannot be framed. The connection answers with
// "-ERR " and Text, then closes: what follows in the stream has no meaning.
type ProtocolError struct {
	Text string // Redis's text, beginning with "Protocol error: "
}

func (e *ProtocolError) Error() string { return e.Text }

// Limits bound what one connection may make us hold. Zero means the default.
type Limits struct {
	// MaxInline is the longest inline line, and the longest line that should
	// hold a count or a length, in bytes. Default 64 KiB, not configurable in
	// Redis.
	MaxInline int64

	// MaxArgs is the highest number of arguments of one command. Default
	// 2147483647; the memory they take is bounded by MaxQuery.
	MaxArgs int64

	// MaxBulk is the longest argument in bytes, proto-max-bulk-len. Default
	// 512 MiB. The link to a primary sets MaxBulk to math.MaxInt64.
	MaxBulk int64

	// KeptOver is how many bytes longer than MaxBulk an argument may be that a
	// Keeper takes. Default 0.
	KeptOver int64

	// MaxQuery bounds one command in bytes, client-query-buffer-limit, with the
	// slice headers of its arguments counted in. Default 1 GiB.
	MaxQuery int64

	// Unauthenticated narrows a command to 10 arguments of 16 KiB, with texts
	// of their own, for a peer that has to log in and has not.
	Unauthenticated bool
}

// withDefaults fills zeros, and keeps MaxQuery where sums of a few of them
// cannot overflow an int.
func (l Limits) withDefaults() Limits {
	fill := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	fill(&l.MaxInline, DefaultMaxInline)
	fill(&l.MaxArgs, DefaultMaxArgs)
	fill(&l.MaxBulk, DefaultMaxBulk)
	fill(&l.MaxQuery, DefaultMaxQuery)
	l.MaxArgs = min(l.MaxArgs, math.MaxInt32)
	l.MaxQuery = min(l.MaxQuery, math.MaxInt/16)
	l.MaxInline = min(l.MaxInline, l.MaxQuery)
	return l
}

// Framer cuts the bytes of one connection into commands. The loop that owns it
// reads into Space, says Advance, and calls Next until it has no more:
//
//	n, err := conn.Read(f.Space(1))
//	f.Advance(n)
//	for {
//		args, raw, ok, err := f.Next()
//		...
//	}
//
// It remembers how far it came, so each byte is looked at a bounded number of
// times however the command was cut into packets. One goroutine at a time.
type Framer struct {
	lim Limits

	buf   []byte // the room; its length is its capacity
	start int    // first byte of the command being parsed, or of what is here of it
	pos   int    // next byte to parse
	scan  int    // no line end in buf[pos:scan]
	end   int    // end of what was received
	base  int64  // stream offset of buf[0]

	// Of a long command the buffers with arguments that are complete stay where they are, and the rest goes on in another.
	before int // bytes of the command in buffers left behind
	kept   int // room of those buffers
	there  int // how many of its arguments lie in them
	at     int // where the first argument after those begins, behind start

	total int  // arguments declared by the command, 0 between commands
	left  int  // arguments still missing
	bulk  int  // length of the argument at pos, -1 while its header is missing
	odd   bool // a terminator was not CR LF, so the bytes are not canonical

	// Of an argument that goes elsewhere, see elsewhere.go.
	keepFrom int
	keeper   func(args [][]byte, length int) Keeper
	taker    Keeper // who takes the argument at pos; nil: the buffer
	untaken  int    // bytes of it that are still to come
	lost     error  // see Lost

	// args is the arena of all commands since the last Space; those of the
	// command being parsed begin at first.
	args  [][]byte
	first int

	err error // the first error, repeated for ever

	full  bool  // the last read filled the buffer
	quiet int   // rounds in a row that used little of the buffer
	high  int   // the most bytes one of those rounds used
	work  int64 // bytes looked at or moved, for tests of linearity
}

// NewFramer returns a framer at the start of a stream. It holds no buffer until
// Space is called.
func NewFramer(lim Limits) *Framer {
	return &Framer{lim: lim.withDefaults(), bulk: -1}
}

// SetLimits changes the limits from the next length on that is parsed. A login
// does this; a loop that parses ahead of execution must not do so before login.
func (f *Framer) SetLimits(lim Limits) { f.lim = lim.withDefaults() }

// Next returns the next complete command. ok is false when the rest of it has
// not been received, or with an error; an error is final and repeats.
//
// args has at least one element and aliases the read buffer, as raw does. Both
// stay valid, also over further calls of Next, until Space or Release. They may
// be overwritten in place by then, so what must live longer is copied.
//
// raw is the command as received, equal to AppendCommand of args. It is nil for
// an inline command, for one with a terminator other than CR LF, which Redis
// lets pass, and for a long one that does not lie in one piece.
func (f *Framer) Next() (args [][]byte, raw []byte, ok bool, err error) {
	if f.err != nil {
		return nil, nil, false, f.err
	}
	for {
		if f.total == 0 {
			f.lost = nil
			if f.pos == f.end {
				return nil, nil, false, nil
			}
			if f.buf[f.pos] != '*' {
				if !f.readInline() {
					return nil, nil, false, f.err
				}
				if args := f.take(); len(args) > 0 {
					return args, nil, true, nil
				}
				continue // an empty line
			}
			if !f.readCount() {
				return nil, nil, false, f.err
			}
			if f.total == 0 {
				f.take() // *0 and *-1 mean nothing
				continue
			}
		}
		if !f.readArgs() {
			return nil, nil, false, f.err
		}
		if !f.odd && f.before == 0 {
			raw = f.buf[f.start:f.pos:f.pos]
		}
		return f.take(), raw, true, nil
	}
}

// Offset is the number of bytes of the stream up to the end of the last command
// that Next returned or skipped.
func (f *Framer) Offset() int64 { return f.base + int64(f.start-f.before) }

// take closes the command that was just parsed and returns its arguments.
func (f *Framer) take() [][]byte {
	args := f.args[f.first:len(f.args):len(f.args)]
	f.first = len(f.args)
	f.start = f.pos
	f.scan = f.pos
	f.total, f.left, f.bulk, f.odd = 0, 0, -1, false
	f.before, f.there = 0, 0
	return args
}

// fail makes the framer refuse everything from here on.
func (f *Framer) fail(err error) bool {
	f.err = err
	return false
}

func (f *Framer) failText(text string) bool {
	return f.fail(&ProtocolError{Text: "Protocol error: " + text})
}

// readCount parses "*n" at pos. On success total is n, or 0 for nothing to do.
func (f *Framer) readCount() bool {
	n, next, ok := f.shortLength('*')
	if !ok {
		stop, found := f.findLine("too big mbulk count string")
		if !found {
			return false
		}
		n, ok = ParseInt(f.buf[f.pos+1 : stop])
		if !ok {
			return f.failText("invalid multibulk length")
		}
		next = f.passLine(stop)
	}
	if n > f.lim.MaxArgs {
		return f.failText("invalid multibulk length")
	}
	if f.lim.Unauthenticated && n > unauthMaxArgs {
		return f.failText("unauthenticated multibulk length")
	}
	f.pos, f.scan = next, next
	f.total = max(int(n), 0)
	f.left = f.total
	return true
}

// readArgs parses arguments until all of the command's are there.
func (f *Framer) readArgs() bool {
	for f.left > 0 {
		if f.bulk < 0 {
			if !f.readBulkLength() {
				return false
			}
			f.keep()
			if f.taker == nil && int64(f.bulk) > f.lim.MaxBulk {
				return f.failText("invalid bulk length")
			}
		}
		if f.taker != nil {
			if !f.passOn() {
				return false
			}
			continue
		}
		if f.end-f.pos-2 < f.bulk {
			return false
		}
		stop := f.pos + f.bulk
		if f.buf[stop] != '\r' || f.buf[stop+1] != '\n' {
			f.odd = true
		}
		if len(f.args) == cap(f.args) && !f.growArgs() {
			return false
		}
		if len(f.args) == f.first+f.there {
			f.at = f.pos - f.start
		}
		f.args = append(f.args, f.buf[f.pos:stop:stop])
		f.pos = stop + 2
		f.scan = f.pos
		f.bulk = -1
		f.left--
	}
	return true
}

// readBulkLength parses "$n" at pos. The length is checked here, before anything
// is allocated for it.
func (f *Framer) readBulkLength() bool {
	n, next, ok := f.shortLength('$')
	if !ok {
		stop, found := f.findLine("too big bulk count string")
		if !found {
			return false
		}
		if c := f.buf[f.pos]; c != '$' {
			return f.failText("expected '$', got '" + printable(c) + "'")
		}
		if n, ok = ParseInt(f.buf[f.pos+1 : stop]); !ok {
			return f.failText("invalid bulk length")
		}
		next = f.passLine(stop)
	}
	over := f.lim.KeptOver
	if f.lim.Unauthenticated {
		over = 0 // nothing is kept for who has not logged in
	}
	if n < 0 || n > f.lim.MaxBulk && n-f.lim.MaxBulk > over {
		return f.failText("invalid bulk length")
	}
	if f.lim.Unauthenticated && n > unauthMaxBulk {
		return f.failText("unauthenticated bulk length")
	}
	if n > f.lim.MaxQuery-int64(f.before+next-f.start)-2 {
		return f.fail(ErrQueryLimit)
	}
	f.pos, f.scan = next, next
	f.bulk = int(n)
	return true
}

// printable is the offending byte as Redis prints it into its one-line error:
// line ends become spaces, and its C string ends at a NUL, which we leave out.
func printable(c byte) string {
	switch c {
	case '\r', '\n':
		return " "
	case 0:
		return ""
	}
	return string([]byte{c})
}

// shortLength is the function of that name at pos, unless part of the line was looked at
// already.
func (f *Framer) shortLength(prefix byte) (n int64, next int, ok bool) {
	if f.scan > f.pos {
		return 0, 0, false
	}
	n, size := shortLength(f.buf[f.pos:f.end], prefix)
	f.work += int64(size)
	return n, f.pos + size, size > 0
}

// shortLength is the fast path of a length line that is there as a whole and
// plain: prefix, one to nine digits, CR LF. size is the length of the line, and 0
// for all else, which findLine and its like judge.
func shortLength(b []byte, prefix byte) (n int64, size int) {
	if len(b) < 4 || b[0] != prefix {
		return 0, 0
	}
	d := b[1] - '0'
	if d > 9 || d == 0 && b[2] != '\r' {
		return 0, 0
	}
	n = int64(d)
	for i := 2; i < min(len(b)-1, 11); i++ {
		d = b[i] - '0'
		if d <= 9 {
			n = n*10 + int64(d)
			continue
		}
		if b[i] != '\r' || b[i+1] != '\n' {
			return 0, 0
		}
		return n, i + 2
	}
	return 0, 0
}

// findLine looks for the CR of the line at pos, and for one byte behind it. It
// goes on where the last call stopped.
func (f *Framer) findLine(tooBig string) (stop int, ok bool) {
	i := bytes.IndexByte(f.buf[f.scan:f.end], '\r')
	if i < 0 {
		f.work += int64(f.end - f.scan)
		f.scan = f.end
		if int64(f.end-f.pos) > f.lim.MaxInline {
			f.failText(tooBig)
		}
		return 0, false
	}
	f.work += int64(i)
	f.scan += i
	if int64(f.scan-f.pos) > f.lim.MaxInline {
		return 0, f.failText(tooBig)
	}
	return f.scan, f.scan+1 < f.end
}

// passLine steps over the CR at stop and the byte after it. Redis does not look
// at that byte; we note when it is not LF.
func (f *Framer) passLine(stop int) int {
	if f.buf[stop+1] != '\n' {
		f.odd = true
	}
	return stop + 2
}

// readInline parses the line at pos and appends its words to args.
func (f *Framer) readInline() bool {
	i := bytes.IndexByte(f.buf[f.scan:f.end], '\n')
	if i < 0 {
		f.work += int64(f.end - f.scan)
		f.scan = f.end
		if int64(f.end-f.pos) > f.lim.MaxInline {
			return f.failText("too big inline request")
		}
		return false
	}
	f.work += int64(i)
	stop := f.scan + i
	if int64(stop-f.pos) > f.lim.MaxInline {
		return f.failText("too big inline request")
	}
	line := f.buf[f.pos:stop]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	args, ok := SplitArgs(f.args, line)
	if !ok {
		return f.failText("unbalanced quotes in request")
	}
	f.args = args
	f.pos = stop + 1
	return true
}
