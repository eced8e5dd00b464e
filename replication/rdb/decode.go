package rdb

import "strconv"

// maxDeadlineMs bounds the deadline of a hash field, as servers do.
const maxDeadlineMs = 1<<46 - 1

// decoder takes one value apart.
type decoder struct {
	src  *source
	sink Sink

	checkPlain bool // look for duplicates in unpacked collections
	second     bool // this is the second opinion on a duplicate

	typ   byte
	start int64 // where the value begins, behind the type byte
	begun bool
	uniq  *unique

	hashes []uint64 // memory of uniq

	field, val []byte   // memory of the elements being read
	blob       []byte   // memory of a packed blob
	numA, numB [24]byte // text of integers inside packed blobs
}

// value decodes the value behind a type byte that has just been read.
func (d *decoder) value(typ byte) error {
	d.typ, d.start, d.begun, d.uniq = typ, d.src.off, false, nil
	defer d.release()
	if err := d.dispatch(typ); err != nil {
		return err
	}
	if !d.begun {
		return errEmpty
	}
	if d.uniq != nil && !d.uniq.ok() {
		if err := d.duplicate(); err != nil {
			return err
		}
	}
	return d.sink.End()
}

// release lets go of what one large value needed and the next may not.
func (d *decoder) release() {
	d.uniq = nil
	d.field, d.val, d.blob = keepSmall(d.field), keepSmall(d.val), keepSmall(d.blob)
}

func (d *decoder) dispatch(typ byte) error {
	switch typ {
	case TypeString:
		return d.topString()
	case TypeList:
		return d.plainList()
	case TypeSet:
		return d.plainSet()
	case TypeZSet, TypeZSet2:
		return d.plainZSet(typ)
	case TypeHash:
		return d.plainHash()
	case TypeHashDeadlines0, TypeHashDeadlines:
		return d.plainHashDeadlines(typ)
	case TypeListQuicklist, TypeListQuicklist2:
		return d.quicklist(typ)
	case TypeListZiplist:
		return d.packed(KindList, openZiplist, d.listFrom)
	case TypeSetListpack:
		return d.packed(KindSet, openListpack, d.setFrom)
	case TypeZSetZiplist:
		return d.packed(KindZSet, openZiplist, d.zsetFrom)
	case TypeZSetListpack:
		return d.packed(KindZSet, openListpack, d.zsetFrom)
	case TypeHashZiplist:
		return d.packed(KindHash, openZiplist, d.hashFrom)
	case TypeHashListpack:
		return d.packed(KindHash, openListpack, d.hashFrom)
	case TypeHashPackedDl:
		// The smallest deadline stands in front as a hint. It may be stale, and
		// the deadlines inside do not need it.
		if _, err := d.src.next(8, "smallest field deadline"); err != nil {
			return err
		}
		return d.packed(KindHash, openListpack, d.hashDeadlinesFrom)
	case TypeHashPackedDl0:
		return d.packed(KindHash, openListpack, d.hashDeadlinesFrom)
	case TypeHashZipmap:
		return d.zipmapHash()
	case TypeSetIntset:
		return d.intsetSet()
	case TypeModule, TypeModulePre:
		return d.module(typ)
	}
	return &UnsupportedTypeError{Type: typ}
}

// open announces a collection at its first element: that it has one is what tells
// it from an empty one.
func (d *decoder) open(kind Kind, size uint64) error {
	if d.begun {
		return nil
	}
	d.begun = true
	return d.sink.Begin(kind, size)
}

// watch turns on the duplicate check for the value at hand: size elements, as the
// input claims, in at most room bytes.
func (d *decoder) watch(packed bool, size uint64, room int) {
	if packed || d.checkPlain {
		// Elements that differ take 3 bytes each, but for the shortest few.
		d.uniq = newUnique(int(min(size, uint64(room)/3+512)), d.hashes)
	}
}

// watchPlain is watch for elements that are not in a blob.
func (d *decoder) watchPlain(size uint64) {
	room := pieceLen // nothing is known of a stream but that it has a buffer
	if d.src.br == nil {
		room = len(d.src.mem) - int(d.src.off)
	}
	d.watch(false, size, room)
}

// seen passes one member or field by the duplicate check.
func (d *decoder) seen(elem []byte) error {
	if d.uniq == nil || d.uniq.add(elem) {
		return nil
	}
	return d.duplicate()
}

// duplicate judges two equal hashes. A payload can be read again with another
// seed, and when that finds nothing the whole value is free of duplicates.
func (d *decoder) duplicate() error {
	err := d.src.failf("value", "duplicate element in a collection of type %d", d.typ)
	if d.second || d.src.br != nil {
		return err
	}
	again := decoder{
		src: &source{mem: d.src.mem, off: d.start, passed: d.src.passed, told: d.start}, sink: Discard{},
		checkPlain: d.checkPlain, second: true,
	}
	if d.uniq != nil {
		again.hashes = d.uniq.hashes // the first opinion has been given
	}
	if again.value(d.typ) != nil {
		return err
	}
	d.uniq = nil
	return nil
}

// topString decodes a string value, in pieces when it is long.
func (d *decoder) topString() error {
	const what = "string"
	n, enc, err := d.src.lengthOrEncoding(what)
	if err != nil {
		return err
	}
	switch {
	case !enc:
		return d.rawTopString(n)
	case n <= strInt32:
		v, err := d.src.intString(n, what)
		if err != nil {
			return err
		}
		text := strconv.AppendInt(d.numA[:0], v, 10)
		if err := d.open(KindString, uint64(len(text))); err != nil {
			return err
		}
		return d.sink.StringChunk(text)
	case n == strLZF:
		packed, want, err := d.src.lzfLengths(what)
		if err != nil {
			return err
		}
		if err := d.open(KindString, want); err != nil {
			return err
		}
		return d.lzfPieces(packed, want, what, d.sink.StringChunk)
	}
	return d.src.failf(what, "string encoding %d is unknown", n)
}

func (d *decoder) rawTopString(n uint64) error {
	if n > MaxElement {
		return d.src.failf("string", "%d bytes, limit %d", n, MaxElement)
	}
	if d.src.br == nil && int64(n) > int64(len(d.src.mem))-d.src.off {
		_, err := d.src.next(int(n), "string") // fail before the sink hears of it
		return err
	}
	if err := d.open(KindString, n); err != nil {
		return err
	}
	return d.rawPieces(n, "string", d.sink.StringChunk)
}

// rawPieces gives the next n bytes to emit, in pieces.
func (d *decoder) rawPieces(n uint64, what string, emit func([]byte) error) error {
	for n > 0 {
		b, err := d.src.next(int(min(n, pieceLen)), what)
		if err != nil {
			return err
		}
		if err := emit(b); err != nil {
			return err
		}
		n -= uint64(len(b))
	}
	return nil
}

// lzfPieces gives what a block stands for to emit, in pieces. It keeps errors of the sink and of the source apart from
// those of the block.
func (d *decoder) lzfPieces(packed, want uint64, what string, emit func([]byte) error) error {
	var outer error
	pull := func(n int) ([]byte, error) {
		b, err := d.src.next(n, what)
		outer = err
		return b, err
	}
	err := lzfChunks(packed, want, pull, func(b []byte) error {
		outer = emit(b)
		return outer
	})
	if outer != nil {
		return outer
	}
	if err != nil {
		return d.src.fail(what, "lzf: "+err.Error(), nil)
	}
	return nil
}

func (d *decoder) plainList() error {
	n, err := d.src.length("list count")
	if err != nil {
		return err
	}
	for i := uint64(0); i < n; i++ {
		b, err := d.src.str(&d.val, "list item")
		if err != nil {
			return err
		}
		if err := d.open(KindList, n); err != nil {
			return err
		}
		if err := d.sink.ListItem(b); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) plainSet() error {
	n, err := d.src.length("set count")
	if err != nil {
		return err
	}
	d.watchPlain(n)
	for i := uint64(0); i < n; i++ {
		b, err := d.src.str(&d.field, "set member")
		if err != nil {
			return err
		}
		if err := d.setMember(b, n); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) setMember(b []byte, size uint64) error {
	if err := d.seen(b); err != nil {
		return err
	}
	if err := d.open(KindSet, size); err != nil {
		return err
	}
	return d.sink.SetMember(b)
}

func (d *decoder) plainZSet(typ byte) error {
	n, err := d.src.length("sorted set count")
	if err != nil {
		return err
	}
	d.watchPlain(n)
	score := d.src.double
	if typ == TypeZSet {
		score = d.src.doubleText
	}
	for i := uint64(0); i < n; i++ {
		b, err := d.src.str(&d.field, "sorted set member")
		if err != nil {
			return err
		}
		// A member lies in the payload or in d.field, never in the buffer of the
		// stream, so it outlives the reading of its score.
		v, err := score("score")
		if err != nil {
			return err
		}
		if err := d.zsetMember(b, v, n); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) zsetMember(b []byte, v float64, size uint64) error {
	if err := d.seen(b); err != nil {
		return err
	}
	if err := d.open(KindZSet, size); err != nil {
		return err
	}
	return d.sink.ZSetMember(b, v)
}

func (d *decoder) plainHash() error {
	n, err := d.src.length("hash count")
	if err != nil {
		return err
	}
	d.watchPlain(n)
	for i := uint64(0); i < n; i++ {
		if err := d.plainPair(0, n); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) plainPair(deadlineMs int64, size uint64) error {
	f, err := d.src.str(&d.field, "hash field")
	if err != nil {
		return err
	}
	long := d.longFields()
	if long == nil {
		v, err := d.src.str(&d.val, "hash value")
		if err != nil {
			return err
		}
		return d.hashField(f, v, deadlineMs, size)
	}
	n, enc, err := d.src.lengthOrEncoding("hash value")
	switch {
	case err != nil:
		return err
	case !enc && n > LongField:
		return d.longField(f, n, deadlineMs, size, long)
	case enc && n == strLZF:
		return d.lzfField(f, deadlineMs, size, long)
	}
	v, err := d.src.strOf(&d.val, n, enc, "hash value")
	if err != nil {
		return err
	}
	return d.hashField(f, v, deadlineMs, size)
}

func (d *decoder) hashField(f, v []byte, deadlineMs int64, size uint64) error {
	if err := d.beginField(f, size); err != nil {
		return err
	}
	return d.sink.HashField(f, v, deadlineMs)
}

func (d *decoder) beginField(f []byte, size uint64) error {
	if err := d.seen(f); err != nil {
		return err
	}
	return d.open(KindHash, size)
}

// longFields is the sink if it takes long values in pieces, nil if not.
func (d *decoder) longFields() LongFields {
	switch s := d.sink.(type) {
	case LongFields:
		return s
	case Discard:
		return discardLong{}
	}
	return nil
}

// discardLong is no part of Discard, so that a Sink that has it for its base misses no field.
type discardLong struct{}

func (discardLong) LongField([]byte, uint64, int64) error { return nil }
func (discardLong) FieldChunk([]byte) error               { return nil }

// longField gives a value of n bytes in pieces.
func (d *decoder) longField(f []byte, n uint64, deadlineMs int64, size uint64, to LongFields) error {
	const what = "hash value"
	if n > MaxElement {
		return d.src.failf(what, "%d bytes, limit %d", n, MaxElement)
	}
	if d.src.br == nil && int64(n) > int64(len(d.src.mem))-d.src.off {
		_, err := d.src.next(int(n), what) // fail before the sink hears of it
		return err
	}
	if err := d.beginField(f, size); err != nil {
		return err
	}
	if err := to.LongField(f, n, deadlineMs); err != nil {
		return err
	}
	return d.rawPieces(n, what, to.FieldChunk)
}

// lzfField gives a compressed value, in pieces if it is long.
func (d *decoder) lzfField(f []byte, deadlineMs int64, size uint64, to LongFields) error {
	const what = "hash value"
	packed, want, err := d.src.lzfLengths(what)
	if err != nil {
		return err
	}
	if want <= LongField {
		v, err := d.src.lzfBytes(&d.val, packed, want, what)
		if err != nil {
			return err
		}
		return d.hashField(f, v, deadlineMs, size)
	}
	if err := d.beginField(f, size); err != nil {
		return err
	}
	if err := to.LongField(f, want, deadlineMs); err != nil {
		return err
	}
	return d.lzfPieces(packed, want, what, to.FieldChunk)
}

// plainHashDeadlines decodes field deadlines that stand in front of each pair:
// absolute in the pre-release form; else 0 for none, and 1 for the smallest
// deadline of the hash, which stands in front of the count.
func (d *decoder) plainHashDeadlines(typ byte) error {
	base := int64(1)
	if typ == TypeHashDeadlines {
		v, err := d.src.int64("smallest field deadline")
		if err != nil {
			return err
		}
		base = v
	}
	n, err := d.src.length("hash count")
	if err != nil {
		return err
	}
	d.watchPlain(n)
	for i := uint64(0); i < n; i++ {
		rel, err := d.src.length("field deadline")
		if err != nil {
			return err
		}
		at := int64(0)
		if rel != 0 {
			if rel > maxDeadlineMs || base < 0 || base > maxDeadlineMs || base+int64(rel)-1 > maxDeadlineMs {
				return d.src.failf("field deadline", "%d after %d, limit %d", rel, base, int64(maxDeadlineMs))
			}
			at = base + int64(rel) - 1
		}
		if err := d.plainPair(at, n); err != nil {
			return err
		}
	}
	return nil
}

// packedDeadline reads an element of a packed blob as a deadline.
func (d *decoder) packedDeadline(b []byte) (int64, error) {
	v, ok := canonicalInt(b)
	if !ok || v < 0 || v > maxDeadlineMs {
		return 0, d.src.failf("field deadline", "%q, want 0 to %d", b[:min(len(b), 32)], int64(maxDeadlineMs))
	}
	return v, nil
}

// module names the module whose value cannot be taken apart.
func (d *decoder) module(typ byte) error {
	id, err := d.src.length("module id")
	if err != nil {
		return err
	}
	return &UnsupportedTypeError{Type: typ, Detail: moduleName(id)}
}

// moduleName unpacks the nine characters in the upper 54 bits of a module id.
func moduleName(id uint64) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var name [9]byte
	id >>= 10
	for i := len(name) - 1; i >= 0; i-- {
		name[i] = letters[id&63]
		id >>= 6
	}
	return string(name[:])
}
