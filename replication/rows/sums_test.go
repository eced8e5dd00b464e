package rows

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// withSums corrects the checksums of frames, so that what is behind them is reached.
func withSums(b []byte) []byte {
	b = bytes.Clone(b)
	if !Is(b) {
		return b
	}
	sum := crc32.Update(0, castagnoli, b[:len(Magic)])
	for at := len(Magic); at+frameHead+4 <= len(b); {
		from := at + frameHead + 4
		to := from + int(min(binary.BigEndian.Uint32(b[at+5:]), frameMost))
		if to > len(b) {
			break
		}
		sum = crc32.Update(crc32.Update(sum, castagnoli, b[at:at+frameHead]), castagnoli, b[from:to])
		binary.BigEndian.PutUint32(b[at+frameHead:], sum)
		at = to
	}
	return b
}
