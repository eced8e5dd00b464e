package slot_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"cairn/internal/slot"
)

// The expected slots are the replies of CLUSTER KEYSLOT from redis-server 7.0.15.
// A key that moves to another slot is lost to every client: never edit a row.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		key  string
		want uint16
	}{
		{"", 0},
		{"a", 15495},
		{"foo", 12182},
		{"bar", 5061},
		{"hello", 866},
		{"123456789", 12739},
		{"{user1000}.following", 3443},
		{"{user1000}.followers", 3443},
		{"foo{}{bar}", 8363},
		{"foo{{bar}}zap", 4015},
		{"foo{bar}{zap}", 5061},
		{"{}", 15257},
		{"{", 4092},
		{"}", 12090},
		{"}{", 12793},
		{"a{b", 13340},
		{"a}b{c}d", 7365},
		{"{a}", 15495},
		{"{}a", 10875},
		{"x{y}", 12222},
		{"{x", 11068},
		{"key:000000000001", 8924},
		{"somekey", 11058},
		{"日本", 10949},
		{"{日本}x", 10949},
	} {
		if got := slot.Of([]byte(c.key)); got != c.want {
			t.Errorf("slot of %q: got %d, want %d", c.key, got, c.want)
		}
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	key := []byte("prefix{tag}suffix")
	if n := testing.AllocsPerRun(100, func() { slot.Of(key) }); n != 0 {
		t.Fatalf("Of allocates %v times a call, want 0", n)
	}
}

func TestBitmapAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var b slot.Bitmap
		model := map[uint16]bool{}
		for range 40 {
			first := rng.IntN(slot.Count)
			last := min(first+rng.IntN(300), slot.Count-1)
			adds := rng.IntN(3) > 0
			for s := first; s <= last; s++ {
				if adds {
					b.Set(uint16(s))
					model[uint16(s)] = true
				} else {
					b.Clear(uint16(s))
					delete(model, uint16(s))
				}
			}
		}
		if b.Count() != len(model) {
			t.Fatalf("count %d, want %d", b.Count(), len(model))
		}
		var again slot.Bitmap
		for _, r := range b.Ranges() {
			again.SetRange(r)
		}
		if again != b {
			t.Fatal("the ranges do not make the same set again")
		}
		for s := range slot.Count {
			if b.Has(uint16(s)) != model[uint16(s)] {
				t.Fatalf("slot %d: has %v, want %v", s, b.Has(uint16(s)), model[uint16(s)])
			}
		}
	}
}

func TestRanges(t *testing.T) {
	for _, want := range [][]slot.Range{
		nil,
		{{0, 0}},
		{{16383, 16383}},
		{{0, 16383}},
		{{0, 5460}, {5462, 5462}, {16320, 16383}},
		{{63, 64}, {127, 127}, {129, 200}},
	} {
		var b slot.Bitmap
		total := 0
		for _, r := range want {
			b.SetRange(r)
			total += r.Len()
		}
		if got := b.Ranges(); !reflect.DeepEqual(got, want) {
			t.Errorf("ranges: got %v, want %v", got, want)
		}
		if b.Count() != total {
			t.Errorf("%v: count %d, want %d", want, b.Count(), total)
		}
	}
}

// Other nodes read these bytes from the header of a bus message: the layout is the
// protocol.
func TestBitmapLayout(t *testing.T) {
	var b slot.Bitmap
	b.Set(0)
	b.Set(9)
	b.Set(16383)
	if b[0] != 0x01 || b[1] != 0x02 || b[2047] != 0x80 || len(b) != 2048 {
		t.Fatalf("bytes 0, 1, 2047 of %d are %02x %02x %02x, want 01 02 80 of 2048", len(b), b[0], b[1], b[2047])
	}
}

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"0-5460", "0-5460"},
		{"0", "0"},
		{"7-7", "7"},
		{"0-16383", "0-16383"},
		{"16383", "16383"},
		{"0007", "7"},
	} {
		r, err := slot.ParseRange(c.text)
		if err != nil || r.String() != c.want {
			t.Errorf("range %q: got %v, %v, want %s", c.text, r, err, c.want)
		}
	}
	for _, c := range []struct {
		text, want string
	}{
		{"", `slot range "": slot "": not a decimal number`},
		{"-", `slot range "-": slot "": not a decimal number`},
		{"5-", `slot range "5-": slot "": not a decimal number`},
		{"-5", `slot range "-5": slot "": not a decimal number`},
		{"5-4", `slot range "5-4": first slot 5 is after last slot 4`},
		{"0-16384", `slot range "0-16384": slot "16384": outside [0, 16384)`},
		{"+1", `slot range "+1": slot "+1": not a decimal number`},
		{"1-2-3", `slot range "1-2-3": slot "2-3": not a decimal number`},
		{"99999999999999999999999", `slot range "99999999999999999999999": slot "99999999999999999999999": outside [0, 16384)`},
	} {
		if _, err := slot.ParseRange(c.text); err == nil || err.Error() != c.want {
			t.Errorf("range %q: got error %v, want %s", c.text, err, c.want)
		}
	}
}

func TestRangeHas(t *testing.T) {
	r := slot.Range{First: 5, Last: 9}
	for s, want := range map[uint16]bool{4: false, 5: true, 9: true, 10: false} {
		if r.Has(s) != want {
			t.Errorf("%v has %d: got %v, want %v", r, s, !want, want)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"0-5460", "7", "-", "1-2-3", "16384"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := slot.ParseRange(text)
		if err != nil {
			return // refusing is fine, panicking is not
		}
		if r.First > r.Last || r.Last >= slot.Count {
			t.Fatalf("range %q: %d-%d is no range of slots", text, r.First, r.Last)
		}
		if again, err := slot.ParseRange(r.String()); err != nil || again != r {
			t.Fatalf("range %q: round trip gave %v, %v", text, again, err)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	for name, key := range map[string]string{"plain16": "key:000000000001", "tagged": "{user1000}.following"} {
		b.Run(name, func(b *testing.B) {
			k := []byte(key)
			b.ReportAllocs()
			for b.Loop() {
				slot.Of(k)
			}
		})
	}
}
