package command

import (
	"errors"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/replication/rdb"
)

// RESTORE. The payload is checked in full before anything is changed. Small values come into being in memory
// during that check. Where rows begin, the rest of the payload is checked first, by a walk of its own, because a
// handler that fails must leave nothing behind in the transaction; then the elements go to rows one by one.

const (
	errBusyKey    Reply = "BUSYKEY Target key name already exists."
	errRestoreTTL Reply = "ERR Invalid TTL value, must be >= 0"
	errIdleTime   Reply = "ERR Invalid IDLETIME value, must be >= 0"
	errFreq       Reply = "ERR Invalid FREQ value, must be >= 0 and <= 255"

	errDumpFooter Reply = "ERR " + rdb.TextDumpFooter
	errBadFormat  Reply = "ERR " + rdb.TextBadFormat
)

// restoreOptions are RESTORE's words behind the payload. Redis takes IDLETIME or FREQ, not both.
type restoreOptions struct {
	replace, absTTL bool
	idle, freq      int64 // -1: not given
}

func (o *restoreOptions) parse(c *Ctx) (err error) {
	o.idle, o.freq = -1, -1
	for i := 4; i < len(c.Args); i++ {
		more := i+1 < len(c.Args)
		switch {
		case c.Is(i, "replace"):
			o.replace = true
		case c.Is(i, "absttl"):
			o.absTTL = true
		case c.Is(i, "idletime") && more && o.freq == -1:
			i++
			if o.idle, err = c.Int(i); err == nil && o.idle < 0 {
				err = errIdleTime
			}
		case c.Is(i, "freq") && more && o.idle == -1:
			i++
			if o.freq, err = c.Int(i); err == nil && (o.freq < 0 || o.freq > 255) {
				err = errFreq
			}
		default:
			err = ErrSyntax
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restore is RESTORE and RESTORE-ASKING.
func restore(c *Ctx) error {
	var o restoreOptions
	if err := o.parse(c); err != nil {
		return err
	}
	k, err := c.Key(c.Args[1])
	if err != nil {
		return err
	}
	if k.Exists() && !o.replace {
		return errBusyKey
	}
	at, err := c.Int(2)
	if err != nil {
		return err
	}
	if at < 0 {
		return errRestoreTTL
	}
	body, _, err := rdb.VerifyDump(c.Args[3])
	if err != nil {
		return errDumpFooter
	}
	if at != 0 && !o.absTTL {
		at += c.NowMs // may wrap, to a time that has passed, as in Redis
	}
	if at != 0 && hasPassed(c, at) {
		return restoreExpired(c, k, body)
	}
	sink := restoreSink{c: c, k: k, payload: body}
	if err := rdb.DecodeValue(body, &sink); err != nil {
		return restoreError(err)
	}
	sink.store()
	if at != 0 {
		setDeadline(k, at)
		if !o.absTTL {
			args := append([][]byte{c.Args[1], formatInt(at)}, c.Args[3:]...)
			c.Propagate(string(c.Args[0]), append(args, []byte("ABSTTL"))...)
		}
	}
	if o.idle >= 0 || o.freq >= 0 {
		c.Host.SetAccessInfo(c, c.Args[1], o.idle, o.freq)
	}
	c.Event('n', "new", c.Args[1])
	c.Event('g', "restore", c.Args[1])
	c.W.OK()
	return nil
}

// restoreExpired is RESTORE of a value whose time has passed: the payload has to be sound all the same, and
// what REPLACE would have replaced goes.
func restoreExpired(c *Ctx, k *engine.Key, body []byte) error {
	if err := rdb.DecodeValue(body, rdb.Discard{}); err != nil {
		return restoreError(err)
	}
	if k.Exists() {
		c.Txn.Delete(k)
		c.Propagate("DEL", c.Args[1])
		c.Event('g', "del", c.Args[1])
	}
	c.W.OK()
	return nil
}

func restoreError(err error) error {
	if errors.Is(err, rdb.ErrBadFormat) {
		return errBadFormat
	}
	return err
}

// restoreSink makes a record and element rows of a decoded value, or the bytes of a small string. The key stays
// as it is until store.
type restoreSink struct {
	c       *Ctx
	k       *engine.Key
	payload []byte // type byte and value
	checked bool   // payload is known to be sound to its end

	rec    layout.Record  // of a hash
	buf    []byte         // the packed hash, the small string, or the long string's next chunk
	rows   *engine.Key    // holds the record of what goes to rows, under a generation of its own
	chunks *stringBuilder // of a long string

	entriesMax, valueMax int64 // what a listpack may have: fields, and bytes of one
}

func (s *restoreSink) Begin(kind rdb.Kind, size uint64) error {
	switch kind {
	case rdb.KindString:
		return s.beginString(int64(size))
	case rdb.KindHash:
		set := s.c.Host.Settings()
		s.entriesMax, s.valueMax = set.HashMaxEntries.Load(), set.HashMaxValue.Load()
		s.rec = layout.Record{Type: layout.HashType, Enc: layout.HashListpack}
		s.buf = layout.NewPackedHash(nil)
		return nil
	}
	return errUnsupported("values of type " + kind.String())
}

func errUnsupported(what string) Reply {
	return Reply(fmt.Sprintf("ERR %s are not supported by this server", what))
}

// startRows makes a key for rows that nobody else knows of. From here on the payload must not fail any more.
func (s *restoreSink) startRows() error {
	if !s.checked {
		if err := rdb.DecodeValue(s.payload, rdb.Discard{}); err != nil {
			return err
		}
		s.checked = true
	}
	s.rows = &engine.Key{Name: s.k.Name, Slot: s.k.Slot, Hash: s.k.Hash}
	return nil
}

func (s *restoreSink) beginString(length int64) error {
	if length <= layout.ChunkedOver {
		return nil
	}
	if err := s.startRows(); err != nil {
		return err
	}
	s.chunks = buildString(s.c.Txn, s.rows, length, EncRaw, 0)
	s.buf = make([]byte, 0, layout.ChunkBytes)
	return nil
}

// StringChunk cuts the string into chunks of ChunkBytes, however it comes.
func (s *restoreSink) StringChunk(b []byte) error {
	for s.chunks != nil && len(s.buf)+len(b) >= layout.ChunkBytes {
		n := layout.ChunkBytes - len(s.buf)
		s.chunks.add(append(s.buf, b[:n]...))
		s.buf, b = s.buf[:0], b[n:]
	}
	s.buf = append(s.buf, b...)
	return nil
}

// HashField adds a field; the decoder has seen to it that all are different.
func (s *restoreSink) HashField(field, value []byte, deadlineMs int64) error {
	if deadlineMs != 0 {
		return errUnsupported("hash fields with a deadline")
	}
	s.rec.Count++
	s.rec.Bytes += uint64(len(field) + len(value))
	if max(int64(len(field)), int64(len(value))) > s.valueMax || int64(s.rec.Count) > s.entriesMax {
		s.rec.Enc = layout.HashHashtable
	}
	if s.rows == nil {
		if s.rec.Enc == layout.HashListpack && layout.PackedHashGrowth(field, value) <= layout.PackedHashMax {
			return s.pack(field, value)
		}
		if err := s.unpack(); err != nil {
			return err
		}
	}
	s.putField(field, value)
	return nil
}

// pack adds a field to the packed hash, which becomes rows when it is too long then.
func (s *restoreSink) pack(field, value []byte) error {
	var err error
	if s.buf, _, err = layout.SetPackedHash(s.buf, field, value); err == nil && len(s.buf) > layout.PackedHashMax {
		err = s.unpack()
	}
	return err
}

// unpack moves what was packed so far into rows.
func (s *restoreSink) unpack() error {
	if err := s.startRows(); err != nil {
		return err
	}
	s.rows.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows, Gen: s.c.Txn.NewGeneration()}
	p, err := layout.OpenPackedHash(s.buf)
	for err == nil {
		var f layout.HashField
		var ok bool
		if f, ok, err = p.Next(); !ok {
			break
		}
		s.putField(f.Name, f.Value)
	}
	s.buf = nil
	return err
}

func (s *restoreSink) putField(field, value []byte) {
	s.c.Txn.PutElement(s.rows, layout.AppendHashElement(nil, field), layout.AppendHashValue(nil, value, 0))
}

// ListItem, SetMember and ZSetMember are not called: Begin refused.
func (s *restoreSink) ListItem([]byte) error            { return nil }
func (s *restoreSink) SetMember([]byte) error           { return nil }
func (s *restoreSink) ZSetMember([]byte, float64) error { return nil }

// End hears that the value was whole; store puts it in its place.
func (s *restoreSink) End() error {
	if s.chunks != nil && len(s.buf) > 0 {
		s.chunks.add(s.buf)
	}
	return nil
}

// store makes the decoded value the one of the key, without a deadline.
func (s *restoreSink) store() {
	switch {
	case s.chunks != nil:
		s.k.Rec = s.rows.Rec
	case s.rec.Type == 0:
		setString(s.c.Txn, s.k, s.buf, stringEncoding(s.buf), 0)
		return
	case s.rows != nil:
		s.rec.Form, s.rec.Gen = layout.Rows, s.rows.Rec.Gen
		s.k.Rec = s.rec
	default:
		s.rec.Count, s.rec.Bytes, s.rec.Body = 0, 0, s.buf
		s.k.Rec = s.rec
	}
	s.c.Txn.Put(s.k)
}
