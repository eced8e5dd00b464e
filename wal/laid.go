package wal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// A long argument is laid ahead: whoever received it writes it, before taking any lock, as the blocks of files that are
// no segments yet. When the entry's turn comes these files become the next segments:
//
//	before   ... | the segment in use            laid-0000000001.spare   laid-0000000002.spare
//	append   ... | the segment in use, prefix |  segment  |  segment  |  a new segment: suffix, later entries
//
// All that the writer has to do then is a header and a rename for each file, so nobody's write waits for the length of
// somebody's value. The blocks say where they lie by their distance from the segment's start (record.Header.Laid), and
// their bytes are on stable storage already. What comes in front of such a part and behind it in the entry is copied, or
// borrowed, as always. The new segment is made without room, and so takes no more of the disk than what
// is written to it: many long entries one after the other would otherwise leave a nearly empty file each.

const (
	laidPrefix = "laid-"
	laidSuffix = ".spare"

	// laidStep is how much is written before it is synced: an fsync of the log has not more than this in front of it.
	laidStep = 8 << 20
)

// isLaidName says whether a file was laid ahead, and never used if it still has this name.
func isLaidName(name string) bool {
	return strings.HasPrefix(name, laidPrefix) && strings.HasSuffix(name, laidSuffix)
}

// Laid is a part of an entry to come that lies in files already.
type Laid struct {
	l     *Log
	part  []byte // guarded by Log.mu
	files []*laidFile
	taken bool // an entry has it: the files are the log's; guarded by Log.mu
}

// laidFile is one segment to be.
type laidFile struct {
	name  string
	f     vfs.File
	seed  record.Seed
	size  int64   // bytes, with the end mark
	bytes int64   // of the part
	index []place // starts count from the first byte
}

// Lay writes part to files, syncing as it goes. The next entry given to AppendParts of which part is a part, the very same
// memory, then takes them as they are; part must not change until then. full, which may be nil, is asked again and
// again while it writes, and may end that with an error. An error is none of the log's: nothing is left, and the
// entry can be appended all the same. Call it while holding no lock, and Close what it returns.
func (l *Log) Lay(part []byte, full func() error) (*Laid, error) {
	if len(part) == 0 {
		return nil, errors.New("lay ahead: there are no bytes")
	}
	if f := l.failed.Load(); f != nil {
		return nil, f
	}
	d := &Laid{l: l, part: part}
	w := &layer{l: l, full: full}
	for rest := part; len(rest) > 0; {
		f, err := w.file(rest)
		if f != nil {
			d.files = append(d.files, f)
		}
		if err != nil {
			d.remove()
			return nil, err
		}
		rest = rest[f.bytes:]
	}
	l.mu.Lock()
	l.laid = append(l.laid, d)
	l.mu.Unlock()
	return d, nil
}

// Close removes the files if no entry took them. It may be called twice.
func (d *Laid) Close() {
	d.l.mu.Lock()
	taken := d.taken
	d.taken, d.part = true, nil
	d.l.laid = slices.DeleteFunc(d.l.laid, func(o *Laid) bool { return o == d })
	d.l.mu.Unlock()
	if !taken {
		d.remove()
	}
}

func (d *Laid) remove() {
	d.closeFiles()
	for _, f := range d.files {
		_ = d.l.o.FS.Remove(d.l.o.FS.PathJoin(d.l.o.Dir, f.name)) // the next Open tries again
	}
}

func (d *Laid) closeFiles() {
	for _, f := range d.files {
		closeAll(f.f)
		f.f = nil
	}
}

// bytes is how long the part is.
func (d *Laid) bytes() (n int64) {
	for _, f := range d.files {
		n += f.bytes
	}
	return n
}

// takeLaid gives what was laid of exactly this memory, once; nil: nothing. Log.mu is held.
func (l *Log) takeLaid(part []byte) *Laid {
	i := slices.IndexFunc(l.laid, func(d *Laid) bool {
		return len(d.part) == len(part) && &d.part[0] == &part[0] // neither is empty
	})
	if i < 0 {
		return nil
	}
	d := l.laid[i]
	l.laid = slices.Delete(l.laid, i, i+1)
	d.taken, d.part = true, nil
	return d
}

// addParts appends an entry of n bytes that starts at start. Log.mu is held.
func (l *Log) addParts(parts [][]byte, n int, start int64) (borrows bool) {
	from, at, left := 0, start, n // what is not appended yet
	ahead := 0                    // bytes of parts[from:i]
	for i, p := range parts {
		// The last bytes of an entry are in a block that ends it, which one written ahead cannot say.
		if len(l.laid) == 0 || len(p) == 0 || left-ahead == len(p) {
			ahead += len(p)
			continue
		}
		d := l.takeLaid(p)
		if d == nil {
			ahead += len(p)
			continue
		}
		borrows = l.buf.addStretch(parts[from:i], ahead, at, true) || borrows
		at += int64(ahead)
		l.buf.addLaid(d, at)
		l.laidBytes += int64(len(p))
		l.ahead.Add(int64(len(p)))
		at += int64(len(p))
		left -= ahead + len(p)
		from, ahead = i+1, 0
	}
	if from == 0 && n <= l.buf.payloadMax {
		l.buf.room(n, start)
		for _, p := range parts {
			l.buf.put(p)
		}
		return false
	}
	return l.buf.addStretch(parts[from:], left, at, false) || borrows
}

// layer writes the files of one part.
type layer struct {
	l        *Log
	full     func() error
	buf      []byte
	unsynced int
}

// file lays the beginning of part, as much as a file takes. Also after an error it returns the file, if there is one.
func (w *layer) file(part []byte) (*laidFile, error) {
	l := w.l
	f := &laidFile{name: fmt.Sprintf("%s%010d%s", laidPrefix, l.laidSeq.Add(1), laidSuffix), seed: newSeed()}
	var err error
	if f.f, err = l.o.FS.OpenReadWrite(l.o.FS.PathJoin(l.o.Dir, f.name), category); err != nil {
		return nil, fmt.Errorf("lay ahead %s: %w", f.name, err)
	}
	w.buf = append(w.buf[:0], make([]byte, record.DataAt)...) // the header's place
	for len(part) > 0 {
		pos := f.size + int64(len(w.buf))
		// Behind the block there must be room for an end mark.
		n := min(int64(len(part)), int64(l.buf.payloadMax), l.o.SegmentBytes-pos-2*record.BlockLen)
		if n <= 0 {
			break
		}
		f.index = append(f.index, place{start: f.bytes, pos: pos})
		w.buf = record.Block{Start: f.bytes}.Append(w.buf, f.seed, part[:n])
		if l.o.Passed != nil {
			l.o.Passed(part[:n])
		}
		f.bytes += n
		part = part[n:]
		if len(w.buf) >= l.buf.chunkCap/2 {
			if err := w.flush(f, false); err != nil {
				return f, err
			}
		}
	}
	w.buf = append(w.buf, make([]byte, record.BlockLen)...)
	return f, w.flush(f, true)
}

// flush writes what is gathered, and syncs it when that is due.
func (w *layer) flush(f *laidFile, whole bool) error {
	n, err := f.f.Write(w.buf)
	if err != nil {
		return fmt.Errorf("lay ahead %s: byte %d: %d of %d bytes: %w", f.name, f.size, n, len(w.buf), err)
	}
	f.size += int64(n)
	w.unsynced += n
	w.buf = w.buf[:0]
	if !whole && w.unsynced < laidStep {
		return nil
	}
	w.unsynced = 0
	if err := f.f.SyncData(); err != nil {
		return fmt.Errorf("sync what is laid ahead %s: %w", f.name, err)
	}
	if err := w.l.Failed(); err != nil || w.full == nil {
		return err
	}
	return w.full()
}

// writeLaid makes the files the next segments. The caller holds the write baton.
func (l *Log) writeLaid(d *Laid, start int64) error {
	for i, f := range d.files {
		seg, err := l.joinLaid(f, start)
		if err != nil {
			d.closeFiles() // of those that joined the field is nil
			return err
		}
		d.files[i].f = nil
		start += f.bytes
		l.mu.Lock()
		old := l.segments[len(l.segments)-1]
		if old.grows {
			old.size = old.pos + record.BlockLen // so much was written; it is ended before it was full
		}
		l.unsynced = append(l.unsynced, old)
		l.segments = append(l.segments, seg)
		l.dirStale = true
		l.written.Store(start)
		l.ahead.Add(-f.bytes)
		if l.Policy() != Always {
			l.wakeReaders()
		}
		l.mu.Unlock()
	}
	if l.Policy() == No {
		poke(l.kick.sync) // as in roll
	}
	return nil
}

// joinLaid gives a file its header and its name. It is full, so that the writer goes on in another one.
func (l *Log) joinLaid(f *laidFile, start int64) (*segment, error) {
	old := l.current()
	l.mu.Lock()
	hdr := l.nextHeader(start, l.history, old.hdr.Sequence, old.hdr.Seed)
	l.mu.Unlock()
	hdr.Seed, hdr.Laid = f.seed, true
	seg := &segment{
		hdr: hdr, name: segmentName(hdr.Sequence), size: f.size, s: f.f, pos: f.size - record.BlockLen, indexed: true,
	}
	for _, p := range f.index {
		seg.note(place{start: start + p.start, pos: p.pos})
	}
	if _, err := f.f.WriteAt(hdr.Append(make([]byte, 0, record.DataAt)), 0); err != nil {
		return nil, fmt.Errorf("write log segment %s: byte 0: %w", seg.name, err)
	}
	fs := l.o.FS
	if err := fs.Rename(fs.PathJoin(l.o.Dir, f.name), fs.PathJoin(l.o.Dir, seg.name)); err != nil {
		return nil, fmt.Errorf("begin log segment %s: %w", seg.name, err)
	}
	return seg, nil
}
