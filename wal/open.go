package wal

import (
	"errors"
	"fmt"
	"math"
)

// OpenPoint is where the store stands.
type OpenPoint struct {
	History History // history at Applied
	Applied int64   // offset from which entries will be replayed
	Floor   int64   // highest offset of this history that another durable file proves synced, -1 if none
	Fresh   bool    // the store is new: start a log at Applied when there is none that fits
}

// OpenReport says what Open found.
type OpenReport struct {
	History    History // history at End
	First, End int64   // what can be read
	Proven     int64   // offset up to which the log was proven synced before it was opened

	TailLost bool   // bytes behind Proven did not read back and were cut
	Dropped  int64  // bytes known to be cut; bytes nothing of which is left are not counted
	File     string // segment in which the cut lies; "" without a cut
	Pos      int64  // byte of that file from which nothing reads back
	Reason   string // why not
}

// Open opens the log in o.Dir, or makes it, and proves what it holds from the store's point on. It
// returns *StartError when the log does not hold that point and *DamageError when bytes that were
// synced do not read back; a lost tail beyond those is cut and reported.
func Open(o Options, from OpenPoint) (*Log, *OpenReport, error) {
	o.applyDefaults()
	if err := o.validate(); err != nil {
		return nil, nil, err
	}
	if from.Applied < 0 {
		return nil, nil, fmt.Errorf("open log: applied offset %d is below 0", from.Applied)
	}
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make log directory %s: %w", o.Dir, err)
	}
	if err := syncDir(o.FS, o.FS.PathDir(o.Dir)); err != nil {
		return nil, nil, err
	}
	dir, err := readDirectory(o.FS, o.Dir)
	if err != nil {
		return nil, nil, err
	}
	ch := dir.chain(from)
	if ch == nil && !from.Fresh {
		return nil, nil, dir.noChain(from)
	}
	l := newLog(o)
	l.nextSeq = dir.last + 1
	if ch == nil {
		return l.openFresh(dir, from)
	}
	rep, err := ch.recover(o.FS, dir, from)
	if err != nil {
		var start *StartError
		if from.Fresh && errors.As(err, &start) {
			return l.openFresh(dir, from)
		}
		return nil, nil, err
	}
	return l.openChain(dir, ch, rep, from)
}

func newLog(o Options) *Log {
	l := &Log{o: o, buf: newBuffer(o.chunkBytes()), writingTo: -1, syncingTo: -1, quit: make(chan struct{})}
	l.buf.passed = o.Passed
	l.policy.Store(int32(o.Policy))
	l.keep.Store(o.KeepBytes)
	l.pinLimit.Store(o.PinLimit)
	l.kick.prepare = make(chan struct{}, 1)
	l.kick.sync = make(chan struct{}, 1)
	return l
}

// openFresh starts a chain at the store's point. What lies in the directory belongs to other chains.
func (l *Log) openFresh(dir *directory, from OpenPoint) (*Log, *OpenReport, error) {
	for _, s := range dir.segments {
		l.foreign = append(l.foreign, s.name)
	}
	for _, d := range dir.damaged {
		l.foreign = append(l.foreign, d.name)
	}
	l.setEnd(from.Applied)
	l.applied, l.history = from.Applied, from.History
	hdr := l.nextHeader(from.Applied, from.History, 0, 0)
	seg, err := l.begin(hdr, true, true)
	if err != nil {
		return nil, nil, err
	}
	l.segments = []*segment{seg}
	l.started(dir)
	return l, &OpenReport{History: from.History, First: from.Applied, End: from.Applied, Proven: from.Applied}, nil
}

// openChain goes on behind what recover proved. It always does so in a new segment, with a new seed:
// blocks that survived behind the end in the old one must never be taken for what comes now.
func (l *Log) openChain(dir *directory, ch *chain, rep *OpenReport, from OpenPoint) (*Log, *OpenReport, error) {
	// What a killed process left to the kernel is synced before it is built upon.
	for _, s := range ch.kept {
		if err := syncSegment(l.o, s.name); err != nil {
			return nil, nil, err
		}
	}
	l.setEnd(rep.End)
	l.applied, l.history = from.Applied, rep.History
	before := ch.kept[len(ch.kept)-1]
	kept := append(append([]*segment(nil), ch.older...), ch.kept...)
	prev, prevSeed := before.hdr.Sequence, before.hdr.Seed
	if before.hdr.Start == rep.End {
		// Nothing of it is kept: take its place, so that restarts without writes add no files.
		prev, prevSeed = before.hdr.Prev, before.hdr.PrevSeed
		kept = kept[:len(kept)-1]
	}
	seg, err := l.begin(l.nextHeader(rep.End, rep.History, prev, prevSeed), true, true)
	if err != nil {
		return nil, nil, err
	}
	l.segments = append(kept, seg)

	// The new segment is durable and counts more than what it replaces, which may go now.
	inChain := make(map[string]bool, len(l.segments))
	for _, s := range l.segments {
		inChain[s.name] = true
	}
	for _, s := range dir.segments {
		if inChain[s.name] {
			continue
		}
		if ch.replaced[s.name] || s == before {
			if err := l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, s.name)); err != nil {
				seg.closeFiles()
				return nil, nil, fmt.Errorf("remove log segment %s: %w", s.name, err)
			}
			continue
		}
		l.foreign = append(l.foreign, s.name)
	}
	for _, d := range dir.damaged {
		// Older than what is needed: only replicas that are far behind miss it. recover refuses others.
		l.o.Logf("log segment header damaged", "segment", d.name, "reason", d.reason, "first", l.segments[0].hdr.Start)
		l.foreign = append(l.foreign, d.name)
	}
	l.started(dir)
	rep.First = l.segments[0].hdr.Start
	return l, rep, nil
}

// setEnd makes the log end at offset, all of it synced. Nobody else uses the log yet, or Log.mu is held.
func (l *Log) setEnd(offset int64) {
	l.end.Store(offset)
	l.written.Store(offset)
	l.synced.Store(offset)
	l.declared = offset
	l.lastAt.Store(l.o.Now())
}

// started removes files that were prepared and never used, and starts the background work.
func (l *Log) started(dir *directory) {
	for _, name := range dir.unused {
		_ = l.o.FS.Remove(l.o.FS.PathJoin(l.o.Dir, name)) // the next start tries again
	}
	l.background()
}

func syncSegment(o Options, name string) error {
	f, err := o.FS.OpenReadWrite(o.FS.PathJoin(o.Dir, name), category)
	if err != nil {
		return fmt.Errorf("open log segment %s: %w", name, err)
	}
	defer closeAll(f)
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync log segment %s: %w", name, err)
	}
	return nil
}

// noLimit is the end of a segment that nothing follows.
const noLimit = math.MaxInt64

// limitOf is the offset at which the i-th segment ends by what follows it.
func limitOf(segs []*segment, i int) int64 {
	if i+1 < len(segs) {
		return segs[i+1].hdr.Start
	}
	return noLimit
}

// damage builds the error for a place below what is proven.
func damage(name string, pos, offset, proven int64, reason string) *DamageError {
	if reason == "" {
		reason = "nothing written here"
	}
	return &DamageError{File: name, Pos: pos, Offset: offset, Proven: proven, Reason: reason}
}
