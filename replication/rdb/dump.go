package rdb

import (
	"encoding/binary"
	"errors"
)

// footerLen is the version and the checksum behind the value of a payload.
const footerLen = 2 + 8

// VerifyDump checks the footer of a payload and returns the value in front of it,
// type byte first, and the version it was stamped with. Its error is ErrDumpFooter.
//
// A checksum of zero is no exception here, as it is at the end of a stream.
func VerifyDump(payload []byte) (body []byte, version uint16, err error) {
	return VerifyLongDump(payload, nil)
}

// Passed is told of parts of a payload, in order, that were looked at and will not be again soon. It may be nil. Where a
// payload lies in a file that is mapped, its pages can go then.
type Passed func(part []byte)

// passStep is the least part that Passed is told of, but for the last.
const passStep = 1 << 20

// VerifyLongDump is VerifyDump of a payload that may be long.
func VerifyLongDump(payload []byte, passed Passed) (body []byte, version uint16, err error) {
	if len(payload) < footerLen {
		return nil, 0, ErrDumpFooter
	}
	body = payload[:len(payload)-footerLen]
	version = binary.LittleEndian.Uint16(payload[len(body):])
	sum := binary.LittleEndian.Uint64(payload[len(body)+2:])
	if version > MaxVersion || sum != checksumOf(payload[:len(body)+2], passed) {
		return nil, version, ErrDumpFooter
	}
	return body, version, nil
}

func checksumOf(p []byte, passed Passed) (crc uint64) {
	for len(p) > 0 {
		part := p[:min(len(p), passStep)]
		p = p[len(part):]
		crc = Checksum(crc, part)
		if passed != nil {
			passed(part)
		}
	}
	return crc
}

// StringLen tells, by its first bytes alone, whether a payload is of a string, and the length that this claims to have; 0
// where it cannot be told.
func StringLen(payload []byte) (n uint64, isString bool) {
	src := &source{mem: payload}
	if typ, err := src.readByte("type"); err != nil || typ != TypeString {
		return 0, false
	}
	n, enc, err := src.lengthOrEncoding("string")
	if err == nil && enc && n == strLZF {
		_, n, err = src.lzfLengths("string")
	} else if enc {
		n = 0 // an integer
	}
	if err != nil {
		return 0, true
	}
	return n, true
}

// PlainString gives the bytes of a value, type byte first, that is a string of less than 4 GiB as it is: neither packed nor a
// number, and nothing follows it. They are part of body. Any other value is for DecodeValue.
func PlainString(body []byte) (s []byte, ok bool) {
	if len(body) < 2 || body[0] != TypeString {
		return nil, false
	}
	n, rest := uint64(body[1]&0x3f), body[2:]
	switch {
	case body[1]>>6 == 0:
	case body[1]>>6 == 1 && len(rest) > 0:
		n, rest = n<<8|uint64(rest[0]), rest[1:]
	case body[1] == len32 && len(rest) >= 4:
		n, rest = uint64(binary.BigEndian.Uint32(rest)), rest[4:]
	default:
		return nil, false
	}
	return rest, uint64(len(rest)) == n
}

// DecodeDump checks a payload and hands its value to sink. The error is
// ErrDumpFooter, one for which errors.Is(err, ErrBadFormat) holds, or the sink's.
func DecodeDump(payload []byte, sink Sink) error {
	body, _, err := VerifyDump(payload)
	if err != nil {
		return err
	}
	return DecodeValue(body, sink)
}

// DecodeValue hands the value in body, type byte first, to sink. Nothing may
// follow the value.
func DecodeValue(body []byte, sink Sink) error { return DecodeLongValue(body, sink, nil) }

// DecodeLongValue is DecodeValue of a value that may be long.
func DecodeLongValue(body []byte, sink Sink, passed Passed) error {
	src := &source{mem: body, passed: passed}
	typ, err := src.readByte("type")
	if err != nil {
		return err
	}
	d := &decoder{src: src, sink: &tailCheck{Sink: sink, src: src}, checkPlain: true}
	err = d.value(typ)
	if errors.Is(err, errEmpty) {
		return src.fail("value", err.Error(), nil)
	}
	return err
}

// tailCheck refuses a value that ends before its payload does. It sits in front of
// End because a Sink that heard End has been told the value is sound.
type tailCheck struct {
	Sink
	src *source
}

func (t *tailCheck) End() error {
	if left := int64(len(t.src.mem)) - t.src.off; left > 0 {
		return t.src.failf("value", "%d bytes behind it", left)
	}
	return t.Sink.End()
}

// AppendDump appends the payload of the value in body, type byte first, as the
// Append functions of values make it. It is stamped with DefaultVersion, or with
// the lowest version that has the type.
func AppendDump(dst, body []byte) []byte {
	at := len(dst)
	dst = append(dst, body...)
	return CloseDump(dst, at)
}

// CloseDump makes a payload of the value in dst[at:], so that a value appended in
// place needs no copy.
func CloseDump(dst []byte, at int) []byte {
	version := uint16(DefaultVersion)
	if len(dst) > at {
		version = VersionOf(dst[at])
	}
	return appendFooter(dst, version, 0, dst[at:])
}

// appendFooter appends version and checksum; crc is that of everything in front
// of rest.
func appendFooter(dst []byte, version uint16, crc uint64, rest []byte) []byte {
	crc = Checksum(crc, rest)
	at := len(dst)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	crc = Checksum(crc, dst[at:])
	return binary.LittleEndian.AppendUint64(dst, crc)
}

// VersionOf returns the version to stamp on a value of type typ: DefaultVersion,
// or the first one that has the type when that is later.
func VersionOf(typ byte) uint16 { return max(DefaultVersion, firstVersion(typ)) }

// firstVersion returns the version that brought a type; 1 for those that are older
// than anything still in use.
func firstVersion(typ byte) uint16 {
	switch {
	case typ > TypeHashPackedDl:
		return 1 // not a type at all; the reader says so
	case typ >= TypeHashDeadlines0:
		return 12
	case typ >= TypeSetListpack:
		return 11
	case typ >= TypeHashListpack:
		return 10
	case typ == TypeZSet2:
		return 8
	}
	return 1
}
