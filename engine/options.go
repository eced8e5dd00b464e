package engine

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/invariant"
)

// FS is where files live: the machine's file system, or one that tests make fail.
type FS = vfs.FS

// DiskFS is the system's own.
func DiskFS() FS { return vfs.Default }

// PlainWrites is the category of files that are none of the store's, for FS.Create.
const PlainWrites = vfs.WriteCategoryUnspecified

// Options says how a store is opened.
type Options struct {
	FS  vfs.FS // nil: the machine's
	Dir string // the store's own folder

	// MemoryBudget in bytes is split over record cache, block cache, memtables and pending rows. Default 512 MiB.
	MemoryBudget int64
	// OpenTables is how many files of the store are kept open at most. Default 4096.
	OpenTables int
	// CutBytes is how many pending bytes make the applier cut. Default: a quarter of a memtable, of a large one nearly half, at most 16 MiB.
	CutBytes int64
	// CutInterval is how long a row waits for the applier at most. Default 1 s.
	CutInterval time.Duration
	// RecoveryLogBytes bounds the Weight of the log beyond the durable offset, hence the time of recovery. Default 64 MiB.
	RecoveryLogBytes int64
	// RecoveryAge bounds the same by time, for a store that is hardly written. Default 60 s.
	RecoveryAge time.Duration
	// GarbageInterval is how often the store looks for ranges that are mostly deleted. Default 5 s.
	GarbageInterval time.Duration
	// DropRowsMax is up to how many rows of a dropped value are deleted one by one. Default 4096.
	DropRowsMax uint64
	// IteratorLifetime is how long a walk may be open, see ErrIterTooOld. Default 60 s.
	IteratorLifetime time.Duration
	// RevertPatience is how long Revert waits for walks to end. Default 5 s.
	RevertPatience time.Duration

	// DiskReserve is how many bytes stay free for deletions and background work. Default: by the disk's size.
	DiskReserve int64
	// BootID names the machine's run; a change of it between two runs of the program means that the machine
	// stopped. Empty: not known.
	BootID string
	// Recall gives the offset from which entries without rows are to be read again after a crash, though what is before
	// end is applied: their effect elsewhere may not be durable yet. Commits wait meanwhile. Default: end.
	Recall func(end int64) int64
	// Logf notes an event with its fields. Default: nowhere.
	Logf func(event string, fields ...any)
	// Fatal is told once that the store cannot go on (a write or sync of Pebble failed). Default: panic.
	Fatal func(error)
}

const (
	minMemoryBudget = 16 << 20
	maxCutBytes     = 16 << 20
)

func (o *Options) applyDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.MemoryBudget == 0 {
		o.MemoryBudget = 512 << 20
	}
	if o.OpenTables == 0 {
		o.OpenTables = 4096
	}
	if o.CutBytes == 0 {
		o.CutBytes = o.cutBytes()
	}
	if o.CutInterval == 0 {
		o.CutInterval = time.Second
	}
	if o.RecoveryLogBytes == 0 {
		o.RecoveryLogBytes = 64 << 20
	}
	if o.RecoveryAge == 0 {
		o.RecoveryAge = time.Minute
	}
	if o.DropRowsMax == 0 {
		o.DropRowsMax = 4096
	}
	if o.GarbageInterval == 0 {
		o.GarbageInterval = 5 * time.Second
	}
	if o.IteratorLifetime == 0 {
		o.IteratorLifetime = time.Minute
	}
	if o.RevertPatience == 0 {
		o.RevertPatience = 5 * time.Second
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { invariant.Fail("the store failed and nobody was to be told: %v", err) }
	}
}

func (o *Options) validate() error {
	if o.MemoryBudget < minMemoryBudget {
		return fmt.Errorf("memory-budget: %d bytes is below the minimum of %d bytes", o.MemoryBudget, minMemoryBudget)
	}
	return nil
}

// The split of the budget, which is for all that the process has resident, its own code included.
//
//	program       code, Go's runtime, a few connections: about the same for every budget
//	record cache  35 % of the rest, 25 % to 10 % of little, less what the filters of keys have of it; on Go's heap
//	block cache   15 %; off the heap where Pebble is built with cgo
//	memtables     1/32 each, at most 64 MiB, five at a time at worst (four that wait or fill, one being flushed)
//	              and off the heap with cgo
//	what is left  pending rows, the log's buffer, compactions, connections, room for the collector
const (
	programBytes = 24 << 20
	littleBytes  = 96 << 20
	// besideBytes is what else is needed of little, whatever its size: tables of slots, pending rows, buffers, the runtime's
	// own, and room for garbage. A cache that leaves less makes the collector begin again as soon as it has ended: measured,
	// a budget of 64 MB with a cache of 10 MB has 100 collections a second, which take half of all processor time.
	besideBytes   = 32 << 20
	memTablesMost = 5
	// largeMemTable is from which size on a memtable is none of a small budget: that of 536 MB.
	largeMemTable = 16 << 20
)

func (o *Options) spendable() int64 { return o.MemoryBudget - min(programBytes, o.MemoryBudget/2) }

func (o *Options) cacheBytes() int64 {
	have := o.spendable()
	if have >= littleBytes {
		return have * 35 / 100
	}
	return min(have*25/100, max(have*10/100, (have-besideBytes)/2))
}

// cutBytes is small where memory is: four cuts may be pending. Where there is room, the longer rows wait the more of them are
// written again meanwhile, and the less is applied, flushed and merged: of HSET on 100 000 small hashes a cut of a quarter of
// 31 MB cost 3.7 us of processor time each, one of half 3.4. But no more than half: what is larger becomes a memtable by itself,
// all at once, and SET of 1 KB at half of the highest rate then had a p99 of 113 ms instead of 5.
func (o *Options) cutBytes() int64 {
	table := o.memTableBytes()
	if table < largeMemTable {
		return table / 4
	}
	return min(maxCutBytes, table*7/16)
}

func (o *Options) blockCacheBytes() int64 { return o.spendable() * 15 / 100 }

// pendingBytes is small where memtables are: a group that is larger than half of one becomes a memtable by itself,
// on the heap, and as many of these may wait as of others.
func (o *Options) pendingBytes() int64 { return max(4*o.CutBytes, 1<<20) }

func (o *Options) memTableBytes() int64 {
	return min(64<<20, max(1<<20, o.spendable()/32))
}

// baseLevelBytes is how large the level may grow that flushes are merged into. Each merge writes much of it, and brings
// what a few memtables held: a level that is large beside these is written again and again. Under a budget of 100 MB,
// a million values of 100 bytes that are overwritten evenly cost 18 bytes of tables for each byte, and 32 with 256 MB
// here whatever the budget.
func (o *Options) baseLevelBytes() int64 { return min(256<<20, 16*o.memTableBytes()) }

// GoMemoryLimit is how much of a memory budget Go's runtime may take in all, for debug.SetMemoryLimit: what C's
// allocator has for Pebble is not in Go's accounts, nor is the code.
func GoMemoryLimit(budget int64) int64 {
	o := Options{MemoryBudget: max(budget, minMemoryBudget)}
	return o.spendable() - o.offHeapBytes()
}

// offHeapBytes is what C's allocator has at most, fragments left out.
func (o *Options) offHeapBytes() int64 {
	if !pebbleOffHeap {
		return 0
	}
	return o.blockCacheBytes() + memTablesMost*o.memTableBytes()
}
