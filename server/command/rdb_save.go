package command

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/replication/rdb"
)

// All data as an RDB stream: a full sync, `redis-cli --rdb`. Keys come slot by slot, values of any size piece by piece.
// Strings and hashes take the forms that every version loads; a server makes compact ones of them by its own settings.

// RDBInfo is what the stream tells beside the data.
type RDBInfo struct {
	RedisVersion string // what a reader may go by
	CreatedSec   int64  // Unix seconds
	UsedMemory   int64  // bytes
	ReplID       string // 40 hex digits, the replication id at the snapshot's offset; "": no replication fields
	// Version of the format. 0 is rdb.DefaultVersion; a hash whose fields have deadlines needs 12.
	Version uint16
	// WithoutKeys leaves the keys out, for who wants something else of the stream.
	WithoutKeys bool
}

// WriteRDB writes what the snapshot shows, with its end and checksum. A value that the version has no form for is an
// error that names the key; nothing is left out.
func WriteRDB(sn *engine.Snapshot, to io.Writer, info RDBInfo) error {
	w := rdb.NewWriter(to, info.Version)
	if err := writeRDBHead(w, sn, info); err != nil {
		return err
	}
	if keys := sn.Keys(); keys > 0 && !info.WithoutKeys {
		if err := w.SelectDB(0); err != nil {
			return err
		}
		if err := w.ResizeDB(uint64(keys), 0); err != nil { // a hint: deadlines are not counted
			return err
		}
		if err := writeRDBKeys(w, sn); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeRDBHead(w *rdb.Writer, sn *engine.Snapshot, info RDBInfo) error {
	aux := [][2]string{
		{"redis-ver", info.RedisVersion},
		{"redis-bits", "64"},
		{"ctime", strconv.FormatInt(info.CreatedSec, 10)},
		{"used-mem", strconv.FormatInt(info.UsedMemory, 10)},
	}
	if info.ReplID != "" {
		aux = append(aux, [2]string{"repl-stream-db", "0"}, [2]string{"repl-id", info.ReplID},
			[2]string{"repl-offset", strconv.FormatInt(sn.Offset(), 10)})
	}
	for _, a := range append(aux, [2]string{"aof-base", "0"}) {
		if err := w.Aux(a[0], a[1]); err != nil {
			return err
		}
	}
	return nil
}

func writeRDBKeys(w *rdb.Writer, sn *engine.Snapshot) (err error) {
	walk, err := sn.Walk(0, 16383)
	if err != nil {
		return err
	}
	defer func() {
		if closed := walk.Close(); err == nil {
			err = closed
		}
	}()
	s := rdbSaver{w: w}
	for walk.Next() {
		if err := w.Key(rdb.Key{Name: walk.Key(), DeadlineMs: walk.Record().Deadline}); err != nil {
			return err
		}
		if err := s.value(walk); err != nil {
			return fmt.Errorf("write key %.64q: %w", walk.Key(), err)
		}
	}
	return nil
}

// rdbSaver writes values.
type rdbSaver struct {
	w   *rdb.Writer
	buf []byte
	// Compressing costs as much as all else. Where values do not yield, few are tried.
	unyielding int
}

func (s *rdbSaver) value(walk *engine.SnapshotWalk) error {
	w, r := s.w, walk.Record()
	switch {
	case r.Type == layout.String && r.Form == layout.Rows:
		return writeRDBChunks(w, walk)
	case r.Type == layout.String:
		v, err := walk.Value()
		if err != nil {
			return err
		}
		return s.str(v)
	case r.Type == layout.HashType && r.Form == layout.Inline:
		return writePackedHash(w, r.Body)
	case r.Type == layout.HashType:
		return writeHashRows(w, walk)
	}
	return fmt.Errorf("type %s: %w", typeName(r.Type), ErrNotDumpable)
}

const (
	// compressFrom is from where on a string may be compressed, bytes.
	compressFrom = 21
	// compressAll: after so many strings in a row that did not yield, one of compressSome is tried.
	compressAll, compressSome = 16, 16
)

// str writes a string that is not in chunks, hence not long.
func (s *rdbSaver) str(v []byte) error {
	if len(v) < compressFrom {
		return s.w.Value(rdb.AppendStringValue(s.buf[:0], v))
	}
	if s.unyielding >= compressAll && s.unyielding%compressSome != 0 {
		s.unyielding++
		if err := s.w.BeginString(uint64(len(v))); err != nil {
			return err
		}
		_, err := s.w.Write(v)
		return err
	}
	s.buf = rdb.AppendStringValue(s.buf[:0], v)
	if s.unyielding++; len(s.buf) <= len(v) {
		s.unyielding = 0
	}
	return s.w.Value(s.buf)
}

// writeRDBChunks writes a long string: what has no row, and what a row leaves out at its end, is zero.
func writeRDBChunks(w *rdb.Writer, walk *engine.SnapshotWalk) error {
	length := int64(walk.Record().Count)
	if err := w.BeginString(uint64(length)); err != nil {
		return err
	}
	var zeroes [layout.ChunkBytes]byte
	at := int64(0)
	pad := func(to int64) error {
		for at < to {
			n, err := w.Write(zeroes[:min(to-at, layout.ChunkBytes)])
			if err != nil {
				return err
			}
			at += int64(n)
		}
		return nil
	}
	err := walk.Elements(func(element, val []byte) error {
		if len(element) != 4 || len(val) > layout.ChunkBytes {
			return fmt.Errorf("chunk of %d bytes with a number of %d bytes", len(val), len(element))
		}
		if err := pad(int64(binary.BigEndian.Uint32(element)) * layout.ChunkBytes); err != nil {
			return err
		}
		n, err := w.Write(val)
		at += int64(n)
		return err
	})
	if err != nil {
		return err
	}
	return pad(length)
}

func writePackedHash(w *rdb.Writer, body []byte) error {
	fields, withDeadlines, err := packedFields(body)
	if err != nil {
		return err
	}
	begin := w.BeginHash
	if withDeadlines {
		begin = w.BeginHashDeadlines
	}
	if err := begin(uint64(fields.Left())); err != nil {
		return err
	}
	for {
		f, ok, err := fields.Next()
		if err != nil || !ok {
			return err
		}
		if withDeadlines {
			err = w.PairUntil(f.Name, f.Value, f.Deadline)
		} else {
			err = w.Pair(f.Name, f.Value)
		}
		if err != nil {
			return err
		}
	}
}

// packedFields opens a packed hash and says whether a field has a deadline.
func packedFields(body []byte) (p layout.PackedHash, withDeadlines bool, err error) {
	if p, err = layout.OpenPackedHash(body); err != nil {
		return p, false, err
	}
	for q := p; ; {
		f, ok, err := q.Next()
		if err != nil || !ok {
			return p, withDeadlines, err
		}
		withDeadlines = withDeadlines || f.Deadline != 0
	}
}

func writeHashRows(w *rdb.Writer, walk *engine.SnapshotWalk) error {
	withDeadlines := len(walk.Record().Body) > 0 // the summary of a hash that has some
	begin := w.BeginHash
	if withDeadlines {
		begin = w.BeginHashDeadlines
	}
	if err := begin(walk.Record().Count); err != nil {
		return err
	}
	return walk.Elements(func(element, val []byte) error {
		_, field, err := layout.HashElementParts(element)
		if err != nil {
			return err
		}
		value, err := layout.DecodeHashValue(val)
		switch {
		case err != nil:
			return err
		case value.Deadline != 0 && !withDeadlines:
			return errFieldDeadline
		case value.InPieces:
			return writeLongPair(w, walk, field, &value, withDeadlines)
		case withDeadlines:
			return w.PairUntil(field, value.Value, value.Deadline)
		}
		return w.Pair(field, value.Value)
	})
}

// writeLongPair writes a field whose value is in pieces.
func writeLongPair(w *rdb.Writer, walk *engine.SnapshotWalk, field []byte, v *layout.HashValue, withDeadlines bool) error {
	var err error
	if withDeadlines {
		err = w.BeginPairUntil(field, v.Length, v.Deadline)
	} else {
		err = w.BeginPair(field, v.Length)
	}
	if err != nil {
		return err
	}
	order := orderOf(v)
	err = walk.Pieces(v.Number, func(piece uint32, part []byte) error {
		if err := order.take(piece, part); err != nil {
			return err
		}
		return w.Part(part)
	})
	if err != nil {
		return err
	}
	return order.end()
}
