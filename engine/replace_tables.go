package engine

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Sizes of the tables of a new set, bytes. Taking them over costs about a millisecond for each while all clients
// wait, so a large set has large ones.
const (
	newTableMin   = 32 << 20
	newTableMax   = 512 << 20
	newTablesMost = 512
)

const (
	tableSyncBytes = 1 << 20
	tableBuffer    = 256 << 10
)

// tableWriter writes sorted rows as tables. Bulk values lie beside their keys in them; compactions take them apart.
type tableWriter struct {
	fs     vfs.FS
	dir    string
	opts   sstable.WriterOptions
	size   uint64
	paths  []string
	w      *sstable.Writer
	space  byte // of the table's rows
	filled uint64
}

func (s *Store) newTableWriter(dir string, data int64) *tableWriter {
	opts := &pebble.Options{}
	setLevels(opts)
	opts.EnsureDefaults()
	return &tableWriter{
		fs: s.opts.FS, dir: dir,
		opts: opts.MakeWriterOptions(len(opts.Levels)-1, s.db.TableFormat()),
		size: uint64(min(newTableMax, max(newTableMin, data/newTablesMost))),
	}
}

// put adds a row; rows come in order.
func (t *tableWriter) put(key, val []byte) error {
	if t.w != nil && (t.filled >= t.size || key[0] != t.space) {
		if err := t.finish(); err != nil {
			return err
		}
	}
	if t.w == nil {
		if err := t.start(key[0]); err != nil {
			return err
		}
	}
	t.filled += uint64(len(key) + len(val))
	if err := t.w.Set(key, val); err != nil {
		return fmt.Errorf("write table %s: %w", t.paths[len(t.paths)-1], err)
	}
	return nil
}

func (t *tableWriter) start(space byte) error {
	path := t.fs.PathJoin(t.dir, fmt.Sprintf("%06d.table", len(t.paths)+1))
	file, err := t.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make table: %w", err)
	}
	t.paths = append(t.paths, path)
	// Evenly written, a table leaves the disk to the log's syncs; in large pieces, since a call for each block is dear.
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: tableSyncBytes})
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(inPieces(&politeFile{File: file}, tableBuffer)), t.opts)
	t.space, t.filled = space, 0
	return nil
}

// finish ends the table under way; it is durable then.
func (t *tableWriter) finish() error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	t.w = nil
	if err != nil {
		return fmt.Errorf("write table %s: %w", t.paths[len(t.paths)-1], err)
	}
	return nil
}

// close ends the table under way after a failure.
func (t *tableWriter) close(err error) error {
	return errors.Join(err, t.finish())
}
