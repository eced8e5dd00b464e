package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"cairn/server"
	"cairn/server/config"
)

// exitDisk is the status after a failed write or sync: sysexits.h calls it an input/output error.
const exitDisk = 74

// sameSignal is how long after the wish to stop a signal says nothing new: timeout(1) signals the process and its group.
const sameSignal = time.Second

// runServer runs a node until a signal, SHUTDOWN or a failure ends it.
func runServer(args []string) int {
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		fmt.Println(redisVersionText())
		return 0
	}
	from := findStarter()
	stdin := &kept{from: os.Stdin}
	cfg, notes, err := config.Load(args, os.Environ(), stdin)
	if err != nil {
		from.complain("configuration:\n%v", err)
		return 1
	}
	if err := tryLogFile(cfg); err != nil {
		from.complain("logfile: %v", err)
		return 1
	}
	if wantsDaemon(cfg, from) {
		if err := tryPidFile(cfg); err != nil {
			from.complain("warning: %v", err)
		}
		return startDaemon(stdin.text)
	}
	if err := os.Chdir(cfg.V.Dir.Load()); err != nil {
		from.complain("dir: %v", err)
		return 1
	}
	log := server.NewLogger(cfg.Path(cfg.V.LogFile.Load()), os.Stdout, cfg.V.LogLevel.Load())
	mode := "standalone"
	if cfg.V.ClusterEnabled.Load() {
		mode = "cluster"
	}
	log.Banner(server.Version, mode, cfg.V.Port.Load())
	for _, n := range notes {
		log.Notice(n.String())
	}
	return serve(cfg, log, from)
}

// Goroutines have two places to run for each processor, up to mostPlaces, unless GOMAXPROCS is set.
//
// One that waits in the system for something else than the disk (a write, a sync, a table being opened) occupies its place until
// the runtime sees that it waits, from 20 microseconds to 10 milliseconds later; reads that find their bytes missing in the page
// cache do not (internal/coldread). Measured on two processors, data four times the memory, 50 connections: random GET 24 500 a
// second with two places, 28 300 with three, 32 100 with four. But the collector takes a quarter of the places for itself, and with
// eight on two processors that is both: during a full sync the longest PING was 316 ms, and 18 with four.
const (
	placesEach = 2
	mostPlaces = 8
)

// makePlaces makes them. Where the system grants less than the processors (a quota of a container or of systemd), Go's choice
// stays: who spends the quota early waits for the next period.
func makePlaces() {
	if places := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") == "" && places >= runtime.NumCPU() && places < mostPlaces {
		runtime.GOMAXPROCS(min(placesEach*places, mostPlaces))
	}
}

func serve(cfg *config.Config, log *server.Logger, from starter) int {
	makePlaces()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	s := server.New(cfg, log)
	started := make(chan error, 1)
	go func() { started <- s.Start() }() // ends with the start, or with the process
	if code := awaitStart(s, started, signals, cfg, log, from); code != 0 {
		return code
	}
	removePid := writePid(cfg, log)
	defer removePid()
	from.serves()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // nobody listens outside systemd
	stopWatchdog := watchdog(s)
	defer stopWatchdog()
	select {
	case sig := <-signals:
		log.Warning("Received " + signalName(sig) + " scheduling shutdown...")
	case <-s.ShutdownRequested():
		log.Warning("User requested shutdown...")
	case <-s.Fatal():
		return exitDisk
	}
	asked := time.Now()
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	done := make(chan error, 1)
	go func() { done <- s.Stop() }() // ends with the node
	for {
		select {
		case err := <-done:
			if err != nil {
				log.Warning("stop failed", "err", err)
				return exitDisk
			}
			return 0
		case <-s.Fatal():
			return exitDisk
		case <-signals:
			if time.Since(asked) < sameSignal {
				continue
			}
			log.Warning("second signal: exit at once; the log has what was acknowledged")
			return 1
		}
	}
}

// awaitStart returns 0 when the node has started, otherwise what to exit with.
func awaitStart(s *server.Server, started <-chan error, signals chan os.Signal, cfg *config.Config, log *server.Logger, from starter) int {
	var stop os.Signal // what is to stop it when it has started
	var asked time.Time
	for {
		select {
		case err := <-started:
			if err != nil {
				return startFailed(cfg, log, from, err)
			}
			if stop != nil {
				select {
				case signals <- stop:
				default: // there are others behind it
				}
			}
			return 0
		case sig := <-signals:
			switch {
			case s.Serves() && stop == nil: // clients may have been answered: it stops in order, as soon as it has started
				stop, asked = sig, time.Now()
				continue
			case s.Serves() && time.Since(asked) < sameSignal:
				continue
			}
			log.Warning("Received " + signalName(sig) + " while starting, exiting now")
			from.complain("ended by %s while starting", signalName(sig))
			return 1
		case err := <-s.Fatal(): // of what runs in the background of the start, which may never end now
			startFailed(cfg, log, from, err)
			return exitDisk
		}
	}
}

// startFailed tells why there is no node.
func startFailed(cfg *config.Config, log *server.Logger, from starter, err error) int {
	if cfg.V.LogFile.Load() != "" { // otherwise who reads the log reads standard error, too
		log.Warning("start failed", "err", err)
	}
	from.complain("%v", err)
	return 1
}

func signalName(sig os.Signal) string {
	if sig == syscall.SIGINT {
		return "SIGINT"
	}
	return "SIGTERM"
}

// watchdog tells systemd at half of the time it asks for that the node still answers.
func watchdog(s *server.Server) (stop func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return func() {}
	}
	end := make(chan struct{})
	go func() { // ends when stop is called
		tick := time.NewTicker(every / 2)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				if s.Healthy() {
					_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
				}
			}
		}
	}()
	return func() { close(end) }
}
