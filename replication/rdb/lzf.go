package rdb

import (
	"encoding/binary"
	"fmt"
)

// LZF, the compression inside RDB strings. A block has no header; the string
// around it carries both lengths. It is a run of tokens:
//
//	000LLLLL                      L+1 bytes follow as they are (1 to 32)
//	LLLhhhhh llllllll             L in 1..6: copy L+2 bytes from hl+1 bytes back
//	111hhhhh LLLLLLLL llllllll    copy L+9 bytes (9 to 264) from hl+1 bytes back
//
// The distance hl has 13 bits, so nothing reaches further back than lzfWindow. A
// copy may overlap its own output.
const (
	lzfWindow     = 1 << 13
	lzfMaxLiteral = 1 << 5
	lzfMaxCopy    = 264
	lzfMaxToken   = 1 + lzfMaxLiteral // bytes of input that one token can take

	// lzfMaxRatio is the best the format can do: 3 bytes for 264. A declared
	// length above it is a lie that is seen before anything is allocated.
	lzfMaxRatio = lzfMaxCopy / 3

	// Sizes of the match table. Clearing it costs as much as compressing a short
	// string, so a short string gets a short one.
	lzfHashBits   = 14
	lzfSmallBits  = 9
	lzfSmallInput = 1 << 10
)

// lzfToken carries out the first token of src: it appends its output to dst and
// returns dst and what is left of src. Copies reach back into dst only.
func lzfToken(dst, src []byte) ([]byte, []byte, error) {
	ctrl := int(src[0])
	if ctrl < lzfMaxLiteral {
		n := ctrl + 1
		if len(src) < 1+n {
			return dst, src, fmt.Errorf("literal of %d bytes, %d left", n, len(src)-1)
		}
		return append(dst, src[1:1+n]...), src[1+n:], nil
	}
	n, used := ctrl>>5+2, 2
	if ctrl>>5 == 7 {
		if len(src) < 3 {
			return dst, src, fmt.Errorf("copy token of 3 bytes, %d left", len(src))
		}
		n, used = int(src[1])+9, 3
	} else if len(src) < 2 {
		return dst, src, fmt.Errorf("copy token of 2 bytes, %d left", len(src))
	}
	back := (ctrl&0x1f)<<8 + int(src[used-1]) + 1
	if back > len(dst) {
		return dst, src, fmt.Errorf("copy from %d bytes back, %d written", back, len(dst))
	}
	return lzfCopy(dst, back, n), src[used:], nil
}

// lzfCopy appends n bytes that start back bytes before the end of dst. When the
// two overlap, each round can copy twice as much as the last one.
func lzfCopy(dst []byte, back, n int) []byte {
	for n > back {
		dst = append(dst, dst[len(dst)-back:]...)
		n -= back
		back *= 2
	}
	from := len(dst) - back
	return append(dst, dst[from:from+n]...)
}

// lzfCheckLengths refuses a pair of lengths that no block can have.
func lzfCheckLengths(packed, want uint64) error {
	if packed == 0 || want == 0 {
		return fmt.Errorf("compressed %d bytes of %d", packed, want)
	}
	if want > MaxElement || packed > MaxElement {
		return fmt.Errorf("compressed %d bytes of %d, limit %d", packed, want, MaxElement)
	}
	if want/lzfMaxRatio > packed {
		return fmt.Errorf("%d bytes cannot hold %d", packed, want)
	}
	return nil
}

// lzfAppend appends to dst, which must be empty, the want bytes that src stands
// for. The caller has checked the lengths. dst grows with the output, not with want.
func lzfAppend(dst, src []byte, want int) ([]byte, error) {
	var err error
	for len(src) > 0 {
		if dst, src, err = lzfToken(dst, src); err != nil {
			return nil, err
		}
		if len(dst) > want {
			return nil, fmt.Errorf("more than the declared %d bytes", want)
		}
	}
	if len(dst) != want {
		return nil, fmt.Errorf("%d bytes, declared %d", len(dst), want)
	}
	return dst, nil
}

// lzfChunks hands the want bytes that a block of packed bytes stands for to emit,
// in pieces of about pieceLen. pull gives the next n bytes of the block. Only the
// window and a piece of input are in memory at one time.
func lzfChunks(packed, want uint64, pull func(n int) ([]byte, error), emit func([]byte) error) error {
	out := make([]byte, 0, min(want+lzfMaxCopy, lzfWindow+pieceLen+lzfMaxCopy))
	in := make([]byte, 0, min(packed, pieceLen+lzfMaxToken))
	var done uint64 // bytes given to emit
	kept := 0       // bytes at the start of out that are history
	for rest := in; packed > 0 || len(rest) > 0; {
		if packed > 0 && len(rest) < lzfMaxToken {
			b, err := pull(int(min(packed, pieceLen)))
			if err != nil {
				return err
			}
			packed -= uint64(len(b))
			in = append(append(in[:0], rest...), b...)
			rest = in
		}
		var err error
		if out, rest, err = lzfToken(out, rest); err != nil {
			return err
		}
		if done+uint64(len(out)-kept) > want {
			return fmt.Errorf("more than the declared %d bytes", want)
		}
		if len(out)-kept < pieceLen {
			continue
		}
		if err = emit(out[kept:]); err != nil {
			return err
		}
		done += uint64(len(out) - kept)
		kept = copy(out, out[len(out)-lzfWindow:])
		out = out[:kept]
	}
	if done+uint64(len(out)-kept) != want {
		return fmt.Errorf("%d bytes, declared %d", done+uint64(len(out)-kept), want)
	}
	if len(out) == kept {
		return nil
	}
	return emit(out[kept:])
}

// lzfCompress appends a block for src to dst, or reports false when the block
// would be longer than limit bytes; dst is then as it was. It takes the last
// position of equal hash as its only candidate, which is what the format's own
// compressor does and what keeps it fast.
func lzfCompress(dst, src []byte, limit int) ([]byte, bool) {
	if len(src) <= lzfSmallInput {
		var table [1 << lzfSmallBits]int32
		return lzfMatch(dst, src, limit, table[:], 32-lzfSmallBits)
	}
	var table [1 << lzfHashBits]int32
	return lzfMatch(dst, src, limit, table[:], 32-lzfHashBits)
}

// lzfMatch is lzfCompress with a cleared table. It holds, by hash, the position
// plus one of the last three bytes that had it; shift leaves the bits of an index.
func lzfMatch(dst, src []byte, limit int, table []int32, shift uint) ([]byte, bool) {
	start := len(dst)
	end := len(src) - 2
	lit := 0 // where the bytes that no token covers yet begin
	i := 0
	for i < end {
		h := lzfHash(src[i:]) >> shift
		cand := int(table[h]) - 1
		table[h] = int32(i) + 1
		if cand < 0 || i-cand > lzfWindow || src[cand] != src[i] || src[cand+1] != src[i+1] || src[cand+2] != src[i+2] {
			i++
			// Give up early on what does not compress.
			if i-lit >= lzfMaxLiteral && len(dst)-start+i-lit > limit {
				return dst[:start], false
			}
			continue
		}
		dst = lzfLiterals(dst, src[lit:i])
		n := 3
		for n < lzfMaxCopy && i+n < len(src) && src[cand+n] == src[i+n] {
			n++
		}
		dst = lzfBackRef(dst, i-cand-1, n)
		// The last two positions of the match are worth knowing, the rest is
		// not worth the time.
		for p := max(i+1, i+n-2); p < i+n && p < end; p++ {
			table[lzfHash(src[p:])>>shift] = int32(p) + 1
		}
		i += n
		lit = i
		if len(dst)-start > limit {
			return dst[:start], false
		}
	}
	dst = lzfLiterals(dst, src[lit:])
	if len(dst)-start > limit {
		return dst[:start], false
	}
	return dst, true
}

// lzfHash mixes the first three bytes of p; its upper bits are the good ones.
func lzfHash(p []byte) uint32 {
	v := uint32(binary.LittleEndian.Uint16(p)) | uint32(p[2])<<16
	return v * 2654435761
}

// lzfLiterals appends tokens that hold p as it is.
func lzfLiterals(dst, p []byte) []byte {
	for len(p) > 0 {
		n := min(len(p), lzfMaxLiteral)
		dst = append(dst, byte(n-1))
		dst = append(dst, p[:n]...)
		p = p[n:]
	}
	return dst
}

// lzfBackRef appends a token that copies n bytes from distance+1 bytes back.
func lzfBackRef(dst []byte, distance, n int) []byte {
	if n < 9 {
		return append(dst, byte((n-2)<<5|distance>>8), byte(distance))
	}
	return append(dst, byte(7<<5|distance>>8), byte(n-9), byte(distance))
}
