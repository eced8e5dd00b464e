package rdb

import (
	"encoding/binary"
	"fmt"
)

// Zipmap: how Redis 2.4 packed small hashes. Read only.
//
//	0  uint8  pairs; 254 and above mean "count them"
//	1         pairs, each: length, field, length, free, value, free bytes of rubbish
//	   FF     end
//
// A length is 1 byte below 254, else FE and a uint32. free is one byte. Checking
// and stepping are one act here: a checker that steps over a pair in another way
// than its reader has been a way into servers.
const (
	zmEnd      = 0xff
	zmBigLen   = 0xfe
	zmBigCount = 0xfe
)

type zipmap struct {
	b    []byte
	pos  int
	seen int
}

func newZipmap(b []byte) (*zipmap, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%d bytes, want at least 2", len(b))
	}
	if b[len(b)-1] != zmEnd {
		return nil, fmt.Errorf("last byte %#02x, want %#02x", b[len(b)-1], zmEnd)
	}
	return &zipmap{b: b, pos: 1}, nil
}

// next returns the next pair, or false after the last one.
func (z *zipmap) next() (field, value []byte, ok bool, err error) {
	if z.b[z.pos] == zmEnd {
		if z.pos != len(z.b)-1 {
			return nil, nil, false, fmt.Errorf("end at byte %d of %d", z.pos, len(z.b))
		}
		if n := int(z.b[0]); n < zmBigCount && n != z.seen {
			return nil, nil, false, fmt.Errorf("%d pairs, header says %d", z.seen, n)
		}
		return nil, nil, false, nil
	}
	if field, err = z.part(false); err != nil {
		return nil, nil, false, err
	}
	if value, err = z.part(true); err != nil {
		return nil, nil, false, err
	}
	z.seen++
	return field, value, true, nil
}

// part reads one length and what follows; a value has free bytes behind it.
func (z *zipmap) part(isValue bool) ([]byte, error) {
	body := z.b[:len(z.b)-1]
	at := z.pos
	need, n := 1, 0
	if at < len(body) && body[at] == zmBigLen {
		need = 5
	}
	extra := 0
	if isValue {
		extra = 1
	}
	if len(body)-at < need+extra {
		return nil, fmt.Errorf("length at byte %d cut off", at)
	}
	switch {
	case need == 5:
		v := binary.LittleEndian.Uint32(body[at+1:])
		if uint64(v) > uint64(len(body)) {
			return nil, fmt.Errorf("%d bytes at byte %d, %d left", v, at, len(body)-at)
		}
		n = int(v)
	case body[at] == zmEnd:
		return nil, fmt.Errorf("end within a pair at byte %d", at)
	default:
		n = int(body[at])
	}
	start := at + need + extra
	free := 0
	if isValue {
		free = int(body[at+need])
	}
	if n+free > len(body)-start {
		return nil, fmt.Errorf("%d bytes at byte %d, %d left", n+free, start, len(body)-start)
	}
	z.pos = start + n + free
	return body[start : start+n], nil
}
