package config

import (
	"errors"
	"strings"
)

// The words of a line, as redis.conf and the command line of clients write them:
//
//	word            ends at a blank
//	"word"          \n \r \t \a \b, \xHH a byte, \ and any other character: that one
//	'word'          \' a quote, all else as it is
//
// A closing quote must be followed by a blank or the end. An opening one in the
// middle of a bare word starts a quoted part of the same word.

var errQuotes = errors.New("unbalanced quotes")

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// splitWords cuts a line into its words. It stops at a zero byte, as Redis does.
func splitWords(line string) ([]string, error) {
	if i := strings.IndexByte(line, 0); i >= 0 {
		line = line[:i]
	}
	var words []string
	for at := 0; ; {
		for at < len(line) && isBlank(line[at]) {
			at++
		}
		if at == len(line) {
			return words, nil
		}
		word, next, err := readWord(line, at)
		if err != nil {
			return nil, err
		}
		words, at = append(words, word), next
	}
}

// endsWord says whether c ends a bare word. Form feeds and vertical tabs do not,
// though they are blanks between words: so does Redis.
func endsWord(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// readWord reads the word that starts at the byte at, and says where it ended.
func readWord(line string, at int) (word string, next int, err error) {
	var b []byte
	for at < len(line) && !endsWord(line[at]) {
		switch line[at] {
		case '"':
			b, at, err = readDouble(b, line, at+1)
		case '\'':
			b, at, err = readSingle(b, line, at+1)
		default:
			b = append(b, line[at])
			at++
			continue
		}
		if err == nil && at < len(line) && !isBlank(line[at]) {
			err = errQuotes
		}
		return string(b), at, err
	}
	return string(b), at, nil
}

func readDouble(b []byte, line string, at int) ([]byte, int, error) {
	for ; at < len(line); at++ {
		switch c := line[at]; {
		case c == '"':
			return b, at + 1, nil
		case c != '\\' || at+1 == len(line):
			b = append(b, c)
		case line[at+1] == 'x' && at+3 < len(line) && hexDigit(line[at+2]) >= 0 && hexDigit(line[at+3]) >= 0:
			b = append(b, byte(hexDigit(line[at+2])<<4|hexDigit(line[at+3])))
			at += 3
		default:
			at++
			b = append(b, unescape(line[at]))
		}
	}
	return b, at, errQuotes
}

func readSingle(b []byte, line string, at int) ([]byte, int, error) {
	for ; at < len(line); at++ {
		switch {
		case line[at] == '\'':
			return b, at + 1, nil
		case line[at] == '\\' && at+1 < len(line) && line[at+1] == '\'':
			at++
		}
		b = append(b, line[at])
	}
	return b, at, errQuotes
}

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

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'a':
		return '\a'
	case 'b':
		return '\b'
	}
	return c
}

// appendQuoted appends s as a double-quoted word that splitWords reads back.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range []byte(s) {
		switch {
		case c == '\\' || c == '"':
			dst = append(dst, '\\', c)
		case c >= ' ' && c < 0x7f:
			dst = append(dst, c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\a':
			dst = append(dst, '\\', 'a')
		case c == '\b':
			dst = append(dst, '\\', 'b')
		default:
			dst = append(dst, '\\', 'x', digits[c>>4], digits[c&15])
		}
	}
	return append(dst, '"')
}
