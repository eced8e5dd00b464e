package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The floor file tells what a store proved to be durable, apart from the store: a damaged MANIFEST would
// otherwise open an older state and nobody would notice.
//
// It is two copies, FLOOR-A and FLOOR-B, written in turn, each with its own checksum; the younger good one
// counts. All integers big endian:
//
//	magic(8) crc32c(4, of what follows) sequence(8) applied(8) clean(1)
//	manifest length(8) manifest crc32c(4) manifest name length(2) name  boot id length(2) boot id
//
// When both are damaged the store is refused: a floor that cannot be read proves nothing.

// Floor is what the floor file says.
type Floor struct {
	Applied int64  // the store was durable up to this log offset, and so was the log
	Clean   bool   // the program ended in order after that
	BootID  string // of the machine's run in which this was written
	Exists  bool

	sequence    uint64
	manifest    string
	manifestLen int64
	manifestCRC uint32
}

const (
	floorMagic = "cairnflr"
	floorMax   = 4 << 10
)

var (
	floorNames = [2]string{"FLOOR-A", "FLOOR-B"}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func (f *Floor) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, f.sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Applied))
	b = append(b, byte(b2i(f.Clean)))
	b = binary.BigEndian.AppendUint64(b, uint64(f.manifestLen))
	b = binary.BigEndian.AppendUint32(b, f.manifestCRC)
	for _, text := range []string{f.manifest, f.BootID} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	out := append([]byte(floorMagic), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(out[8:], crc32.Checksum(b, castagnoli))
	return append(out, b...)
}

func (f *Floor) decode(src []byte) error {
	const fixed = 12 + 8 + 8 + 1 + 8 + 4
	if len(src) < fixed || string(src[:8]) != floorMagic {
		return errors.New("is not a floor file")
	}
	if got, want := crc32.Checksum(src[12:], castagnoli), binary.BigEndian.Uint32(src[8:]); got != want {
		return fmt.Errorf("checksum %08x, want %08x", got, want)
	}
	b := src[12:]
	f.sequence = binary.BigEndian.Uint64(b)
	f.Applied = int64(binary.BigEndian.Uint64(b[8:]))
	f.Clean = b[16] == 1
	f.manifestLen = int64(binary.BigEndian.Uint64(b[17:]))
	f.manifestCRC = binary.BigEndian.Uint32(b[25:])
	b = b[29:]
	for _, text := range []*string{&f.manifest, &f.BootID} {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return errors.New("is cut short")
		}
		n := int(binary.BigEndian.Uint16(b))
		*text, b = string(b[2:2+n]), b[2+n:]
	}
	f.Exists = true
	return nil
}

// floorFile keeps the floor file in step with the store.
type floorFile struct {
	mu  sync.Mutex
	fs  vfs.FS
	dir string
	cur Floor
	crc manifestSum
}

// load reads the floor file and holds the store's MANIFEST against it.
func (f *floorFile) load(fs vfs.FS, dir string) (Floor, error) {
	f.fs, f.dir = fs, dir
	var problems []error
	present := 0
	for _, name := range floorNames {
		raw, err := readFile(fs, fs.PathJoin(dir, name), floorMax)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		present++
		var got Floor
		if err == nil {
			err = got.decode(raw)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("floor file %s: %w", fs.PathJoin(dir, name), err))
		} else if !f.cur.Exists || got.sequence > f.cur.sequence {
			f.cur = got
		}
	}
	if present > 0 && !f.cur.Exists {
		return Floor{}, fmt.Errorf("no readable floor file, so nothing proves that the store is whole: %w; "+
			"copy the data from a replica or a backup into an empty folder", errors.Join(problems...))
	}
	if !f.cur.Exists {
		return f.cur, nil
	}
	return f.cur, f.checkManifest()
}

// checkManifest proves the part of the MANIFEST that was there when the floor was written. A MANIFEST that is
// gone was replaced by a younger one; then the applied offset must do.
func (f *floorFile) checkManifest() error {
	path := f.fs.PathJoin(f.dir, f.cur.manifest)
	if f.cur.manifest == "" {
		return nil
	}
	if _, err := f.fs.Stat(path); err != nil {
		return nil //nolint:nilerr // replaced, see above
	}
	var sum manifestSum
	if err := sum.read(f.fs, path, f.cur.manifestLen); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if sum.length < f.cur.manifestLen || sum.crc != f.cur.manifestCRC {
		return fmt.Errorf("%s: its first %d bytes have checksum %08x, the floor file says %08x: the store would "+
			"open an older state; copy the data from a replica or a backup into an empty folder",
			path, f.cur.manifestLen, sum.crc, f.cur.manifestCRC)
	}
	return nil
}

// raise writes a new floor. The caller holds mu.
func (f *floorFile) raise(applied int64) error { return f.write(applied, false) }

func (f *floorFile) write(applied int64, clean bool) error {
	next := f.cur
	next.sequence++
	next.Applied, next.Clean, next.Exists = applied, clean, true
	name, err := currentManifest(f.fs, f.dir)
	if err != nil {
		return err
	}
	if name != f.crc.name {
		f.crc = manifestSum{name: name}
	}
	path := f.fs.PathJoin(f.dir, name)
	err = f.crc.read(f.fs, path, 1<<62)
	if err == nil {
		err = syncFile(f.fs, path)
	}
	if err != nil {
		return fmt.Errorf("read %s for the floor file: %w", name, err)
	}
	next.manifest, next.manifestLen, next.manifestCRC = name, f.crc.length, f.crc.crc
	path = f.fs.PathJoin(f.dir, floorNames[next.sequence%2])
	if err := WriteFile(f.fs, f.dir, path, next.encode()); err != nil {
		return fmt.Errorf("write floor file: %w", err)
	}
	f.cur = next
	return nil
}

// manifestSum is the checksum of a growing file's beginning.
type manifestSum struct {
	name   string
	length int64
	crc    uint32
}

// read takes in what the file has beyond the last call, up to limit bytes in all.
func (m *manifestSum) read(fs vfs.FS, path string, limit int64) error {
	file, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, 64<<10)
	for m.length < limit {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), limit-m.length)], m.length)
		m.crc = crc32.Update(m.crc, castagnoli, buf[:n])
		m.length += int64(n)
		if err == io.EOF || n == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// currentManifest finds the MANIFEST that the store's marker file names.
func currentManifest(fs vfs.FS, dir string) (string, error) {
	names, err := fs.List(dir)
	if err != nil {
		return "", err
	}
	best, marker := "", ""
	for _, n := range names {
		// marker.manifest.<number>.<file>, the number growing
		if rest, ok := strings.CutPrefix(n, "marker.manifest."); ok && n > marker {
			if _, file, ok := strings.Cut(rest, "."); ok {
				best, marker = file, n
			}
		}
	}
	if best == "" {
		return "", fmt.Errorf("store in %s has no manifest marker among %d files", dir, len(names))
	}
	return best, nil
}

func readFile(fs vfs.FS, path string, limit int64) ([]byte, error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}

// syncFile makes durable what was read of a file: an edit that is still under way in the MANIFEST may not be
// in the floor file and then be lost to a power cut.
func syncFile(fs vfs.FS, path string) error {
	file, err := fs.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// WriteFile replaces path, which is in the folder dir, so that a crash leaves the old content or the new.
func WriteFile(fs FS, dir, path string, content []byte) error {
	temp := path + ".new"
	file, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return SyncDir(fs, dir)
}

// SyncDir makes a folder's entries durable.
func SyncDir(fs FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
