package layout

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// fieldsOf reads a packed hash back.
func fieldsOf(t *testing.T, body []byte) (fields []HashField) {
	t.Helper()
	p, err := OpenPackedHash(body)
	if err != nil {
		t.Fatal(err)
	}
	for {
		f, ok, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return fields
		}
		fields = append(fields, f)
	}
}

// The bytes are on disk: a change of this picture needs another format version.
func TestPackedHashBytes(t *testing.T) {
	body := NewPackedHash(nil)
	for _, f := range [][2]string{{"a", "1"}, {"bc", ""}, {"a", "two"}} {
		var err error
		if body, _, err = SetPackedHash(body, []byte(f[0]), []byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if want := "\x00\x00\x02\x01a\x03two\x02bc\x00"; string(body) != want {
		t.Errorf("packed hash is %q, want %q", body, want)
	}
	with := []byte("\x01\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02\x01a\x01v")
	if f := fieldsOf(t, with)[0]; f.Deadline != 0x102 || string(f.Name) != "a" || string(f.Value) != "v" {
		t.Errorf("field with a deadline reads as %+v", f)
	}
	with, created, err := SetPackedHash(with, []byte("a"), []byte("w"))
	if err != nil || created || string(with) != "\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01a\x01w" {
		t.Errorf("setting a field with a deadline gives %q, %v, %v", with, created, err)
	}
	if with, _, err = SetPackedHash(with, []byte("b"), nil); err != nil || len(fieldsOf(t, with)) != 2 {
		t.Errorf("a field more beside one with a deadline: %q, %v", with, err)
	}
}

func TestHashRowBytes(t *testing.T) {
	e := AppendHashElement(nil, []byte("field"))
	pos, field, err := HashElementParts(e)
	if err != nil || pos != Hash([]byte("field")) || string(field) != "field" || !bytes.HasPrefix(e, AppendHashFrom(nil, pos)) {
		t.Errorf("element %q has parts %d, %q, %v", e, pos, field, err)
	}
	for _, deadline := range []int64{0, 1 << 40} {
		v, err := DecodeHashValue(AppendHashValue(nil, []byte("v"), deadline))
		if err != nil || string(v.Value) != "v" || v.Deadline != deadline || v.InPieces || v.Length != 1 {
			t.Errorf("value with deadline %d reads as %+v, %v", deadline, v, err)
		}
		v, err = DecodeHashValue(AppendHashPieces(nil, 7, 2*PieceBytes+1, deadline))
		want := HashValue{Deadline: deadline, Length: 2*PieceBytes + 1, InPieces: true, Number: 7}
		if err != nil || !reflect.DeepEqual(v, want) || v.Pieces() != 3 {
			t.Errorf("pieces with deadline %d read as %+v of %d, %v", deadline, v, v.Pieces(), err)
		}
	}
}

// The rows that a hash's generation has, and those that list it or a part of it for dropping, are found by their keys.
func TestPieceKeys(t *testing.T) {
	key := AppendPieceKey(nil, 100, 7, 9, 3)
	gen, number, ok := PieceKeyParts(key)
	if !ok || gen != 7 || number != 9 {
		t.Errorf("piece key %x has generation %d, number %d, %v", key, gen, number, ok)
	}
	if number, piece, err := PieceParts(key[PrefixLen+8:]); err != nil || number != 9 || piece != 3 {
		t.Errorf("piece key %x ends with number %d, piece %d, %v", key, number, piece, err)
	}
	if _, _, ok := PieceKeyParts(AppendChunkKey(nil, 100, 7, 9)); ok {
		t.Error("a chunk of a string is taken for a piece")
	}
	within := func(lo, hi []byte) bool { return bytes.Compare(lo, key) <= 0 && bytes.Compare(key, hi) < 0 }
	if !within(GenerationRange(100, 7, true)) || !within(PieceRange(100, 7, 9)) {
		t.Errorf("piece key %x is outside of its generation or value", key)
	}
	if within(PieceRange(100, 7, 8)) || within(PieceRange(100, 7, 10)) {
		t.Errorf("piece key %x is within another value", key)
	}
	for _, want := range []bool{false, true} {
		row := AppendDropKey(nil, 100, 7)
		if want {
			row = AppendPieceDropKey(nil, 100, 7, 9)
		}
		gen, number, pieces, err := DropKeyParts(row)
		if err != nil || gen != 7 || pieces != want || pieces && number != 9 {
			t.Errorf("drop key %x: generation %d, number %d, pieces %v, %v", row, gen, number, pieces, err)
		}
		if _, _, _, err := DropKeyParts(row[:len(row)-1]); err == nil {
			t.Errorf("drop key %x without its last byte is taken", row)
		}
	}
	for _, want := range []Drop{{}, {Chunks: true, Count: 3}, {Pieces: true, Count: 1 << 40}} {
		if got, err := DecodeDrop(want.Append(nil)); err != nil || got != want {
			t.Errorf("drop %+v reads as %+v, %v", want, got, err)
		}
	}
	if _, err := DecodeDrop([]byte{2, 0}); err == nil {
		t.Error("a drop with a flag of a later format is taken")
	}
}

// Random changes give the same fields in the same order as a plain list does.
func TestPackedHashModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	body := NewPackedHash(nil)
	var names, values []string
	for i := range 20000 {
		name := fmt.Sprintf("%0*d", 1+rnd.IntN(3), rnd.IntN(30))
		at := slices.Index(names, name)
		var hit bool
		var err error
		if rnd.IntN(3) == 0 {
			body, hit, err = DeletePackedHash(body, []byte(name))
			if hit != (at >= 0) {
				t.Fatalf("step %d: delete of %q says %v", i, name, hit)
			}
			if at >= 0 {
				names, values = slices.Delete(names, at, at+1), slices.Delete(values, at, at+1)
			}
		} else {
			value := string(make([]byte, rnd.IntN(300))) + name
			before := len(body)
			body, hit, err = SetPackedHash(body, []byte(name), []byte(value))
			if hit != (at < 0) || len(body)-before > PackedHashGrowth([]byte(name), []byte(value)) {
				t.Fatalf("step %d: set of %q says %v and grows by %d", i, name, hit, len(body)-before)
			}
			if at >= 0 {
				values[at] = value
			} else {
				names, values = append(names, name), append(values, value)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		for j, f := range fieldsOf(t, body) {
			if string(f.Name) != names[j] || string(f.Value) != values[j] {
				t.Fatalf("step %d: field %d is %q %q, want %q %q", i, j, f.Name, f.Value, names[j], values[j])
			}
		}
	}
}

func FuzzPackedHash(f *testing.F) {
	f.Add(NewPackedHash(nil), []byte("a"), []byte("1"))
	f.Add([]byte("\x00\x00\x02\x01a\x03two\x02bc\x00"), []byte("bc"), []byte("x"))
	f.Add([]byte("\x01\x00\x01\x00\x00\x00\x00\x00\x00\x01\x02\x01a\x01v"), []byte("a"), []byte(""))
	f.Add([]byte("\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), []byte("a"), []byte(""))
	f.Fuzz(func(t *testing.T, body, field, value []byte) {
		var kind *Error
		set, _, err := SetPackedHash(bytes.Clone(body), field, value)
		if err != nil {
			if !errors.As(err, &kind) {
				t.Fatalf("error is %T", err)
			}
			return
		}
		got, ok, err := FindPackedHash(set, field)
		if err != nil || !ok || !bytes.Equal(got.Value, value) || got.Deadline != 0 {
			t.Fatalf("after a set the field reads as %q, %v, %v", got.Value, ok, err)
		}
		if _, deleted, err := DeletePackedHash(set, field); err != nil || !deleted {
			t.Fatalf("delete of a field that was set: %v, %v", deleted, err)
		}
	})
}

func FuzzHashRow(f *testing.F) {
	f.Add(AppendHashElement(nil, []byte("a")), AppendHashValue(nil, []byte("v"), 7))
	f.Add([]byte("short"), []byte{})
	f.Add(AppendPiece(nil, 7, 1), AppendHashPieces(nil, 9, 70000, 0))
	f.Add([]byte{}, AppendHashPieces(nil, 9, 1<<47, 5))
	f.Fuzz(func(t *testing.T, element, row []byte) {
		if pos, field, err := HashElementParts(element); err == nil {
			if again := append(AppendHashFrom(nil, pos), field...); !bytes.Equal(again, element) {
				t.Fatalf("row key %q comes back as %q", element, again)
			}
		}
		if number, piece, err := PieceParts(element); err == nil && !bytes.Equal(AppendPiece(nil, number, piece), element) {
			t.Fatalf("row key %q comes back as %q", element, AppendPiece(nil, number, piece))
		}
		v, err := DecodeHashValue(row)
		switch {
		case err != nil:
		case v.InPieces: // a length may be written longer than it needs to be
			again, err := DecodeHashValue(AppendHashPieces(nil, v.Number, v.Length, v.Deadline))
			if err != nil || !reflect.DeepEqual(again, v) || v.Pieces() == 0 || v.Pieces() > 1<<32 {
				t.Fatalf("row %q is %+v and comes back as %+v, %v", row, v, again, err)
			}
		case row[0] == 0 || v.Deadline != 0:
			if again := AppendHashValue(nil, v.Value, v.Deadline); !bytes.Equal(again, row) {
				t.Fatalf("row %q comes back as %q", row, again)
			}
		}
	})
}
