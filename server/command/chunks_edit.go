package command

import (
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
)

// stringEditor changes a string in place. It holds one page at a time: the whole value of a small string, one
// chunk of a long one. Nothing is stored before finish (but for pages left behind, which nobody sees without it).
type stringEditor struct {
	t       *engine.Txn
	k       *engine.Key
	length  int64
	small   bool
	owned   bool // page is a copy of our own
	changed bool

	page   []byte
	at     int64 // number of the chunk in page, -1 for none
	stored int   // bytes that its row has
	dirty  bool  // page differs from its row
}

// editString opens the string at k, which may be missing. The caller has checked the type.
func editString(t *engine.Txn, k *engine.Key) (e stringEditor, err error) {
	e = stringEditor{t: t, k: k, length: stringLen(k), small: true, at: -1}
	if !k.Exists() {
		return e, nil
	}
	if e.small = k.Rec.Form != layout.Rows; e.small {
		e.page, err = t.Value(k)
	}
	return e, err
}

// grow makes the string at least n bytes long, zeroes at its new end.
func (e *stringEditor) grow(n int64) {
	if n <= e.length {
		return
	}
	if e.small {
		if n <= layout.ChunkedOver {
			p := make([]byte, n)
			copy(p, e.page)
			e.page, e.owned = p, true
		} else {
			startChunks(e.t, e.k, n)
			putChunks(e.t, e.k, 0, e.page)
			e.small, e.page = false, nil
		}
	}
	e.length, e.changed = n, true
}

// window gives the bytes from off on, which is within the string, to the end of their page. write says that the
// caller will change them; the next call takes the page away.
func (e *stringEditor) window(off int64, write bool) ([]byte, error) {
	e.changed = e.changed || write
	if e.small {
		if write && !e.owned {
			e.page, e.owned = append(make([]byte, 0, len(e.page)), e.page...), true
		}
		return e.page[off:], nil
	}
	n := off / layout.ChunkBytes
	if err := e.load(n); err != nil {
		return nil, err
	}
	e.dirty = e.dirty || write
	start := n * layout.ChunkBytes
	return e.page[off-start : min(layout.ChunkBytes, e.length-start)], nil
}

// load makes chunk n the page.
func (e *stringEditor) load(n int64) error {
	if n == e.at {
		return nil
	}
	e.store()
	if e.page == nil {
		e.page = make([]byte, layout.ChunkBytes)
	}
	element := chunkElement(n)
	v, _, err := e.t.Element(e.k, element[:])
	if err != nil {
		return fmt.Errorf("read chunk %d of key %.64q: %w", n, e.k.Name, err)
	}
	clear(e.page[copy(e.page, v):])
	e.at, e.stored = n, len(v)
	return nil
}

// store puts the page into its row.
func (e *stringEditor) store() {
	if !e.dirty {
		return
	}
	b, element := trimZeroes(e.page), chunkElement(e.at)
	if len(b) > 0 {
		e.t.PutElement(e.k, element[:], b)
	} else if e.stored > 0 {
		e.t.DeleteElement(e.k, element[:])
	}
	e.k.Rec.Bytes += uint64(len(b)) - uint64(e.stored)
	e.stored, e.dirty = len(b), false
}

// write puts b at off, which together end within the string.
func (e *stringEditor) write(off int64, b []byte) error {
	for len(b) > 0 {
		w, err := e.window(off, true)
		if err != nil {
			return err
		}
		n := copy(w, b)
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// read fills b with the bytes from off on, zeroes behind the string's end.
func (e *stringEditor) read(off int64, b []byte) error {
	for len(b) > 0 && off < e.length {
		w, err := e.window(off, false)
		if err != nil {
			return err
		}
		n := copy(b, w)
		b, off = b[n:], off+int64(n)
	}
	clear(b)
	return nil
}

// finish makes the changes part of the transaction. A deadline stays; what was edited is raw.
func (e *stringEditor) finish() {
	if e.small {
		setString(e.t, e.k, e.page, EncRaw, e.k.Rec.Deadline)
		return
	}
	e.store()
	e.k.Rec.Count, e.k.Rec.Enc = uint64(e.length), EncRaw
	e.t.Put(e.k)
}
