package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cairn/server"
	"cairn/server/config"
)

// A daemon. Redis forks once it has read its configuration, and the parent ends with status 0. A Go program cannot fork, so
// the parent starts the program once more, with the same arguments, in a session of its own:
//
//	parent                                   child
//	reads the configuration
//	starts the child with childMark      ->  reads the configuration once more
//	waits for the end of the pipe            opens log and data
//	                                     <-  serves: closes the pipe; or says what is wrong, and ends
//	status 0; or what is wrong, and 1
//
// So who starts a daemon can talk to it at once. A start that takes longer than daemonWait goes on without the parent, and
// what is wrong then is in the log alone, as with Redis.

const (
	// childMark is in the environment of the process that runs on in the background.
	childMark = "DAEMON_CHILD_OF_CAIRN"
	childPipe = 3 // its end of the pipe

	daemonWait = 5 * time.Second
	daemonText = 64 << 10 // bytes of what the child may say
)

// defaultPidFile is where a daemon that is told nothing leaves its process id, as Redis's do.
const defaultPidFile = "/var/run/redis.pid"

// wantsDaemon says that this process is the parent of a daemon. Whoever supervises a process wants to keep it.
func wantsDaemon(cfg *config.Config, from starter) bool {
	return !from.isParent && cfg.V.Daemonize.Load() && cfg.V.Supervised.Load() == config.SupervisedNo
}

// startDaemon is the parent. stdin is what it read of its standard input: settings that the child needs as well.
func startDaemon(stdin []byte) (status int) {
	text, err := runChild(stdin)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cairn: daemonize: %v\n", err)
		return 1
	}
	if len(text) > 0 {
		_, _ = os.Stderr.Write(text)
		return 1
	}
	return 0
}

// runChild starts the program once more and returns what it says until it serves.
func runChild(stdin []byte) (said []byte, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	hear, say, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer hear.Close()
	cmd := exec.Command(self)
	cmd.Args = os.Args
	cmd.Env = append(os.Environ(), childMark+"=1")
	cmd.Stdin = in // the outputs are /dev/null
	cmd.ExtraFiles = []*os.File{say}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	in.Close()
	say.Close()
	if err != nil {
		return nil, err
	}
	if _, err := feed.Write(stdin); err != nil {
		return nil, fmt.Errorf("settings from standard input: %w", err)
	}
	feed.Close()
	if err := hear.SetReadDeadline(time.Now().Add(daemonWait)); err != nil {
		return nil, err
	}
	said, err = io.ReadAll(io.LimitReader(hear, daemonText))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	return said, err
}

// starter is who waits for the node to serve, and hears what is wrong until then: the parent of a daemon, or whoever
// reads standard error.
type starter struct {
	isParent bool
	pipe     *os.File // nil: standard error
}

// findStarter tells a daemon's child from other processes.
func findStarter() starter {
	if os.Getenv(childMark) == "" {
		return starter{}
	}
	_ = os.Unsetenv(childMark) // fails for names that are none
	pipe := os.NewFile(childPipe, "pipe to the parent")
	if info, err := pipe.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return starter{isParent: true}
	}
	syscall.CloseOnExec(childPipe)
	return starter{true, pipe}
}

// complain says why the node does not start.
func (s starter) complain(format string, args ...any) {
	out := io.Writer(os.Stderr)
	if s.pipe != nil {
		out = s.pipe
	}
	fmt.Fprintf(out, "cairn: "+format+"\n", args...)
}

// serves tells that the node does.
func (s starter) serves() {
	if s.pipe != nil {
		_ = s.pipe.Close() // the parent hears it
	}
}

// kept reads from another reader and keeps what it read.
type kept struct {
	from io.Reader
	text []byte
}

func (k *kept) Read(p []byte) (int, error) {
	n, err := k.from.Read(p)
	k.text = append(k.text, p[:n]...)
	return n, err
}

// tryLogFile opens the log once, since a node whose log goes nowhere would not be able to say so.
func tryLogFile(cfg *config.Config) error {
	path := cfg.V.LogFile.Load()
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(cfg.Path(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// tryPidFile says why the pid file that was asked for will not be written, while there is somebody to tell. The node starts all
// the same, as Redis does.
func tryPidFile(cfg *config.Config) error {
	path := cfg.V.PidFile.Load()
	if path == "" {
		return nil
	}
	folder := filepath.Dir(cfg.Path(path))
	if err := unix.Access(folder, unix.W_OK); err != nil {
		return fmt.Errorf("pid file %s will not be written: folder %s: %w", path, folder, err)
	}
	return nil
}

// writePid writes the pid file when there is to be one; what it returns removes it.
func writePid(cfg *config.Config, log *server.Logger) func() {
	path := cfg.V.PidFile.Load()
	if path == "" && cfg.V.Daemonize.Load() && cfg.V.Supervised.Load() == config.SupervisedNo {
		path = defaultPidFile
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
