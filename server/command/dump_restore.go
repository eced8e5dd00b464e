package command

import (
	"errors"
	"fmt"
	"slices"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/replication/rdb"
)

// RESTORE. The payload is checked in full before anything is changed. Small values come into being in memory
// during that check. Where rows begin, the rest of the payload is checked first, by a walk of its own, because a
// handler that fails must leave nothing behind in the transaction; then the elements go to rows one by one.

const (
	errSenderGone Reply = "ERR the connection that brought the key has ended"
	errBusyKey    Reply = "BUSYKEY Target key name already exists."

	// ErrBusyOriginal is BUSYKEY for a copy of a key that has been here all the time: whoever brings it back need not keep it.
	ErrBusyOriginal Reply = "BUSYKEY Target key name already exists, and is the original."
	errRestoreTTL   Reply = "ERR Invalid TTL value, must be >= 0"
	errIdleTime     Reply = "ERR Invalid IDLETIME value, must be >= 0"
	errFreq         Reply = "ERR Invalid FREQ value, must be >= 0 and <= 255"

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
	var from Sender
	if c.Cmd.Is(Asking) {
		from = c.Host.Sender(c, k.Slot)
	}
	again := !from.Older && arrivesAgain(c, k)
	switch {
	case from.Gone:
		return errSenderGone
	case k.Exists() && !o.replace && !again && from.Original:
		return ErrBusyOriginal
	case k.Exists() && !o.replace && !again:
		return errBusyKey
	}
	again = again && !o.replace
	at, err := c.Int(2)
	if err != nil {
		return err
	}
	if at < 0 {
		return errRestoreTTL
	}
	var body []byte
	ready := c.hasStaged(c.Args[3])
	if !ready {
		if body, _, err = rdb.VerifyLongDump(c.Args[3], c.Passed); err != nil {
			return errDumpFooter
		}
	}
	if at != 0 && !o.absTTL {
		at += c.NowMs // may wrap, to a time that has passed, as in Redis
	}
	if at != 0 && hasPassed(c, at) {
		return restoreExpired(c, k, body, ready)
	}
	if err := restoreValue(c, k, body); err != nil {
		return restoreError(err)
	}
	if at != 0 {
		setDeadline(k, at)
	}
	k.Rec.Arrived = c.Cmd.Is(Asking)
	propagateRestore(c, at, at != 0 && !o.absTTL, again)
	if o.idle >= 0 || o.freq >= 0 {
		c.Host.SetAccessInfo(c, c.Args[1], o.idle, o.freq)
	}
	c.Event('n', "new", c.Args[1])
	c.Event('g', "restore", c.Args[1])
	c.W.OK()
	return nil
}

// A key that RESTORE-ASKING brings is marked as arrived, in every slot and by whoever executes it, so that replicas and
// recovery do the same; every other write takes the mark away. arrivesAgain says whether k is such a key and comes once
// more: whoever moves it has not heard that it came, has kept it, and may have changed it since. It asks as the first time,
// without REPLACE, and would otherwise have to give up, although nobody here has anything to lose.
//
// That holds while the slot arrives, and on when its arriving was ended by hand: a tool that repairs a move may make the
// target the owner first, and then bring the rest. It does not hold once the slot has arrived: a key somewhere else is a
// leftover then, of an earlier move perhaps.
func arrivesAgain(c *Ctx, k *engine.Key) bool {
	if !c.Cmd.Is(Asking) || !k.Rec.Arrived {
		return false
	}
	r := c.Txn.Routing()
	state := r.Slots[k.Slot]
	return r.Cluster && (state&(engine.SlotImporting|engine.SlotOwned) == engine.SlotImporting || state&engine.SlotUnfinished != 0)
}

// propagateRestore logs a RESTORE whose own words would not do the same later: a deadline is a time then, and what was
// replaced here is replaced.
func propagateRestore(c *Ctx, at int64, absolute, replace bool) {
	if !absolute && !replace {
		return
	}
	args := slices.Clone(c.Args[1:])
	if absolute {
		args[1] = formatInt(at)
		args = append(args, []byte("ABSTTL"))
	}
	if replace {
		args = append(args, []byte("REPLACE"))
	}
	c.Propagate(string(c.Args[0]), args...)
}

// restoreValue makes the payload's value that of k, without a deadline.
func restoreValue(c *Ctx, k *engine.Key, body []byte) (err error) {
	if c.adopt(k, c.Args[3]) {
		c.Txn.Put(k)
		return nil
	}
	if body == nil { // it was staged, and the transaction has emptied the slot since
		if body, _, err = rdb.VerifyLongDump(c.Args[3], c.Passed); err != nil {
			return err
		}
	}
	if c.Passed == nil { // else the bytes are gone once they are read
		// What moves between nodes is of this kind, most often: see AppendPlainDump.
		if s, ok := rdb.PlainString(body); ok && len(s) <= layout.ChunkedOver {
			setString(c.Txn, k, s, stringEncoding(s), 0)
			return nil
		}
	}
	sink := restoreSink{c: c, k: k, payload: body}
	if err := rdb.DecodeLongValue(body, &sink, c.Passed); err != nil {
		return err
	}
	sink.store()
	return nil
}

// What a payload brings may be packed, so the payload of a value worth staging can be much smaller than that. A
// string tells its length first; the rows of other values are staged from a payload of stageRowsFrom bytes on.
const (
	stageLookFrom = 8 << 10
	stageLookArgs = 64 // so many may be worth a look though they are short
	stageRowsFrom = 32 << 10
)

var errNotStaged = errors.New("value is too small to be staged")

// stageRestore stages the value of a large payload that is sound.
func stageRestore(c *Ctx) error {
	if len(c.Args) < 4 || len(c.Args[3]) < stageLookFrom {
		return nil
	}
	// What is too small is not worth a look at all of it, which the handler takes anyway.
	length, isString := rdb.StringLen(c.Args[3])
	if isString && length < engine.StageFrom || !isString && len(c.Args[3]) < stageRowsFrom {
		return nil
	}
	body, _, err := rdb.VerifyLongDump(c.Args[3], c.Passed)
	if err != nil {
		return nil //nolint:nilerr // the handler answers it
	}
	name := c.Args[1]
	sink := restoreSink{c: c, k: &engine.Key{Name: name, Slot: slot.Of(name), Hash: layout.Hash(name)}, payload: body, stage: true}
	err = rdb.DecodeLongValue(body, &sink, c.Passed)
	if sink.out == nil {
		return nil // small in the store, or of no use
	}
	if err != nil {
		err = errors.Join(err, sink.out.Close())
		if _, answer := Recover(err); answer || errors.Is(err, rdb.ErrBadFormat) {
			return nil
		}
		return fmt.Errorf("stage the value of key %.64q: %w", name, err)
	}
	return c.addStaged(staged{arg: c.Args[3], rows: sink.out, rec: sink.record()}, nil)
}

// restoreExpired is RESTORE of a value whose time has passed: the payload has to be sound all the same, and
// what REPLACE would have replaced goes.
func restoreExpired(c *Ctx, k *engine.Key, body []byte, sound bool) error {
	if !sound {
		if err := rdb.DecodeLongValue(body, rdb.Discard{}, c.Passed); err != nil {
			return restoreError(err)
		}
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
	stage  bool           // rows are to be staged rather than put into the transaction
	out    *engine.Staged // where they go then
	next   int64          // number of the next chunk that goes there
	field  fieldWriter    // of a long value
	rows   *engine.Key    // holds the record of what goes to rows, under a generation of its own
	chunks *stringBuilder // of a long string

	entriesMax, valueMax int64 // what a listpack may have: fields, and bytes of one
}

func (s *restoreSink) Begin(kind rdb.Kind, size uint64) error {
	if s.stage && kind != rdb.KindString && len(s.payload) < stageRowsFrom {
		return errNotStaged
	}
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
func (s *restoreSink) startRows(chunks bool) (err error) {
	if !s.checked {
		if err := rdb.DecodeLongValue(s.payload, rdb.Discard{}, s.c.Passed); err != nil {
			return err
		}
		s.checked = true
	}
	s.rows = &engine.Key{Name: s.k.Name, Slot: s.k.Slot, Hash: s.k.Hash}
	if s.stage {
		s.out, err = s.c.Host.Store().Stage(s.k.Slot, chunks)
	}
	return err
}

func (s *restoreSink) beginString(length int64) error {
	if s.stage && length < engine.StageFrom {
		return errNotStaged
	}
	if length <= layout.ChunkedOver {
		return nil
	}
	if err := s.startRows(true); err != nil {
		return err
	}
	if s.stage {
		s.rows.Rec = layout.Record{Type: layout.String, Form: layout.Rows, Enc: EncRaw, Gen: s.out.Gen(), Count: uint64(length)}
	} else {
		s.chunks = buildString(s.c.Txn, s.rows, length, EncRaw, 0)
	}
	s.buf = make([]byte, 0, layout.ChunkBytes)
	return nil
}

// StringChunk cuts the string into chunks of ChunkBytes, however it comes.
func (s *restoreSink) StringChunk(b []byte) error {
	for s.rows != nil && len(s.buf)+len(b) >= layout.ChunkBytes {
		n := layout.ChunkBytes - len(s.buf)
		if err := s.addChunk(append(s.buf, b[:n]...)); err != nil {
			return err
		}
		s.buf, b = s.buf[:0], b[n:]
	}
	s.buf = append(s.buf, b...)
	return nil
}

func (s *restoreSink) addChunk(part []byte) error {
	if !s.stage {
		s.chunks.add(part)
		return nil
	}
	element := chunkElement(s.next)
	s.next++
	stored := trimZeroes(part)
	s.rows.Rec.Bytes += uint64(len(stored))
	if len(stored) == 0 {
		return nil
	}
	return s.out.Put(element[:], stored)
}

// HashField adds a field; the decoder has seen to it that all are different.
func (s *restoreSink) HashField(field, value []byte, deadlineMs int64) error {
	if err := s.countField(field, uint64(len(value)), deadlineMs); err != nil {
		return err
	}
	if s.rows == nil {
		if s.rec.Enc == layout.HashListpack && layout.PackedHashGrowth(field, value) <= layout.PackedHashMax {
			return s.pack(field, value)
		}
		if err := s.unpack(); err != nil {
			return err
		}
	}
	return s.putField(field, value)
}

func (s *restoreSink) countField(field []byte, valueLen uint64, deadlineMs int64) error {
	if deadlineMs != 0 {
		return errUnsupported("hash fields with a deadline")
	}
	s.rec.Count++
	s.rec.Bytes += uint64(len(field)) + valueLen
	if max(int64(len(field)), int64(valueLen)) > s.valueMax || int64(s.rec.Count) > s.entriesMax {
		s.rec.Enc = layout.HashHashtable
	}
	return nil
}

// LongField is rdb.LongFields'.
func (s *restoreSink) LongField(field []byte, length uint64, deadlineMs int64) error {
	if err := s.countField(field, length, deadlineMs); err != nil {
		return err
	}
	if s.rows == nil {
		if err := s.unpack(); err != nil {
			return err
		}
	}
	s.field.begin(s.rowPut(), field, length)
	return nil
}

// FieldChunk is rdb.LongFields'.
func (s *restoreSink) FieldChunk(b []byte) error { return s.field.add(b) }

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
	if err := s.startRows(false); err != nil {
		return err
	}
	s.rows.Rec = layout.Record{Type: layout.HashType, Form: layout.Rows}
	if s.stage {
		s.rows.Rec.Gen = s.out.Gen()
	} else {
		s.rows.Rec.Gen = s.c.Txn.NewGeneration()
	}
	p, err := layout.OpenPackedHash(s.buf)
	for err == nil {
		var f layout.HashField
		var ok bool
		if f, ok, err = p.Next(); !ok {
			break
		}
		err = s.putField(f.Name, f.Value)
	}
	s.buf = nil
	return err
}

func (s *restoreSink) putField(field, value []byte) error {
	return putField(s.rowPut(), layout.AppendHashElement(nil, field), value, 0)
}

// rowPut is where the rows go.
func (s *restoreSink) rowPut() rowPut {
	if s.stage {
		return s.out
	}
	return &txnRows{s.c.Txn, s.rows}
}

// ListItem, SetMember and ZSetMember are not called: Begin refused.
func (s *restoreSink) ListItem([]byte) error            { return nil }
func (s *restoreSink) SetMember([]byte) error           { return nil }
func (s *restoreSink) ZSetMember([]byte, float64) error { return nil }

// End hears that the value was whole; store puts it in its place.
func (s *restoreSink) End() error {
	if s.rows != nil && s.rows.Rec.Type == layout.String && len(s.buf) > 0 {
		return s.addChunk(s.buf)
	}
	return nil
}

// record is that of a value with rows.
func (s *restoreSink) record() layout.Record {
	if s.rows.Rec.Type == layout.String {
		return s.rows.Rec
	}
	s.rec.Form, s.rec.Gen = layout.Rows, s.rows.Rec.Gen
	return s.rec
}

// store makes the decoded value the one of the key, without a deadline.
func (s *restoreSink) store() {
	switch {
	case s.rows != nil:
		s.k.Rec = s.record()
	case s.rec.Type == 0:
		setString(s.c.Txn, s.k, s.buf, stringEncoding(s.buf), 0)
		return
	default:
		s.rec.Count, s.rec.Bytes, s.rec.Body = 0, 0, s.buf
		s.k.Rec = s.rec
	}
	s.c.Txn.Put(s.k)
}
