package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/cache"
	"cairn/engine/layout"
	"cairn/engine/pending"
	"cairn/internal/coldread"
)

// Store is all keys and values of a node.
type Store struct {
	opts        Options
	db          *pebble.DB
	blocks      *pebble.Cache
	compactions *scheduler
	jobs        jobs
	fs          *orderedFS
	logs        atomic.Pointer[Log]
	effects     Effects

	routing  atomic.Pointer[Routing]
	slots    [16384]slotState
	allSlots []uint16
	counters counters
	changes  changes
	cache    *cache.Cache
	pend     [2]*pending.Set // by parity of the epoch
	cut      cutLock
	lanes    atomic.Int64
	nextGen  atomic.Uint64
	drops    drops
	versions rowVersions
	garbage  garbage
	filters  filters

	newcomers *newcomers

	staging   sync.Mutex
	stagedGen uint64 // above all generations ever staged; under staging
	openGen   uint64 // the first generation of this life

	history        []byte       // written and read with the whole cut lock
	histories      atomic.Int64 // how often it was set in this life
	appliedHistory int64        // which of them the last group carried; the applier's own
	stateDirty     bool         // the state row must be written though no row is pending

	replacing replacing
	walks     walks
	place     sync.RWMutex // shared by who uses db without a slot lock and not to apply; whole while db is another

	applying     sync.Mutex // one cut and apply at a time
	applied      atomic.Int64
	durable      atomic.Int64
	appliedEpoch uint64 // of the last group; the applier's own
	sinceFlush   int64
	hugeGroup    bool // one was applied since then
	lastFlush    time.Time
	flushing     atomic.Bool
	closing      atomic.Bool
	noRoom       atomic.Bool // while closing: a flush found none on the disk
	floor        floorFile

	wake          chan struct{}
	stop          chan struct{}
	life          context.Context // ends with stop
	endLife       context.CancelFunc
	applierDone   chan struct{}
	background    sync.WaitGroup
	room          *sync.Cond
	written       atomic.Int64 // bytes reserved while there was little room
	failed        atomic.Pointer[error]
	corruptions   atomic.Int64
	valuesDamaged atomic.Bool
	gateClosed    atomic.Bool
	diskFree      atomic.Int64
}

// Opened says where the store stands, so that its owner can open the log and execute what follows.
type Opened struct {
	Applied int64  // execute the log from here
	Recall  int64  // at most Applied; see Options.Recall
	History []byte // as given to SetHistory
	Fresh   bool   // there was no store before
	Floor   Floor  // what the floor file says
}

// Open opens the store in o.Dir, making it when there is none. It refuses a store that is older than its floor
// file says: acknowledged writes would be missing.
func Open(o Options) (*Store, *Opened, error) {
	o.applyDefaults()
	if err := o.validate(); err != nil {
		return nil, nil, err
	}
	s := &Store{
		opts: o, fs: &orderedFS{FS: o.FS, cold: &coldread.Queue{}}, cache: cache.New(o.cacheBytes()), newcomers: newNewcomers(o.cacheBytes()),
		pend: [2]*pending.Set{{}, {}}, allSlots: make([]uint16, 16384),
		wake: make(chan struct{}, 1),
		room: sync.NewCond(new(sync.Mutex)), lastFlush: time.Now(),
	}
	s.cache.SetBriefs(briefOf)
	s.filters.limit, s.filters.asked = o.cacheBytes()/filterShare, make(chan uint16, len(s.slots))
	for i := range s.allSlots {
		s.allSlots[i] = uint16(i)
	}
	var none Log = &replayLog{}
	s.logs.Store(&none)
	s.fs.barrier = func() error { return s.attached().SyncAll() }
	s.fs.damaged = s.valueDamaged
	s.routing.Store(&Routing{})
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make store folder: %w", err)
	}
	// The folder itself must survive a power cut: its entry in the one above, and that one's in the next.
	for dir := o.Dir; dir != o.FS.PathDir(dir); dir = o.FS.PathDir(dir) {
		if err := SyncDir(o.FS, o.FS.PathDir(dir)); err != nil {
			return nil, nil, fmt.Errorf("sync the folder above %s: %w", dir, err)
		}
	}
	floor, err := s.floor.load(o.FS, o.Dir)
	if err != nil {
		return nil, nil, err
	}
	if s.db, err = s.openPebble(); err != nil {
		if errors.Is(err, syscall.EAGAIN) {
			err = fmt.Errorf("another node uses this folder: %w", err)
		}
		return nil, nil, errors.Join(fmt.Errorf("open store in %s: %w", o.Dir, err), s.releaseCaches())
	}
	opened := &Opened{Floor: floor}
	err = s.readState(opened)
	if err == nil {
		err = clearReplacement(o.FS, o.Dir) // now that the folder is known to be nobody else's
	}
	if err != nil {
		err = &OpenError{o.Dir, err}
		return nil, nil, errors.Join(err, s.closeDB(), s.releaseCaches())
	}
	s.floor.cur.BootID = o.BootID
	s.begin()
	return s, opened, nil
}

// readState takes up what the last group left.
func (s *Store) readState(opened *Opened) error {
	raw, ok, err := s.get(layout.StateKey(), nil)
	if err != nil {
		return fmt.Errorf("read node state: %w", err)
	}
	st := layout.State{NextGen: 1}
	opened.Fresh = !ok
	if ok {
		if err := st.Decode(raw); err != nil {
			return err
		}
	}
	if ok && st.Applied > 0 && !opened.Floor.Exists {
		return fmt.Errorf("store in %s stands at offset %d and its floor files %s and %s are missing, so nothing proves "+
			"that it is whole; bring them back, or copy the data from a backup into an empty folder",
			s.opts.Dir, st.Applied, floorNames[0], floorNames[1])
	}
	if st.Applied < opened.Floor.Applied {
		return fmt.Errorf("store in %s stands at offset %d, but its floor file proves %d was durable: "+
			"a damaged MANIFEST has opened an older state; copy the data from a replica or a backup into an empty folder",
			s.opts.Dir, st.Applied, opened.Floor.Applied)
	}
	// Where the replay stands before its first entry: a cut may fall here already.
	s.attached().(*replayLog).standsAt(st.Applied)
	s.applied.Store(st.Applied)
	s.durable.Store(st.Applied)
	if err := s.readStaged(); err != nil {
		return err
	}
	s.openGen = max(st.NextGen, s.stagedGen)
	s.nextGen.Store(s.openGen)
	s.history = st.History
	opened.Applied, opened.Recall, opened.History = st.Applied, min(st.Recall, st.Applied), st.History
	return s.readCounters()
}

// readStaged makes sure that no generation of a value that was being staged is given out again.
func (s *Store) readStaged() error {
	raw, ok, err := s.get(stagedKey(), nil)
	if err != nil {
		return fmt.Errorf("read generation of staged values: %w", err)
	}
	if ok && len(raw) == 8 {
		s.stagedGen = binary.BigEndian.Uint64(raw)
	}
	return nil
}

func (s *Store) readCounters() error {
	for p := range layout.Pages {
		raw, ok, err := s.get(layout.AppendPageKey(nil, p), nil)
		if err != nil {
			return fmt.Errorf("read counter page %d: %w", p, err)
		}
		if !ok {
			continue
		}
		var page [layout.PageSlots]layout.Counters
		if err := layout.DecodePage(&page, raw); err != nil {
			return err
		}
		copy(s.counters.live[p*layout.PageSlots:], page[:])
	}
	return nil
}

// attached is the log in force: that of the replay until Attach.
func (s *Store) attached() Log { return *s.logs.Load() }

// Replaying makes the next commit the execution of a log entry that ends at end: nothing is appended.
func (s *Store) Replaying(end int64) {
	s.attached().(*replayLog).next = end
}

// Attach gives the store its log, after what the log had beyond the applied offset was executed. From here on
// commits are appended to it.
func (s *Store) Attach(log Log) error {
	s.cut.lock()
	s.logs.Store(&log)
	s.cut.unlock()
	// This run of the machine is in the floor file from now on.
	if err := s.flushed(s.durable.Load(), 0, s.changes.durable.Load()); err != nil {
		return err
	}
	s.beginBackground()
	return nil
}

// beginBackground starts what runs while the store has its log.
func (s *Store) beginBackground() {
	s.compactions.release()
	s.background.Add(4)
	go s.watchDisk()
	go s.collectLoop()
	go s.filterLoop()
	go func() { // ends with its walk, or with Close
		defer s.background.Done()
		if err := s.findDrops(); err != nil {
			s.opts.Logf("search for dropped values ended", "err", err)
		}
	}()
}

// SetHistory notes the log's history, to travel in every group from now on.
func (s *Store) SetHistory(h []byte) {
	s.cut.lock()
	s.history, s.stateDirty = append([]byte(nil), h...), true
	s.histories.Add(1)
	s.cut.unlock()
}

// Applied is the log offset up to which everything is in Pebble; Durable the one that a crash of the machine
// leaves.
func (s *Store) Applied() int64 { return s.applied.Load() }

// Durable is explained at Applied.
func (s *Store) Durable() int64 { return s.durable.Load() }

func (s *Store) releaseCaches() error {
	s.blocks.Unref()
	return nil
}
