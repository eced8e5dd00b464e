package wal

import (
	"fmt"

	"cairn/wal/record"
)

// waitWritten returns when the kernel has all bytes before end.
func (l *Log) waitWritten(end int64) error {
	for {
		if f := l.failed.Load(); f != nil {
			return f
		}
		if l.written.Load() >= end {
			return nil
		}
		l.mu.Lock()
		switch {
		case l.written.Load() >= end:
			l.mu.Unlock()
			continue
		case end > l.end.Load():
			l.mu.Unlock()
			return ErrAhead
		case !l.writing.take():
			ch := l.writing.queue(end <= l.writingTo)
			l.mu.Unlock()
			if _, handed := <-ch; !handed {
				continue
			}
			l.mu.Lock()
			l.writing.received()
		}
		l.mu.Unlock()
		err := l.writeOut()
		l.mu.Lock()
		l.writing.done()
		l.writingTo = -1
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// writeOut writes a round of what is buffered. The caller holds the write baton, and looks whether there is more.
func (l *Log) writeOut() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	l.mu.Lock()
	chunks, end := l.buf.take(l.round)
	l.round = chunks
	l.writingTo = end
	synced := l.synced.Load()
	l.mu.Unlock()
	for i, c := range chunks {
		chunks[i] = nil // written chunks of a huge entry need not wait for its end
		var err error
		switch {
		case c.long != nil:
			err = l.writeLong(c.long, synced)
		case c.laid != nil:
			err = l.writeLaid(c.laid, c.start)
		default:
			err = l.writeChunk(c, synced)
		}
		if err != nil {
			closeLaid(chunks)
			return l.fail(err)
		}
	}
	return nil
}

// closeLaid closes the files that the chunks of a log which has failed stand for.
func closeLaid(chunks []*chunk) {
	for _, c := range chunks {
		if c != nil && c.laid != nil {
			c.laid.closeFiles()
		}
	}
}

// writeLong lays a borrowed entry out in chunks and writes them. It ends early when the log fails meanwhile: the lender
// gets its memory back all the sooner.
func (l *Log) writeLong(e *borrowed, synced int64) error {
	for e.left > 0 {
		if f := l.failed.Load(); f != nil {
			return f
		}
		l.mu.Lock()
		c := l.buf.newChunk()
		l.mu.Unlock()
		for c.takeBlock(e, &l.buf) && e.left > 0 {
		}
		if err := l.writeChunk(c, synced); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) writeChunk(c *chunk, synced int64) error {
	seg := l.current()
	if seg.pos+int64(len(c.data))+record.BlockLen > seg.size && seg.pos > record.DataAt {
		var err error
		if seg, err = l.roll(c.blocks[0].start); err != nil {
			return err
		}
	}
	out := c.seal(seg.hdr.Seed, synced)
	if n, err := seg.w.WriteAt(out, seg.pos); err != nil {
		return fmt.Errorf("write log segment %s: byte %d: %d of %d bytes: %w", seg.name, seg.pos, n, len(out), err)
	}
	l.mu.Lock()
	seg.note(place{start: c.blocks[0].start, pos: seg.pos})
	seg.pos += int64(len(c.data))
	l.written.Store(c.end())
	l.declared = max(l.declared, synced)
	l.buf.giveBack(c)
	if l.Policy() != Always {
		l.wakeReaders()
	}
	if l.spare == nil && !l.preparing && seg.pos > seg.size/2 {
		poke(l.kick.prepare)
	}
	l.mu.Unlock()
	return nil
}

// current is the segment being written. Only the holder of the write baton changes it.
func (l *Log) current() *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[len(l.segments)-1]
}

// roll begins the next segment of the same history at the stream offset start. It does not wait for
// stable storage: the next sync covers the old segment, the directory and the new segment, in
// that order.
func (l *Log) roll(start int64) (*segment, error) {
	old := l.current()
	l.mu.Lock()
	hdr := l.nextHeader(start, l.history, old.hdr.Sequence, old.hdr.Seed)
	l.mu.Unlock()
	seg, err := l.begin(hdr, false, !old.hdr.Laid)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.unsynced = append(l.unsynced, old)
	l.segments = append(l.segments, seg)
	l.dirStale = true
	l.mu.Unlock()
	if l.Policy() == No {
		poke(l.kick.sync) // in the background: the writer does not wait for the full segment's sync
	}
	return seg, nil
}

// mark writes a block without payload, which declares what is synced, and syncs it when it closes
// the log. Recovery can then tell lost bytes from bytes that were never promised. The caller holds the
// write baton, and the sync baton for record.Closed.
func (l *Log) mark(flags uint32) error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	seg := l.current()
	l.mu.Lock()
	synced, written := l.synced.Load(), l.written.Load()
	l.mu.Unlock()
	if written < l.end.Load() {
		return nil // maybe in the middle of an entry, where nothing ends; what is to come will say it
	}
	if seg.pos+2*record.BlockLen > seg.size && flags&record.Closed == 0 {
		return nil // the next segment's header will say it
	}
	block := record.Block{Start: written, Synced: min(synced, written), Flags: flags | record.EndsEntry}
	out := block.Append(make([]byte, 0, 2*record.BlockLen), seg.hdr.Seed, nil)
	out = out[:2*record.BlockLen]
	if _, err := seg.w.WriteAt(out, seg.pos); err != nil {
		return l.fail(fmt.Errorf("write log segment %s: byte %d: %w", seg.name, seg.pos, err))
	}
	seg.pos += record.BlockLen
	l.mu.Lock()
	l.declared = max(l.declared, synced)
	l.mu.Unlock()
	if flags&record.Closed == 0 {
		return nil
	}
	if err := seg.s.SyncData(); err != nil {
		return l.fail(fmt.Errorf("sync log segment %s: %w", seg.name, err))
	}
	return nil
}

// poke wakes a background goroutine, once however often it is called.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
