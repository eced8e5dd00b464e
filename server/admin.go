package server

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cairn/server/command"
)

// adminState is what INFO and the commands about the node as a whole keep.
type adminState struct {
	shutdown     chan struct{}
	shutdownOnce sync.Once
	hurry        atomic.Bool // SHUTDOWN NOW: replicas are not waited for
	runID        [40]byte

	lastSave     atomic.Int64 // Unix seconds
	lastSaveTook atomic.Int64 // seconds, -1 before the first
	saves        atomic.Int64
	saving       atomic.Bool
	savedChanges atomic.Int64 // stats.changes at the last save
	peakMemory   atomic.Int64
	replaySpeed  atomic.Int64 // bytes of log a second, 0: never measured

	rates     rates
	slow      slowLog
	delays    delayLog
	monitors  monitorList
	listening listening
}

func (a *adminState) init() {
	a.shutdown = make(chan struct{})
	a.runID = newID()
	a.lastSave.Store(time.Now().Unix())
	a.lastSaveTook.Store(-1)
}

// ShutdownRequested is closed when a client has asked for the end of the node: whoever runs it calls Stop.
func (s *Server) ShutdownRequested() <-chan struct{} { return s.admin.shutdown }

// Shutdown is SHUTDOWN. Everything acknowledged is in the log whatever the words say, so they change nothing.
func (s *Server) Shutdown(x *command.Ctx) error {
	save, nosave, abort := false, false, false
	for i := 1; i < len(x.Args); i++ {
		switch {
		case x.Is(i, "nosave"):
			nosave = true
		case x.Is(i, "save"):
			save = true
		case x.Is(i, "now"):
			s.admin.hurry.Store(true)
		case x.Is(i, "force"):
		case x.Is(i, "abort"):
			abort = true
		default:
			return command.ErrSyntax
		}
	}
	if save && nosave || abort && len(x.Args) > 2 {
		return command.ErrSyntax
	}
	if abort {
		return command.Reply("ERR No shutdown in progress.")
	}
	s.admin.shutdownOnce.Do(func() {
		s.keepOpen(clientOf(x))
		close(s.admin.shutdown)
	})
	return nil // there is no reply: the connection ends with the node
}

// Time is TIME. Inside EXEC time stands still.
func (s *Server) Time(x *command.Ctx) error {
	t := time.Now()
	if x.InMulti {
		t = time.UnixMilli(x.NowMs)
	}
	x.W.Array(2)
	x.W.BulkInt(t.Unix())
	x.W.BulkInt(int64(t.Nanosecond() / int(time.Microsecond)))
	return nil
}

// LastSave is LASTSAVE.
func (s *Server) LastSave(x *command.Ctx) error {
	x.W.Int(s.admin.lastSave.Load())
	return nil
}

const errSaving command.Reply = "ERR Background save already in progress"

// Save is SAVE: everything is in Pebble's tables when it answers.
func (s *Server) Save(x *command.Ctx) error {
	if !s.admin.saving.CompareAndSwap(false, true) {
		return errSaving
	}
	if err := s.save(); err != nil {
		return err
	}
	x.W.OK()
	return nil
}

func (s *Server) save() error {
	defer s.admin.saving.Store(false)
	began, changes := time.Now(), s.stats.changes.Load()
	if err := s.store.Flush(); err != nil {
		return err
	}
	s.admin.savedChanges.Store(changes)
	s.admin.saves.Add(1)
	s.admin.lastSave.Store(time.Now().Unix())
	s.admin.lastSaveTook.Store(int64(time.Since(began).Seconds()))
	return nil
}

// BackgroundSave is BGSAVE.
func (s *Server) BackgroundSave(x *command.Ctx) error {
	if len(x.Args) > 2 || len(x.Args) == 2 && !x.Is(1, "schedule") {
		return command.ErrSyntax
	}
	if !s.admin.saving.CompareAndSwap(false, true) {
		return errSaving
	}
	s.clients.gone.Add(1) // so that Stop waits; the client that asks is counted there too
	go func() {           // ends with the flush
		defer s.clients.gone.Done()
		if err := s.save(); err != nil {
			s.log.Warning("background save failed", "err", err)
		}
	}()
	x.W.Simple("Background saving started")
	return nil
}

// RewriteLog is BGREWRITEAOF.
func (s *Server) RewriteLog(x *command.Ctx) error {
	x.W.Simple("Background append only file rewriting started")
	return nil
}

// Lolwut is LOLWUT.
func (s *Server) Lolwut(x *command.Ctx) error {
	x.W.Verbatim("txt", []byte("   /\\\n  /__\\\n /____\\\n\ncairn ver. "+Version+", Redis ver. "+redisVersion+"\n"))
	return nil
}

// followAdmin puts changes of the configuration to use that concern what is in this file's neighbours.
func (s *Server) followAdmin() {
	v := &s.cfg.V
	on := func(name string, f func(old, new string) error) { s.cfg.OnChange(name, f) }
	on("loglevel", func(string, string) error {
		s.log.SetLevel(v.LogLevel.Load())
		return nil
	})
	on("slowlog-max-len", func(string, string) error {
		s.admin.slow.trim(v.SlowlogMaxLen.Load())
		return nil
	})
	for _, name := range []string{"maxmemory", "maxmemory-clients"} {
		on(name, func(string, string) error {
			s.setClientLimit()
			return nil
		})
	}
	on("timeout", func(string, string) error {
		// A connection that waits already reckons anew when its wait ends.
		for _, c := range s.clients.snapshot() {
			_ = c.conn.SetReadDeadline(time.Now()) // fails on a closed one
		}
		return nil
	})
	on("appendonly", func(_, now string) error {
		s.log.Notice("appendonly changes nothing: the log is always kept", "appendonly", now)
		return nil
	})
	on("dir", func(string, string) error {
		return errors.New("the data is there, so it cannot be changed while the node runs")
	})
	s.admin.listening.binds, s.admin.listening.port = v.Bind.Load(), int(v.Port.Load())
	on("port", func(string, string) error { return s.relisten("Unable to listen on this port. Check server logs.") })
	on("bind", func(string, string) error { return s.relisten("Failed to bind to specified addresses.") })
	for _, name := range clusterDirectives() {
		on(name, func(string, string) error { return s.clusterConfigure() })
	}
}

// crash ends the process at once, as a crash does: nothing is flushed, recovery has to do its work.
func (s *Server) crash() { _ = unix.Kill(os.Getpid(), unix.SIGKILL) }
