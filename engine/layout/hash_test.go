package layout

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
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
		v, at, err := DecodeHashValue(AppendHashValue(nil, []byte("v"), deadline))
		if err != nil || string(v) != "v" || at != deadline {
			t.Errorf("value with deadline %d reads as %q, %d, %v", deadline, v, at, err)
		}
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
	f.Fuzz(func(t *testing.T, element, row []byte) {
		if pos, field, err := HashElementParts(element); err == nil {
			if again := append(AppendHashFrom(nil, pos), field...); !bytes.Equal(again, element) {
				t.Fatalf("row key %q comes back as %q", element, again)
			}
		}
		if v, at, err := DecodeHashValue(row); err == nil && (row[0] == 0 || at != 0) {
			if again := AppendHashValue(nil, v, at); !bytes.Equal(again, row) {
				t.Fatalf("row %q comes back as %q", row, again)
			}
		}
	})
}
