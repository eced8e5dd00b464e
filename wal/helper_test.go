package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const testDir = "node/log"

// history returns a history whose id is made of one letter, continuing before at offset end.
func history(letter byte, before *History, end int64) History {
	h := History{Offset2: -1}
	for i := range h.ID {
		h.ID[i] = letter
	}
	if before != nil {
		h.ID2, h.Offset2, h.Counter = before.ID, end+1, before.Counter+1
	}
	return h
}

func testOptions(fs vfs.FS) Options {
	return Options{
		FS: fs, Dir: testDir, SegmentBytes: 32 << 10, ManualTick: true,
		KeepBytes: 1 << 30, Now: func() int64 { return 0 },
	}
}

func newFS(t testing.TB, fs *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	if err := fs.MkdirAll("node", 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := fs.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
	return fs
}

func fresh(letter byte) OpenPoint {
	return OpenPoint{History: history(letter, nil, 0), Floor: -1, Fresh: true}
}

func mustOpen(t testing.TB, o Options, from OpenPoint) (*Log, *OpenReport) {
	t.Helper()
	l, rep, err := Open(o, from)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, rep
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is a recognizable entry of n bytes.
func entry(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// readFrom reads the log from an offset to what may be read.
func readFrom(l *Log, offset int64) ([]byte, error) {
	r, err := l.NewReader(offset)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out bytes.Buffer
	p := make([]byte, 3000)
	for {
		n, err := r.Read(p)
		if err != nil {
			return out.Bytes(), err
		}
		if n == 0 {
			return out.Bytes(), nil
		}
		out.Write(p[:n])
	}
}

// model is what was appended: the bytes from base on, and the ends of the entries.
type model struct {
	base  int64
	bytes []byte
	ends  []int64
}

func (m *model) end() int64 { return m.base + int64(len(m.bytes)) }

func (m *model) add(e []byte) {
	m.bytes = append(m.bytes, e...)
	m.ends = append(m.ends, m.end())
}

func (m *model) append(t testing.TB, l *Log, e []byte) int64 {
	t.Helper()
	m.add(e)
	end := l.Append(e)
	if end != m.end() {
		t.Fatalf("Append returned %d, want %d", end, m.end())
	}
	return end
}

func (m *model) isEnd(offset int64) bool {
	if offset == m.base {
		return true
	}
	for _, e := range m.ends {
		if e == offset {
			return true
		}
	}
	return false
}

// check compares what the log holds from its first offset on with the model, whose prefix it must be.
func (m *model) check(l *Log) error {
	first := l.First()
	if !m.isEnd(l.End()) {
		return fmt.Errorf("log ends at %d, which is not the end of an entry", l.End())
	}
	got, err := readFrom(l, first)
	if err != nil {
		return fmt.Errorf("read from %d: %w", first, err)
	}
	if first+int64(len(got)) != l.End() {
		return fmt.Errorf("read to %d, the log ends at %d", first+int64(len(got)), l.End())
	}
	if first < m.base || l.End() > m.end() {
		return fmt.Errorf("log holds %d to %d, the model %d to %d", first, l.End(), m.base, m.end())
	}
	if !bytes.Equal(got, m.bytes[first-m.base:l.End()-m.base]) {
		return errors.New("log holds other bytes than were appended")
	}
	return nil
}

// copyFiles copies the log's files into a new file system, at most size bytes of each when given.
func copyFiles(t testing.TB, from *vfs.MemFS) map[string][]byte {
	t.Helper()
	names, err := from.List(testDir)
	must(t, err)
	files := map[string][]byte{}
	for _, n := range names {
		b, err := from.UnsafeGetFileDataBuffer(from.PathJoin(testDir, n))
		must(t, err)
		files[n] = bytes.Clone(b)
	}
	return files
}

func writeFiles(t testing.TB, files map[string][]byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	must(t, fs.MkdirAll("node", 0o755))
	must(t, fs.MkdirAll(testDir, 0o755))
	for n, b := range files {
		f, err := fs.Create(fs.PathJoin(testDir, n), category)
		must(t, err)
		_, err = f.Write(bytes.Clone(b)) // a vfs.File may scribble on what it was given
		must(t, err)
		must(t, f.Close())
	}
	return fs
}
