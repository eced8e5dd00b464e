package wire

import (
	"bytes"
	"fmt"
)

// What texts of a packet may hold. They come to stand in nodes.conf and in replies, so a byte that means something
// there must not get in.

// Valid says whether the id is one: 40 of a-z and 0-9.
func (id ID) Valid() bool {
	for _, c := range id {
		if !isLower(c) && !isDigit(c) {
			return false
		}
	}
	return true
}

// ParseID reads an id.
func ParseID(text string) (id ID, ok bool) {
	if len(text) != IDLen {
		return id, false
	}
	copy(id[:], text)
	return id, id.Valid()
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return isLower(c | 0x20) }

// isHostByte says whether c may stand in a host name.
func isHostByte(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' || c == '.' || c == '_' }

// isAddressByte says whether c may stand in an announced address, which may be a name.
func isAddressByte(c byte) bool { return isHostByte(c) || c == ':' || c == '%' }

// isNameByte says whether c may stand in a name for people: anything printable that separates nothing in nodes.conf.
func isNameByte(c byte) bool {
	return c > ' ' && c != 0x7f && bytes.IndexByte([]byte(`!#$%&()*+:;<>?@[]^{|}~,="'\`), c) < 0
}

// decodeIP reads a field of fixed length that holds an address up to its first zero byte.
func decodeIP(field []byte) (string, error) {
	n := bytes.IndexByte(field, 0)
	if n < 0 {
		return "", fmt.Errorf("address %q does not end within %d bytes", field, len(field))
	}
	for _, c := range field[:n] {
		if !isAddressByte(c) {
			return "", fmt.Errorf("address %q has the byte %#x", field[:n], c)
		}
	}
	return string(field[:n]), nil
}

// decodeText reads the text of an extension, up to its first zero byte. One that does not end, or has bytes which it may
// not have, counts as not sent.
func decodeText(data []byte, may func(byte) bool) string {
	n := bytes.IndexByte(data, 0)
	if n < 0 {
		return ""
	}
	for _, c := range data[:n] {
		if !may(c) {
			return ""
		}
	}
	return string(data[:n])
}
