package command

import (
	"bufio"
	"errors"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/replication/rdb"
)

// An RDB stream as a data set: every value becomes the rows that commands would have made of it. Keys whose time has
// passed are kept, since a primary tells when they go; the caller is a replica. Idle times and frequencies are left
// out: they are hints about memory, and the data is on disk.

// RDBOptions say how a stream is loaded.
type RDBOptions struct {
	Settings *Settings
	// Progress, if given, hears now and then how many keys and bytes of rows there are so far.
	Progress func(keys, bytes int64)
}

// RDBLoaded is what a stream has told beside the data.
type RDBLoaded struct {
	Keys       int64
	ReplID     string // "" when it has none
	ReplOffset string
	SlotStates string // slots on their way, as Valkey lists them
}

// UnloadableError says which key, or which part of a stream, this program has no place for.
type UnloadableError struct{ What string }

func (e *UnloadableError) Error() string { return "data set cannot be loaded: " + e.What }

// LoadRDB reads one stream from br, and nothing behind it, into a data set that nobody sees yet. The caller commits it,
// or aborts it after an error: *UnloadableError, those of rdb.Read, and those of engine.Replacement.
func LoadRDB(br *bufio.Reader, into *engine.Replacement, o RDBOptions) (RDBLoaded, error) {
	l := &rdbLoader{into: into, progress: o.Progress}
	l.sink = loadSink{into: into, entriesMax: o.Settings.HashMaxEntries.Load(), valueMax: o.Settings.HashMaxValue.Load()}
	err := rdb.Read(br, l, rdb.ReadOptions{})
	l.told.Keys = into.Keys()
	var unknown *rdb.UnsupportedTypeError
	if errors.As(err, &unknown) { // its text has the key and the type
		err = &UnloadableError{err.Error()}
	}
	return l.told, err
}

// rdbLoader takes the records of a stream.
type rdbLoader struct {
	into     *engine.Replacement
	sink     loadSink
	db       uint64
	dbKeys   uint64 // as the stream claims
	progress func(keys, bytes int64)
	told     RDBLoaded
	n        int64
}

// Aux takes up what says whose data it is.
func (l *rdbLoader) Aux(name, value []byte) error {
	switch string(name) {
	case "repl-id":
		l.told.ReplID = string(value)
	case "repl-offset":
		l.told.ReplOffset = string(value)
	case "cluster-slot-states":
		l.told.SlotStates = string(value)
	}
	return nil
}

// Function refuses libraries of functions: there is no place for them yet.
func (l *rdbLoader) Function(source []byte) error {
	head := source[:min(len(source), 64)]
	return &UnloadableError{fmt.Sprintf("it holds the function library %q, and functions are not supported by this server", head)}
}

// SelectDB notes the database; one without keys does no harm.
func (l *rdbLoader) SelectDB(db uint64) error {
	l.db, l.dbKeys = db, 0
	return nil
}

// ResizeDB is for the text of an error.
func (l *rdbLoader) ResizeDB(keys, _ uint64) error {
	l.dbKeys = keys
	return nil
}

// progressEvery is after how many keys Progress hears of it.
const progressEvery = 1024

// Key makes place for a value.
func (l *rdbLoader) Key(k rdb.Key) (rdb.Sink, error) {
	if l.db != 0 {
		count := "keys"
		if l.dbKeys > 0 {
			count = fmt.Sprintf("%d keys", l.dbKeys)
		}
		return nil, &UnloadableError{fmt.Sprintf("database %d has %s, and this server has database 0 only", l.db, count)}
	}
	if l.n++; l.n%progressEvery == 0 && l.progress != nil {
		l.progress(l.into.Keys(), l.into.Bytes())
	}
	l.sink.begin(k)
	return &l.sink, nil
}

// loadSink makes rows of one value after the other.
type loadSink struct {
	into                 *engine.Replacement
	entriesMax, valueMax int64 // what a listpack may have: fields, and bytes of one

	name  []byte
	slot  uint16
	rec   layout.Record
	buf   []byte // the string or the packed hash so far, or the next chunk
	chunk int64  // its number
	row   []byte
	head  []byte      // what stands in front of a field's value in its row
	field fieldWriter // of a long value
}

// keptBuf is how large a buffer may be that is kept for the next value.
const keptBuf = 256 << 10

func (s *loadSink) begin(k rdb.Key) {
	s.name = append(s.name[:0], k.Name...)
	s.slot = slot.Of(s.name)
	s.rec = layout.Record{Deadline: k.DeadlineMs}
	if cap(s.buf) > keptBuf {
		s.buf = nil
	}
	s.buf, s.chunk = s.buf[:0], 0
}

// Begin is rdb.Sink's.
func (s *loadSink) Begin(kind rdb.Kind, size uint64) error {
	switch kind {
	case rdb.KindString:
		s.rec.Type, s.rec.Count = layout.String, size
		switch {
		case size <= layout.InlineMax:
			s.rec.Count = 0
		case size <= layout.ChunkedOver:
			s.rec.Form, s.rec.Enc = layout.ValueRow, EncRaw
		default:
			s.rec.Form, s.rec.Enc, s.rec.Gen = layout.Rows, EncRaw, s.into.NewGeneration()
		}
		return nil
	case rdb.KindHash:
		s.rec.Type, s.rec.Enc = layout.HashType, layout.HashListpack
		s.buf = layout.NewPackedHash(s.buf)
		return nil
	}
	return s.unloadable("is a " + kind.String() + ", a type that is")
}

func (s *loadSink) unloadable(what string) error {
	return &UnloadableError{fmt.Sprintf("key %.64q %s not supported by this server", s.name, what)}
}

// StringChunk is rdb.Sink's.
func (s *loadSink) StringChunk(b []byte) error {
	for s.rec.Form == layout.Rows && len(s.buf)+len(b) >= layout.ChunkBytes {
		n := layout.ChunkBytes - len(s.buf)
		s.buf = append(s.buf, b[:n]...)
		if err := s.putChunk(s.buf); err != nil {
			return err
		}
		s.buf, b = s.buf[:0], b[n:]
	}
	s.buf = append(s.buf, b...)
	return nil
}

func (s *loadSink) putChunk(part []byte) error {
	element := chunkElement(s.chunk)
	s.chunk++
	stored := trimZeroes(part)
	s.rec.Bytes += uint64(len(stored))
	if len(stored) == 0 {
		return nil
	}
	return s.into.PutElement(s.slot, s.rec.Gen, true, element[:], stored)
}

// HashField is rdb.Sink's. In rows, a field that comes twice is found when they are sorted.
func (s *loadSink) HashField(field, value []byte, deadlineMs int64) error {
	if err := s.countField(field, uint64(len(value)), deadlineMs); err != nil {
		return err
	}
	if s.rec.Form == layout.Rows {
		return s.putField(field, value)
	}
	if s.rec.Enc == layout.HashListpack && layout.PackedHashGrowth(field, value) <= layout.PackedHashMax {
		body, created, err := layout.SetPackedHash(s.buf, field, value)
		if err != nil {
			return err
		}
		if !created {
			return s.twice(field)
		}
		if s.buf = body; len(body) > layout.PackedHashMax {
			return s.unpack()
		}
		return nil
	}
	if err := s.unpack(); err != nil {
		return err
	}
	return s.putField(field, value)
}

func (s *loadSink) countField(field []byte, valueLen uint64, deadlineMs int64) error {
	if deadlineMs != 0 {
		return s.unloadable("has fields with deadlines, which are")
	}
	s.rec.Count++
	s.rec.Bytes += uint64(len(field)) + valueLen
	if max(int64(len(field)), int64(valueLen)) > s.valueMax || int64(s.rec.Count) > s.entriesMax {
		s.rec.Enc = layout.HashHashtable
	}
	return nil
}

// LongField is rdb.LongFields'.
func (s *loadSink) LongField(field []byte, length uint64, deadlineMs int64) error {
	if err := s.countField(field, length, deadlineMs); err != nil {
		return err
	}
	if s.rec.Form != layout.Rows {
		if err := s.unpack(); err != nil {
			return err
		}
	}
	s.field.begin((*loadRows)(s), field, length)
	return nil
}

// FieldChunk is rdb.LongFields'.
func (s *loadSink) FieldChunk(b []byte) error { return s.field.add(b) }

// loadRows puts rows of the hash that a loadSink makes.
type loadRows loadSink

// Put, PutPiece and NewNumber are rowPut's.
func (s *loadRows) Put(element []byte, value ...[]byte) error {
	return s.into.PutElement(s.slot, s.rec.Gen, false, element, value...)
}

// PutPiece is explained at Put.
func (s *loadRows) PutPiece(number uint64, piece uint32, part []byte) error {
	return s.into.PutPiece(s.slot, s.rec.Gen, number, piece, part)
}

// NewNumber is explained at Put.
func (s *loadRows) NewNumber() uint64 { return s.into.NewNumber() }

func (s *loadSink) twice(field []byte) error {
	return fmt.Errorf("key %.64q: field %.64q is there twice: %w", s.name, field, rdb.ErrBadFormat)
}

// unpack gives what was packed so far rows.
func (s *loadSink) unpack() error {
	s.rec.Form, s.rec.Gen = layout.Rows, s.into.NewGeneration()
	p, err := layout.OpenPackedHash(s.buf)
	for err == nil {
		var f layout.HashField
		var ok bool
		if f, ok, err = p.Next(); !ok {
			break
		}
		err = s.putField(f.Name, f.Value)
	}
	s.buf = s.buf[:0]
	return err
}

func (s *loadSink) putField(field, value []byte) error {
	s.row = layout.AppendHashElement(s.row[:0], field)
	if len(value) > layout.LongFieldOver {
		return putField((*loadRows)(s), s.row, value, 0)
	}
	s.head = layout.AppendHashValue(s.head[:0], nil, 0)
	return s.into.PutElement(s.slot, s.rec.Gen, false, s.row, s.head, value)
}

// ListItem, SetMember and ZSetMember are not called: Begin refused.
func (s *loadSink) ListItem([]byte) error            { return nil }
func (s *loadSink) SetMember([]byte) error           { return nil }
func (s *loadSink) ZSetMember([]byte, float64) error { return nil }

// End is rdb.Sink's: the value was whole, so its key may name it.
func (s *loadSink) End() error {
	switch {
	case s.rec.Form == layout.ValueRow:
		if err := s.into.PutValue(s.slot, s.name, s.buf); err != nil {
			return err
		}
	case s.rec.Type == layout.String && s.rec.Form == layout.Rows:
		if len(s.buf) > 0 {
			if err := s.putChunk(s.buf); err != nil {
				return err
			}
		}
	case s.rec.Type == layout.String:
		s.rec.Body, s.rec.Enc = s.buf, stringEncoding(s.buf)
	case s.rec.Form == layout.Inline:
		s.rec.Body, s.rec.Count, s.rec.Bytes = s.buf, 0, 0
	}
	return s.into.PutRecord(s.slot, s.name, &s.rec)
}
