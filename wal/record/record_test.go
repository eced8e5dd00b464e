package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"testing"
)

func testHeader() Header {
	h := Header{
		Sequence: 9, Start: 1_000_000, Seed: 0x1122334455667788, Prev: 8, PrevSeed: 5,
		Synced: 999_999, History: History{Offset2: 500_001, Counter: 3},
	}
	for i := range h.History.ID {
		h.History.ID[i], h.History.ID2[i] = 'a', 'b'
	}
	return h
}

// The layout is what old files are made of: a change here makes them unreadable.
func TestLayout(t *testing.T) {
	block := Block{Start: 0x0102030405060708, Synced: 0x11, Flags: EndsEntry}.Append(nil, 42, []byte("SET"))
	if len(block) != BlockLen+3 || hex.EncodeToString(block[posStart:]) != "0807060504030201"+"1100000000000000"+"03000000"+"01000000"+"534554" {
		t.Errorf("block %x", block)
	}
	h := testHeader()
	b := h.Append(nil)
	if len(b) != DataAt || !bytes.Equal(b[:HeaderLen], b[CopyAt:CopyAt+HeaderLen]) || string(b[:8]) != "cairnlog" {
		t.Errorf("header of %d bytes, copies equal %v", len(b), bytes.Equal(b[:HeaderLen], b[CopyAt:CopyAt+HeaderLen]))
	}
	want := "010000000000000009000000000000004042" + "0f0000000000887766554433221108000000000000000500000000000000" +
		"3f420f0000000000" + "0300000000000000" + "21a1070000000000"
	if got := hex.EncodeToString(b[posVersion:posID]); got != want {
		t.Errorf("header fields\n got %s\nwant %s", got, want)
	}
}

// Every flipped bit of a block is found, and so is a block under another seed.
func TestBlockChecks(t *testing.T) {
	payload := []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n")
	raw := Block{Start: 700, Synced: 650, Flags: EndsEntry}.Append(nil, 7, payload)
	check := func(raw []byte, seed Seed) error {
		b, err := DecodeBlock(raw, seed)
		if err != nil {
			return err
		}
		if b.End() != 700+int64(len(payload)) {
			return errors.New("wrong end")
		}
		return b.CheckBody(raw, seed)
	}
	if err := check(raw, 7); err != nil {
		t.Fatal(err)
	}
	for bit := range len(raw) * 8 {
		bad := bytes.Clone(raw)
		bad[bit/8] ^= 1 << (bit % 8)
		if check(bad, 7) == nil {
			t.Errorf("bit %d flipped and not found", bit)
		}
	}
	for seed := range Seed(1000) {
		if seed != 7 && check(raw, seed) == nil {
			t.Errorf("block of seed 7 passes under seed %d", seed)
		}
	}
	if _, err := DecodeBlock(make([]byte, BlockLen), 7); !errors.Is(err, ErrEmpty) {
		t.Errorf("zeros: %v", err)
	}
}

// A block with a right checksum and fields out of range is refused.
func TestBlockLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		b    Block
		n    int
	}{
		{"payload length", Block{Flags: EndsEntry}, MaxPayload + 1},
		{"start offset", Block{Start: math.MaxInt64 - 1}, 2},
		{"start offset", Block{Start: -1}, 2},
		{"synced offset", Block{Start: 5, Synced: 6}, 2},
		{"synced offset", Block{Start: 5, Synced: -1}, 2},
		{"flags", Block{Flags: 4}, 2},
	} {
		_, err := DecodeBlock(c.b.Append(nil, 1, make([]byte, c.n)), 1)
		var e *Error
		if !errors.As(err, &e) || e.Field != c.name {
			t.Errorf("%+v with %d bytes: %v, want a bad %s", c.b, c.n, err, c.name)
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	h := testHeader()
	raw := h.Append(nil)
	for _, at := range []int{0, CopyAt} {
		var got Header
		if err := got.Decode(raw[at:]); err != nil || got != h {
			t.Errorf("copy at %d: %+v, %v", at, got, err)
		}
		for bit := range HeaderLen * 8 {
			bad := bytes.Clone(raw[at : at+HeaderLen])
			bad[bit/8] ^= 1 << (bit % 8)
			if got.Decode(bad) == nil {
				t.Errorf("bit %d flipped and not found", bit)
			}
		}
	}
	for _, bad := range []func(*Header){
		func(h *Header) { h.Sequence = 0 },
		func(h *Header) { h.Prev = h.Sequence },
		func(h *Header) { h.Start = -1 },
		func(h *Header) { h.Synced = h.Start + 1 },
		func(h *Header) { h.Synced = -1 },
	} {
		h := testHeader()
		bad(&h)
		var got Header
		var e *Error
		if err := got.Decode(h.Append(nil)); !errors.As(err, &e) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// In a segment of version 2 blocks say where they lie by their distance from its start.
func TestLaidSegment(t *testing.T) {
	h := testHeader()
	h.Laid = true
	raw := h.Append(nil)
	if got := hex.EncodeToString(raw[posVersion : posVersion+8]); got != "0200000000000000" {
		t.Errorf("version and what follows it %s", got)
	}
	var again Header
	if err := again.Decode(raw); err != nil || again != h {
		t.Errorf("%+v, %v", again, err)
	}
	block := Block{Start: 70}.Append(nil, h.Seed, []byte("payload"))
	if b, err := h.DecodeBlock(block); err != nil || b.Start != h.Start+70 || b.End() != h.Start+77 || b.CheckBody(block, h.Seed) != nil {
		t.Errorf("%+v, %v", b, err)
	}
	for _, c := range []struct {
		low, high int64
		want      bool
	}{{h.Start + 70, h.Start + 70, true}, {0, math.MaxInt64, true}, {h.Start + 71, math.MaxInt64, false}, {0, h.Start + 69, false}, {70, 70, false}} {
		if got := h.Plausible(block, c.low, c.high); got != c.want {
			t.Errorf("plausible from %d to %d: %v", c.low, c.high, got)
		}
	}
	for start, good := range map[int64]bool{math.MaxInt64 - 77: true, math.MaxInt64 - 76: false, math.MaxInt64: false} {
		h.Start = start
		_, err := h.DecodeBlock(block)
		var e *Error
		if (err == nil) != good || err != nil && (!errors.As(err, &e) || e.Field != "start offset") {
			t.Errorf("segment from %d: %v", start, err)
		}
	}
	b := raw[:HeaderLen]
	b[posVersion] = 3
	binary.LittleEndian.PutUint32(b[posSum:], crc32.Checksum(b[:posSum], castagnoli()))
	if err := again.Decode(b); err == nil {
		t.Error("a version to come was accepted")
	}
}

func TestFollows(t *testing.T) {
	a := testHeader().History
	b := History{ID2: a.ID, Offset2: 101}
	b.ID[0] = 'x'
	for _, c := range []struct {
		name  string
		h     History
		start int64
		want  bool
	}{
		{"same id", a, 5, true},
		{"second id at its place", b, 100, true},
		{"second id elsewhere", b, 101, false},
		{"another id", History{Offset2: -1}, 100, false},
	} {
		if c.h.Follows(&a, c.start) != c.want {
			t.Errorf("%s: want %v", c.name, c.want)
		}
	}
}

func FuzzBlock(f *testing.F) {
	f.Add(Block{Start: 700, Synced: 650, Flags: EndsEntry}.Append(nil, 7, []byte("payload")), uint64(7))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, src []byte, seed uint64) {
		b, err := DecodeBlock(src, Seed(seed))
		if err != nil {
			return
		}
		n := BlockLen + b.Length
		if n > len(src) || b.CheckBody(src[:n], Seed(seed)) != nil {
			return
		}
		if !Plausible(src, b.Start, b.Start) {
			t.Fatal("a good block is not plausible")
		}
		if again := b.Append(nil, Seed(seed), src[BlockLen:n]); !bytes.Equal(again, src[:n]) {
			t.Fatalf("round trip changed the block: %x, want %x", again, src[:n])
		}
	})
}

func FuzzHeader(f *testing.F) {
	h := testHeader()
	f.Add(h.Append(nil)[:HeaderLen])
	h.Laid = true
	f.Add(h.Append(nil)[:HeaderLen])
	f.Add([]byte("cairnlog"))
	f.Fuzz(func(t *testing.T, src []byte) {
		var h, again Header
		if h.Decode(src) != nil {
			return
		}
		if err := again.Decode(h.Append(nil)); err != nil || again != h {
			t.Fatalf("round trip changed the header: %v", err)
		}
	})
}
