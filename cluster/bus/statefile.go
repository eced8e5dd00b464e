package bus

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
)

// stateFile is nodes.conf with its companions. A save is
//
//	.crc   <- checksums of the new content and of the present one     temp, sync; rename
//	.old   <- the present content                                     a second name of the file; sync of the directory
//	file   <- the new content                                         temp, sync; rename, sync of the directory
//
// so that after a crash at any moment the file is one of the two whose checksums are known, whole. The first save of all
// writes the file before the checksums: a crash between them leaves a file that nothing contradicts.
// The two temps are written and synced at the same time: a failover waits for three saves, one after the other.
type stateFile struct {
	fs      vfs.FS
	path    string
	beside  string // path of the companions, without their ending
	lock    io.Closer
	present []byte // content as it is on disk
}

// maxStateFile is far more than a thousand nodes need, bytes.
const maxStateFile = 64 << 20

// openState locks and reads the file. No file, and no trace of one, gives a nil state: the node is new.
func openState(fs vfs.FS, path, dataDir string) (*stateFile, *cluster.State, error) {
	f := &stateFile{fs: fs, path: path, beside: filepath.Join(dataDir, filepath.Base(path))}
	if err := fs.MkdirAll(dataDir, 0o755); err != nil {
		return nil, nil, err
	}
	lock, err := fs.Lock(f.beside + ".lock")
	if err != nil {
		return nil, nil, fmt.Errorf("cluster configuration file %s is in use by another process: %w", path, err)
	}
	f.lock = lock
	state, err := f.load()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cluster configuration file %s: %w", path, err), lock.Close())
	}
	return f, state, nil
}

func (f *stateFile) close() error { return f.lock.Close() }

func (f *stateFile) load() (*cluster.State, error) {
	sums, err := f.sums()
	if err != nil {
		return nil, err
	}
	text, err := f.read(f.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(text) == 0 && len(sums) == 0 {
		if len(sums) == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("it is gone, and this node had one. The node will not take another id: put the file back (%s.old is "+
			"what it was before its last change), or remove %s.crc as well to begin as a new node", f.beside, f.beside)
	}
	if err != nil {
		return nil, err
	}
	state, err := nodesconf.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w. The node will not take another id: put the file back, from %s.old for instance, which is what it "+
			"was before its last change", err, f.beside)
	case len(sums) > 0 && !known(sums, text):
		return nil, fmt.Errorf("it is not what this node wrote. If it was altered on purpose, remove %s.crc; else put the file back, "+
			"from %s.old for instance, which is what it was before its last change", f.beside, f.beside)
	}
	f.present = text
	if len(sums) > 0 {
		return state, nil
	}
	// Taken over, from a Redis node or a folder of old: from now on it may not vanish any more.
	err = f.replace(f.beside+".crc", []byte(checksum(text)+"\n"))
	return state, errors.Join(err, f.syncDir(filepath.Dir(f.beside)))
}

func known(sums []string, text []byte) bool {
	sum := checksum(text)
	for _, s := range sums {
		if s == sum {
			return true
		}
	}
	return false
}

func checksum(text []byte) string {
	return fmt.Sprintf("%08x %d", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)), len(text))
}

// sums reads the known checksums, a line each; none if there is no such file.
func (f *stateFile) sums() ([]string, error) {
	text, err := f.read(f.beside + ".crc")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}

func (f *stateFile) read(path string) ([]byte, error) {
	in, err := f.fs.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, maxStateFile+1))
	if err == nil && len(text) > maxStateFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxStateFile)
	}
	return text, errors.Join(err, in.Close())
}

// save makes the state durable.
func (f *stateFile) save(state *cluster.State) error {
	text := state.Append(nil)
	if bytes.Equal(text, f.present) {
		return nil
	}
	write := f.saveFirst
	if f.present != nil {
		write = f.saveNext
	}
	if err := write(text); err != nil {
		return fmt.Errorf("save the cluster configuration: %w", err)
	}
	f.present = text
	return nil
}

func (f *stateFile) saveFirst(text []byte) error {
	if err := f.replace(f.path, text); err != nil {
		return err
	}
	if err := f.syncDir(filepath.Dir(f.path)); err != nil {
		return err
	}
	if err := f.replace(f.beside+".crc", []byte(checksum(text)+"\n")); err != nil {
		return err
	}
	return f.syncDir(filepath.Dir(f.beside))
}

func (f *stateFile) saveNext(text []byte) error {
	sums := checksum(text) + "\n" + checksum(f.present) + "\n"
	prepared := make(chan error, 1)
	go func() { prepared <- f.prepare(f.path, text) }()
	err := f.prepare(f.beside+".crc", []byte(sums))
	if err = errors.Join(err, <-prepared); err != nil {
		return err
	}
	if err := f.adopt(f.beside + ".crc"); err != nil {
		return err
	}
	if err := f.keepOld(); err != nil {
		return err
	}
	if err := f.syncDir(filepath.Dir(f.beside)); err != nil { // before the file is another one
		return err
	}
	if err := f.adopt(f.path); err != nil {
		return err
	}
	return f.syncDir(filepath.Dir(f.path))
}

// keepOld keeps the present content under another name: a help for people, which need not survive a crash.
func (f *stateFile) keepOld() error {
	if err := f.fs.Remove(f.beside + ".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := f.fs.Link(f.path, f.beside+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return f.replace(f.beside+".old", f.present) // another file system
	}
	return nil
}

// replace writes a file beside the one it then becomes.
func (f *stateFile) replace(path string, text []byte) error {
	if err := f.prepare(path, text); err != nil {
		return err
	}
	return f.adopt(path)
}

// prepare writes what is to become a file beside it.
func (f *stateFile) prepare(path string, text []byte) error {
	temp := path + ".tmp"
	out, err := f.fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = out.Write(bytes.Clone(text)) // a file system for tests scribbles over what it is given
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, f.fs.Remove(temp))
	}
	return nil
}

// adopt makes a file what was prepared for it.
func (f *stateFile) adopt(path string) error { return f.fs.Rename(path+".tmp", path) }

func (f *stateFile) syncDir(dir string) error {
	d, err := f.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
