package replication

import (
	"bytes"
	"fmt"
	"math"
)

// cutter finds where entries end in a primary's stream. It remembers how far it has looked, so that each byte is
// looked at once however slowly an entry arrives, and however its buffer moves: all places are counted from the
// entry's first byte.
//
//	*<n>\r\n  then n times  $<len>\r\n <len bytes> \r\n
type cutter struct {
	at    int    // looked at up to here
	left  int    // arguments that the command still lacks
	args  []span // of the commands of the entry
	ends  []int  // len(args) after each of the commands
	multi bool   // the entry began with MULTI
}

// span is where an argument lies.
type span struct{ from, to int }

// maxEntry bounds an entry, bytes. A primary that sends a longer one is not one.
const maxEntry = 4 << 30

// next looks on. n is the length of the first entry when all of it is in buf, else 0. An error means that this is no
// replication stream.
func (c *cutter) next(buf []byte) (n int, err error) {
	for {
		if c.left == 0 {
			count, to, err := header(buf, c.at, '*')
			if err != nil || to == 0 {
				return 0, err
			}
			if count < 1 || count > math.MaxInt32 {
				return 0, fmt.Errorf("a command of %d arguments", count)
			}
			c.at, c.left = to, int(count)
		}
		for c.left > 0 {
			size, from, err := header(buf, c.at, '$')
			if err != nil || from == 0 {
				return 0, err
			}
			if size < 0 || int64(from)+size+2 > maxEntry {
				return 0, fmt.Errorf("an argument of %d bytes, at byte %d of its entry, is beyond the limit of %d", size, from, int64(maxEntry))
			}
			to := from + int(size)
			if len(buf) < to+2 {
				return 0, nil
			}
			if buf[to] != '\r' || buf[to+1] != '\n' {
				return 0, fmt.Errorf("an argument ends in %q", buf[to:to+2])
			}
			c.args = append(c.args, span{from, to})
			c.at = to + 2
			c.left--
		}
		whole, err := c.command(buf)
		if err != nil {
			return 0, err
		}
		if whole {
			return c.at, nil
		}
	}
}

// command takes note of a command that is complete, and says whether the entry is.
func (c *cutter) command(buf []byte) (whole bool, err error) {
	first := 0
	if n := len(c.ends); n > 0 {
		first = c.ends[n-1]
	}
	c.ends = append(c.ends, len(c.args))
	word := ""
	if len(c.args)-first == 1 {
		word = controlWord(buf[c.args[first].from:c.args[first].to])
	}
	switch {
	case word == "MULTI" && c.multi:
		return false, fmt.Errorf("MULTI inside MULTI")
	case word == "MULTI":
		c.multi = true
		return false, nil
	case word == "EXEC" && !c.multi:
		return false, fmt.Errorf("EXEC without MULTI")
	}
	return !c.multi || word == "EXEC", nil
}

func controlWord(b []byte) string {
	switch {
	case bytes.EqualFold(b, []byte("MULTI")):
		return "MULTI"
	case bytes.EqualFold(b, []byte("EXEC")):
		return "EXEC"
	}
	return ""
}

// entry gives the entry that next found at the start of buf, its slices appended to the two stores, and makes the
// cutter ready for the one behind it.
func (c *cutter) entry(buf []byte, args *[][]byte, commands *[][][]byte) Entry {
	e := Entry{Raw: buf[:c.at:c.at]}
	ends := c.ends
	first, at := 0, len(*commands)
	if c.multi {
		first, ends = c.ends[0], c.ends[1:len(c.ends)-1]
	}
	for _, end := range ends {
		from := len(*args)
		for _, s := range c.args[first:end] {
			*args = append(*args, buf[s.from:s.to:s.to])
		}
		*commands = append(*commands, (*args)[from:len(*args):len(*args)])
		first = end
	}
	e.Commands = (*commands)[at:len(*commands):len(*commands)]
	c.reset()
	return e
}

// spansKept bounds what is kept for the next entry.
const spansKept = 1 << 12

func (c *cutter) reset() {
	if cap(c.args) > spansKept {
		c.args = nil
	}
	if cap(c.ends) > spansKept {
		c.ends = nil
	}
	*c = cutter{args: c.args[:0], ends: c.ends[:0]}
}

// longestHeader is a prefix, a sign, nineteen digits, CR LF.
const longestHeader = 1 + 20 + 2

// header reads prefix and a number at buf[at:]. to is 0 when its line is not complete.
func header(buf []byte, at int, prefix byte) (n int64, to int, err error) {
	if at >= len(buf) {
		return 0, 0, nil
	}
	if buf[at] != prefix {
		return 0, 0, fmt.Errorf("byte %q where %q is due", buf[at], prefix)
	}
	line := buf[at+1 : min(len(buf), at+longestHeader)]
	for i, b := range line {
		switch {
		case b >= '0' && b <= '9' && n < math.MaxInt64/10-1:
			n = n*10 + int64(b-'0')
		case b == '\r' && i > 0:
			if i+1 == len(line) {
				if len(line) == longestHeader-1 {
					break
				}
				return 0, 0, nil
			}
			if line[i+1] != '\n' {
				return 0, 0, fmt.Errorf("a length that ends in %q", line[i:i+2])
			}
			return n, at + 1 + i + 2, nil
		default:
			return 0, 0, fmt.Errorf("byte %q in a length", b)
		}
	}
	if len(line) == longestHeader-1 {
		return 0, 0, fmt.Errorf("a length of more than %d bytes", longestHeader-3)
	}
	return 0, 0, nil
}
