package server

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"cairn/engine"
)

// How fast this node executes its log again is measured at each recovery that is long enough to tell, and kept in a file
// beside log and store, so that the next start knows how much log is executed in about a second: recovery-log-size where
// nobody has set it. Both are in bytes as engine.Weight counts them, so that small entries tell of large ones.
//
//	DIR/cairn/replay-speed    one line of decimal digits, bytes a second
//
// The file is a hint: one that is missing, damaged or absurd means the first guess, and nothing else depends on it.
const (
	speedFile     = "replay-speed"
	speedLine     = 32       // bytes read of it at most
	speedFrom     = 4 << 20  // a shorter replay measures the start of the process
	recoveryLeast = 24 << 20 // bounds of what is found
	recoveryMost  = 128 << 20
	recoveryGuess = 96 << 20 // before anything was measured: about what is executed in a second of values of some hundred bytes
)

// recoveryBytes is the size of log for a speed, 0: not known.
func recoveryBytes(speed int64) int64 {
	if speed <= 0 {
		return recoveryGuess
	}
	return min(max(speed, recoveryLeast), recoveryMost)
}

// joinSpeed takes a measurement in. The last one counts as much as all before it: machines change, and one measured under
// load must not stay.
func joinSpeed(known, bytes int64, took time.Duration) int64 {
	if bytes < speedFrom || took <= 0 {
		return known
	}
	speed := max(int64(float64(bytes)/took.Seconds()), 1)
	if known <= 0 {
		return speed
	}
	return known/2 + speed/2
}

// readSpeed gives the speed on file, 0 where there is none.
func readSpeed(fs engine.FS, dir string) int64 {
	f, err := fs.Open(fs.PathJoin(dir, speedFile))
	if err != nil {
		return 0
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, speedLine))
	if err != nil {
		return 0
	}
	speed, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil || speed < 0 {
		return 0
	}
	return speed
}

// writeSpeed puts a speed on file, whole or not at all.
func writeSpeed(fs engine.FS, dir string, speed int64) error {
	path := fs.PathJoin(dir, speedFile)
	f, err := fs.Create(path+".new", engine.PlainWrites)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = fmt.Fprintf(f, "%d\n", speed)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// findRecoverySize makes recovery-log-size what the speed on file asks for, unless somebody has set it.
func (s *Server) findRecoverySize(dir string) {
	fs := s.fileSystem()
	s.admin.replaySpeed.Store(readSpeed(fs, dir))
	s.cfg.SetAuto("recovery-log-size", recoveryBytes(s.admin.replaySpeed.Load()))
}

// noteReplay takes note of a recovery. That it cannot be written down changes the next guess and nothing else.
func (s *Server) noteReplay(dir string, bytes int64, took time.Duration) {
	known := s.admin.replaySpeed.Load()
	speed := joinSpeed(known, bytes, took)
	if speed == known {
		return
	}
	s.admin.replaySpeed.Store(speed)
	if err := writeSpeed(s.fileSystem(), dir, speed); err != nil {
		s.log.Notice("the speed of the replay is not kept", "err", err)
	}
}

// fileSystem is where the data is.
func (s *Server) fileSystem() engine.FS {
	if s.fs != nil {
		return s.fs
	}
	return engine.DiskFS()
}
