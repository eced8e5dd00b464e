package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxValueLen is the longest value a directive takes, in bytes. Redis has no
// such limit below that of a bulk string (512 MB), which a file could not hold.
const maxValueLen = 1 << 20

// kind says how the text of a value is read and checked.
type kind uint8

const (
	kindBool    kind = iota // yes or no
	kindInt                 // a decimal number
	kindOctal               // an octal number
	kindMemory              // bytes, with b, k, kb, m, mb, g, gb
	kindPercent             // as kindMemory, or a percentage
	kindEnum                // one of choices
	kindBits                // any of choices, separated by blanks
	kindString              // text
	kindSpecial             // check does it all
)

// flag holds what else there is to know about a directive.
type flag uint16

const (
	immutable  flag = 1 << iota // CONFIG SET is refused
	hidden                      // CONFIG GET shows it by its exact name only
	protected                   // CONFIG SET needs enable-protected-configs
	secret                      // its value stays out of logs and errors
	ignored                     // accepted, has no effect
	refused                     // may only be set to its default
	multi                       // a line holds several arguments
	cumulative                  // lines add up
	notLoading                  // CONFIG SET waits for the end of loading
	auto                        // 0 stands for a number found at start
	own                         // cairn's, unknown to Redis
	fixed                       // the value may be replaced by another one, with a note
	noted                       // kept and shown, but what it asks for does not happen, with a note
)

// param is one row of the table.
type param struct {
	name    string
	alias   string // the older spelling, or ""
	kind    kind
	flags   flag
	def     string // canonical
	min     int64
	max     uint64
	choices []string // kindEnum, kindBits; "a=b" means that b is another word for a
	unit    string   // of numbers, for people: "s", "ms", "us", "bytes", ...
	why     string   // of ignored, refused, fixed and noted

	// check replaces reading for kindSpecial, and adds rules to other kinds. args
	// is the value as separate words, old what the directive has now (for the
	// cumulative: what earlier lines gave). It returns the canonical text.
	check func(args []string, old string) (string, error)
}

func (p *param) is(f flag) bool { return p.flags&f != 0 }

// parse turns a value's words into its canonical text, or says in Redis's words
// why it cannot.
func (p *param) parse(args []string, old string) (string, error) {
	size := 0
	for _, a := range args {
		if size += len(a); size > maxValueLen {
			return "", fmt.Errorf("argument is longer than %d bytes", maxValueLen)
		}
	}
	if p.kind == kindSpecial {
		return p.check(args, old)
	}
	if len(args) != 1 && p.kind != kindBits {
		return "", errArgCount
	}
	text, err := p.read(args)
	if err != nil {
		return "", err
	}
	if p.check != nil {
		return p.check([]string{text}, old)
	}
	return text, nil
}

// read is parse for the plain kinds.
func (p *param) read(args []string) (string, error) {
	switch p.kind {
	case kindBool:
		return readBool(args[0])
	case kindInt:
		return p.readInt(args[0])
	case kindOctal:
		return p.readOctal(args[0])
	case kindMemory, kindPercent:
		return p.readMemory(args[0])
	case kindEnum:
		return p.readEnum(args[0])
	case kindBits:
		return p.readBits(args)
	default:
		// Redis keeps most strings zero terminated. Cutting the value there would
		// quietly change it, so such a value is refused, passwords excepted.
		if !p.is(secret) && strings.IndexByte(args[0], 0) >= 0 {
			return "", errors.New("argument contains a zero byte")
		}
		return args[0], nil
	}
}

func readBool(s string) (string, error) {
	switch {
	case strings.EqualFold(s, "yes"):
		return "yes", nil
	case strings.EqualFold(s, "no"):
		return "no", nil
	}
	return "", errors.New("argument must be 'yes' or 'no'")
}

func (p *param) readInt(s string) (string, error) {
	n, ok := parseStrictInt(s)
	if !ok {
		return "", errors.New("argument couldn't be parsed into an integer")
	}
	if n < p.min || n > 0 && uint64(n) > p.max {
		return "", p.rangeError(10)
	}
	return s, nil
}

func (p *param) readOctal(s string) (string, error) {
	n, ok := parseLooseInt(s, 8)
	if !ok {
		return "", errors.New("argument couldn't be parsed as an octal number")
	}
	if n < p.min || n > 0 && uint64(n) > p.max {
		return "", p.rangeError(8)
	}
	return strconv.FormatInt(n, 8), nil
}

func (p *param) rangeError(base int) error {
	return fmt.Errorf("argument must be between %s and %s inclusive",
		strconv.FormatInt(p.min, base), strconv.FormatUint(p.max, base))
}

func (p *param) readMemory(s string) (string, error) {
	n, ok := parseMemory(s)
	if !ok && p.kind == kindPercent {
		return p.readPercent(s)
	}
	if !ok {
		return "", errors.New("argument must be a memory value")
	}
	if p.is(auto) && n == 0 {
		return "0", nil
	}
	if p.min > 0 && n < uint64(p.min) || n > p.max {
		return "", p.rangeError(10)
	}
	return strconv.FormatUint(n, 10), nil
}

func (p *param) readPercent(s string) (string, error) {
	digits, found := strings.CutSuffix(s, "%")
	n, ok := parseStrictInt(digits)
	if !found || !ok || n < 0 {
		return "", errors.New("argument must be a memory or percent value")
	}
	if n > 100 {
		return "", errors.New("percentage argument must be less or equal to 100")
	}
	if n == 0 {
		return "0", nil
	}
	return digits + "%", nil
}

// choice finds a word among p.choices and returns its place, or -1.
func (p *param) choice(word string) int {
	for i, c := range p.choices {
		name, other, _ := strings.Cut(c, "=")
		if strings.EqualFold(word, name) || other != "" && strings.EqualFold(word, other) {
			return i
		}
	}
	return -1
}

func (p *param) choiceError() error {
	words := strings.ReplaceAll(strings.Join(p.choices, ", "), "=", ", ")
	return fmt.Errorf("argument(s) must be one of the following: %s", words)
}

// word is the canonical spelling of the i-th choice.
func (p *param) word(i int) string {
	name, _, _ := strings.Cut(p.choices[i], "=")
	return name
}

func (p *param) readEnum(s string) (string, error) {
	i := p.choice(s)
	if i < 0 {
		return "", p.choiceError()
	}
	return p.word(i), nil
}

// bits turns words into a mask: the first choice is no bit, the second bit 0.
func (p *param) bits(words []string) (mask uint32, ok bool) {
	for _, w := range words {
		i := p.choice(w)
		if i < 0 {
			return 0, false
		}
		if i > 0 {
			mask |= 1 << (i - 1)
		}
	}
	return mask, len(words) > 0
}

func (p *param) readBits(args []string) (string, error) {
	mask, ok := p.bits(args)
	if !ok {
		return "", p.choiceError()
	}
	if mask == 0 {
		return p.word(0), nil
	}
	var words []string
	for i := 1; i < len(p.choices); i++ {
		if mask&(1<<(i-1)) != 0 {
			words = append(words, p.word(i))
		}
	}
	return strings.Join(words, " "), nil
}

// parseStrictInt reads a number as Redis reads integers from clients: one
// spelling a number, so no plus sign, no leading zero, no blank.
func parseStrictInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

// parseLooseInt reads a number as strtoll does when the caller looks only at
// where it stopped: leading blanks and a plus sign pass, the empty text is 0,
// and what is too big becomes the biggest.
func parseLooseInt(s string, base int) (int64, bool) {
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(strings.TrimLeft(s, " \t\n\v\f\r"), base, 64)
	if errors.Is(err, strconv.ErrRange) {
		return n, base == 10
	}
	return n, err == nil
}

// parseMemory reads a number of bytes with an optional unit: k, m, g are powers
// of 1000, kb, mb, gb powers of 1024. No digits at all are 0, as in Redis. A sum
// past 64 bits is no number (Redis would take what is left of it).
func parseMemory(s string) (uint64, bool) {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	var unit uint64
	switch strings.ToLower(s[end:]) {
	case "", "b":
		unit = 1
	case "k":
		unit = 1000
	case "kb":
		unit = 1 << 10
	case "m":
		unit = 1000 * 1000
	case "mb":
		unit = 1 << 20
	case "g":
		unit = 1000 * 1000 * 1000
	case "gb":
		unit = 1 << 30
	default:
		return 0, false
	}
	if end == 0 {
		return 0, true
	}
	n, err := strconv.ParseUint(s[:end], 10, 64)
	if err != nil || n > math.MaxUint64/unit {
		return 0, false
	}
	return n * unit, true
}

// formatMemory writes bytes with the largest unit that divides them, as CONFIG
// REWRITE does.
func formatMemory(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "gb"}, {20, "mb"}, {10, "kb"}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatUint(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatUint(n, 10)
}
