// Package filter remembers which keys were added and answers, from memory, that a key surely was not.
//
// Shape. A Filter is a list of layers. A layer is an array of blocks, a block one cache line of eight words. A key
// sets one bit in each word of one block, so that a look costs one cache line a layer:
//
//	layer   block | block | block ...
//	block   word(64 bits) * 8, in each the bit that six bits of the hash name
//
// Only the newest layer is added to. When it is full the next one doubles the whole, up to maxBlocks at a time; a
// filter is never copied, and what is in it never leaves. Whoever has deleted most keys, or has many layers, builds
// another one with New.
//
// Units. Sizes are bytes. Hashes are the caller's 64 bits, of which the upper 48 are used: that is what the rows of
// the store can tell again. A full layer says "maybe" to about one in a hundred of the keys that it does not hold,
// an overfull one (Crowded) to about one in five.
//
// Errors. None.
//
// Concurrency. Has may run beside Has; all else needs the Filter for itself.
//
// Source. F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007: blocked filters.
//
// Not here: how much memory there may be, whose keys these are, how a filter is built again.
package filter

import "math/bits"

const (
	blockWords = 8
	blockBytes = blockWords * 8
	// blockKeys is how many keys a block is meant for: 10.7 bits for each.
	blockKeys = 48
	// crowding is by how much a layer may be overfull, as a multiple of blockKeys.
	crowding = 2
	// maxBlocks bounds the layers that Grow makes, 1 MiB: they are cleared while somebody waits.
	maxBlocks = 1 << 14
	// layerBytes is what a layer takes beside its blocks: its place in the list, which has room to spare.
	layerBytes = 2 * 24
)

// Filter is a set of hashes without false negatives. The zero value is empty: it has no layer, and Grow comes
// before the first Add.
type Filter struct {
	layers [][]uint64
	room   int64 // keys that the newest layer is still meant for; below zero when it is overfull
	added  int64
}

// New makes a filter with one layer for about so many keys, none when there are none.
func New(keys int64) *Filter {
	f := &Filter{}
	if keys > 0 {
		f.push((keys + blockKeys - 1) / blockKeys)
	}
	return f
}

// BytesFor is how large New makes a filter for so many keys.
func BytesFor(keys int64) int64 {
	if keys <= 0 {
		return 0
	}
	return (keys+blockKeys-1)/blockKeys*blockBytes + layerBytes
}

func (f *Filter) push(blocks int64) {
	f.layers = append(f.layers, make([]uint64, blocks*blockWords))
	f.room = blocks * blockKeys
}

// Bytes is what the filter takes.
func (f *Filter) Bytes() int64 { return f.blocks()*blockBytes + int64(len(f.layers))*layerBytes }

func (f *Filter) blocks() (n int64) {
	for _, l := range f.layers {
		n += int64(len(l) / blockWords)
	}
	return n
}

// Layers is how many layers there are: how many cache lines a look costs, and how often it may err.
func (f *Filter) Layers() int { return len(f.layers) }

// Added counts the calls of Add, those of filters taken over included.
func (f *Filter) Added() int64 { return f.added }

// Full says whether it is time to Grow. One may go on without until Crowded, at the cost of more false answers.
func (f *Filter) Full() bool { return f.room <= 0 }

// Crowded says whether another Add would make the newest layer useless.
func (f *Filter) Crowded() bool {
	if len(f.layers) == 0 {
		return true
	}
	last := f.layers[len(f.layers)-1]
	return f.room <= -(crowding-1)*int64(len(last)/blockWords)*blockKeys
}

// Growth is by how much Grow makes the filter larger.
func (f *Filter) Growth() int64 { return f.nextBlocks()*blockBytes + layerBytes }

func (f *Filter) nextBlocks() int64 { return min(max(f.blocks(), 1), maxBlocks) }

// Grow adds a layer.
func (f *Filter) Grow() { f.push(f.nextBlocks()) }

// place gives a layer's block for a hash and a number of which six bits belong to each word.
func place(layer []uint64, h uint64) (block *[blockWords]uint64, picks uint64) {
	// The upper bits order the keys of a slot, so keys that were found by a walk have them alike: two
	// multiplications spread the rest. The block is taken from the top of the one, the bits from all of the other.
	h >>= 16
	h *= 0x9e3779b97f4a7c15
	at, _ := bits.Mul64(h, uint64(len(layer)/blockWords))
	h = (h ^ h>>32) * 0xff51afd7ed558ccd
	return (*[blockWords]uint64)(layer[at*blockWords:]), h ^ h>>29
}

// Add puts a hash in. The filter has a layer.
func (f *Filter) Add(h uint64) {
	block, picks := place(f.layers[len(f.layers)-1], h)
	for i := range block {
		block[i] |= 1 << (picks & 63)
		picks >>= 6
	}
	f.room--
	f.added++
}

// Has says no if the hash was surely not added.
func (f *Filter) Has(h uint64) bool {
	// New keys are many and the newest layers hold half of them.
	for i := len(f.layers) - 1; i >= 0; i-- {
		if has(f.layers[i], h) {
			return true
		}
	}
	return false
}

func has(layer []uint64, h uint64) bool {
	block, picks := place(layer, h)
	for i := range block {
		if block[i]&(1<<(picks&63)) == 0 {
			return false
		}
		picks >>= 6
	}
	return true
}

// Take adds all that g holds, whose layers become those of f. g is not used any more.
func (f *Filter) Take(g *Filter) {
	if len(g.layers) > 0 {
		f.layers, f.room = append(f.layers, g.layers...), g.room
	}
	f.added += g.added
}
