package slot

import (
	"encoding/binary"
	"math/bits"
)

// Bitmap is a set of slots, and its bytes are the slot map of a cluster bus
// header:
//
//	byte   0            1            ...  2047
//	slot   7 6 5 ... 0  15 14 ... 8       16383 ... 16376
//
// Slot s is bit s%8 of byte s/8, the lowest bit first. The zero value is the
// empty set.
type Bitmap [Count / 8]byte

// Set adds slot s.
func (b *Bitmap) Set(s uint16) { b[s/8] |= 1 << (s % 8) }

// Clear removes slot s.
func (b *Bitmap) Clear(s uint16) { b[s/8] &^= 1 << (s % 8) }

// Has reports whether slot s is in the set.
func (b *Bitmap) Has(s uint16) bool { return b[s/8]&(1<<(s%8)) != 0 }

// Count returns how many slots are in the set.
func (b *Bitmap) Count() int {
	n := 0
	for at := 0; at < len(b); at += 8 {
		n += bits.OnesCount64(b.word(at))
	}
	return n
}

// SetRange adds every slot of r.
func (b *Bitmap) SetRange(r Range) {
	for s := int(r.First); s <= int(r.Last); s++ {
		b.Set(uint16(s))
	}
}

// Ranges returns the set as the fewest ranges, in rising order; nil for the empty
// set.
func (b *Bitmap) Ranges() []Range {
	var ranges []Range
	for from := 0; ; {
		first := b.next(from, true)
		if first == Count {
			return ranges
		}
		end := b.next(first, false)
		ranges = append(ranges, Range{uint16(first), uint16(end - 1)})
		from = end
	}
}

// next returns the first slot at or after from whose membership is want, or Count
// if there is none. It steps by words, because most maps are long runs.
func (b *Bitmap) next(from int, want bool) int {
	for from < Count {
		word := b.word(from / 64 * 8)
		if !want {
			word = ^word
		}
		word = word >> (from % 64) << (from % 64)
		if word != 0 {
			return from/64*64 + bits.TrailingZeros64(word)
		}
		from = (from/64 + 1) * 64
	}
	return Count
}

// word returns the 64 slots that start at byte at, the lowest slot in the lowest
// bit.
func (b *Bitmap) word(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
