package engine

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// Merges and walks take values out of files of separated values in the order of keys: of each file from front to back, a
// block of some 4 KB at a time, in turns with twenty other files. Pebble reads ahead for whoever stays with five files;
// beyond that each value is two reads of the disk, of the file's index at its end and of one block. These were a fifth of
// all processor time of overwriting data beyond memory evenly. So a file that is read forwards, in steps so small that
// little is left out, is read ahead here, and its index is kept, however many there are.
const (
	streamBytes = 64 << 10 // read at once
	streamStep  = 32 << 10 // what is left out between two reads of one stream at most
	streamFrom  = 3        // so many steps make a stream: reads at random places of a few MB seldom do so by chance
	streamBlock = 16 << 10 // longer reads are left as they are
	streamsMost = 24       // buffers of a store
	streamIndex = 64 << 10 // longer indexes are not kept
)

// stream is how one file is read. Random reads meanwhile go past it.
type stream struct {
	pool *streamPool
	mu   sync.Mutex
	last int64 // where the last read that belongs to it began
	end  int64 // and ended
	run  int   // steps up to there, some less for reads elsewhere

	buf   []byte // from at on; nil most of the time
	at    int64
	index []byte      // only beside a buffer
	used  atomic.Bool // since the pool looked for a buffer
}

// read serves a read of a stream from a file whose blocks end at limit. It says false when the read is none, or is better
// done plainly.
func (s *stream) read(file io.ReaderAt, p []byte, pos, limit int64) bool {
	if len(p) > streamBlock || !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	n := int64(len(p))
	switch {
	case s.copy(p, pos):
		return true
	case pos == s.last: // the next value of the same block
		return false
	case pos < s.end || pos-s.end > streamStep:
		if s.run--; s.run < streamFrom {
			s.last, s.end, s.run = pos, pos+n, 0
		}
		return false
	}
	s.step(pos, n)
	if s.run < streamFrom || limit-pos <= n || s.buf == nil && !s.pool.lend(s) {
		return false
	}
	s.at, s.buf = pos, s.buf[:min(streamBytes, limit-pos)]
	if _, err := file.ReadAt(s.buf, pos); err != nil {
		s.buf = s.buf[:0] // whoever reads it plainly is told
	}
	return s.copy(p, pos)
}

func (s *stream) copy(p []byte, pos int64) bool {
	n := int64(len(p))
	if pos < s.at || pos+n > s.at+int64(len(s.buf)) {
		return false
	}
	copy(p, s.buf[pos-s.at:])
	s.step(pos, n)
	return true
}

func (s *stream) step(pos, n int64) {
	s.last, s.end, s.run = pos, pos+n, min(s.run+1, 2*streamFrom)
	s.used.Store(true)
}

// readIndex reads the file's index, which is at pos.
func (s *stream) readIndex(file io.ReaderAt, p []byte, pos int64) (int, error) {
	if len(p) > streamIndex || !s.mu.TryLock() {
		return file.ReadAt(p, pos)
	}
	defer s.mu.Unlock()
	if len(s.index) == len(p) {
		return copy(p, s.index), nil
	}
	n, err := file.ReadAt(p, pos)
	if err == nil && s.buf != nil {
		s.index = append([]byte(nil), p...)
	}
	return n, err
}

// close gives the buffer back.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buf != nil {
		s.pool.takeBack(s)
	}
}

// streamPool are the buffers of a store's streams.
type streamPool struct {
	mu   sync.Mutex
	have []*stream
	next int // to be asked for its buffer
}

// lend gives s a buffer, another's if that has rested. s is locked.
func (p *streamPool) lend(s *stream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.have) < streamsMost {
		s.buf = make([]byte, streamBytes)
		p.have = append(p.have, s)
		return true
	}
	for range 2 * streamsMost {
		p.next = (p.next + 1) % streamsMost
		other := p.have[p.next]
		if other.used.Swap(false) || !other.mu.TryLock() {
			continue
		}
		s.buf, other.buf, other.index = other.buf[:streamBytes], nil, nil
		other.run = 0
		other.mu.Unlock()
		p.have[p.next] = s
		return true
	}
	return false
}

func (p *streamPool) takeBack(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have = slices.DeleteFunc(p.have, func(other *stream) bool { return other == s })
	s.buf, s.index = nil, nil
}
