package rdb

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"testing"
)

// reencode writes what was decoded in the plain forms.
func reencode(t testing.TB, m *recorder) []byte {
	t.Helper()
	var out bytes.Buffer
	d := NewDump(&out, 0)
	switch m.kind {
	case KindString:
		d.BeginString(uint64(len(m.str)))
		d.Write(m.str)
	case KindList:
		d.BeginList(uint64(len(m.list)))
		for _, e := range m.list {
			d.Item([]byte(e))
		}
	case KindSet:
		d.BeginSet(uint64(len(m.list)))
		for _, e := range m.list {
			d.Member([]byte(e))
		}
	case KindZSet:
		d.BeginZSet(uint64(len(m.names)))
		for i, n := range m.names {
			d.Scored(n, m.scores[i])
		}
	case KindHash:
		d.Value(AppendHashDeadlines(nil, len(m.fields), m.all()))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// recorder is a model that also keeps the elements as they came.
type recorder struct {
	model
	names  [][]byte
	scores []float64
	fields []Field
}

func (r *recorder) ZSetMember(b []byte, v float64) error {
	r.names, r.scores = append(r.names, bytes.Clone(b)), append(r.scores, v)
	return r.model.ZSetMember(b, v)
}

func (r *recorder) HashField(f, v []byte, at int64) error {
	r.fields = append(r.fields, Field{bytes.Clone(f), bytes.Clone(v), at})
	return r.model.HashField(f, v, at)
}

func (r *recorder) all() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for _, f := range r.fields {
			if !yield(f) {
				return
			}
		}
	}
}

// FuzzDecodeDump: no payload with a right checksum makes the decoder panic, and
// what it accepts survives being written and read again.
func FuzzDecodeDump(f *testing.F) {
	for _, v := range oldValues() {
		f.Add(v.body)
	}
	for _, v := range newerValues() {
		f.Add(v.body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := &recorder{}
		err := DecodeDump(AppendDump(nil, body), m)
		if s, plain := PlainString(body); plain && (err != nil || m.kind != KindString || !bytes.Equal(s, m.str)) {
			t.Fatalf("plain string %.60q: decoded it is %v %.60q, %v", s, m.kind, m.str, err)
		}
		if err != nil {
			if !is(err, ErrBadFormat) || m.ended != 0 {
				t.Fatalf("%v, ended %d times", err, m.ended)
			}
			return
		}
		again := &model{}
		if err := DecodeDump(reencode(t, m), again); err != nil {
			t.Fatalf("read again: %v", err)
		}
		if d := again.differs(&m.model); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzRead: no stream makes the reader panic. A payload and a stream are taken
// apart alike.
func FuzzRead(f *testing.F) {
	for _, v := range oldValues() {
		f.Add(v.body)
	}
	f.Add([]byte{0xfa, 1, 'a', 0xc0, 1, 0xf7, 0x05, 2, 2, 1, 5, 1, 'x', 0, 0xfe, 1, 0xfb, 1, 0, 0xfc, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 'k', 0})
	f.Fuzz(func(t *testing.T, rest []byte) {
		raw := append([]byte("REDIS0012"), rest...)
		Read(bufio.NewReaderSize(bytes.NewReader(raw), 32), newKeyspace(), ReadOptions{CheckPlain: true})
		if len(rest) == 0 {
			return
		}
		keyed := append([]byte("REDIS0012"), rest[0], 1, 'k')
		keyed = append(append(keyed, rest[1:]...), opEOF)
		keyed = append(keyed, make([]byte, 8)...)
		got := newKeyspace()
		br := bufio.NewReaderSize(bytes.NewReader(keyed), 32)
		streamErr := Read(br, got, ReadOptions{CheckPlain: true})
		m := &model{}
		if DecodeValue(rest, m) != nil {
			return
		}
		if streamErr != nil || br.Buffered() != 0 {
			t.Fatalf("payload accepted, stream: %v", streamErr)
		}
		if d := got.keys["0/k"].differs(m); d != "" {
			t.Fatal(d)
		}
		if _, err := br.ReadByte(); err != io.EOF {
			t.Fatal("bytes left")
		}
	})
}

// FuzzLZF: no block makes the decompressor panic or write more than was declared,
// and compression loses nothing.
func FuzzLZF(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 64)
	f.Add([]byte{0x01, 0x61, 0x61, 0xe0, 0x33, 0x00, 0x01, 0x61, 0x61}, 64)
	f.Fuzz(func(t *testing.T, b []byte, want int) {
		if want < 0 || want > 1<<20 {
			return
		}
		out, err := lzfAppend(nil, b, want)
		if err == nil && len(out) != want {
			t.Fatalf("%d bytes, declared %d", len(out), want)
		}
		var pieces []byte
		err2 := lzfChunks(uint64(len(b)), uint64(want), pullFrom(b), func(p []byte) error {
			pieces = append(pieces, p...)
			return nil
		})
		if (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(out, pieces) {
			t.Fatalf("whole %v, in pieces %v", err, err2)
		}
		block, ok := lzfCompress(nil, b, 2*len(b)+8)
		if !ok {
			t.Fatal("no room in twice the size")
		}
		if back, err := lzfAppend(nil, block, len(b)); err != nil || !bytes.Equal(back, b) {
			t.Fatalf("%x came back as %x, %v", b, back, err)
		}
	})
}
