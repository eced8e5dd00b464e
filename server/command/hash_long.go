package command

import (
	"errors"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Long values of fields: more than layout.LongFieldOver bytes, in pieces (engine/layout, hash.go). They are never in
// memory as a whole but for the argument that brings them: pieces are read one after the other while a reply is sent,
// and those of engine.StageFrom bytes and more are written to the store as stage.go says, before the field's row names
// them. A value is written once: set again it has another number, and the pieces before are dropped in the background.

// pieceOrder sees to it that the pieces of a value come whole and in order.
type pieceOrder struct {
	next uint32
	left uint64
}

func orderOf(v *layout.HashValue) pieceOrder { return pieceOrder{left: v.Length} }

func (o *pieceOrder) take(piece uint32, part []byte) error {
	if want := min(o.left, layout.PieceBytes); piece != o.next || uint64(len(part)) != want || want == 0 {
		return fmt.Errorf("piece %d of %d bytes where piece %d has %d", piece, len(part), o.next, want)
	}
	o.next++
	o.left -= uint64(len(part))
	return nil
}

func (o *pieceOrder) end() error {
	if o.left > 0 {
		return fmt.Errorf("pieces of a value end %d bytes early", o.left)
	}
	return nil
}

// fieldPieces is where the long values of one hash are read. Who makes it, and each who holds it, closes it once.
type fieldPieces struct {
	it    *engine.Iter
	users int
}

// openPieces opens the pieces of the hash at k; beside is as for engine.Txn.Pieces.
func openPieces(t *engine.Txn, k *engine.Key, beside *engine.Iter) (*fieldPieces, error) {
	it, err := t.Pieces(k, beside)
	if err != nil {
		return nil, hashError(k, err)
	}
	return &fieldPieces{it, 1}, nil
}

func (p *fieldPieces) hold() { p.users++ }

func (p *fieldPieces) close() error {
	if p == nil {
		return nil
	}
	if p.users--; p.users > 0 {
		return nil
	}
	return p.it.Close()
}

// each calls f for the bytes of a value, piece by piece.
func (p *fieldPieces) each(v *layout.HashValue, f func(piece uint32, part []byte) error) error {
	if p == nil {
		return errors.New("hash has a value in pieces, and its record says that it has none")
	}
	order := orderOf(v)
	for p.it.Seek(layout.AppendPiece(nil, v.Number, 0)); order.left > 0 && p.it.Valid(); p.it.Next() {
		number, piece, err := layout.PieceParts(p.it.Key())
		if err != nil {
			return err
		}
		if number != v.Number {
			break
		}
		part := p.it.Value()
		if !p.it.Valid() {
			break // it could not be read
		}
		if err := order.take(piece, part); err != nil {
			return err
		}
		if err := f(piece, part); err != nil {
			return err
		}
	}
	if err := p.it.Err(); err != nil {
		return err
	}
	return order.end()
}

// hashValue is the value of a field in a walk, valid until its next step.
type hashValue struct {
	layout.HashValue
	in *fieldPieces // where it is, if it is in pieces
}

// each calls f for the bytes of the value, in order.
func (v *hashValue) each(f func(part []byte) error) error {
	if !v.InPieces {
		return f(v.Value)
	}
	return v.in.each(&v.HashValue, func(_ uint32, part []byte) error { return f(part) })
}

// write appends the value as a bulk string, a piece at a time when it is long. flush nil: all goes to memory.
func (v *hashValue) write(w *resp.Writer, flush func() error) error {
	if !v.InPieces {
		return writeBulk(w, v.Value, flush)
	}
	w.BulkHeader(int64(v.Length))
	err := v.each(func(part []byte) error {
		w.Buf = append(w.Buf, part...)
		return flushFull(w, flush)
	})
	w.BulkEnd()
	return err
}

// hashReply replies with values of the hash at k, under the lock; what is long follows when the lock is gone.
type hashReply struct {
	c  *Ctx
	k  *engine.Key
	in *fieldPieces // once there is a value in pieces
}

func (r *hashReply) value(v layout.HashValue) error {
	c := r.c
	switch {
	case c.Replaying && v.InPieces:
		c.W.Null() // nobody gets it
		return nil
	case c.Replaying || !v.InPieces && len(v.Value) <= StreamFrom:
		c.W.Bulk(v.Value)
		return nil
	case !v.InPieces:
		// So long a value is no part of what the transaction uses again, it stays as it is.
		c.Stream(func(w *resp.Writer, flush func() error) error {
			return writeBulk(w, v.Value, flush)
		}, func() error { return nil })
		return nil
	}
	if r.in == nil {
		in, err := openPieces(c.Txn, r.k, nil)
		if err != nil {
			return err
		}
		r.in = in
	}
	r.in.hold()
	long := hashValue{v, r.in}
	c.Stream(long.write, r.in.close)
	return nil
}

// close is called when all values are there.
func (r *hashReply) close() error { return r.in.close() }

// eachPart cuts a value into pieces.
func eachPart(value []byte, f func(piece uint32, part []byte) error) error {
	for n := uint32(0); len(value) > 0; n++ {
		part := value[:min(len(value), layout.PieceBytes)]
		value = value[len(part):]
		if err := f(n, part); err != nil {
			return err
		}
	}
	return nil
}

// putField puts the row of a field, and its value's pieces before it, if it is long.
func putField(put rowPut, element, value []byte, deadlineMs int64) error {
	if len(value) <= layout.LongFieldOver {
		return put.Put(element, layout.AppendHashValue(nil, nil, deadlineMs), value)
	}
	number := put.NewNumber()
	err := eachPart(value, func(piece uint32, part []byte) error { return put.PutPiece(number, piece, part) })
	if err != nil {
		return err
	}
	return put.Put(element, layout.AppendHashPieces(nil, number, uint64(len(value)), deadlineMs))
}

// fieldWriter puts a long value that comes in parts of any size, and the row of its field behind it.
type fieldWriter struct {
	put          rowPut
	element      []byte
	number       uint64
	length, left uint64
	piece        uint32
	buf          []byte // the next piece so far
}

// begin begins a value of length bytes, which are more than layout.LongFieldOver.
func (w *fieldWriter) begin(put rowPut, field []byte, length uint64) {
	w.put, w.number, w.length, w.left, w.piece = put, put.NewNumber(), length, length, 0
	w.element, w.buf = layout.AppendHashElement(w.element[:0], field), w.buf[:0]
}

func (w *fieldWriter) add(b []byte) error {
	if uint64(len(b)) > w.left {
		return fmt.Errorf("%d bytes of a value, %d are missing", len(b), w.left)
	}
	w.left -= uint64(len(b))
	for len(b) > 0 {
		n := min(len(b), layout.PieceBytes-len(w.buf))
		w.buf, b = append(w.buf, b[:n]...), b[n:]
		if len(w.buf) < layout.PieceBytes && w.left > 0 {
			break // the rest of it is still to come
		}
		if err := w.put.PutPiece(w.number, w.piece, w.buf); err != nil {
			return err
		}
		w.piece++
		w.buf = w.buf[:0]
	}
	if w.left > 0 {
		return nil
	}
	return w.put.Put(w.element, layout.AppendHashPieces(nil, w.number, w.length, 0))
}

// copyField puts the row of a field as it is, and what it names.
func copyField(put rowPut, element, row []byte, v *layout.HashValue, in *fieldPieces) error {
	if v.InPieces {
		err := in.each(v, func(piece uint32, part []byte) error { return put.PutPiece(v.Number, piece, part) })
		if err != nil {
			return err
		}
	}
	return put.Put(element, row)
}

// viewPieces is where the long values of a view are read, nil when there are none. The view closes it.
func viewPieces(v *engine.View) *fieldPieces {
	if v.Pieces == nil {
		return nil
	}
	return &fieldPieces{v.Pieces, 1}
}

// longBytes is how much of pairs, fields and values in turn, are long values.
func longBytes(pairs [][]byte) (n int) {
	for i := 1; i < len(pairs); i += 2 {
		if len(pairs[i]) > layout.LongFieldOver {
			n += len(pairs[i])
		}
	}
	return n
}

// stageLong stages the long values of pairs for the hash at name, whose rows are under generation gen.
func (c *Ctx) stageLong(name []byte, slot uint16, gen uint64, pairs [][]byte) error {
	for i := 1; i < len(pairs); i += 2 {
		if len(pairs[i]) <= layout.LongFieldOver {
			continue
		}
		g, err := c.Host.Store().StagePieces(slot, gen)
		if err != nil {
			return fmt.Errorf("stage a field of key %.64q: %w", name, err)
		}
		rec := layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: gen}
		s := staged{arg: pairs[i], rec: rec, rows: g, from: []origin{{name: name, rec: rec, sameGen: true}}}
		if err := c.addStaged(s, putPieces(g, pairs[i])); err != nil {
			return err
		}
	}
	return nil
}

// putPieces puts a value that is staged by itself.
func putPieces(g *engine.Staged, value []byte) error {
	return eachPart(value, func(piece uint32, part []byte) error { return g.PutPiece(g.Number(), piece, part) })
}

// longValue makes a long argument pieces under the generation of k, and gives their number. A row has to name it.
func (c *Ctx) longValue(k *engine.Key, value []byte) (number uint64, err error) {
	for i := range c.staged {
		s := &c.staged[i]
		if !s.used && s.isArg(value) && s.rec.Gen == k.Rec.Gen && c.Txn.Adopt(s.rows) == nil {
			s.used = true
			return s.rows.Number(), nil
		}
	}
	if len(value) >= engine.StageFrom {
		// The hash was another one before the lock, or keeps changing.
		switch g, err := c.Txn.StagePieces(k); {
		case err == nil:
			return c.stageUnderLock(g, value)
		case !errors.Is(err, engine.ErrDropped):
			return 0, fmt.Errorf("stage a field of key %.64q: %w", k.Name, err)
		}
	}
	number = c.Txn.NewNumber()
	return number, eachPart(value, func(piece uint32, part []byte) error {
		c.Txn.PutPiece(k, number, piece, part)
		return nil
	})
}

func (c *Ctx) stageUnderLock(g *engine.Staged, value []byte) (number uint64, err error) {
	if err = putPieces(g, value); err == nil {
		err = g.Finish()
	}
	if err == nil {
		err = c.Txn.Adopt(g)
	}
	if err != nil {
		return 0, errors.Join(err, g.Close())
	}
	c.staged = append(c.staged, staged{rows: g, used: true})
	return g.Number(), nil
}
