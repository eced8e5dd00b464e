package server

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cairn/cluster/bus"
	"cairn/engine"
	"cairn/internal/datadir"
	"cairn/internal/spill"
	"cairn/replication"
	"cairn/server/command"
	"cairn/server/config"
	"cairn/server/pubsub"
	"cairn/wal"
)

// Server is one node.
type Server struct {
	cfg       *config.Config
	log       *Logger
	store     *engine.Store
	wal       *wal.Log
	primary   *replication.Primary // the replicas attached; nil while loading
	bus       *bus.Driver          // the cluster; nil without one
	busLoaded atomic.Bool
	busRuns   bool // it was started
	table     *command.Table
	settings  command.Settings

	// Tests put a file system of their own under the data, and change sizes that no directive has.
	fs   engine.FS
	tune func(*engine.Options, *wal.Options)
	// layFrom is the constant, but for tests.
	layFrom int
	// clock is the time that commands see, Unix milliseconds. Tests make it jump.
	clock func() int64

	listeners    []net.Listener
	clients      clientList
	watches      watchTable
	events       eventQueue
	hub          *pubsub.Hub
	pause        pauseState
	stats        serverStats
	memory       clientMemory
	role         roleState
	failover     failover
	drops        slotDrops
	hints        slotHints
	moves        moveStats
	openSlots    openSlots
	unsavedSlots unsavedSlots
	leaving      leavingKeys
	peers        peerPool
	senders      senders
	gone         chan goneKeys
	routes       routeChange
	doubts       slotDoubts
	returns      slotReturns
	admin        adminState
	files        fileShares
	longArgs     atomic.Pointer[spill.Folder] // nil until the data folder is ours, and in tests without one
	dataLock     *datadir.Lock                // held from open to close; nil in tests without a folder

	// accessClock is what the store was last told of the time, Unix seconds: what idle times count from.
	accessClock atomic.Int64

	txns     sync.Pool // of *engine.Txn, for connections that have something to run
	started  time.Time
	loading  atomic.Bool
	loaded   chan struct{} // closed when the first load is over
	patience time.Duration // loadPatience
	opened   atomic.Bool   // store and log are there
	draining atomic.Bool
	stop     chan struct{} // closed when the node ends
	ended    chan struct{} // closed when it has
	stopOnce sync.Once
	fatal    chan error // the disk gave up
	failed   sync.Once
	tasks    sync.WaitGroup
}

// New makes a node from its configuration. Start opens its data.
func New(cfg *config.Config, log *Logger) *Server {
	s := &Server{
		cfg: cfg, log: log, table: command.NewTable(), hub: pubsub.NewHub(), started: time.Now(),
		stop: make(chan struct{}), loaded: make(chan struct{}), ended: make(chan struct{}), fatal: make(chan error, 1), clock: unixMilli, layFrom: layFrom, patience: loadPatience,
	}
	s.settings.DefaultSettings()
	s.openSlots.again = true // what the log says is not known yet
	s.watches.init()
	s.peers.count = &s.moves.cachedSockets
	s.gone = make(chan goneKeys, goneMost)
	s.clients.init()
	s.pause.init()
	s.admin.init()
	s.memory.init()
	return s
}

// Start listens, opens the data and executes what the log has beyond the store. Clients wait for that (loadPatience), and
// are then answered LOADING, so that nobody takes the node for dead. When it returns the node serves.
func (s *Server) Start() error {
	s.loading.Store(true)
	s.followConfig()
	s.followAdmin()
	s.setClientLimit()
	if err := s.limitFiles(); err != nil {
		return err
	}
	if err := s.checkBusPort(); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		s.closeListeners()
		return errors.Join(err, s.stopCluster(), s.releaseDataDir())
	}
	s.primary = s.newPrimary()
	s.loading.Store(false)
	close(s.loaded)
	s.startRole()
	s.resumeDrops()
	if err := s.startCluster(); err != nil {
		return errors.Join(err, s.Stop())
	}
	s.takeFoundSlots()
	s.startTask(s.expireLoop)
	s.startTask(s.keepMoves)
	s.startTask(s.clockLoop)
	s.startTask(s.runPrimary)
	s.startTask(s.relieveLoop)
	s.startTask(s.pinLoop)
	s.log.Notice("Ready to accept connections tcp")
	return nil
}

// Serves says that clients may have been answered: the data is there, though Start may not have returned.
func (s *Server) Serves() bool {
	select {
	case <-s.loaded:
		return true
	default:
		return false
	}
}

// startTask runs f in the background until the node ends; Stop waits for it.
func (s *Server) startTask(f func()) {
	s.tasks.Add(1)
	go func() { // ends when f sees s.stop closed
		defer s.tasks.Done()
		f()
	}()
}

// Fatal tells once that the node cannot go on; its files are kept as they are.
func (s *Server) Fatal() <-chan error { return s.fatal }

func (s *Server) fail(err error) {
	s.failed.Do(func() { // one is enough: what fails may be tried again all the time
		s.log.Warning("cannot go on", "err", err) // before the process ends for it
		s.fatal <- err
	})
}

// Ended is closed when the node has stopped, for whatever reason.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Stop ends the node in order: no more commands, everything applied and flushed. Safe to call twice.
func (s *Server) Stop() (err error) {
	s.stopOnce.Do(func() {
		limit := time.Duration(s.cfg.V.ShutdownTimeout.Load()) * time.Second
		until := time.Now().Add(limit)
		s.handOverSlots(limit / 2)
		s.drainReplicas(until)
		s.draining.Store(true)
		s.closeListeners()
		close(s.stop)
		s.clients.closeAll()
		err = s.stopCluster()
		s.stopRole()
		s.tasks.Wait()
		s.clients.wait()
		err = errors.Join(err, s.close())
		s.log.Notice("cairn is now ready to exit, bye bye...")
		close(s.ended)
	})
	<-s.ended
	return err
}

func (s *Server) close() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	if s.wal != nil {
		err = errors.Join(err, s.wal.Close())
	}
	err = errors.Join(err, s.releaseDataDir())
	if err != nil {
		return fmt.Errorf("close data: %w", err)
	}
	return nil
}

// takeTxn gives a transaction for a batch of commands; an idle connection has none.
func (s *Server) takeTxn() *engine.Txn {
	if t, ok := s.txns.Get().(*engine.Txn); ok {
		return t
	}
	return s.store.NewTxn()
}

// Settings, Store and Table are for command handlers.
func (s *Server) Settings() *command.Settings { return &s.settings }

// Store is explained at Settings.
func (s *Server) Store() *engine.Store { return s.store }

// Table is explained at Settings.
func (s *Server) Table() *command.Table { return s.table }

func unixMilli() int64 { return time.Now().UnixMilli() }
