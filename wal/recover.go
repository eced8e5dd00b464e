package wal

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// recover reads the chain from the segment with the store's point on and decides what it holds. It
// writes nothing. When it cuts, ch.kept ends with the segment in which the cut lies and the
// others are in ch.dropped and ch.replaced.
func (ch *chain) recover(fs vfs.FS, dir *directory, from OpenPoint) (*OpenReport, error) {
	last := ch.kept[len(ch.kept)-1]
	for _, d := range dir.damaged {
		if d.seq > last.hdr.Sequence {
			return nil, damage(d.name, 0, last.hdr.Start, from.Applied, d.reason)
		}
	}
	proven := max(from.Floor, from.Applied)
	for _, s := range ch.kept {
		proven = max(proven, s.hdr.Synced)
	}
	r := recovery{ch: ch, fs: fs, dir: dir, proven: proven, boundary: ch.kept[0].hdr.Start}
	for i := range ch.kept {
		done, err := r.segment(i)
		if err != nil {
			return nil, err
		}
		if done {
			break
		}
	}
	return r.decide(from)
}

// recovery is the state of one run of recover.
type recovery struct {
	ch  *chain
	fs  vfs.FS
	dir *directory

	proven   int64
	boundary int64 // last end of an entry
	reached  int64 // highest offset of which anything is left
	scan     scan  // of the segment the log ends in
	at       int   // index of that segment in ch.kept
	lost     bool  // something was there that does not read back
}

// segment reads the i-th segment. done says that the log ends in it.
func (r *recovery) segment(i int) (done bool, err error) {
	s := r.ch.kept[i]
	limit := limitOf(r.ch.kept, i)
	w, closeFile, err := r.open(s)
	if err != nil {
		return false, err
	}
	defer closeFile()
	if r.scan, err = scanSegment(w, &s.hdr, limit, r.boundary); err != nil {
		return false, fmt.Errorf("read log segment %s: %w", s.name, err)
	}
	s.index, s.indexed = r.scan.index, true
	r.at, r.boundary = i, r.scan.boundary
	r.reached = max(r.reached, r.scan.end)
	r.proven = max(r.proven, r.scan.proven)
	if r.scan.end == limit {
		return false, nil
	}
	if i+1 < len(r.ch.kept) {
		r.lost = true
		r.reached = max(r.reached, limit)
	}
	r.lost = r.lost || r.scan.reason != "" || r.dir.touched > s.hdr.Sequence
	last := r.ch.kept[len(r.ch.kept)-1]
	if r.scan.closed && !r.lost && len(r.dir.orphans(last)) == 0 {
		return true, nil
	}
	return true, r.behind(i, w)
}

// behind looks for anything behind the end: in the rest of the segment, in those that follow it, and in
// those whose predecessor is gone.
func (r *recovery) behind(i int, w *window) error {
	s := r.ch.kept[i]
	f, err := search(w, &s.hdr, r.scan.pos, r.scan.end)
	if err != nil {
		return fmt.Errorf("read log segment %s: %w", s.name, err)
	}
	r.take(f)
	rest := append([]*segment(nil), r.ch.kept[i+1:]...)
	rest = append(rest, r.dir.orphans(r.ch.kept[len(r.ch.kept)-1])...)
	for _, s := range rest {
		w, closeFile, err := r.open(s)
		if err != nil {
			return err
		}
		f, err := search(w, &s.hdr, 0, s.hdr.Start)
		closeFile()
		if err != nil {
			return fmt.Errorf("read log segment %s: %w", s.name, err)
		}
		r.lost = true
		r.ch.replaced[s.name] = true
		r.take(f)
	}
	r.ch.dropped = rest
	return nil
}

func (r *recovery) take(f found) {
	r.lost = r.lost || f.blocks > 0
	r.proven, r.reached = max(r.proven, f.proven), max(r.reached, f.end)
}

func (r *recovery) open(s *segment) (*window, func(), error) {
	f, err := r.fs.Open(r.fs.PathJoin(r.dir.path, s.name))
	if err != nil {
		return nil, nil, fmt.Errorf("open log segment %s: %w", s.name, err)
	}
	return newWindow(f, s.size), func() { closeAll(f) }, nil
}

// decide says what the log holds, or refuses.
func (r *recovery) decide(from OpenPoint) (*OpenReport, error) {
	s := r.ch.kept[r.at]
	end := r.boundary
	first := r.ch.kept[0].hdr.Start
	if len(r.ch.older) > 0 {
		first = r.ch.older[0].hdr.Start
	}
	// The proof may end inside a long entry, of which then the rest is what was lost.
	if r.scan.end < r.proven {
		if !r.lost && from.Applied > r.scan.end && from.Floor <= r.scan.end {
			return nil, &StartError{Dir: r.dir.path, Applied: from.Applied, First: first, End: r.scan.end, Reason: "the store is ahead of the log"}
		}
		return nil, damage(s.name, r.scan.pos, r.scan.end, r.proven, r.scan.reason)
	}
	rep := &OpenReport{First: first, End: end, Proven: r.proven}
	if r.lost || end < r.reached {
		rep.TailLost, rep.Dropped = true, r.reached-end
		rep.File, rep.Pos, rep.Reason = s.name, r.scan.pos, r.scan.reason
		if rep.Reason == "" {
			rep.Reason = "nothing written here, but behind it"
		}
	}
	// An entry may lie across segments: the cut can be in an earlier one than the bad place.
	for r.at > 0 && r.ch.kept[r.at].hdr.Start > end {
		r.ch.replaced[r.ch.kept[r.at].name] = true
		r.at--
	}
	r.ch.kept = r.ch.kept[:r.at+1]
	rep.History = r.ch.kept[r.at].hdr.History
	return rep, nil
}
