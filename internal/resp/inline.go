package resp

// SplitArgs splits a line into words by Redis's rules, and appends them to args.
// Words are separated by white space. A word, or the rest of one, may be quoted:
// "..." knows \n \r \t \b \a \xHH and takes any other escaped byte as it is;
// '...' knows \' only. A closing quote must be followed by white space or the
// end of the line. ok is false when a quote is not closed like that.
//
// The words are decoded in place: they alias line, whose bytes are overwritten.
func SplitArgs(args [][]byte, line []byte) (words [][]byte, ok bool) {
	r := 0
	for {
		for r < len(line) && isSpace(line[r]) {
			r++
		}
		if r == len(line) {
			return args, true
		}
		from := r
		var n int
		r, n, ok = unquoteWord(line, r)
		if !ok {
			return args, false
		}
		args = append(args, line[from:from+n:from+n])
	}
}

// unquoteWord decodes the word that begins at from to the same place. It returns
// where reading goes on and the length of the decoded word.
func unquoteWord(line []byte, from int) (r, n int, ok bool) {
	w := from
	for r = from; r < len(line); {
		switch c := line[r]; c {
		case ' ', '\n', '\r', '\t':
			return r, w - from, true
		case '"', '\'':
			if c == '"' {
				r, w, ok = unquoteDouble(line, r+1, w)
			} else {
				r, w, ok = unquoteSingle(line, r+1, w)
			}
			if !ok || r < len(line) && !isSpace(line[r]) {
				return r, 0, false
			}
			return r, w - from, true
		default:
			line[w] = c
			w++
			r++
		}
	}
	return r, w - from, true
}

// unquoteDouble decodes from line[r], behind an opening ", to line[w]. The new r
// is behind the closing quote.
func unquoteDouble(line []byte, r, w int) (int, int, bool) {
	for ; r < len(line); r++ {
		c := line[r]
		if c == '"' {
			return r + 1, w, true
		}
		if c == '\\' && r+1 < len(line) {
			r++
			c = line[r]
			switch c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'a':
				c = '\a'
			case 'x':
				if r+2 < len(line) && hexDigit(line[r+1]) >= 0 && hexDigit(line[r+2]) >= 0 {
					c = byte(hexDigit(line[r+1])<<4 | hexDigit(line[r+2]))
					r += 2
				}
			}
		}
		line[w] = c
		w++
	}
	return r, w, false
}

// unquoteSingle is unquoteDouble for ', where only \' is an escape.
func unquoteSingle(line []byte, r, w int) (int, int, bool) {
	for ; r < len(line); r++ {
		c := line[r]
		if c == '\'' {
			return r + 1, w, true
		}
		if c == '\\' && r+1 < len(line) && line[r+1] == '\'' {
			r++
			c = '\''
		}
		line[w] = c
		w++
	}
	return r, w, false
}

// isSpace is C's isspace in the C locale.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// hexDigit is the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
