package server

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"cairn/wal"
)

// The log's history as the store's node row keeps it: id(40) second id(40) offset of the second(8) counter(8).
const historyLen = 40 + 40 + 8 + 8

func appendHistory(dst []byte, h wal.History) []byte {
	dst = append(dst, h.ID[:]...)
	dst = append(dst, h.ID2[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Offset2))
	return binary.BigEndian.AppendUint64(dst, h.Counter)
}

func decodeHistory(src []byte) (h wal.History, err error) {
	if len(src) != historyLen {
		return h, fmt.Errorf("history of the log: %d bytes, want %d", len(src), historyLen)
	}
	copy(h.ID[:], src)
	copy(h.ID2[:], src[40:])
	h.Offset2 = int64(binary.BigEndian.Uint64(src[80:]))
	h.Counter = binary.BigEndian.Uint64(src[88:])
	return h, nil
}

// newID makes a replication id: 40 hex digits that nobody else has.
func newID() (id [40]byte) {
	var raw [20]byte
	_, _ = rand.Read(raw[:]) // never fails, by its documentation
	hex.Encode(id[:], raw[:])
	return id
}

// firstHistory is that of a node without data.
func firstHistory() wal.History {
	return wal.History{ID: newID(), ID2: noID(), Offset2: -1, Counter: 1}
}

func noID() (id [40]byte) {
	for i := range id {
		id[i] = '0'
	}
	return id
}

// follow is a history that parts from h at end: what was there stays known by the old id. Redis numbers bytes
// from 1, so the first byte that is not of the old id is end+1.
func follow(h wal.History, end int64) wal.History {
	return wal.History{ID: newID(), ID2: h.ID, Offset2: end + 1, Counter: h.Counter + 1}
}
