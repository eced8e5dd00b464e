// Package glob matches names against the glob patterns of Redis: KEYS, SCAN MATCH,
// PSUBSCRIBE, CONFIG GET, ACL rules.
//
// Shape. A pattern is bytes, not characters:
//
//   - any run of bytes, also none
//     ?        any one byte
//     [abc]    one of these; [^abc] none of these; [a-z] and [z-a] alike
//     \x       x itself, also within [ ]
//     other    itself; a lone \ at the end is itself
//
// A '[' without its ']' reaches to the end of the pattern. A ']' always ends a
// set, so "[]" matches nothing and "[^]" any byte. The ends of a range compare as
// signed bytes, as they do in a Redis on amd64: [a-\xff] is the bytes 0xff and 0x00
// to 'a'. Case is ignored for ASCII letters only, and not for an escaped byte
// within [ ]. A pattern that is not empty matches no empty name, not even "*":
// KEYS and SCAN know a bare "*" as "everything" before they ask.
//
// Cost. No recursion and no memory. Each part between two stars is looked for
// once, from the left, which is enough because a later place for it would leave
// less for the rest. So the time is linear in pattern and name, but for a part
// within the pattern that has a set or a '?' or ignores case: that is tried at
// every place, as Redis does.
//
// Source. Behaviour of redis-server 7.0.15, from which the tests' table was
// recorded. One difference: Redis gives up after 1000 stars and answers "no
// match"; here the true answer is given, as nothing here grows with their number.
//
// Not here: which commands ignore case.
package glob

import "bytes"

// Literal reports whether pattern has no special byte, so that it matches exactly
// its own text.
func Literal(pattern []byte) bool {
	for _, c := range pattern {
		if special(c) {
			return false
		}
	}
	return true
}

func special(c byte) bool { return c == '*' || c == '?' || c == '[' || c == '\\' }

// Match reports whether all of name matches all of pattern. nocase ignores the
// case of ASCII letters.
func Match(pattern, name []byte, nocase bool) bool {
	if len(name) == 0 {
		return len(pattern) == 0
	}
	// What stands before the first star has its place.
	for len(pattern) > 0 && pattern[0] != '*' {
		if len(name) == 0 {
			return false
		}
		width, ok := matchOne(pattern, name[0], nocase)
		if !ok {
			return false
		}
		pattern, name = pattern[width:], name[1:]
	}
	if len(pattern) == 0 {
		return len(name) == 0
	}
	return matchStars(pattern, name, nocase)
}

// matchStars is Match for a pattern that begins with a star.
func matchStars(pattern, name []byte, nocase bool) bool {
	for {
		for len(pattern) > 0 && pattern[0] == '*' {
			pattern = pattern[1:]
		}
		if len(pattern) == 0 {
			return true
		}
		p := nextPart(pattern)
		if len(name) < p.count {
			return false
		}
		if p.width == len(pattern) {
			// The last part has its place, too.
			return matchPart(pattern, name[len(name)-p.count:], nocase)
		}
		at := p.find(pattern[:p.width], name, nocase)
		if at < 0 {
			return false
		}
		pattern, name = pattern[p.width:], name[at+p.count:]
	}
}

// part is what stands between two stars.
type part struct {
	width   int  // bytes of the pattern
	count   int  // bytes of the name it matches
	literal bool // has no special byte
}

// nextPart measures the part at the start of pattern.
func nextPart(pattern []byte) part {
	p := part{literal: true}
	for p.width < len(pattern) && pattern[p.width] != '*' {
		c := pattern[p.width]
		p.literal = p.literal && !special(c)
		width, _ := matchOne(pattern[p.width:], 0, false)
		p.width += width
		p.count++
	}
	return p
}

// find returns the first place in name where the part matches, or -1.
func (p part) find(pattern, name []byte, nocase bool) int {
	if p.literal && !nocase {
		return bytes.Index(name, pattern)
	}
	for at := 0; at+p.count <= len(name); at++ {
		if matchPart(pattern, name[at:at+p.count], nocase) {
			return at
		}
	}
	return -1
}

// matchPart reports whether name matches the part, byte for byte. Its caller gives
// as many bytes as the part matches.
func matchPart(pattern, name []byte, nocase bool) bool {
	for _, c := range name {
		width, ok := matchOne(pattern, c, nocase)
		if !ok {
			return false
		}
		pattern = pattern[width:]
	}
	return true
}

// matchOne matches the first element of pattern, which is not a star, against one
// byte. It returns how many bytes of the pattern the element takes.
func matchOne(pattern []byte, c byte, nocase bool) (width int, ok bool) {
	want := pattern[0]
	switch {
	case want == '?':
		return 1, true
	case want == '[':
		return matchSet(pattern, c, nocase)
	case want == '\\' && len(pattern) > 1:
		return 2, same(pattern[1], c, nocase)
	}
	return 1, same(want, c, nocase)
}

// matchSet is matchOne for an element that begins with '['.
func matchSet(pattern []byte, c byte, nocase bool) (width int, ok bool) {
	at := 1
	not := at < len(pattern) && pattern[at] == '^'
	if not {
		at++
	}
	for at < len(pattern) {
		rest := pattern[at:]
		switch {
		case rest[0] == '\\' && len(rest) >= 2:
			ok = ok || rest[1] == c
			at += 2
		case rest[0] == ']':
			return at + 1, ok != not
		case len(rest) >= 3 && rest[1] == '-':
			// The end of a range may be any byte, also ']' and '\'.
			ok = ok || inRange(rest[0], rest[2], c, nocase)
			at += 3
		default:
			ok = ok || same(rest[0], c, nocase)
			at++
		}
	}
	return at, ok != not
}

// inRange orders the ends before it lowers them, as Redis does, so that with
// nocase a range over the gap between 'Z' and 'a' may be empty.
func inRange(first, last, c byte, nocase bool) bool {
	a, b, x := int8(first), int8(last), int8(c)
	if a > b {
		a, b = b, a
	}
	if nocase {
		a, b, x = int8(lower(byte(a))), int8(lower(byte(b))), int8(lower(c))
	}
	return a <= x && x <= b
}

func same(a, b byte, nocase bool) bool {
	return a == b || nocase && lower(a) == lower(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
