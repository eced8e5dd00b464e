package rdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
)

func is(err, target error) bool { return errors.Is(err, target) }

// ziplistOf builds the blob that servers before 7.0 wrote. It lives with the tests
// because nothing has to write one any more.
func ziplistOf(elems ...string) []byte {
	b := make([]byte, zlHeaderLen)
	prev, last := 0, zlHeaderLen
	for _, e := range elems {
		at := len(b)
		if prev < zlBigPrev {
			b = append(b, byte(prev))
		} else {
			b = binary.LittleEndian.AppendUint32(append(b, zlBigPrev), uint32(prev))
		}
		if v, ok := canonicalInt([]byte(e)); ok {
			b = ziplistInt(b, v)
		} else {
			switch n := len(e); {
			case n < 64:
				b = append(b, byte(n))
			case n < 1<<14:
				b = append(b, 0x40|byte(n>>8), byte(n))
			default:
				b = binary.BigEndian.AppendUint32(append(b, 0x80), uint32(n))
			}
			b = append(b, e...)
		}
		prev, last = len(b)-at, at
	}
	b = append(b, zlEnd)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint32(b[4:], uint32(last))
	binary.LittleEndian.PutUint16(b[8:], uint16(len(elems)))
	return b
}

func ziplistInt(b []byte, v int64) []byte {
	switch {
	case v >= 0 && v <= 12:
		return append(b, 0xf1+byte(v))
	case v == int64(int8(v)):
		return append(b, 0xfe, byte(v))
	case v == int64(int16(v)):
		return binary.LittleEndian.AppendUint16(append(b, 0xc0), uint16(v))
	case v >= -1<<23 && v < 1<<23:
		return append(b, 0xf0, byte(v), byte(v>>8), byte(v>>16))
	case v == int64(int32(v)):
		return binary.LittleEndian.AppendUint32(append(b, 0xd0), uint32(v))
	default:
		return binary.LittleEndian.AppendUint64(append(b, 0xe0), uint64(v))
	}
}

// zipmapOf builds a zipmap of fields and values, each value with free bytes behind.
func zipmapOf(free int, flat ...string) []byte {
	b := []byte{byte(len(flat) / 2)}
	for i, e := range flat {
		if len(e) < zmBigLen {
			b = append(b, byte(len(e)))
		} else {
			b = binary.LittleEndian.AppendUint32(append(b, zmBigLen), uint32(len(e)))
		}
		if i%2 == 1 {
			b = append(b, byte(free))
		}
		b = append(b, e...)
		if i%2 == 1 {
			b = append(b, make([]byte, free)...)
		}
	}
	return append(b, zmEnd)
}

func listpackOf(elems ...string) []byte {
	var lp Listpack
	for _, e := range elems {
		lp.Append([]byte(e))
	}
	return bytes.Clone(lp.Bytes())
}

func blob(typ byte, b []byte) []byte {
	return append(AppendLength([]byte{typ}, uint64(len(b))), b...)
}

type named struct {
	name string
	body []byte
}

// numbers holds one integer for every width of every packed format.
var numbers = []string{
	"0", "12", "13", "-1", "127", "128", "-128", "-129", "4095", "-4096", "4096", "32767", "-32768", "32768", "8388607",
	"-8388608", "8388608", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "-9223372036854775808",
}

// oldValues returns one value for every type and form that Redis 7.0 can load.
func oldValues() []named {
	long := string(bytes.Repeat([]byte("x"), 300))
	longer := string(bytes.Repeat([]byte("yz"), 10000))
	mixed := append(slices.Clone(numbers), "", "a", long, longer, "-0", "007")
	flat := []string{"f", "v", "5", "-7", long, "", "", longer, "70000", "x"}
	scored := []string{"a", "-inf", "b", "1", "c", "2.5", long, "1e+20", "7", "inf"}
	str := func(dst []byte, parts ...string) []byte {
		for _, p := range parts {
			dst = AppendString(dst, []byte(p))
		}
		return dst
	}
	double := func(dst []byte, member, text string) []byte {
		dst = AppendString(dst, []byte(member))
		return append(append(dst, byte(len(text))), text...)
	}
	zset1 := double([]byte{TypeZSet, 4}, "m", "1.5")
	zset1 = double(zset1, "n", "-12345.678")
	zset1 = append(AppendString(zset1, []byte("p")), doublePosInf)
	zset1 = append(AppendString(zset1, []byte("q")), doubleNegInf)
	ints := func(v ...int64) []byte { return blob(TypeSetIntset, appendIntset(nil, v)) }
	quick := append([]byte{TypeListQuicklist, 3}, blob(0, ziplistOf("a", "1"))[1:]...)
	quick = append(quick, blob(0, ziplistOf())[1:]...)
	quick = append(quick, blob(0, ziplistOf(mixed...))[1:]...)
	quick2 := append([]byte{TypeListQuicklist2, 3, nodePacked}, blob(0, listpackOf("a", "1"))[1:]...)
	quick2 = append(quick2, nodePlain, 3, 'x', 'y', 'z', nodePacked)
	quick2 = append(quick2, blob(0, listpackOf("b"))[1:]...)
	return []named{
		{"string", []byte{TypeString, 2, 'h', 'i'}},
		{"int8", []byte{TypeString, 0xc0, 0x80}},
		{"lzf string", AppendStringValue(nil, bytes.Repeat([]byte("abcdefg"), 300))},
		{"list", str(append([]byte{TypeList}, byte(len(mixed))), mixed...)},
		{"list of one int", str([]byte{TypeList, 1}, "5")},
		{"list ziplist", blob(TypeListZiplist, ziplistOf(mixed...))},
		{"list ziplist compressed", AppendString([]byte{TypeListZiplist}, ziplistOf(mixed...))},
		{"quicklist", quick},
		{"quicklist 2", quick2},
		{"set", str([]byte{TypeSet, 3}, "a", "5", "")},
		{"intset 2", ints(-3, 1, 2)},
		{"intset 4", ints(1, 70000)},
		{"intset 8", ints(-1<<63, 0, 1<<63-1)},
		{"zset", zset1},
		{"zset 2", []byte{TypeZSet2, 1, 1, 'm', 0, 0, 0, 0, 0, 0, 4, 0x40}},
		{"zset ziplist", blob(TypeZSetZiplist, ziplistOf(scored...))},
		{"zset listpack", blob(TypeZSetListpack, listpackOf(scored...))},
		{"hash", str([]byte{TypeHash, 2}, "f", "v", "g", "5")},
		{"hash zipmap", blob(TypeHashZipmap, zipmapOf(0, flat...))},
		{"hash zipmap with free bytes", blob(TypeHashZipmap, zipmapOf(7, flat...))},
		{"hash ziplist", blob(TypeHashZiplist, ziplistOf(flat...))},
		{"hash listpack", blob(TypeHashListpack, listpackOf(flat...))},
		{"hash listpack of numbers", blob(TypeHashListpack, listpackOf(numbers...))},
		{"small hash ziplist", blob(TypeHashZiplist, ziplistOf("a", "1", "b", "2"))},
		{"small zipmap", blob(TypeHashZipmap, zipmapOf(2, "a", "1", "b", "2"))},
		{"small hash listpack", blob(TypeHashListpack, listpackOf("a", "1", "b", "2"))},
		{"small zset listpack", blob(TypeZSetListpack, listpackOf("a", "1", "b", "2.5"))},
	}
}

// newerValues returns values of versions 11 and 12, and what is in them.
func newerValues() map[string]struct {
	body []byte
	want *model
} {
	at := int64(1_700_000_000_000)
	hash := func(parts ...any) *model {
		m := &model{kind: KindHash}
		for i := 0; i < len(parts); i += 3 {
			m.HashField([]byte(parts[i].(string)), []byte(parts[i+1].(string)), parts[i+2].(int64))
		}
		return m
	}
	text := func(v int64) string { return strconv.FormatInt(v, 10) }
	packed := listpackOf("f", "5", text(at), "g", "v", text(at+5), "h", "z", "0")
	base := func(typ byte) []byte { return binary.LittleEndian.AppendUint64([]byte{typ}, uint64(at)) }
	want := hash("f", "5", at, "g", "v", at+5, "h", "z", int64(0))
	plain := func(dst []byte, rel ...uint64) []byte {
		dst = append(dst, 3)
		for i, p := range [][2]string{{"f", "5"}, {"g", "v"}, {"h", "z"}} {
			dst = AppendLength(dst, rel[i])
			dst = AppendString(AppendString(dst, []byte(p[0])), []byte(p[1]))
		}
		return dst
	}
	set := &model{kind: KindSet, list: []string{"a", "5"}}
	return map[string]struct {
		body []byte
		want *model
	}{
		"20": {blob(TypeSetListpack, listpackOf("a", "5")), set},
		"22": {plain([]byte{TypeHashDeadlines0}, uint64(at), uint64(at+5), 0), want},
		"23": {blob(TypeHashPackedDl0, packed), want},
		"24": {plain(base(TypeHashDeadlines), 1, 6, 0), want},
		"25": {append(base(TypeHashPackedDl), blob(0, packed)[1:]...), want},
	}
}
