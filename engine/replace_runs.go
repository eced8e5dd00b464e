package engine

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
)

// A sorter takes rows in any order and gives them back in the order of row keys, in bounded memory: rows gather
// until its memory is full, are sorted and written to a file, a run; at the end the runs are merged. When there
// are many runs of one generation they are merged into one of the next, so that no merge has more than runFan
// of them open.
//
// A run is a file of rows in order, then their checksum. It is read once, from front to back:
//
//	{ key length(uvarint) value length(uvarint) key value }... 0(1) crc32c(4, big endian, of all before it)

const (
	// runFan is how many runs are merged at a time.
	runFan = 256
	// runBuffer is what a run that is written has in memory beside a row, bytes. Those that are merged share the
	// sorter's limit, and have at least runBufferMin.
	runBuffer    = 64 << 10
	runBufferMin = 16 << 10
	// rowIndex is what a row costs beside its bytes while it is sorted.
	rowIndex = 24
	// longRow is how large a buffer for values may be that is kept, bytes.
	longRow = 1 << 20
	// rowKeyMax bounds the key of a row that is read back: names are strings.
	rowKeyMax = layout.StringMax + 64
)

// DuplicateRowError says that two rows with one key were given to a Replacement: its source names a key, or an
// element of a value, twice.
type DuplicateRowError struct{ Row []byte }

func (e *DuplicateRowError) Error() string {
	if len(e.Row) > layout.PrefixLen && e.Row[0] == layout.SpaceSlot && e.Row[3] == layout.KindRecord {
		if _, name, err := layout.RecordKeyParts(e.Row); err == nil {
			return fmt.Sprintf("key %.64q is there twice", name)
		}
	}
	return fmt.Sprintf("an element of a value is there twice, row %.64x", e.Row)
}

// heldRow is a row in the sorter's memory. The prefix decides most comparisons.
type heldRow struct {
	prefix     uint64
	at         uint32 // of key and value in the arena
	klen, vlen uint32
}

// run is a file of sorted rows.
type run struct {
	path string
	rows int64
}

type sorter struct {
	fs      vfs.FS
	dir     string
	limit   int          // bytes of memory for rows
	space   func() error // says whether the disk has room for more
	ended   func() error // says whether to give up
	arena   []byte
	held    []heldRow
	runs    [][]run // by how often their rows were merged
	seq     int
	written int64 // bytes in runs now
	bytes   int64 // of all rows added
}

func newSorter(fs vfs.FS, dir string, limit int) *sorter {
	none := func() error { return nil }
	return &sorter{fs: fs, dir: dir, limit: limit, space: none, ended: none}
}

// add takes a row, whose value may come in parts; bytes are copied. *DuplicateRowError may come from any call, also
// from a later one.
func (s *sorter) add(key []byte, val ...[]byte) error {
	vlen := 0
	for _, part := range val {
		vlen += len(part)
	}
	n := len(key) + vlen
	s.bytes += int64(n)
	if s.arena == nil {
		s.arena = make([]byte, 0, min(firstArena, s.limit/4*3))
		s.held = make([]heldRow, 0, min(firstArena, s.limit/4)/rowIndex)
	}
	if err := s.room(n); err != nil {
		return err
	}
	if n > s.limit/4*3/2 { // alone in its run, and not copied
		return s.spillOne(key, val, vlen)
	}
	at := len(s.arena)
	s.arena = append(s.arena, key...)
	for _, part := range val {
		s.arena = append(s.arena, part...)
	}
	s.held = append(s.held, heldRow{rowPrefix(key), uint32(at), uint32(len(key)), uint32(vlen)})
	return nil
}

// firstArena is what a sorter begins with, bytes: most sets are smaller than what it may hold.
const firstArena = 1 << 20

// room makes place for a row of n bytes: more memory up to the limit, then a run.
func (s *sorter) room(n int) error {
	most := s.limit / 4 * 3
	full := len(s.arena)+n > most && len(s.arena) > 0
	if rows := s.limit / 4 / rowIndex; len(s.held) >= rows || full {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if want := len(s.arena) + n; want > cap(s.arena) && want <= most {
		s.arena = append(make([]byte, 0, min(most, max(want, 2*cap(s.arena)))), s.arena...)
	}
	return nil
}

func rowPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func (s *sorter) key(h heldRow) []byte { return s.arena[h.at : h.at+h.klen] }
func (s *sorter) val(h heldRow) []byte { return s.arena[h.at+h.klen:][:h.vlen] }

// sortHeld orders the rows in memory.
func (s *sorter) sortHeld() error {
	slices.SortFunc(s.held, func(a, b heldRow) int {
		switch {
		case a.prefix < b.prefix:
			return -1
		case a.prefix > b.prefix:
			return 1
		}
		return bytes.Compare(s.key(a), s.key(b))
	})
	for i := 1; i < len(s.held); i++ {
		if s.held[i].prefix == s.held[i-1].prefix && bytes.Equal(s.key(s.held[i]), s.key(s.held[i-1])) {
			return &DuplicateRowError{bytes.Clone(s.key(s.held[i]))}
		}
	}
	return nil
}

// spill writes the rows in memory as a run.
func (s *sorter) spill() error {
	if len(s.held) == 0 {
		return nil
	}
	if err := s.sortHeld(); err != nil {
		return err
	}
	w, err := s.newRun()
	if err != nil {
		return err
	}
	for _, h := range s.held {
		if err = w.put(s.key(h), s.val(h)); err != nil {
			break
		}
	}
	s.arena, s.held = s.arena[:0], s.held[:0]
	return s.endRun(w, err, 0)
}

func (s *sorter) spillOne(key []byte, val [][]byte, vlen int) error {
	w, err := s.newRun()
	if err != nil {
		return err
	}
	err = w.head(key, vlen)
	for i := 0; i < len(val) && err == nil; i++ {
		err = w.write(val[i])
	}
	return s.endRun(w, err, 0)
}

func (s *sorter) newRun() (*runWriter, error) {
	if err := errors.Join(s.space(), s.ended()); err != nil {
		return nil, err
	}
	s.seq++
	return createRun(s.fs, s.fs.PathJoin(s.dir, fmt.Sprintf("%06d.run", s.seq)))
}

// endRun closes a run whose rows were merged level times, and merges runs when there are enough of these.
func (s *sorter) endRun(w *runWriter, err error, level int) error {
	r, closed := w.close()
	if err = errors.Join(err, closed); err != nil {
		return fmt.Errorf("write sorted rows to %s: %w", w.path, err)
	}
	s.written += w.length
	for len(s.runs) <= level {
		s.runs = append(s.runs, nil)
	}
	s.runs[level] = append(s.runs[level], r)
	if len(s.runs[level]) < runFan {
		return nil
	}
	return s.mergeLevel(level)
}

// mergeLevel makes one run of those of a level.
func (s *sorter) mergeLevel(level int) error {
	from := s.runs[level]
	s.runs[level] = nil
	w, err := s.newRun()
	if err != nil {
		return err
	}
	err = s.merge(from, w.put)
	if err := s.endRun(w, err, level+1); err != nil {
		return err
	}
	return nil
}

// each gives all rows in order, once; no row may be added any more. Both slices are valid within the call.
func (s *sorter) each(f func(key, val []byte) error) error {
	if len(s.runs) == 0 {
		if err := s.sortHeld(); err != nil {
			return err
		}
		for _, h := range s.held {
			if err := f(s.key(h), s.val(h)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.arena, s.held = nil, nil
	// The lowest levels have the smallest runs: they are merged first until one merge takes all that is left.
	for level := 0; s.openRuns() > runFan && level < len(s.runs); level++ {
		if len(s.runs[level]) > 1 {
			if err := s.mergeLevel(level); err != nil {
				return err
			}
		}
	}
	return s.merge(slices.Concat(s.runs...), f)
}

func (s *sorter) openRuns() (n int) {
	for _, level := range s.runs {
		n += len(level)
	}
	return n
}

// mergeEvery is after how many rows a merge looks whether to give up.
const mergeEvery = 4096

// merge gives the rows of some runs in order and removes the runs.
func (s *sorter) merge(from []run, f func(key, val []byte) error) (err error) {
	m := merger{}
	defer func() { err = errors.Join(err, m.close()) }()
	for _, r := range from {
		in, err := openRun(s.fs, r.path, min(runBuffer, max(runBufferMin, s.limit/len(from))))
		if err != nil {
			return err
		}
		m.all = append(m.all, in)
		if err := in.next(); err != nil {
			return err
		}
		if !in.done {
			m.heap = append(m.heap, in)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	var last, val []byte
	for n := 0; len(m.heap) > 0; n++ {
		if n%mergeEvery == 0 {
			if err := s.ended(); err != nil {
				return err
			}
		}
		top := m.heap[0]
		if n > 0 && bytes.Equal(top.key, last) {
			return &DuplicateRowError{bytes.Clone(last)}
		}
		last = append(last[:0], top.key...)
		if val, err = top.value(val); err != nil {
			return err
		}
		if err := f(last, val); err != nil {
			return err
		}
		if cap(val) > longRow {
			val = nil
		}
		if err := top.next(); err != nil {
			return err
		}
		m.settle()
	}
	for _, in := range m.all {
		if err := s.fs.Remove(in.path); err != nil {
			return err
		}
		s.written -= in.length
	}
	return nil
}

// merger is the runs of one merge, those with rows left as a heap by their next key.
type merger struct {
	heap []*runReader
	all  []*runReader
}

func (m *merger) settle() {
	if m.heap[0].done {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	m.down(0)
}

func (m *merger) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(m.heap) && m.heap[c].less(m.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

func (m *merger) close() (err error) {
	for _, in := range m.all {
		err = errors.Join(err, in.file.Close())
	}
	return err
}

// runWriter writes a run.
type runWriter struct {
	path   string
	file   vfs.File
	w      *bufio.Writer
	crc    uint32
	length int64
	rows   int64
	buf    []byte
}

func createRun(fs vfs.FS, path string) (*runWriter, error) {
	file, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("make %s for sorted rows: %w", path, err)
	}
	return &runWriter{path: path, file: file, w: bufio.NewWriterSize(file, runBuffer)}, nil
}

func (w *runWriter) put(key, val []byte) error {
	if err := w.head(key, len(val)); err != nil {
		return err
	}
	return w.write(val)
}

// head writes all of a row but its value.
func (w *runWriter) head(key []byte, vlen int) error {
	w.buf = binary.AppendUvarint(w.buf[:0], uint64(len(key)))
	w.buf = binary.AppendUvarint(w.buf, uint64(vlen))
	w.buf = append(w.buf, key...)
	w.rows++
	return w.write(w.buf)
}

func (w *runWriter) write(b []byte) error {
	w.crc = crc32.Update(w.crc, castagnoli, b)
	w.length += int64(len(b))
	_, err := w.w.Write(b)
	return err
}

func (w *runWriter) close() (run, error) {
	err := w.write([]byte{0})
	if err == nil {
		sum := w.crc
		err = w.write(binary.BigEndian.AppendUint32(nil, sum))
	}
	if err == nil {
		err = w.w.Flush()
	}
	return run{w.path, w.rows}, errors.Join(err, w.file.Close())
}

// RunError says that sorted rows that were put aside do not read back.
type RunError struct {
	Path   string
	Pos    int64
	Reason string
}

func (e *RunError) Error() string {
	return fmt.Sprintf("sorted rows in %s do not read back: byte %d: %s", e.Path, e.Pos, e.Reason)
}

// runReader stands on a row: its key is in memory, its value in the file, so that of many runs with long values at
// their heads only one is held.
type runReader struct {
	path   string
	file   vfs.File
	r      *bufio.Reader
	crc    uint32
	length int64 // read so far
	size   int64 // of the file
	prefix uint64
	key    []byte
	vlen   uint64 // of the value that was not read yet
	done   bool
}

func openRun(fs vfs.FS, path string, buffer int) (*runReader, error) {
	file, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("read sorted rows: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read sorted rows: %w", err), file.Close())
	}
	return newRunReader(path, file, info.Size(), buffer), nil
}

func newRunReader(path string, file vfs.File, size int64, buffer int) *runReader {
	return &runReader{path: path, file: file, size: size, r: bufio.NewReaderSize(file, buffer)}
}

func (r *runReader) less(o *runReader) bool {
	if r.prefix != o.prefix {
		return r.prefix < o.prefix
	}
	return bytes.Compare(r.key, o.key) < 0
}

func (r *runReader) bad(reason string) error { return &RunError{r.path, r.length, reason} }

// ReadByte is for binary.ReadUvarint.
func (r *runReader) ReadByte() (byte, error) {
	c, err := r.r.ReadByte()
	if err == nil {
		r.crc = crc32.Update(r.crc, castagnoli, []byte{c})
		r.length++
	}
	return c, err
}

// fill reads n bytes into dst, in exactly the memory that they need.
func (r *runReader) fill(dst []byte, n uint64) ([]byte, error) {
	if n > uint64(r.size-r.length) {
		return dst, r.bad(fmt.Sprintf("%d bytes wanted, %d left", n, r.size-r.length))
	}
	if dst = dst[:0]; uint64(cap(dst)) < n {
		dst = make([]byte, 0, n)
	}
	dst = dst[:n]
	got, err := io.ReadFull(r.r, dst)
	r.length += int64(got)
	if err != nil {
		return dst, r.ended(err)
	}
	r.crc = crc32.Update(r.crc, castagnoli, dst)
	return dst, nil
}

func (r *runReader) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.bad("file ends within a row")
	}
	return fmt.Errorf("read sorted rows in %s: %w", r.path, err)
}

// next goes to the next row; what is left of the present one is passed over by value.
func (r *runReader) next() error {
	klen, err := binary.ReadUvarint(r)
	if err != nil {
		return r.ended(err)
	}
	if klen == 0 {
		return r.end()
	}
	if klen > rowKeyMax {
		return r.bad(fmt.Sprintf("key of %d bytes, limit %d", klen, rowKeyMax))
	}
	if r.vlen, err = binary.ReadUvarint(r); err != nil {
		return r.ended(err)
	}
	r.key, err = r.fill(r.key, klen)
	r.prefix = rowPrefix(r.key)
	return err
}

// value reads the value of the row into dst. It is called once for each row.
func (r *runReader) value(dst []byte) ([]byte, error) { return r.fill(dst, r.vlen) }

func (r *runReader) end() error {
	want := r.crc
	var sum [4]byte
	if _, err := io.ReadFull(r.r, sum[:]); err != nil {
		return r.ended(err)
	}
	r.length += int64(len(sum))
	if got := binary.BigEndian.Uint32(sum[:]); got != want {
		return r.bad(fmt.Sprintf("checksum %08x, want %08x", got, want))
	}
	r.done = true
	return nil
}
