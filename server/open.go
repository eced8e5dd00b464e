package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"cairn/engine"
	"cairn/server/config"
	"cairn/wal"
)

// open opens store and log, executes what the log has beyond the store, and connects the two.
func (s *Server) open() error {
	if s.startsAsReplica() && s.cfg.V.ClusterEnabled.Load() {
		return errReplicaOfInCluster
	}
	began := time.Now()
	if err := s.takeDataDir(); err != nil {
		return err
	}
	base := s.dataDir()
	if err := s.openLongArgs(base); err != nil {
		return err
	}
	s.findRecoverySize(base)
	debug.SetMemoryLimit(engine.GoMemoryLimit(s.cfg.V.MemoryBudget.Load()))
	eo, wo := s.storeOptions(base)
	forget, err := s.wantStore(eo.Dir, wo.Dir)
	if err != nil {
		return err
	}
	if err := s.loadCluster(); err != nil {
		return err
	}
	store, opened, err := engine.Open(eo)
	if err != nil {
		return err
	}
	if err := s.openLog(wo, opened); err != nil {
		forget()
		return errors.Join(err, store.Abandon())
	}
	s.unsavedSlots.begin(func() int64 { return opened.Recall }) // until recallSlots
	if err := s.recallEarlier(s.wal, opened.Recall, opened.Applied); err != nil {
		return errors.Join(err, store.Abandon(), s.wal.Close())
	}
	replayBegan := time.Now()
	entries, err := replay(s, store, s.wal, opened.Applied)
	took := time.Since(replayBegan)
	if err != nil {
		return errors.Join(err, store.Abandon(), s.wal.Close())
	}
	s.noteReplay(base, engine.Weight(s.wal.End()-opened.Applied, store.Changes()), took)
	if err := s.settleHistory(store, opened, eo.BootID); err != nil {
		return errors.Join(err, store.Abandon(), s.wal.Close())
	}
	if err := store.Attach(s.wal); err != nil {
		return errors.Join(err, store.Abandon(), s.wal.Close())
	}
	store.SetEffects(s)
	s.recallSlots(store)
	s.unsavedSlots.end()
	routing := &engine.Routing{}
	if s.bus != nil {
		v := s.bus.View()
		routing = routingOf(v)
		s.returns.leftBefore(v)
	}
	routing.Replica = s.startsAsReplica()
	s.role.replica.Store(routing.Replica)
	store.SetRouting(routing)
	s.store = store
	s.opened.Store(true)
	keys := store.Keys()
	s.log.Event(fmt.Sprintf("Data opened: %d keys, %d log entries executed again, %d ms", keys, entries, time.Since(began).Milliseconds()),
		"applied", opened.Applied, "log", s.wal.End())
	if keys == 0 {
		s.warnOfStrangers()
	}
	return nil
}

// storeOptions are what the configuration says of store and log, in the folder base.
func (s *Server) storeOptions(base string) (eo engine.Options, wo wal.Options) {
	budget := s.cfg.V.MemoryBudget.Load()
	eo = engine.Options{
		FS:               s.fs,
		Dir:              filepath.Join(base, "store"),
		MemoryBudget:     max(budget, 16<<20),
		OpenTables:       s.files.tables,
		CutInterval:      time.Duration(s.cfg.V.ApplyInterval.Load()) * time.Millisecond,
		RecoveryLogBytes: s.cfg.V.RecoveryLogSize.Load(),
		DiskReserve:      s.cfg.V.DiskReserve.Of(config.DiskSize(s.cfg.V.Dir.Load())),
		BootID:           bootID(),
		Recall:           s.recallFrom,
		Logf:             s.log.Event,
		Fatal:            s.fail,
	}
	wo = wal.Options{
		FS:        s.fs,
		Dir:       filepath.Join(base, "log"),
		Policy:    policyOf(s.cfg.V.AppendFsync.Load()),
		KeepBytes: s.cfg.V.ReplBacklogSize.Load(),
		PinLimit:  s.pinLimit(),
		Logf:      s.log.Event,
		OnFailure: s.fail,
		Passed:    s.passedLongArg,

		BufferLimit: min(32<<20, max(1<<20, budget/32)),
	}
	if s.tune != nil {
		s.tune(&eo, &wo)
	}
	return eo, wo
}

// wantStore refuses a log without its store before anything is made where that is to be put back. A store whose log is missing
// is known when both are open: forget then removes the empty folder that this has made.
func (s *Server) wantStore(store, log string) (forget func(), err error) {
	forget = func() {}
	if _, err := s.listData(log); errors.Is(err, os.ErrNotExist) {
		forget = func() { _ = s.removeData(log) } // what is not empty stays
	}
	if names, err := s.listData(store); err == nil && len(names) > 0 {
		return forget, nil
	}
	return forget, s.wantNoLog(log)
}

// listData returns the names in a folder of the data.
func (s *Server) listData(dir string) ([]string, error) {
	if s.fs != nil {
		return s.fs.List(dir)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (s *Server) removeData(path string) error {
	if s.fs != nil {
		return s.fs.Remove(path)
	}
	return os.Remove(path)
}

// wantNoLog returns an error when there is a log, since there is no store.
func (s *Server) wantNoLog(dir string) error {
	held, err := wal.HoldsData(s.fs, dir)
	if err != nil {
		return err
	}
	if held {
		return fmt.Errorf("there is a log in %s but no store beside it: the store's folder is missing; "+
			"bring it back, or move the log away to start empty", dir)
	}
	return nil
}

func (s *Server) openLog(o wal.Options, opened *engine.Opened) error {
	at := wal.OpenPoint{Applied: opened.Applied, Fresh: opened.Fresh, Floor: -1, History: firstHistory()}
	if opened.Fresh {
		if err := s.wantNoLog(o.Dir); err != nil {
			return err
		}
	} else {
		h, err := decodeHistory(opened.History)
		if err != nil {
			return err
		}
		at.History = h
	}
	if opened.Floor.Exists {
		at.Floor = opened.Floor.Applied
	}
	log, report, err := wal.Open(o, at)
	if err != nil {
		return err
	}
	if report.TailLost {
		s.log.Warning("tail of the log lost", "file", report.File, "byte", report.Pos, "reason", report.Reason,
			"end", report.End, "proven", report.Proven, "dropped", report.Dropped)
	}
	s.wal = log
	// What is executed again must not reach a table before its log entry is on the disk for good.
	return log.SyncAll()
}

// settleHistory begins a new history after a stop of the machine that may have taken the end of the log: a
// replica that got further must not go on as if nothing had happened. Everything before is known by the old id.
func (s *Server) settleHistory(store *engine.Store, opened *engine.Opened, boot string) error {
	machineStopped := !opened.Fresh && !opened.Floor.Clean && opened.Floor.BootID != boot
	// A replica's history is its primary's: it asks for what it lost.
	if machineStopped && !s.startsAsReplica() && s.wal.Policy() != wal.Always {
		h := follow(s.wal.History(), s.wal.End())
		if err := s.wal.SetHistory(h); err != nil {
			return fmt.Errorf("begin a new history: %w", err)
		}
		s.log.Warning("the machine stopped and unsynced writes may be lost", "history", string(h.ID[:]), "from", s.wal.End())
	}
	history := appendHistory(nil, s.wal.History())
	if bytes.Equal(history, opened.History) {
		return nil
	}
	store.SetHistory(history)
	if !opened.Fresh {
		return nil // the log's segments say how the new history follows the one that the store knows
	}
	// The store must know which log is its own before anything of that log is acknowledged.
	return store.Flush()
}

func policyOf(f config.Fsync) wal.Policy {
	switch f {
	case config.FsyncAlways:
		return wal.Always
	case config.FsyncNo:
		return wal.No
	}
	return wal.EverySec
}

// bootID names this run of the machine, "" where it cannot be told.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// followConfig keeps what reads no configuration itself in step with it.
func (s *Server) followConfig() {
	v := &s.cfg.V
	settings := func(string, string) error {
		s.settings.ProtoMaxBulk.Store(v.ProtoMaxBulkLen.Load())
		s.settings.HashMaxEntries.Store(v.HashMaxListpackEntries.Load())
		s.settings.HashMaxValue.Store(v.HashMaxListpackValue.Load())
		s.settings.NotifyMiss.Store(v.NotifyKeyspaceEvents.Load()&config.NotifyMiss != 0)
		p := v.MaxMemoryPolicy.Load()
		s.settings.MaxmemoryLFU.Store(p == config.AllKeysLFU || p == config.VolatileLFU)
		s.settings.MaxmemoryLRU.Store(p == config.AllKeysLRU || p == config.VolatileLRU)
		return nil
	}
	_ = settings("", "") // gives no error
	for _, name := range []string{"proto-max-bulk-len", "hash-max-listpack-entries", "hash-max-listpack-value", "maxmemory-policy", "notify-keyspace-events"} {
		s.cfg.OnChange(name, settings)
	}
	s.cfg.OnChange("appendfsync", func(string, string) error {
		if s.wal != nil {
			s.wal.SetPolicy(policyOf(v.AppendFsync.Load()))
		}
		return nil
	})
	s.cfg.OnChange("repl-pin-limit", func(string, string) error {
		if s.wal != nil {
			s.wal.SetPinLimit(s.pinLimit())
		}
		return nil
	})
	s.cfg.OnChange("repl-backlog-size", func(string, string) error {
		if s.wal != nil {
			s.wal.SetKeepBytes(v.ReplBacklogSize.Load())
		}
		return nil
	})
}
