package layout

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
)

// Version is the format of all rows. A store of another version is refused on open.
const Version = 3

// Node row names, in SpaceNode.
var (
	nodeState = []byte{SpaceNode, 's'}
)

// StateKey is the row key of the node's state.
func StateKey() []byte { return nodeState }

// State is the node row that every group carries: where in the log the store stands.
//
//	version(2) applied(8) recall(8) next generation(8) history
type State struct {
	Applied int64  // everything up to this log offset is in the store and nothing after
	Recall  int64  // entries without rows between it and Applied may not be kept elsewhere yet
	NextGen uint64 // the first generation not yet given away
	History []byte // the log's history, encoded by its owner
}

// Append appends the encoded state.
func (s *State) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, Version)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Applied))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Recall))
	dst = binary.BigEndian.AppendUint64(dst, s.NextGen)
	return append(dst, s.History...)
}

// Decode fills s from src; History is copied.
func (s *State) Decode(src []byte) error {
	if len(src) < 26 {
		return errShort("node state", len(src), 26)
	}
	if v := binary.BigEndian.Uint16(src); v != Version {
		return &Error{"node state", fmt.Sprintf("format version %d, this program knows %d only", v, Version)}
	}
	s.Applied = int64(binary.BigEndian.Uint64(src[2:]))
	s.Recall = int64(binary.BigEndian.Uint64(src[10:]))
	s.NextGen = binary.BigEndian.Uint64(src[18:])
	s.History = append([]byte(nil), src[26:]...)
	return nil
}

// Counter pages: one row holds the counters of PageSlots neighbouring slots, so that a group that touched all
// slots adds Pages small rows and no more.
const (
	PageSlots = 128
	Pages     = 16384 / PageSlots
)

// Counters are what is known of a slot without reading it.
type Counters struct {
	Keys  int64 // key records, expired but undeleted ones included
	Large int64 // of them, values that have rows of their own
	Bytes int64 // payload bytes of keys and values

	Deadlines   int64 // of the keys, those that have one
	DeadlineSum int64 // of all deadlines, each as DeadlineWeight
}

// DeadlineWeight is what a deadline (Unix milliseconds) adds to Counters.DeadlineSum: Unix seconds, up to some time two
// centuries from now, so that a billion far ones do not overflow the sum.
func DeadlineWeight(deadline int64) int64 { return min(deadline/1000, 1<<33) }

// fields are the counters in the order of their encoding.
func (c *Counters) fields() [5]*int64 {
	return [...]*int64{&c.Keys, &c.Large, &c.Bytes, &c.Deadlines, &c.DeadlineSum}
}

// Load reads counters that others change, each of them atomically.
func (c *Counters) Load() (v Counters) {
	to := v.fields()
	for i, field := range c.fields() {
		*to[i] = atomic.LoadInt64(field)
	}
	return v
}

// Store makes c what v is, for those who Load it.
func (c *Counters) Store(v *Counters) {
	from := v.fields()
	for i, field := range c.fields() {
		atomic.StoreInt64(field, *from[i])
	}
}

// AppendPageKey appends the row key of counter page p.
func AppendPageKey(dst []byte, p int) []byte { return append(dst, SpaceNode, 'c', byte(p)) }

// AppendPage appends an encoded counter page.
func AppendPage(dst []byte, page *[PageSlots]Counters) []byte {
	for i := range page {
		for _, field := range page[i].fields() {
			dst = binary.AppendVarint(dst, *field)
		}
	}
	return dst
}

// DecodePage fills page from src.
func DecodePage(page *[PageSlots]Counters, src []byte) error {
	for i := range page {
		for _, field := range page[i].fields() {
			v, n := binary.Varint(src)
			if n <= 0 {
				return &Error{"counter page", fmt.Sprintf("slot %d of the page is not a varint", i)}
			}
			*field, src = v, src[n:]
		}
	}
	if len(src) != 0 {
		return &Error{"counter page", fmt.Sprintf("%d bytes too long", len(src))}
	}
	return nil
}
