package record

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// The checksums of a block start from the seed as if its bytes stood in front.
func TestSeedState(t *testing.T) {
	for _, s := range []Seed{0, 1, 42, 0x1122334455667788, ^Seed(0)} {
		if got, want := s.state(), crc32.Update(0, castagnoli(), binary.LittleEndian.AppendUint64(nil, uint64(s))); got != want {
			t.Errorf("state of seed %x: %08x, want %08x", uint64(s), got, want)
		}
	}
}

// A block is sealed at every write of the log, and decoded at every read of it.
func TestBlocksDoNotAllocate(t *testing.T) {
	raw := make([]byte, BlockLen+100)
	if n := testing.AllocsPerRun(100, func() { Seal(raw, Block{Start: 7, Flags: EndsEntry}, 42) }); n > 0 {
		t.Errorf("Seal allocates %.1f times", n)
	}
	n := testing.AllocsPerRun(100, func() {
		b, err := DecodeBlock(raw, 42)
		if err == nil {
			err = b.CheckBody(raw, 42)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("DecodeBlock and CheckBody allocate %.1f times", n)
	}
}
