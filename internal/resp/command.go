package resp

import (
	"bytes"
	"fmt"
	"math"
)

// SyntaxError is a reply or a logged command that is not what it should be.
type SyntaxError struct {
	What   string // "reply" or "command"
	Offset int    // byte of the input where the offending part begins
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: byte %d: %s", e.What, e.Offset, e.Reason)
}

// AppendCommand appends a command as an array of bulk strings, the form that
// clients send and the log holds.
func AppendCommand(dst []byte, args ...[]byte) []byte {
	dst = appendHeader(dst, '*', int64(len(args)))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

// AppendCommandStrings is AppendCommand for strings.
func AppendCommandStrings(dst []byte, args ...string) []byte {
	dst = appendHeader(dst, '*', int64(len(args)))
	for _, a := range args {
		dst = AppendBulkString(dst, a)
	}
	return dst
}

// NextCommand reads one command from the start of src, which holds commands as
// AppendCommand writes them, and appends its arguments to args. They alias src.
// n is the length of the command; n is 0 without an error when src ends within
// it. Anything but the canonical form is a *SyntaxError, because a log or a
// replication stream that holds it is damaged.
func NextCommand(src []byte, args [][]byte) (out [][]byte, n int, err error) {
	count, at, err := commandLength(src, 0, '*')
	if err != nil || at == 0 {
		return args, 0, err
	}
	if count < 1 || count > math.MaxInt32 {
		return args, 0, commandError(0, "%d arguments, want 1 to %d", count, math.MaxInt32)
	}
	out = args
	for range count {
		size, body, err := commandLength(src, at, '$')
		if err != nil || body == 0 {
			return args, 0, err
		}
		if size < 0 {
			return args, 0, commandError(at, "argument of %d bytes, want 0 or more", size)
		}
		if int64(len(src)-body)-2 < size {
			return args, 0, nil
		}
		stop := body + int(size)
		if src[stop] != '\r' || src[stop+1] != '\n' {
			return args, 0, commandError(stop, "argument ends in %q, want CR LF", src[stop:stop+2])
		}
		out = append(out, src[body:stop:stop])
		at = stop + 2
	}
	return out, at, nil
}

// maxLengthLine is the longest line that holds a length: sign, nineteen digits,
// CR LF behind the prefix.
const maxLengthLine = 1 + 20 + 2

// commandLength reads prefix and a length at src[at:]. next is 0 when the line is
// not complete.
func commandLength(src []byte, at int, prefix byte) (n int64, next int, err error) {
	if n, size := shortLength(src[at:], prefix); size > 0 {
		return n, at + size, nil
	}
	line := src[at:min(len(src), at+maxLengthLine)]
	if len(line) == 0 {
		return 0, 0, nil
	}
	if line[0] != prefix {
		return 0, 0, commandError(at, "%q, want %q", line[0], prefix)
	}
	i := bytes.IndexByte(line, '\n')
	if i < 0 {
		if len(line) == maxLengthLine {
			return 0, 0, commandError(at, "no line end within %d bytes", maxLengthLine)
		}
		return 0, 0, nil
	}
	n, ok := int64(0), line[i-1] == '\r'
	if ok {
		n, ok = ParseInt(line[1:max(i-1, 1)])
	}
	if !ok {
		return 0, 0, commandError(at, "bad length line %q", line[:i+1])
	}
	return n, at + i + 1, nil
}

func commandError(at int, format string, a ...any) error {
	return &SyntaxError{What: "command", Offset: at, Reason: fmt.Sprintf(format, a...)}
}
