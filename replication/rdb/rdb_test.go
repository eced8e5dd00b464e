package rdb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The vectors in this file were taken from running servers.

func TestChecksum(t *testing.T) {
	if got := Checksum(0, []byte("123456789")); got != 0xe9c6d914c4b8d9ca {
		t.Fatalf("%016x", got)
	}
	if got := Checksum(Checksum(0, []byte("1234")), []byte("56789")); got != 0xe9c6d914c4b8d9ca {
		t.Fatalf("in two parts %016x", got)
	}
}

func TestDumpVector(t *testing.T) {
	want := "000568656c6c6f0a006372df766534200a"
	got := AppendDump(nil, AppendStringValue(nil, []byte("hello")))
	if hex.EncodeToString(got) != want {
		t.Fatalf("%x, want %s", got, want)
	}
	newer, _ := hex.DecodeString("000568656c6c6f0c00a804ebb69f1ebe43")
	if m := decode(t, newer); string(m.str) != "hello" {
		t.Fatalf("%q", m.str)
	}
}

func TestVectors(t *testing.T) {
	seq := slices.Values[[][]byte]
	b := func(s ...string) (out [][]byte) {
		for _, e := range s {
			out = append(out, []byte(e))
		}
		return out
	}
	zs := func(yield func([]byte, float64) bool) {
		_ = yield([]byte("d"), math.Inf(-1)) && yield([]byte("a"), 1) && yield([]byte("b"), 2.5) && yield([]byte("c"), math.Inf(1))
	}
	zs2 := func(yield func([]byte, float64) bool) {
		_ = yield([]byte("b"), 2.5) && yield([]byte("a"), 1)
	}
	lim := Limits{128, 64}
	for _, v := range []struct {
		got  []byte
		want string
	}{
		{AppendStringValue(nil, []byte("123")), "00c07b"},
		{AppendStringValue(nil, []byte("-1")), "00c0ff"},
		{AppendStringValue(nil, []byte("32767")), "00c1ff7f"},
		{AppendStringValue(nil, []byte("-32769")), "00c2ff7fffff"},
		{AppendStringValue(nil, []byte("2147483648")), "000a32313437343833363438"},
		{AppendStringValue(nil, []byte("0012")), "000430303132"},
		{AppendList(nil, seq(b("a", "1", "-5"))), "1201020f0f0000000300816102 0101 dffb02 ff"},
		{AppendSet(nil, 3, seq(b("1", "-3", "2")), SetLimits{Intset: 9}), "0b0e0200000003000000fdff01000200"},
		{AppendSet(nil, 2, seq(b("1", "70000")), SetLimits{Intset: 9}), "0b1004000000020000000100000070110100"},
		{AppendSet(nil, 2, seq(b("5", "a")), SetLimits{}), "0202c0050161"},
		{AppendSet(nil, 2, seq(b("a", "5")), SetLimits{Listpack: lim}), "140c0c00000002008161020501ff"},
		{AppendZSet(nil, 4, zs, lim), "1125 25000000 0800 816402 842d696e6605 816102 0101 816202 83322e3504 816302 83696e6604 ff"},
		{AppendZSet(nil, 2, zs2, Limits{}), "0502 0162 0000000000000440 0161 000000000000f03f"},
		{AppendHash(nil, 2, pairsOf(b("f", "v", "n", "5")), lim), "1012 12000000 0400 816602 817602 816e02 0501 ff"},
		{AppendHash(nil, 1, pairsOf(b("f", "v")), Limits{}), "040101660176"},
	} {
		if want := strings.ReplaceAll(v.want, " ", ""); hex.EncodeToString(v.got) != want {
			t.Errorf("%x, want %s", v.got, want)
		}
	}
}

func TestListpackVector(t *testing.T) {
	want := "500000000f007f01c08002dfff02cfff02d00002f1001003f1ff7f03f1008003f200800004f2ffff7f04f200008004f30000800005" +
		"f3ffffff7f05f4000000800000000009f4000000000000008009ff"
	elems := []string{
		"127", "128", "-1", "4095", "-4096", "4096", "32767", "-32768", "32768", "8388607", "-8388608", "8388608",
		"2147483647", "2147483648", "-9223372036854775808",
	}
	if got := hex.EncodeToString(listpackOf(elems...)); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
}

// TestBackLenBorders pins the borders that are one off from what the bits allow. A
// server computes the width again and refuses a listpack that has another one.
func TestBackLenBorders(t *testing.T) {
	for _, v := range []struct{ n, size int }{
		{1, 1}, {127, 1}, {128, 2}, {16382, 2}, {16383, 3}, {2097150, 3}, {2097151, 4}, {268435454, 4}, {268435455, 5},
	} {
		b := appendBackLen(nil, v.n)
		back := 0
		for i := range b {
			back = back<<7 | int(b[i]&0x7f)
		}
		if len(b) != v.size || back != v.n {
			t.Errorf("%d: %x, want %d bytes", v.n, b, v.size)
		}
	}
}

func TestLengthRoundTrip(t *testing.T) {
	for _, n := range []uint64{0, 1, 63, 64, 16383, 16384, 1<<32 - 1, 1 << 32, math.MaxUint64} {
		src := &source{mem: AppendLength(nil, n)}
		got, err := src.length("length")
		if err != nil || got != n || src.off != int64(len(src.mem)) {
			t.Errorf("%d: got %d, %v", n, got, err)
		}
	}
	for _, c := range []byte{0x82, 0xbf} {
		if _, err := (&source{mem: []byte{c, 0, 0, 0, 0, 0, 0, 0, 0, 0}}).length("length"); !is(err, ErrBadFormat) {
			t.Errorf("%#x: %v", c, err)
		}
	}
}

func TestLZFVectors(t *testing.T) {
	for _, v := range []struct{ packed, want string }{
		{"016161e033000 16161", strings.Repeat("a", 64)},
		{"0461626364 61e01003016364", strings.Repeat("abcd", 8)},
		{"016161e00a00", strings.Repeat("a", 21)},
	} {
		block, err := hex.DecodeString(strings.ReplaceAll(v.packed, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got, err := lzfAppend(nil, block, len(v.want))
		if err != nil || string(got) != v.want {
			t.Errorf("%x: %q, %v", block, got, err)
		}
		for _, wrong := range []int{len(v.want) - 1, len(v.want) + 1} {
			if _, err := lzfAppend(nil, block, wrong); err == nil {
				t.Errorf("%x: declared %d, no error", block, wrong)
			}
		}
	}
}

// pullFrom serves a block in memory.
func pullFrom(b []byte) func(int) ([]byte, error) {
	s := &source{mem: b}
	return func(n int) ([]byte, error) { return s.next(n, "block") }
}

func TestLZFRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 21))
	for i := range 400 {
		in := element(rng, []int{40, 400, 9000, 300000}[i%4])
		block, ok := lzfCompress(nil, in, len(in)*2+8)
		if !ok {
			t.Fatalf("input %d: %d bytes do not fit in twice their size", i, len(in))
		}
		got, err := lzfAppend(nil, block, len(in))
		if err != nil || !bytes.Equal(got, in) {
			t.Fatalf("input %d: %d bytes back of %d, %v", i, len(got), len(in), err)
		}
		var pieces []byte
		err = lzfChunks(uint64(len(block)), uint64(len(in)), pullFrom(block), func(b []byte) error {
			pieces = append(pieces, b...)
			return nil
		})
		if err != nil || !bytes.Equal(pieces, in) {
			t.Fatalf("input %d in pieces: %d bytes back of %d, %v", i, len(pieces), len(in), err)
		}
	}
}

func TestNewerTypes(t *testing.T) {
	for name, v := range newerValues() {
		payload := AppendDump(nil, v.body)
		if d := decode(t, payload).differs(v.want); d != "" {
			t.Errorf("type %s: %s", name, d)
		}
	}
	fields := []Field{{[]byte("h"), []byte("z"), 9000}, {[]byte("f"), []byte("v"), 0}, {[]byte("g"), []byte("v"), 9999}}
	body := AppendHashDeadlines(nil, 3, slices.Values(fields))
	payload := AppendDump(nil, body)
	if _, v, err := VerifyDump(payload); v != 12 || err != nil {
		t.Fatalf("stamped %d, want 12, %v", v, err)
	}
	want := &model{kind: KindHash}
	for _, f := range fields {
		want.HashField(f.Name, f.Value, f.DeadlineMs)
	}
	if d := decode(t, payload).differs(want); d != "" {
		t.Error(d)
	}
}

func TestRefusals(t *testing.T) {
	lp := func(elems ...string) []byte { return listpackOf(elems...) }
	bad := map[string][]byte{
		"no type":                   {},
		"empty list":                {TypeList, 0},
		"empty hash listpack":       blob(TypeHashListpack, lp()),
		"quicklist of empty nodes":  append([]byte{TypeListQuicklist2, 1, nodePacked}, blob(0, lp())[1:]...),
		"duplicate set member":      {TypeSet, 2, 1, 'a', 1, 'a'},
		"duplicate int member":      {TypeSet, 2, 1, '5', 0xc0, 5},
		"duplicate field":           blob(TypeHashListpack, lp("a", "1", "a", "2")),
		"duplicate zipmap field":    blob(TypeHashZipmap, zipmapOf(0, "a", "1", "a", "2")),
		"duplicate listpack member": blob(TypeSetListpack, lp("x", "y", "x")),
		"odd hash":                  blob(TypeHashListpack, lp("a", "1", "b")),
		"score nan":                 {TypeZSet2, 1, 1, 'm', 0, 0, 0, 0, 0, 0, 0xf8, 0x7f},
		"score nan text":            {TypeZSet, 1, 1, 'm', doubleNaN},
		"score word":                blob(TypeZSetListpack, lp("m", "nan")),
		"score empty":               blob(TypeZSetListpack, lp("m", "")),
		"intset empty":              blob(TypeSetIntset, make([]byte, 8)),
		"intset unsorted":           blob(TypeSetIntset, appendIntset(nil, []int64{1, 3, 2})),
		"intset duplicate":          blob(TypeSetIntset, appendIntset(nil, []int64{1, 2, 2})),
		"quicklist container":       {TypeListQuicklist2, 1, 3, 1, 'a'},
		"bytes behind":              {TypeString, 1, 'a', 'b'},
		"string cut off":            {TypeString, 5, 'a', 'b'},
		"string encoding":           {TypeString, 0xc4, 1},
		"length is an encoding":     {TypeList, 0xc0, 1},
		"lzf empty":                 {TypeString, 0xc3, 0, 0},
		"lzf bomb":                  {TypeString, 0xc3, 3, 0x80, 0x7f, 0, 0, 0, 0xe0, 0xff, 0},
		"deadline too far":          append([]byte{TypeHashDeadlines, 255, 255, 255, 255, 255, 255, 255, 127, 1, 2}, 1, 'f', 1, 'v'),
	}
	for name, body := range bad {
		m := &model{}
		err := DecodeValue(body, m)
		if !is(err, ErrBadFormat) || m.ended != 0 {
			t.Errorf("%s: %v, ended %d times", name, err, m.ended)
		}
	}
	var unsupported *UnsupportedTypeError
	id := AppendLength([]byte{TypeModule}, 0xC003E0F838E00400)
	for _, body := range [][]byte{{TypeStream2, 0}, id, {77}} {
		if err := DecodeValue(body, &model{}); !errors.As(err, &unsupported) || unsupported.Type != body[0] {
			t.Errorf("type %d: %v", body[0], err)
		}
	}
}

// TestManyElements: the duplicate check finds one at the far end, and none where none is.
func TestManyElements(t *testing.T) {
	for _, n := range []int{2, 511, 512, 513, 8192, 100_000} {
		body := AppendLength([]byte{TypeSet}, uint64(n))
		for i := range n {
			body = AppendString(body, fmt.Appendf(nil, "m%d", i))
		}
		if m := decode(t, AppendDump(nil, body)); len(m.list) != n || m.size != uint64(n) {
			t.Fatalf("%d members, want %d", len(m.list), n)
		}
		twice := AppendLength([]byte{TypeSet}, uint64(n))
		for i := range n {
			twice = AppendString(twice, fmt.Appendf(nil, "m%d", i%(n-1)))
		}
		if err := DecodeValue(twice, Discard{}); !is(err, ErrBadFormat) {
			t.Fatalf("%d members with a duplicate: %v", n, err)
		}
	}
}

// TestSharedHash: equal hashes alone refuse nothing when the value can be read again.
func TestSharedHash(t *testing.T) {
	src := &source{mem: []byte{2, 1, 'a', 1, 'b'}, off: 5}
	d := &decoder{src: src, sink: Discard{}, checkPlain: true, typ: TypeSet}
	if err := d.duplicate(); err != nil {
		t.Fatalf("distinct members refused: %v", err)
	}
	d.src.mem = []byte{2, 1, 'a', 1, 'a'}
	if err := d.duplicate(); err == nil {
		t.Fatal("equal members accepted")
	}
}

// TestMemory holds the bound on what a payload can make a decoder allocate.
func TestMemory(t *testing.T) {
	huge := []byte{len64, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0xff}
	bodies := map[string][]byte{
		"string":        append([]byte{TypeString}, huge...),
		"list":          append(append([]byte{TypeList}, huge...), bytes.Repeat([]byte{1, 'a'}, 1000)...),
		"hash":          append(append([]byte{TypeHash}, huge...), 1, 'a', 1, 'b'),
		"quicklist":     append([]byte{TypeListQuicklist2}, huge...),
		"blob":          append([]byte{TypeHashListpack}, huge...),
		"lzf":           append(append([]byte{TypeString, 0xc3, 3}, huge...), 0xe0, 0xff, 0),
		"same members":  append(AppendLength([]byte{TypeSet}, 1<<20), make([]byte, 1<<20)...),
		"small members": twoByteMembers(),
		"long string":   append(AppendLength([]byte{TypeString}, 8<<20), make([]byte, 8<<20)...),
		"long lzf":      AppendStringValue(nil, make([]byte, 64<<20)),
	}
	for name, body := range bodies {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		DecodeValue(body, Discard{})
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(body)+1<<20); got > limit {
			t.Errorf("%s: %d bytes allocated for %d of input, limit %d", name, got, len(body), limit)
		}
	}
}

// twoByteMembers is the set with the most elements for its size.
func twoByteMembers() []byte {
	body := AppendLength([]byte{TypeSet}, 1<<16)
	for i := range 1 << 16 {
		body = append(body, 2, byte(i), byte(i>>8))
	}
	return body
}

var errSink = errors.New("sink is full")

type failingSink struct{ Discard }

func (failingSink) StringChunk([]byte) error              { return errSink }
func (failingSink) HashField([]byte, []byte, int64) error { return errSink }
func (failingSink) ZSetMember([]byte, float64) error      { return errSink }
func (failingSink) SetMember([]byte) error                { return errSink }
func (failingSink) ListItem([]byte) error                 { return errSink }

// TestSinkErrors: an error of the sink comes back as it is, never as a bad format.
func TestSinkErrors(t *testing.T) {
	for _, v := range oldValues() {
		if err := DecodeValue(v.body, failingSink{}); err != errSink {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// TestDumpWriter: pieces give the bytes that one go gives.
func TestDumpWriter(t *testing.T) {
	rng := rand.New(rand.NewPCG(30, 31))
	long := make([]byte, 3<<20)
	for i := range long {
		long[i] = byte(rng.Uint32())
	}
	var out bytes.Buffer
	d := NewDump(&out, 0)
	d.BeginString(uint64(len(long)))
	for rest := long; len(rest) > 0; {
		n := min(len(rest), rng.IntN(200_000))
		d.Write(rest[:n])
		rest = rest[n:]
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if want := AppendDump(nil, AppendStringValue(nil, long)); !bytes.Equal(out.Bytes(), want) {
		t.Fatal("string in pieces differs")
	}
	names := distinct(rng, 3000, 100)
	out.Reset()
	d = NewDump(&out, 0)
	d.BeginHash(uint64(len(names) / 2))
	for f, v := range pairsOf(names) {
		d.Pair(f, v)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if want := AppendDump(nil, AppendHash(nil, len(names)/2, pairsOf(names), Limits{})); !bytes.Equal(out.Bytes(), want) {
		t.Fatal("hash in pieces differs")
	}
}

func TestEncoderSequence(t *testing.T) {
	for name, calls := range map[string]func(d *DumpWriter){
		"nothing":        func(*DumpWriter) {},
		"too few":        func(d *DumpWriter) { d.BeginSet(2); d.Member([]byte("a")) },
		"too many":       func(d *DumpWriter) { d.BeginSet(1); d.Member([]byte("a")); d.Member([]byte("b")) },
		"other kind":     func(d *DumpWriter) { d.BeginSet(1); d.Item([]byte("a")) },
		"empty":          func(d *DumpWriter) { d.BeginHash(0) },
		"two values":     func(d *DumpWriter) { d.BeginString(0); d.BeginString(0) },
		"long string":    func(d *DumpWriter) { d.BeginString(1); d.Write([]byte("ab")) },
		"empty value":    func(d *DumpWriter) { d.Value(nil) },
		"value too many": func(d *DumpWriter) { d.Value([]byte{0, 0}); d.Value([]byte{0, 0}) },
	} {
		d := NewDump(&bytes.Buffer{}, 0)
		calls(d)
		if err := d.Close(); !is(err, ErrSequence) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who reads a long payload tells what it has passed, from front to back and never far behind.
func TestLongPayloadIsPassed(t *testing.T) {
	long := make([]byte, 5*passStep)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range long {
		long[i] = byte(rnd.Uint32())
	}
	const count = 200_000
	fields := func(yield func(field, value []byte) bool) {
		for i := range count {
			if !yield(fmt.Appendf(nil, "field-%d", i), []byte("0123456789abcdef")) {
				return
			}
		}
	}
	for name, body := range map[string][]byte{
		"string": AppendStringValue(nil, long),
		"hash":   AppendHash(nil, count, fields, Limits{}),
	} {
		payload := AppendDump(nil, body)
		at := 0
		passed := func(part []byte) {
			if len(part) == 0 || &part[0] != &payload[at] {
				t.Fatalf("%s: a part of %d bytes is not at byte %d", name, len(part), at)
			}
			at += len(part)
		}
		got, _, err := VerifyLongDump(payload, passed)
		if err != nil || at != len(payload)-8 {
			t.Errorf("%s: %v, passed %d bytes of %d", name, err, at, len(payload))
		}
		at = 0
		if err := DecodeLongValue(got, Discard{}, passed); err != nil || at < len(got)-2*passStep || at == 0 {
			t.Errorf("%s: %v, passed %d bytes of %d", name, err, at, len(got))
		}
	}
}

func TestStringLen(t *testing.T) {
	long := bytes.Repeat([]byte("abc"), 100_000)
	for name, c := range map[string]struct {
		payload []byte
		want    uint64
		str     bool
	}{
		"short":          {AppendDump(nil, AppendStringValue(nil, []byte("abc"))), 3, true},
		"compressed":     {AppendDump(nil, AppendStringValue(nil, long)), uint64(len(long)), true},
		"integer":        {AppendDump(nil, AppendStringValue(nil, []byte("12345"))), 0, true},
		"cut short":      {[]byte{TypeString, 0x80, 0}, 0, true},
		"half a length":  {[]byte{TypeString, 0xc3, 0x80}, 0, true},
		"only a type":    {[]byte{TypeString}, 0, true},
		"nothing":        {nil, 0, false},
		"something else": {[]byte{TypeHash, 1}, 0, false},
	} {
		if n, str := StringLen(c.payload); n != c.want || str != c.str {
			t.Errorf("%s: %d, %v, want %d, %v", name, n, str, c.want, c.str)
		}
	}
}
