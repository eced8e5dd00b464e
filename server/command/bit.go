package command

import (
	"encoding/binary"
	"math"
	"math/bits"

	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Bitmaps: strings seen as bits, bit 0 the highest of the first byte. Semantics follow Redis 7.2; the replies in
// testdata/bit were recorded from redis-server. BITOP is in bit_op.go, BITFIELD in bit_field.go.

const (
	errBitOffset Reply = "ERR bit offset is not an integer or out of range"
	errBit       Reply = "ERR bit is not an integer or out of range"
	errBitArg    Reply = "ERR The bit argument must be 1 or 0."
)

var (
	keyBitField = []KeySpec{{Flags: "RW access update variable_flags", BeginIndex: 1}}
	keysBitOp   = []KeySpec{
		{Flags: "OW update", BeginIndex: 2},
		{Flags: "RO access", BeginIndex: 3, Last: -1, Step: 1},
	}
)

func bitCommands() []Command {
	rows := []Command{
		{Name: "setbit", Arity: 4, Flags: Write | DenyOOM, Keys: keyRW, Since: "2.2.0", Summary: "Sets or clears one bit of a string.", Run: setbit},
		{Name: "getbit", Arity: 3, Flags: ReadOnly | Fast, Keys: keyRO, Since: "2.2.0", Summary: "One bit of a string.", Run: getbit},
		{Name: "bitcount", Arity: -2, Flags: ReadOnly, Keys: keyRO, Since: "2.6.0", Summary: "How many bits of a string are set.", Run: bitcount},
		{Name: "bitpos", Arity: -3, Flags: ReadOnly, Keys: keyRO, Since: "2.8.7", Summary: "Where a string has its first set or clear bit.", Run: bitpos},
		{Name: "bitop", Arity: -4, Flags: Write | DenyOOM, Keys: keysBitOp, Since: "2.6.0", Summary: "Combines strings bit by bit and stores the result.", Run: bitop, Stage: stageBitop, StageKeys: true},
		{Name: "bitfield", Arity: -2, Flags: Write | DenyOOM, Keys: keyBitField, Since: "3.2.0", Summary: "Reads and writes integers of any width in a string.", Run: bitfield},
		{Name: "bitfield_ro", Arity: -2, Flags: ReadOnly | Fast, Keys: keyRO, Since: "6.0.0", Summary: "Reads integers of any width in a string.", Run: bitfieldRO},
	}
	for i := range rows {
		rows[i].Group = "bitmap"
	}
	return rows
}

// bitOffset reads an offset in bits; with "#" before it, where width is not 0, it counts integers of that width.
func bitOffset(c *Ctx, arg []byte, width int) (int64, error) {
	scale := int64(1)
	if width > 0 && len(arg) > 0 && arg[0] == '#' {
		arg, scale = arg[1:], int64(width)
	}
	n, ok := resp.ParseInt(arg)
	if !ok || n < 0 || n > math.MaxInt64/scale || n*scale>>3 >= stringLimit(c) {
		return 0, errBitOffset
	}
	return n * scale, nil
}

func setbit(c *Ctx) error {
	off, err := bitOffset(c, c.Args[2], 0)
	if err != nil {
		return err
	}
	on, ok := resp.ParseInt(c.Args[3])
	if !ok || on != 0 && on != 1 {
		return errBit
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	e, err := editString(c.Txn, k)
	if err != nil {
		return err
	}
	at, shift := off>>3, 7-off&7
	grows := at >= e.length
	var old int64
	if !grows {
		w, err := e.window(at, false)
		if err != nil {
			return err
		}
		old = int64(w[0]>>shift) & 1
	}
	if grows || old != on {
		noteNew(c, k)
		e.grow(at + 1)
		w, err := e.window(at, true)
		if err != nil {
			return err
		}
		w[0] = w[0]&^(1<<shift) | byte(on)<<shift
		e.finish()
		c.Event('$', "setbit", k.Name)
	}
	c.W.Int(old)
	return nil
}

func getbit(c *Ctx) error {
	off, err := bitOffset(c, c.Args[2], 0)
	if err != nil {
		return err
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	b, err := byteAt(c.Txn, k, off>>3)
	if err != nil {
		return err
	}
	c.W.Int(int64(b>>(7-off&7)) & 1)
	return nil
}

// bitRange gives the range of bits [from, to) of a string of size bytes that the arguments from i on name: nothing,
// a start, an end, a unit. pos says that the start may stand alone (BITPOS), which BITCOUNT refuses.
func bitRange(c *Ctx, i int, size int64, pos bool) (from, to int64, err error) {
	n := len(c.Args) - i
	if n == 0 {
		return 0, size * 8, nil
	}
	if n > 3 || n == 1 && !pos {
		return 0, 0, ErrSyntax
	}
	unit := int64(8)
	start, err := c.Int(i)
	if err != nil {
		return 0, 0, err
	}
	end := size - 1
	// BITPOS reads the unit before the end, BITCOUNT after it: it shows in which of two errors is told.
	if pos && n == 3 {
		if unit, err = bitUnit(c, i+2); err != nil {
			return 0, 0, err
		}
	}
	if n > 1 {
		if end, err = c.Int(i + 1); err != nil {
			return 0, 0, err
		}
	}
	if !pos && start < 0 && end < 0 && start > end {
		return 0, 0, nil // before a wrong unit is seen
	}
	if !pos && n == 3 {
		if unit, err = bitUnit(c, i+2); err != nil {
			return 0, 0, err
		}
	}
	total := size * 8 / unit
	if start < 0 {
		start = max(start+total, 0)
	}
	if end < 0 {
		end = max(end+total, 0)
	}
	if end = min(end, total-1); start > end {
		return 0, 0, nil
	}
	return start * unit, (end + 1) * unit, nil
}

func bitUnit(c *Ctx, i int) (int64, error) {
	switch {
	case c.Is(i, "bit"):
		return 1, nil
	case c.Is(i, "byte"):
		return 8, nil
	}
	return 0, ErrSyntax
}

// eachChunk walks the stored bytes of the string's chunks that hold the bits [from, to): f gets a chunk's bytes
// and the bits lo to hi of it that are asked for, those beyond its bytes zero; base is the chunk's first bit. The
// reader is closed at the end.
func (r *stringReader) eachChunk(from, to int64, f func(b []byte, base, lo, hi int64) (more bool)) error {
	const chunkBits = layout.ChunkBytes * 8
	for n := from / chunkBits; n*chunkBits < to; n++ {
		b, err := r.chunk(n)
		if err != nil {
			_ = r.close() // the first error counts
			return err
		}
		base := n * chunkBits
		if !f(b, base, max(from-base, 0), min(to-base, chunkBits)) {
			break
		}
	}
	return r.close()
}

func bitcount(c *Ctx) error {
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	if !k.Exists() {
		c.W.Int(0)
		return nil
	}
	from, to, err := bitRange(c, 2, stringLen(k), false)
	if err != nil {
		return err
	}
	r, err := openString(c.Txn, k, from/8)
	if err != nil {
		return err
	}
	total := int64(0)
	err = r.eachChunk(from, to, func(b []byte, _, lo, hi int64) bool {
		total += countBits(b, lo, hi)
		return true
	})
	if err != nil {
		return err
	}
	c.W.Int(total)
	return nil
}

// countBits counts the set bits of b from lo to hi, which may lie beyond its end.
func countBits(b []byte, lo, hi int64) (n int64) {
	hi = min(hi, int64(len(b))*8)
	if lo >= hi {
		return 0
	}
	first, last := lo/8, (hi-1)/8
	headMask, tailMask := byte(0xff)>>(lo&7), byte(0xff)<<(7-(hi-1)&7)
	if first == last {
		return int64(bits.OnesCount8(b[first] & headMask & tailMask))
	}
	n = int64(bits.OnesCount8(b[first]&headMask) + bits.OnesCount8(b[last]&tailMask))
	for b = b[first+1 : last]; len(b) >= 8; b = b[8:] {
		n += int64(bits.OnesCount64(binary.LittleEndian.Uint64(b)))
	}
	for _, v := range b {
		n += int64(bits.OnesCount8(v))
	}
	return n
}

func bitpos(c *Ctx) error {
	bit, err := c.Int(2)
	if err != nil {
		return err
	}
	if bit != 0 && bit != 1 {
		return errBitArg
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	if !k.Exists() {
		// A missing key is zeroes without end.
		c.W.Int(-bit)
		return nil
	}
	from, to, err := bitRange(c, 3, stringLen(k), true)
	if err != nil {
		return err
	}
	if from >= to {
		c.W.Int(-1)
		return nil
	}
	r, err := openString(c.Txn, k, from/8)
	if err != nil {
		return err
	}
	found := int64(-1)
	err = r.eachChunk(from, to, func(b []byte, base, lo, hi int64) bool {
		if at := findBit(b, lo, hi, byte(bit)); at >= 0 {
			found = base + at
		}
		return found < 0
	})
	if err != nil {
		return err
	}
	if endGiven := len(c.Args) > 4; found < 0 && bit == 0 && !endGiven {
		found = to // the string goes on as zeroes
	}
	c.W.Int(found)
	return nil
}

// findBit gives the first bit of b from lo to hi that is bit, -1 when there is none. Beyond b all are zero.
func findBit(b []byte, lo, hi int64, bit byte) int64 {
	flip := byte(0) // makes what is sought a set bit
	if bit == 0 {
		flip = 0xff
	}
	end := min(hi, int64(len(b))*8)
	for at := lo; at < end; at = (at/8 + 1) * 8 {
		i := at / 8
		if at&7 == 0 {
			// Whole words without it are skipped.
			for i+8 <= int64(len(b)) && binary.LittleEndian.Uint64(b[i:]) == uint64(flip)*0x0101010101010101 {
				i += 8
			}
			if at = i * 8; at >= end {
				break
			}
		}
		if v := (b[i] ^ flip) & (0xff >> (at & 7)); v != 0 {
			if found := i*8 + int64(bits.LeadingZeros8(v)); found < end {
				return found
			}
			return -1 // beyond hi, and hi is within b
		}
	}
	if rest := max(lo, int64(len(b))*8); bit == 0 && rest < hi {
		return rest
	}
	return -1
}
