package slot

import (
	"fmt"
	"strconv"
	"strings"
)

// Range is the slots from First to Last, both included. The text form is
// "First-Last", or only "First" for a range of one slot.
type Range struct {
	First, Last uint16
}

// Len returns how many slots the range has.
func (r Range) Len() int { return int(r.Last) - int(r.First) + 1 }

// Has reports whether slot s is in the range.
func (r Range) Has(s uint16) bool { return r.First <= s && s <= r.Last }

// Append appends the text form to dst and returns the longer slice.
func (r Range) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, uint64(r.First), 10)
	if r.Last != r.First {
		dst = append(dst, '-')
		dst = strconv.AppendUint(dst, uint64(r.Last), 10)
	}
	return dst
}

// String returns the text form.
func (r Range) String() string { return string(r.Append(nil)) }

// ParseRange reads the text form of a range. It takes "7" and "7-7" alike, and
// refuses signs, spaces, numbers outside [0, Count), and a first slot after the
// last one.
func ParseRange(text string) (Range, error) {
	firstText, lastText, two := strings.Cut(text, "-")
	first, err := Parse(firstText)
	if err != nil {
		return Range{}, fmt.Errorf("slot range %.40q: %w", text, err)
	}
	if !two {
		return Range{first, first}, nil
	}
	last, err := Parse(lastText)
	if err != nil {
		return Range{}, fmt.Errorf("slot range %.40q: %w", text, err)
	}
	if first > last {
		return Range{}, fmt.Errorf("slot range %.40q: first slot %d is after last slot %d", text, first, last)
	}
	return Range{first, last}, nil
}

// Parse reads one slot in decimal. It refuses signs, spaces, the empty text, and
// numbers outside [0, Count).
func Parse(text string) (uint16, error) {
	n := 0
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("slot %.40q: not a decimal number", text)
		}
		// Checked at each digit, so that a long text cannot overflow n.
		if n = n*10 + int(c-'0'); n >= Count {
			return 0, fmt.Errorf("slot %.40q: outside [0, %d)", text, Count)
		}
	}
	if text == "" {
		return 0, fmt.Errorf("slot %q: not a decimal number", text)
	}
	return uint16(n), nil
}
