package rdb

import (
	"hash/crc64"
	"math/bits"
)

// crcPoly is the "Jones" polynomial. Redis runs it reflected, starts from zero and
// inverts nothing.
const crcPoly = 0xad93d23594c935a9

// crcTable is made once and never written again. hash/crc64 wants the polynomial
// with its bits reversed.
var crcTable = crc64.MakeTable(bits.Reverse64(crcPoly))

// Checksum returns the CRC64 of p continued from crc; start with 0. Checksum(0,
// "123456789") is e9c6d914c4b8d9ca.
func Checksum(crc uint64, p []byte) uint64 {
	// The standard library inverts on the way in and on the way out. Inverting
	// around it again leaves the plain register that Redis has.
	return ^crc64.Update(^crc, crcTable, p)
}
