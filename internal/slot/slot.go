// Package slot says in which of the 16384 hash slots a key lives, and holds sets
// of slots.
//
// Shape. A slot is a uint16 in [0, Count). It is the CRC16 of the key, or of the
// key's hash tag if it has one, modulo Count. A Bitmap is a set of slots in the
// layout that the cluster bus sends; a Range is an inclusive run of slots in the
// text form of CLUSTER NODES.
//
// Units. Slots are numbers, not bytes. First and Last of a Range both belong to
// it.
//
// Errors. ParseRange says which text it met and what it wanted. Bitmap's methods
// panic, as an index out of range does, for a slot outside [0, Count): a caller
// checks a number from outside before it becomes a slot.
//
// Source. The Redis Cluster specification: CRC-16/XMODEM (polynomial 0x1021,
// initial value 0, no reflection, no final xor) and its rule for hash tags. The
// expected slots in the tests were read from a redis-server 7.0.15.
//
// Not here: who owns a slot, and the state of its migration.
package slot

import "bytes"

// Count is the number of slots of a Redis Cluster.
const Count = 16384

// crcTable holds the CRC16 of every single byte. It is written only by its own
// initialisation.
var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ polynomial
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}

// Of returns the slot of key. It allocates nothing and keeps no reference to key.
func Of(key []byte) uint16 {
	return crc16(Tag(key)) % Count
}

// Tag returns the part of key that decides its slot: what stands between the
// first '{' and the next '}' if that is not empty, otherwise the whole key. The
// result aliases key.
func Tag(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	rest := key[open+1:]
	// Only the first '{' counts: an empty "{}" makes the whole key count, even
	// when a tag that is not empty follows.
	end := bytes.IndexByte(rest, '}')
	if end <= 0 {
		return key
	}
	return rest[:end]
}

func crc16(b []byte) uint16 {
	var crc uint16
	for _, c := range b {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return crc
}
