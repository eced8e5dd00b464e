package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
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

func versionText() string {
	v := "devel"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v = s.Value[:12]
			}
		}
	}
	return "cairn " + server.Version + " (" + v + "), speaks Redis 7.2.4"
}

// runServer runs a node until a signal, SHUTDOWN or a failure ends it.
func runServer(args []string) int {
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		fmt.Println("Redis server v=7.2.4 " + versionText())
		return 0
	}
	cfg, notes, err := config.Load(args, os.Environ(), os.Stdin)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cairn: configuration:\n%v\n", err)
		return 1
	}
	if child, status := daemonize(cfg); child {
		return status
	}
	if err := os.Chdir(cfg.V.Dir.Load()); err != nil {
		fmt.Fprintf(os.Stderr, "cairn: dir: %v\n", err)
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
	return serve(cfg, log)
}

func serve(cfg *config.Config, log *server.Logger) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	s := server.New(cfg, log)
	if err := s.Start(); err != nil {
		if cfg.V.LogFile.Load() != "" { // otherwise who reads the log reads standard error, too
			log.Warning("start failed", "err", err)
		}
		fmt.Fprintf(os.Stderr, "cairn: %v\n", err)
		return 1
	}
	removePid := writePid(cfg, log)
	defer removePid()
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

func signalName(sig os.Signal) string {
	if sig == syscall.SIGINT {
		return "SIGINT"
	}
	return "SIGTERM"
}

// writePid writes the pid file when there is to be one; what it returns removes it.
func writePid(cfg *config.Config, log *server.Logger) func() {
	path := cfg.V.PidFile.Load()
	if path == "" && cfg.V.Daemonize.Load() {
		path = "/var/run/redis.pid"
	}
	if path == "" {
		return func() {}
	}
	path = cfg.Path(path)
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
		log.Warning("pid file not written", "err", err)
		return func() {}
	}
	return func() { _ = os.Remove(path) }
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

// childMark is in the environment of the process that runs on in the background.
const childMark = "DAEMON_CHILD_OF_CAIRN"

// daemonize starts the program once more in a session of its own, when the configuration wants a daemon and
// nobody supervises it. Go cannot fork.
func daemonize(cfg *config.Config) (parent bool, status int) {
	if !cfg.V.Daemonize.Load() || cfg.V.Supervised.Load() != config.SupervisedNo || os.Getenv(childMark) != "" {
		return false, 0
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cairn: daemonize: %v\n", err)
		return true, 1
	}
	cmd := exec.Command(self)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), childMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "cairn: daemonize: %v\n", err)
		return true, 1
	}
	return true, 0
}
