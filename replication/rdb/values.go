package rdb

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// Values of moderate size, appended in one go: type byte, then the value, in the
// form that a real server of the same thresholds would write. What is too large
// to be in memory twice goes through an Encoder.

// Limits says how large a collection may be to be packed. The zero value packs
// nothing.
type Limits struct {
	Entries int // elements, pairs or members at most
	Value   int // bytes of the longest element at most
}

// listNodeLimit is the size at which a node of a list is full, in bytes: what
// list-max-listpack-size -2 means. listNodeSlack is what a server assumes one
// more element adds besides its own length.
const (
	listNodeLimit = 8192
	listNodeSlack = 8
)

// AppendStringValue appends a string value.
func AppendStringValue(dst, b []byte) []byte {
	return AppendString(append(dst, TypeString), b)
}

// AppendHash appends a hash of n pairs, which may be ranged over twice. It is
// packed when n and every field and value are within lim.
func AppendHash(dst []byte, n int, pairs iter.Seq2[[]byte, []byte], lim Limits) []byte {
	if n <= lim.Entries {
		var lp Listpack
		fits := true
		for f, v := range pairs {
			if fits = len(f) <= lim.Value && len(v) <= lim.Value; !fits {
				break
			}
			lp.Append(f)
			lp.Append(v)
		}
		if fits {
			return AppendString(append(dst, TypeHashListpack), lp.Bytes())
		}
	}
	dst = AppendLength(append(dst, TypeHash), uint64(n))
	for f, v := range pairs {
		dst = AppendString(AppendString(dst, f), v)
	}
	return dst
}

// AppendList appends a list of items, head first.
func AppendList(dst []byte, items iter.Seq[[]byte]) []byte {
	dst = append(dst, TypeListQuicklist2)
	var nodes []byte
	var lp Listpack
	count := uint64(0)
	flush := func() {
		if lp.Len() > 0 {
			nodes = AppendString(AppendLength(nodes, nodePacked), lp.Bytes())
			count++
			lp.Reset()
		}
	}
	for b := range items {
		if lp.Len() > 0 && lp.Size()+len(b)+listNodeSlack > listNodeLimit {
			flush()
		}
		lp.Append(b)
	}
	flush()
	return append(AppendLength(dst, count), nodes...)
}

// SetLimits says when a set is packed and how.
type SetLimits struct {
	Intset   int    // members at most when all are integers
	Listpack Limits // for the others; only Redis 7.2 and later can read it
}

// AppendSet appends a set of n members, which may be ranged over up to three times.
func AppendSet(dst []byte, n int, members iter.Seq[[]byte], lim SetLimits) []byte {
	if n > 0 && n <= lim.Intset {
		if ints, ok := collectInts(n, members); ok {
			return AppendString(append(dst, TypeSetIntset), appendIntset(nil, ints))
		}
	}
	if n <= lim.Listpack.Entries {
		var lp Listpack
		fits := true
		for b := range members {
			if fits = len(b) <= lim.Listpack.Value; !fits {
				break
			}
			lp.Append(b)
		}
		if fits {
			return AppendString(append(dst, TypeSetListpack), lp.Bytes())
		}
	}
	dst = AppendLength(append(dst, TypeSet), uint64(n))
	for b := range members {
		dst = AppendString(dst, b)
	}
	return dst
}

// collectInts returns the members as sorted integers, or false when one is not an
// integer.
func collectInts(n int, members iter.Seq[[]byte]) ([]int64, bool) {
	ints := make([]int64, 0, n)
	for b := range members {
		v, ok := canonicalInt(b)
		if !ok {
			return nil, false
		}
		ints = append(ints, v)
	}
	slices.Sort(ints)
	return ints, len(ints) > 0
}

// AppendZSet appends a sorted set of n members in ascending order, which may be
// ranged over twice. It is packed when n and every member are within lim.
func AppendZSet(dst []byte, n int, members iter.Seq2[[]byte, float64], lim Limits) []byte {
	if n <= lim.Entries {
		var lp Listpack
		fits := true
		for b, score := range members {
			if fits = len(b) <= lim.Value; !fits {
				break
			}
			lp.Append(b)
			lp.AppendScore(score)
		}
		if fits {
			return AppendString(append(dst, TypeZSetListpack), lp.Bytes())
		}
	}
	dst = AppendLength(append(dst, TypeZSet2), uint64(n))
	for b, score := range members {
		dst = AppendString(dst, b)
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(score))
	}
	return dst
}

// Field is one field of a hash with deadlines. DeadlineMs is 0 for none.
type Field struct {
	Name, Value []byte
	DeadlineMs  int64
}

// AppendHashDeadlines appends a hash of n fields of which some have a deadline.
// Only servers that read version 12 can load it. fields may be ranged over twice.
func AppendHashDeadlines(dst []byte, n int, fields iter.Seq[Field]) []byte {
	first := int64(0)
	for f := range fields {
		if f.DeadlineMs > 0 && (first == 0 || f.DeadlineMs < first) {
			first = f.DeadlineMs
		}
	}
	dst = binary.LittleEndian.AppendUint64(append(dst, TypeHashDeadlines), uint64(first))
	dst = AppendLength(dst, uint64(n))
	for f := range fields {
		rel := uint64(0)
		if f.DeadlineMs > 0 {
			rel = uint64(f.DeadlineMs-first) + 1
		}
		dst = AppendString(AppendString(AppendLength(dst, rel), f.Name), f.Value)
	}
	return dst
}
