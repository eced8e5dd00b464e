package engine

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

// streamedFile counts reads.
type streamedFile struct {
	data  []byte
	reads int
	fail  bool
}

func (f *streamedFile) ReadAt(p []byte, pos int64) (int, error) {
	f.reads++
	if f.fail {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, f.data[pos:]), nil
}

type streamTest struct {
	t    *testing.T
	pool streamPool
	r    *rand.Rand
}

func newStreamTest(t *testing.T) *streamTest {
	return &streamTest{t: t, r: rand.New(rand.NewPCG(1, 2))}
}

func (x *streamTest) file(size int) (*streamedFile, *stream) {
	f := &streamedFile{data: make([]byte, size)}
	for i := range f.data {
		f.data[i] = byte(x.r.Uint32())
	}
	return f, &stream{pool: &x.pool}
}

// read is what a file of separated values does.
func (x *streamTest) read(f *streamedFile, s *stream, pos int64, n int) {
	x.t.Helper()
	p := make([]byte, n)
	if !s.read(f, p, pos, int64(len(f.data))) {
		if _, err := f.ReadAt(p, pos); err != nil {
			return
		}
	}
	if !bytes.Equal(p, f.data[pos:][:n]) {
		x.t.Fatalf("read of %d at %d gives other bytes", n, pos)
	}
}

const testBlock = 4000

// A merge takes the values of a block one by one, each with a read of the block, and leaves some blocks out. Random reads of
// the same file come in between.
func TestStreamOfManyFiles(t *testing.T) {
	x := newStreamTest(t)
	const files, blocks = streamsMost - 4, 200
	var fs [files]*streamedFile
	var ss [files]*stream
	for i := range files {
		fs[i], ss[i] = x.file(blocks * testBlock)
	}
	asked := 0
	for b := range blocks {
		for i := range files {
			if x.r.IntN(4) == 0 {
				continue
			}
			for range 3 {
				x.read(fs[i], ss[i], int64(b*testBlock), testBlock)
				asked++
			}
			if b%50 == 25 {
				x.read(fs[i], ss[i], x.r.Int64N(blocks)*testBlock, testBlock)
				fs[i].reads--
			}
		}
	}
	reads := 0
	for _, f := range fs {
		reads += f.reads
	}
	if reads > asked/10 {
		t.Errorf("%d reads of the files for %d of blocks", reads, asked)
	}
	for _, s := range ss {
		s.close()
	}
	if len(x.pool.have) != 0 {
		t.Errorf("%d buffers are left", len(x.pool.have))
	}
}

// Reads at random places are nobody's stream, so that none of them fetches more than it asked for.
func TestRandomReadsAreNoStream(t *testing.T) {
	x := newStreamTest(t)
	f, s := x.file(2000 * testBlock)
	for n := range 20000 {
		x.read(f, s, x.r.Int64N(2000)*testBlock, testBlock)
		if f.reads != n+1 {
			t.Fatalf("%d reads of the file for %d", f.reads, n+1)
		}
	}
	if len(x.pool.have) > 0 {
		t.Error("a buffer was lent")
	}
}

// More streams than buffers: those that rest give theirs to others, bytes stay right, and no more memory is taken.
func TestStreamsShareBuffers(t *testing.T) {
	x := newStreamTest(t)
	const files = 3 * streamsMost
	var fs [files]*streamedFile
	var ss [files]*stream
	for i := range files {
		fs[i], ss[i] = x.file(100 * testBlock)
		for b := range 40 {
			x.read(fs[i], ss[i], int64(b*testBlock), testBlock)
		}
	}
	if n := len(x.pool.have); n != streamsMost {
		t.Errorf("%d buffers, want %d", n, streamsMost)
	}
	for i := range files { // the first ones have lost theirs
		before := fs[i].reads
		for b := 40; b < 100; b++ {
			x.read(fs[i], ss[i], int64(b*testBlock), testBlock)
		}
		if got := fs[i].reads - before; got > 20 {
			t.Errorf("file %d: %d reads for 60 blocks", i, got)
		}
	}
}

// The index is kept for streams only, and what cannot be read is nobody's bytes.
func TestStreamIndexAndErrors(t *testing.T) {
	x := newStreamTest(t)
	f, s := x.file(100 * testBlock)
	index := func() {
		t.Helper()
		p := make([]byte, 500)
		if _, err := s.readIndex(f, p, 99*testBlock); err != nil || !bytes.Equal(p, f.data[99*testBlock:][:500]) {
			t.Fatalf("index: other bytes, or %v", err)
		}
	}
	index()
	index()
	if f.reads != 2 {
		t.Fatalf("%d reads of an index that nobody streams, want 2", f.reads)
	}
	for b := range 10 {
		x.read(f, s, int64(b*testBlock), testBlock)
	}
	f.reads = 0
	index()
	index()
	if f.reads != 1 {
		t.Fatalf("%d reads of the index of a stream, want 1", f.reads)
	}
	f.fail = true
	p := make([]byte, testBlock)
	if s.read(f, p, 30*testBlock, int64(len(f.data))) {
		t.Fatal("a read that failed was served")
	}
	f.fail = false
	x.read(f, s, 30*testBlock, testBlock)
}
