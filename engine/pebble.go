package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
	"cairn/internal/coldread"
)

// openPebble opens the store below with the options that docs/log.md explains: no WAL of its own, ingestion
// never lazy, bulk values apart from the rows that are walked.
func (s *Store) openPebble() (*pebble.DB, error) {
	o := &s.opts
	tuneAllocator(o.MemoryBudget)
	s.blocks = pebble.NewCache(o.blockCacheBytes())
	opts := &pebble.Options{
		FS:                          s.fs,
		Cache:                       s.blocks,
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		MemTableSize:                uint64(o.memTableBytes()),
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       o.l0Threshold(),
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               o.baseLevelBytes(),
		MaxOpenFiles:                o.OpenTables,
		BytesPerSync:                1 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, mergesMost(runtime.GOMAXPROCS(0)) },
		Logger:                      pebbleLogger{s},
		EventListener:               s.listener(),
	}
	setLevels(opts)
	opts.Experimental.DisableIngestAsFlushable = func() bool { return true }
	opts.Experimental.ValueSeparationPolicy = s.valuePolicy
	opts.Experimental.SpanPolicyFunc = spanPolicy
	s.compactions = newScheduler()
	opts.Experimental.CompactionScheduler = s.compactions
	return pebble.Open(o.Dir, opts)
}

// l0Threshold is twice as many flushes as lie over each other before they are merged with the level below. A merge reads and
// writes much of that level, whatever it brings, so fewer merges of more flushes write less: with a million values of 100
// bytes, overwritten evenly, 2.6 bytes for each byte at 16 instead of 4.3 at 8. A point read asks the filters of so many
// tables more. Small memtables are flushed often, beside data that is large for them: a million values of 1 KB, overwritten
// evenly with memtables of 3 MB, cost 62 to 66 us each while it lasts at 16, and 53 to 69 at 32.
func (o *Options) l0Threshold() int {
	if o.memTableBytes() < largeMemTable {
		return 32
	}
	return 16
}

// mergesMost is how many merges run at the same time on a machine of so many processors. Processors belong to commands first.
// And while one merge takes flushes into the first level, all that a second one can do about the flushes that wait is to
// merge them with each other, which writes their values once more for little: on two processors, a million values of 1 KB
// overwritten evenly cost 62 us each with two merges, and 53 with one.
func mergesMost(processors int) int { return max(1, min(2, processors/2)) }

// tableBytes is how large a table becomes on its way down, bytes, with the values it refers to: bulk values leave a tenth of
// that or less in the table. A restart opens nearly every table there is: with Pebble's own 2 MB and up it took twice the
// processor time (2 GB in values of 1 KB: 430 tables, then 90). And no larger than this, since a compaction takes a table
// and all below it as a whole.
func tableBytes() [7]int64 {
	return [7]int64{16 << 20, 16 << 20, 32 << 20, 32 << 20, 64 << 20, 64 << 20, 64 << 20}
}

// setLevels says how tables are written.
func setLevels(opts *pebble.Options) {
	opts.TargetFileSizes = tableBytes()
	for i := range opts.Levels {
		l := &opts.Levels[i]
		l.BlockSize = 4 << 10
		l.IndexBlockSize = 256 << 10
		l.FilterPolicy = bloom.FilterPolicy(10)
		l.Compression = func() *sstable.CompressionProfile { return sstable.FastCompression }
	}
}

// spanPolicy keeps everything that is walked in its table; only bulk values may live apart.
func spanPolicy(start []byte) (pebble.SpanPolicy, []byte, error) {
	if len(start) > 0 && start[0] >= layout.SpaceBulk {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	return pebble.SpanPolicy{
		DisableValueSeparationBySuffix: true,
		ValueStoragePolicy:             pebble.ValueStorageLowReadLatency,
	}, []byte{layout.SpaceBulk}, nil
}

func (s *Store) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: s.backgroundErrors(),
		FlushBegin:      func(pebble.FlushInfo) { s.jobs.begin(keepThem) },
		FlushEnd:        func(pebble.FlushInfo) { s.jobs.end() },
		CompactionBegin: func(info pebble.CompactionInfo) { s.jobs.begin(jobOf(&info)) },
		CompactionEnd:   func(pebble.CompactionInfo) { s.jobs.end() },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			// A damaged table costs its keys, not the node: reads of it answer an error.
			s.corruptions.Add(1)
			s.opts.Logf("table damaged", "path", info.Path, "err", info.Details)
		},
		DiskSlow: func(info pebble.DiskSlowInfo) { s.opts.Logf("disk slow", "info", info.String()) },
	}
}

// backgroundErrors tells of flushes and compactions that failed, at most once a second: without room on the disk one is
// tried again thousands of times.
func (s *Store) backgroundErrors() func(error) {
	var mu sync.Mutex
	var told time.Time
	times := 0
	return func(err error) {
		s.noteRoom(err)
		mu.Lock()
		defer mu.Unlock()
		if times++; time.Since(told) < time.Second {
			return
		}
		s.opts.Logf("background work of the store failed", "err", err, "times", times)
		told, times = time.Now(), 0
	}
}

// valueDamaged hears of each damaged block in a file of separated values. Such a file is rewritten no more in
// this life: the rewrite would fail, and begin again at once.
func (s *Store) valueDamaged(err error) {
	s.corruptions.Add(1)
	s.valuesDamaged.Store(true)
	s.opts.Logf("value file damaged", "err", err)
}

// closeDB closes Pebble. It panics when a background rewrite that failed has left a file open, at the very end.
func (s *Store) closeDB() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("close store in %s: %v", s.opts.Dir, p)
		}
	}()
	return s.db.Close()
}

// Corruptions counts damaged blocks met since the start.
func (s *Store) Corruptions() int64 { return s.corruptions.Load() }

// pebbleLogger passes on what matters.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(string, ...any) {}
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.opts.Logf("store below", "says", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.opts.Fatal(fmt.Errorf("store below: "+format, args...))
}

// flushCategory is how Pebble names files that a flush of a memtable writes.
const flushCategory = "pebble-memtable-flush"

// orderedFS makes the log durable before any table that a flush writes: a table must never be on disk with
// rows whose log entries a power cut can still take. The MANIFEST would be too late a place, since the kernel
// may write it whenever it likes, and the flush's beginning runs under a lock that must not wait.
type orderedFS struct {
	vfs.FS
	barrier func() error
	damaged func(error) // hears of damage in files of separated values
	cold    *coldread.Queue
	streams streamPool
}

func (f *orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.beforeMarker(name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if isBulk(f.PathBase(name)) {
		file = inPieces(&politeFile{File: file}, pieceBytes)
	}
	if category == flushCategory {
		file = &orderedFile{file, f.barrier}
	}
	return file, nil
}

// Remove is vfs.FS's.
func (f *orderedFS) Remove(name string) error {
	if err := f.beforeMarker(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// beforeMarker syncs the folder before a marker in it comes or goes. A marker is an empty file whose name says which
// MANIFEST counts. Pebble syncs the folder once, after it has made the MANIFEST, made its marker and removed the marker
// before it: a power cut that kept the last name and not the first, or the removal only, would leave a store that
// does not open. File systems that keep the order of names do not do that; not all promise to.
func (f *orderedFS) beforeMarker(name string) error {
	if !strings.HasPrefix(f.PathBase(name), markerPrefix) {
		return nil
	}
	dir, err := f.OpenDir(f.PathDir(name))
	if err != nil {
		return fmt.Errorf("sync the folder of %s: %w", name, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync the folder of %s: %w", name, err)
	}
	return nil
}

// markerPrefix begins the names of Pebble's markers.
const markerPrefix = "marker."

// Unwrap is vfs.FS's.
func (f *orderedFS) Unwrap() vfs.FS { return f.FS }

type orderedFile struct {
	vfs.File
	barrier func() error
}

func (f *orderedFile) Sync() error {
	if err := f.barrier(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *orderedFile) SyncData() error {
	if err := f.barrier(); err != nil {
		return err
	}
	return f.File.SyncData()
}
