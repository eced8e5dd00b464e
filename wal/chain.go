package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// directory is what lies in the log's directory.
type directory struct {
	path     string
	segments []*segment // readable headers, by sequence
	damaged  []damagedFile
	unused   []string // prepared, never used, or used and never synced
	touched  uint64   // highest sequence number of those with bytes behind the missing header
	last     uint64   // highest sequence number of any file

	bySeq    map[uint64]*segment
	next     map[uint64]*segment // the youngest that continues it
	youngest map[origin]uint64   // of all that name this segment before them
}

// origin is what a segment says of the one before it.
type origin struct {
	seq  uint64
	seed record.Seed
}

// damagedFile is a segment file neither of whose headers reads.
type damagedFile struct {
	name   string
	seq    uint64
	reason string
}

func readDirectory(fs vfs.FS, dir string) (*directory, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list log directory %s: %w", dir, err)
	}
	d := &directory{path: dir}
	for _, name := range names {
		if name == spareName || isLaidName(name) {
			d.unused = append(d.unused, name)
			continue
		}
		seq, ok := parseSegmentName(name)
		if !ok {
			continue // not ours
		}
		d.last = max(d.last, seq)
		hdr, use, err := readHeader(fs, fs.PathJoin(dir, name), seq)
		var bad *record.Error
		switch {
		case errors.As(err, &bad):
			d.damaged = append(d.damaged, damagedFile{name: name, seq: seq, reason: err.Error()})
		case err != nil:
			return nil, fmt.Errorf("read log segment %s: %w", name, err)
		case use != inUse:
			d.unused = append(d.unused, name)
			if use == headerLost {
				d.touched = max(d.touched, seq)
			}
		default:
			size, err := fileSize(fs, fs.PathJoin(dir, name))
			if err != nil {
				return nil, fmt.Errorf("read log segment %s: %w", name, err)
			}
			d.segments = append(d.segments, &segment{hdr: hdr, name: name, size: size, durable: true})
		}
	}
	slices.SortFunc(d.segments, func(a, b *segment) int { return cmp.Compare(a.hdr.Sequence, b.hdr.Sequence) })
	d.link()
	return d, nil
}

// link finds out which segment continues which.
func (d *directory) link() {
	d.bySeq = make(map[uint64]*segment, len(d.segments))
	d.next = make(map[uint64]*segment, len(d.segments))
	d.youngest = make(map[origin]uint64, len(d.segments))
	for _, s := range d.segments { // in the order of age, so that the youngest stays
		d.bySeq[s.hdr.Sequence] = s
		d.youngest[origin{s.hdr.Prev, s.hdr.PrevSeed}] = s.hdr.Sequence
		if d.before(s) != nil {
			d.next[s.hdr.Prev] = s
		}
	}
}

func fileSize(fs vfs.FS, path string) (int64, error) {
	info, err := fs.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// use is what became of a segment file.
type use int

const (
	inUse      use = iota
	neverUsed      // zero so far, or still with the header of a former life
	headerLost     // zero header, but something behind it: a crash before the first sync
)

// readHeader reads whichever copy of the header is good. A header is synced with or before everything
// behind it, so a file without one holds nothing that was promised. What is neither a header nor
// zero is damage: the error wraps *record.Error.
func readHeader(fs vfs.FS, path string, seq uint64) (hdr record.Header, u use, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return hdr, neverUsed, err
	}
	defer closeAll(f)
	b := make([]byte, record.DataAt+record.BlockLen)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return hdr, neverUsed, err
	}
	b = b[:n]
	var worst error
	former := false
	for _, at := range []int{0, record.CopyAt} {
		err := hdr.Decode(b[min(at, n):])
		switch {
		case err == nil && hdr.Sequence == seq:
			return hdr, inUse, nil
		case err == nil:
			former = true
		case !errors.Is(err, record.ErrEmpty):
			worst = err
		}
	}
	nonZero := func(c byte) bool { return c != 0 }
	switch {
	case former || !slices.ContainsFunc(b, nonZero):
		return hdr, neverUsed, nil
	case n > record.DataAt && !slices.ContainsFunc(b[:record.DataAt], nonZero):
		return hdr, headerLost, nil
	case worst == nil:
		worst = &record.Error{Field: "segment header", Got: 0, Want: seq, Rule: "want"}
	}
	return hdr, neverUsed, worst
}

// chain is the segments from the store's point on, and those before it.
type chain struct {
	older    []*segment // before the one with the store's point: for replicas only, not read now
	kept     []*segment // from the store's point to the end
	dropped  []*segment // behind a lost tail
	replaced map[string]bool
}

// chain finds the chain that holds the store's point. Of several it takes the one whose header has the
// store's history counter, then the newest.
func (d *directory) chain(from OpenPoint) *chain {
	var best *segment
	for _, s := range d.segments {
		if s.hdr.History.ID != from.History.ID || s.hdr.Start > from.Applied {
			continue
		}
		if next := d.after(s); next != nil && next.hdr.Start < from.Applied {
			continue // it ends before
		}
		if best == nil || s.hdr.History.Counter == from.History.Counter ||
			best.hdr.History.Counter != from.History.Counter {
			best = s
		}
	}
	if best == nil {
		return nil
	}
	ch := &chain{kept: []*segment{best}, replaced: map[string]bool{}}
	for s := d.after(best); s != nil; s = d.after(s) {
		ch.kept = append(ch.kept, s)
	}
	for s := d.before(best); s != nil; s = d.before(s) {
		ch.older = append(ch.older, s)
	}
	slices.Reverse(ch.older)
	for _, s := range d.segments {
		// A younger segment has taken this one's place: it goes, lest it come back.
		if d.rival(s) {
			ch.replaced[s.name] = true
		}
	}
	return ch
}

// links says whether b was begun as the continuation of a.
func links(a, b *segment) bool {
	return b.hdr.Prev == a.hdr.Sequence && b.hdr.PrevSeed == a.hdr.Seed &&
		b.hdr.Start >= a.hdr.Start && b.hdr.History.Follows(&a.hdr.History, b.hdr.Start)
}

// after is the youngest segment that continues s, or nil.
func (d *directory) after(s *segment) *segment { return d.next[s.hdr.Sequence] }

// before is the segment that s continues, or nil when it is gone or s starts a chain.
func (d *directory) before(s *segment) *segment {
	if p := d.bySeq[s.hdr.Prev]; p != nil && links(p, s) {
		return p
	}
	return nil
}

// rival says whether a younger segment continues the same one as s.
func (d *directory) rival(s *segment) bool {
	return s.hdr.Prev != 0 && d.youngest[origin{s.hdr.Prev, s.hdr.PrevSeed}] > s.hdr.Sequence
}

// noChain explains why no chain holds the store's point.
func (d *directory) noChain(from OpenPoint) error {
	if len(d.damaged) > 0 {
		f := d.damaged[len(d.damaged)-1]
		return damage(f.name, 0, from.Applied, from.Applied, f.reason)
	}
	e := &StartError{
		Dir: d.path, Applied: from.Applied, First: -1, End: -1,
		Reason: "no segment of the store's history", missing: len(d.segments) == 0,
	}
	for _, s := range d.segments {
		if s.hdr.History.ID != from.History.ID {
			continue
		}
		if e.First < 0 || s.hdr.Start < e.First {
			e.First = s.hdr.Start
		}
		if next := d.after(s); next != nil {
			e.End = max(e.End, next.hdr.Start)
		}
		e.Reason = "the offset lies outside"
	}
	return e
}

// orphans are segments younger than the chain's end that were begun behind a segment which is gone.
func (d *directory) orphans(last *segment) []*segment {
	var out []*segment
	foreign := map[uint64]bool{} // continues a chain of its own that is younger: a full sync not taken over
	for _, s := range d.segments {
		switch {
		case s.hdr.Sequence <= last.hdr.Sequence:
		case s.hdr.Prev == 0 || foreign[s.hdr.Prev]:
			foreign[s.hdr.Sequence] = true
		case s.hdr.Prev >= last.hdr.Sequence:
			out = append(out, s)
		}
	}
	return out
}
