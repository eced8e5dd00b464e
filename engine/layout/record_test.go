package layout

import (
	"reflect"
	"testing"
)

// The head's bits are on disk.
func TestRecordHead(t *testing.T) {
	for _, c := range []struct {
		rec  Record
		want string
	}{
		{Record{Type: String, Enc: 1, Body: []byte("7")}, "\x01\x017"},
		{Record{Type: String, Enc: 1, Arrived: true, Body: []byte("7")}, "\x81\x017"},
		{
			Record{Type: HashType, Form: Rows, Deadline: 2, Arrived: true, Gen: 3, Count: 4, Bytes: 5},
			"\xe5\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x04\x05",
		},
		{Record{Type: String, Form: ValueRow, Deadline: 1, Count: 600}, "\x51\x00\x00\x00\x00\x00\x00\x00\x00\x01\xd8\x04"},
	} {
		if got := string(c.rec.Append(nil)); got != c.want {
			t.Errorf("%+v is %x, want %x", c.rec, got, c.want)
		}
		var back Record
		if err := back.Decode([]byte(c.want)); err != nil {
			t.Fatal(err)
		}
		if len(back.Body) == 0 {
			back.Body = nil
		}
		if !reflect.DeepEqual(back, c.rec) {
			t.Errorf("%x is %+v, want %+v", c.want, back, c.rec)
		}
	}
}

// Every record that can be read is written back as it was, numbers in their shortest form.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("\x81\x017"))
	f.Add([]byte("\xe5\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x04\x05"))
	f.Fuzz(func(t *testing.T, src []byte) {
		var r, again Record
		if r.Decode(src) != nil {
			return
		}
		row := r.Append(nil)
		if err := again.Decode(row); err != nil || again.Deadline == 0 && len(row) > len(src) {
			t.Fatalf("%x became %x: %v", src, row, err)
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}
