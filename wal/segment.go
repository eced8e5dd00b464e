package wal

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

const (
	segmentSuffix = ".seg"
	spareName     = "next.spare"

	// indexEvery is the distance in stream bytes between places the index remembers.
	indexEvery = 64 << 10

	// category tells the file system's own statistics whose writes these are.
	category = vfs.DiskWriteCategory("cairn-log")
)

// segment is one file of the chain.
type segment struct {
	hdr  record.Header
	name string // without directory
	size int64  // bytes of the file; the writer goes on in the next one before it exceeds this

	grows bool // the file has no more bytes than were written; used by the holder of the write baton

	// The writer and the syncer work at the same time, and a vfs.File takes one of them only, so
	// each has its own handle. An fsync covers the file, whichever handle wrote.
	w, s vfs.File
	pos  int64 // where the next block goes; used by the holder of the write baton

	durable bool    // header and name are on stable storage; guarded by Log.mu
	index   []place // some of the places, in order; guarded by Log.mu
	indexed bool    // index covers the whole segment; else a reader builds it first
}

// spare is the file of the next segment, prepared.
type spare struct {
	w, s vfs.File
	size int64
}

func (p *spare) closeFiles() { closeAll(p.w, p.s) }

func (s *segment) closeFiles() {
	closeAll(s.w, s.s)
	s.w, s.s = nil, nil
}

// closeAll closes handles whose contents are synced or given up: a close error has nothing to say.
func closeAll(files ...vfs.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// note adds a place to the index when it is far enough from the last one. Log.mu is held.
func (s *segment) note(p place) {
	if n := len(s.index); n == 0 || p.start-s.index[n-1].start >= indexEvery {
		s.index = append(s.index, p)
	}
}

// at is the place of the index from which to look for an offset. Log.mu is held.
func (s *segment) at(offset int64) place {
	i, found := slices.BinarySearchFunc(s.index, offset, func(p place, o int64) int {
		switch {
		case p.start < o:
			return -1
		case p.start > o:
			return 1
		}
		return 0
	})
	if found {
		return s.index[i]
	}
	if i == 0 {
		return place{start: s.hdr.Start, pos: record.DataAt}
	}
	return s.index[i-1]
}

func segmentName(seq uint64) string { return fmt.Sprintf("%010d%s", seq, segmentSuffix) }

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (seq uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, err == nil && seq > 0 && segmentName(seq) == name
}

// newSeed draws the seed of a segment's checksums.
func newSeed() record.Seed {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return record.Seed(binary.LittleEndian.Uint64(b[:]))
}

// nextHeader takes the next sequence number. Log.mu is held.
func (l *Log) nextHeader(start int64, h History, prev uint64, prevSeed record.Seed) record.Header {
	seq := l.nextSeq
	l.nextSeq++
	return record.Header{
		Sequence: seq, Start: start, Seed: newSeed(), Prev: prev, PrevSeed: prevSeed,
		Synced: min(l.synced.Load(), start), History: h,
	}
}

// begin makes the file of a new segment, of the prepared one if it may. With durable, file, name and header are on stable
// storage when it returns; without, the next sync of the log sees to that. The caller holds the write baton.
func (l *Log) begin(hdr record.Header, durable, prepared bool) (*segment, error) {
	l.mu.Lock()
	sp := l.spare // stays there until it is renamed: else prepare would take the name
	if !prepared {
		sp = nil
	}
	size := min(l.o.SegmentBytes, firstSegmentBytes(l.rolls))
	l.rolls++
	l.mu.Unlock()

	fs := l.o.FS
	seg := &segment{hdr: hdr, name: segmentName(hdr.Sequence), size: size, pos: record.DataAt, indexed: true}
	path := fs.PathJoin(l.o.Dir, seg.name)
	if sp != nil {
		if err := fs.Rename(fs.PathJoin(l.o.Dir, spareName), path); err != nil {
			return nil, fmt.Errorf("begin log segment %s: %w", seg.name, err)
		}
		l.mu.Lock()
		l.spare = nil
		l.mu.Unlock()
		seg.w, seg.s, seg.size = sp.w, sp.s, sp.size
	} else {
		var err error
		if seg.w, seg.s, err = openPair(fs, path); err != nil {
			return nil, fmt.Errorf("begin log segment %s: %w", seg.name, err)
		}
		seg.grows = true
		if durable && size <= firstSegmentBytes(0) {
			seg.grows = false
			if err := writeZeros(seg.w, size); err != nil {
				seg.closeFiles()
				return nil, fmt.Errorf("begin log segment %s: %w", seg.name, err)
			}
		}
	}
	// The header and an end mark, so that a recycled file does not start with an old block.
	if _, err := seg.w.WriteAt(hdr.Append(make([]byte, 0, record.DataAt+record.BlockLen))[:record.DataAt+record.BlockLen], 0); err != nil {
		seg.closeFiles()
		return nil, fmt.Errorf("write log segment %s: byte 0: %w", seg.name, err)
	}
	if !durable {
		return seg, nil
	}
	if err := seg.s.Sync(); err != nil {
		seg.closeFiles()
		return nil, fmt.Errorf("sync log segment %s: %w", seg.name, err)
	}
	if err := l.syncDir(); err != nil {
		seg.closeFiles()
		return nil, err
	}
	seg.durable = true
	return seg, nil
}

// prepare makes the file of the next segment: zeroed, so that writing to it changes no metadata and an
// fsync has only data to write. A failure costs speed only, the segment is then made when needed; but
// for one to sync the directory, which holds the names of segments in use.
func (l *Log) prepare() {
	l.mu.Lock()
	if l.spare != nil || l.preparing || l.closed {
		l.mu.Unlock()
		return
	}
	l.preparing = true
	size := min(l.o.SegmentBytes, firstSegmentBytes(l.rolls))
	l.mu.Unlock()

	sp, err := l.makeSpare(size)
	if err != nil {
		l.o.Logf("log segment not prepared", "dir", l.o.Dir, "bytes", size, "reason", err)
	}
	l.mu.Lock()
	l.preparing = false
	l.spare = sp
	l.mu.Unlock()
}

func (l *Log) makeSpare(size int64) (*spare, error) {
	fs := l.o.FS
	path := fs.PathJoin(l.o.Dir, spareName)
	_ = fs.Remove(path) // usually absent
	w, s, err := openPair(fs, path)
	if err != nil {
		return nil, err
	}
	if err = writeZeros(w, size); err == nil {
		err = s.Sync()
	}
	if err == nil {
		if err = l.syncDir(); err != nil {
			err = l.fail(err)
		}
	}
	if err != nil {
		closeAll(w, s)
		_ = fs.Remove(path)
		return nil, err
	}
	return &spare{w: w, s: s, size: size}, nil
}

func writeZeros(f vfs.File, size int64) error {
	zeros := make([]byte, min(size, 1<<20))
	for size > 0 {
		n := min(size, int64(len(zeros)))
		if _, err := f.Write(zeros[:n]); err != nil {
			return err
		}
		clear(zeros) // a vfs.File may scribble on what it was given
		size -= n
	}
	return nil
}

// openPair opens a file twice, for the writer and for the syncer.
func openPair(fs vfs.FS, path string) (w, s vfs.File, err error) {
	if w, err = fs.OpenReadWrite(path, category); err != nil {
		return nil, nil, err
	}
	if s, err = fs.OpenReadWrite(path, category); err != nil {
		closeAll(w)
		return nil, nil, err
	}
	return w, s, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open log directory %s: %w", dir, err)
	}
	defer closeAll(d)
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync log directory %s: %w", dir, err)
	}
	return nil
}
