package cache

import (
	"bytes"
	"encoding/binary"
)

// A page is divided into blocks without gaps; a block is a row or free. Memory only, little endian; sizes are in
// units of 16 bytes, a ref is page number << 12 | offset in units.
//
//	row                                          free block
//	 0 u32 units << 2 | prevFree << 1 | 1         0 u32 units << 2 | prevFree << 1
//	 4 u8  flags                                  4 u32 ref of the next free block of its bin, 0 none
//	 5 u8  access counter, as OBJECT FREQ         8 u32 ref of the one before, 0 none
//	 6 u16 slot                                  ...
//	 8 u64 hash                                  -4 u32 units, so that the block behind finds the start
//	16 u64 epoch of the last write, 0 = filled
//	24 u32 version of the slot
//	28 u32 second of the last access
//	32 u32 place in the dirty list of its epoch
//	36 u32 bytes of the key
//	40 u32 bytes of the value
//	44 key, value
const (
	offHead    = 0
	offFlags   = 4
	offFreq    = 5
	offSlot    = 6
	offHash    = 8
	offEpoch   = 16
	offVersion = 24
	offAccess  = 28
	offDirtyAt = 32
	offKeyLen  = 36
	offValLen  = 40
	headerLen  = 44

	offNext = 4
	offPrev = 8

	unit        = 16
	maxRowBytes = 1 << 32
)

const (
	headUsed     = 1
	headPrevFree = 2
	headShift    = 2
)

const (
	flagKind       = 3              // the two bits of the kind itself
	flagDeleted    = 1 << iota << 1 // a tombstone, or a negative entry
	flagReferenced                  // accessed since the CLOCK hand passed
	flagSuperseded                  // a newer row took its place in the index; kept for the applier
)

// row is a page from the start of a block on. It is valid under the shard's mutex only.
type row []byte

func (r row) head() uint32     { return binary.LittleEndian.Uint32(r[offHead:]) }
func (r row) setHead(v uint32) { binary.LittleEndian.PutUint32(r[offHead:], v) }
func (r row) units() uint32    { return r.head() >> headShift }
func (r row) used() bool       { return r.head()&headUsed != 0 }

func (r row) is(flag uint8) bool { return r[offFlags]&flag != 0 }
func (r row) kind() uint8        { return r[offFlags] & flagKind }
func (r row) slot() uint16       { return binary.LittleEndian.Uint16(r[offSlot:]) }
func (r row) hash() uint64       { return binary.LittleEndian.Uint64(r[offHash:]) }
func (r row) epoch() uint64      { return binary.LittleEndian.Uint64(r[offEpoch:]) }
func (r row) version() uint32    { return binary.LittleEndian.Uint32(r[offVersion:]) }
func (r row) access() uint32     { return binary.LittleEndian.Uint32(r[offAccess:]) }
func (r row) dirtyAt() uint32    { return binary.LittleEndian.Uint32(r[offDirtyAt:]) }

func (r row) setAccess(sec uint32) { binary.LittleEndian.PutUint32(r[offAccess:], sec) }

func (r row) keyLen() uint64 { return uint64(binary.LittleEndian.Uint32(r[offKeyLen:])) }
func (r row) valLen() uint64 { return uint64(binary.LittleEndian.Uint32(r[offValLen:])) }
func (r row) key() []byte    { return r[headerLen:][:r.keyLen()] }
func (r row) val() []byte    { return r[headerLen+r.keyLen():][:r.valLen()] }

// match compares hash and kind first: a tag of 32 bits is rarely wrong, a key compare is a second cache miss.
func (r row) match(kind uint8, h uint64, key []byte) bool {
	return r.hash() == h && r.kind() == kind && r.keyLen() == uint64(len(key)) && bytes.Equal(r.key(), key)
}

// rowWrite is a row on its way in. The slices are the caller's and are copied.
type rowWrite struct {
	kind    uint8
	deleted bool
	slot    uint16
	hash    uint64
	key     []byte
	val     []byte
}

func (w *rowWrite) size() int64   { return headerLen + int64(len(w.key)) + int64(len(w.val)) }
func (w *rowWrite) units() uint32 { return uint32((w.size() + unit - 1) / unit) }

// stamp is what a row carries beside its content.
type stamp struct {
	epoch   uint64
	version uint32
	access  uint32
	dirtyAt uint32
	freq    uint8
	flags   uint8
}

// store writes everything but the block's head.
func (r row) store(w *rowWrite, st stamp) {
	flags := st.flags | w.kind&flagKind
	if w.deleted {
		flags |= flagDeleted
	}
	r[offFlags] = flags
	r[offFreq] = st.freq
	binary.LittleEndian.PutUint16(r[offSlot:], w.slot)
	binary.LittleEndian.PutUint64(r[offHash:], w.hash)
	binary.LittleEndian.PutUint64(r[offEpoch:], st.epoch)
	binary.LittleEndian.PutUint32(r[offVersion:], st.version)
	binary.LittleEndian.PutUint32(r[offAccess:], st.access)
	binary.LittleEndian.PutUint32(r[offDirtyAt:], st.dirtyAt)
	binary.LittleEndian.PutUint32(r[offKeyLen:], uint32(len(w.key)))
	binary.LittleEndian.PutUint32(r[offValLen:], uint32(len(w.val)))
	n := copy(r[headerLen:], w.key)
	copy(r[headerLen+n:], w.val)
}
