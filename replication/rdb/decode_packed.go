package rdb

import "strconv"

// Values that are one packed blob, and lists that are several of them.

// openListpack and openZiplist give both formats one signature.
func openListpack(b []byte) (packedReader, error) { return newListpack(b) }
func openZiplist(b []byte) (packedReader, error)  { return newZiplist(b) }

// packed reads a blob and hands its elements to from.
func (d *decoder) packed(kind Kind, open func([]byte) (packedReader, error), from func(packedReader) error) error {
	b, err := d.src.str(&d.blob, "packed "+kind.String())
	if err != nil {
		return err
	}
	r, err := open(b)
	if err != nil {
		return d.badBlob(kind, err)
	}
	return from(r)
}

func (d *decoder) badBlob(kind Kind, err error) error {
	return d.src.fail("packed "+kind.String(), err.Error(), nil)
}

func (d *decoder) listFrom(r packedReader) error {
	return d.listItems(r, uint64(r.claimed()))
}

func (d *decoder) listItems(r packedReader, size uint64) error {
	for {
		b, ok, err := r.next(&d.numA)
		if err != nil {
			return d.badBlob(KindList, err)
		}
		if !ok {
			return nil
		}
		if err := d.open(KindList, size); err != nil {
			return err
		}
		if err := d.sink.ListItem(b); err != nil {
			return err
		}
	}
}

func (d *decoder) setFrom(r packedReader) error {
	d.watch(true, uint64(r.claimed()), r.room())
	for {
		b, ok, err := r.next(&d.numA)
		if err != nil {
			return d.badBlob(KindSet, err)
		}
		if !ok {
			return nil
		}
		if err := d.setMember(b, uint64(r.claimed())); err != nil {
			return err
		}
	}
}

// pair reads the element that must follow an element of kind.
func (d *decoder) pair(r packedReader, kind Kind) ([]byte, error) {
	b, ok, err := r.next(&d.numB)
	if err != nil {
		return nil, d.badBlob(kind, err)
	}
	if !ok {
		return nil, d.src.failf("packed "+kind.String(), "odd number of elements")
	}
	return b, nil
}

func (d *decoder) zsetFrom(r packedReader) error {
	d.watch(true, uint64(r.claimed()), r.room())
	for {
		b, ok, err := r.next(&d.numA)
		if err != nil {
			return d.badBlob(KindZSet, err)
		}
		if !ok {
			return nil
		}
		text, err := d.pair(r, KindZSet)
		if err != nil {
			return err
		}
		score, err := parseScore(text)
		if err != nil {
			return d.badBlob(KindZSet, err)
		}
		if err := d.zsetMember(b, score, uint64(r.claimed()/2)); err != nil {
			return err
		}
	}
}

func (d *decoder) hashFrom(r packedReader) error {
	d.watch(true, uint64(r.claimed()), r.room())
	for {
		f, ok, err := r.next(&d.numA)
		if err != nil {
			return d.badBlob(KindHash, err)
		}
		if !ok {
			return nil
		}
		v, err := d.pair(r, KindHash)
		if err != nil {
			return err
		}
		if err := d.hashField(f, v, 0, uint64(r.claimed()/2)); err != nil {
			return err
		}
	}
}

// hashDeadlinesFrom decodes triples of field, value, deadline.
func (d *decoder) hashDeadlinesFrom(r packedReader) error {
	d.watch(true, uint64(r.claimed()), r.room())
	for {
		f, ok, err := r.next(&d.numA)
		if err != nil {
			return d.badBlob(KindHash, err)
		}
		if !ok {
			return nil
		}
		v, err := d.pair(r, KindHash)
		if err != nil {
			return err
		}
		// The next element may reuse the text of an integer value.
		d.val = append(d.val[:0], v...)
		text, err := d.pair(r, KindHash)
		if err != nil {
			return err
		}
		at, err := d.packedDeadline(text)
		if err != nil {
			return err
		}
		if err := d.hashField(f, d.val, at, uint64(r.claimed()/3)); err != nil {
			return err
		}
	}
}

func (d *decoder) zipmapHash() error {
	b, err := d.src.str(&d.blob, "zipmap")
	if err != nil {
		return err
	}
	z, err := newZipmap(b)
	if err != nil {
		return d.badBlob(KindHash, err)
	}
	size := uint64(b[0])
	if size >= zmBigCount {
		size = 0
	}
	d.watch(true, size, len(b))
	for {
		f, v, ok, err := z.next()
		if err != nil {
			return d.badBlob(KindHash, err)
		}
		if !ok {
			return nil
		}
		if err := d.hashField(f, v, 0, size); err != nil {
			return err
		}
	}
}

func (d *decoder) intsetSet() error {
	b, err := d.src.str(&d.blob, "intset")
	if err != nil {
		return err
	}
	set, err := newIntset(b)
	if err != nil {
		return d.badBlob(KindSet, err)
	}
	for i := range set.count {
		v := set.at(i)
		// Strictly ascending is what makes them unique.
		if i > 0 && v <= set.at(i-1) {
			return d.src.failf("intset", "integer %d after %d", v, set.at(i-1))
		}
		if err := d.setMember(strconv.AppendInt(d.numA[:0], v, 10), uint64(set.count)); err != nil {
			return err
		}
	}
	return nil
}

// quicklist decodes a list in nodes. A node may be empty, the whole may not.
func (d *decoder) quicklist(typ byte) error {
	n, err := d.src.length("quicklist count")
	if err != nil {
		return err
	}
	for i := uint64(0); i < n; i++ {
		if err := d.quicklistNode(typ, n); err != nil {
			return err
		}
	}
	return nil
}

// Containers of a node of type 18.
const (
	nodePlain  = 1 // the string is one item
	nodePacked = 2 // the string is a listpack
)

func (d *decoder) quicklistNode(typ byte, nodes uint64) error {
	const what = "quicklist node"
	container := uint64(nodePacked)
	if typ == TypeListQuicklist2 {
		var err error
		if container, err = d.src.length(what); err != nil {
			return err
		}
		if container != nodePlain && container != nodePacked {
			return d.src.failf(what, "container %d is unknown", container)
		}
	}
	b, err := d.src.str(&d.blob, what)
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return d.src.failf(what, "no bytes")
	}
	size := uint64(0) // only a list of one node knows how many items it has
	if container == nodePlain {
		if nodes == 1 {
			size = 1
		}
		if err := d.open(KindList, size); err != nil {
			return err
		}
		return d.sink.ListItem(b)
	}
	open := openListpack
	if typ == TypeListQuicklist {
		open = openZiplist
	}
	r, err := open(b)
	if err != nil {
		return d.badBlob(KindList, err)
	}
	if nodes == 1 {
		size = uint64(r.claimed())
	}
	return d.listItems(r, size)
}
