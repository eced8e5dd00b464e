// Package datadir says where the data folder of a node is, and who has it.
//
// Shape. Of gives the folder. Take takes it for a process: a file in it is locked with flock and holds the process id.
// Holder asks for the process that has it.
//
//	DIR/cairn                    the data folder, by default
//	DIR/<appenddirname>/cairn    when appenddirname names another folder than its default
//	  pid                        the lock: locked as long as a node runs; its process id in decimal, a line
//
// Several nodes may share DIR when each has an appenddirname of its own: so do scripts that start local clusters of Redis,
// and they remove that folder to remove a node's data.
//
// Errors. They name the folder and the process.
//
// Not here: what else is in the folder; engine, wal and cluster/bus know their parts.
package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// DefaultAppendDir is the default of the directive appenddirname.
const DefaultAppendDir = "appendonlydir"

// LockName is the name of the lock in the folder.
const LockName = "pid"

const (
	folderName = "cairn"
	pidBytes   = 32 // more than a process id and its line end need

	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// Of returns the data folder of a node whose directives dir and appenddirname have these values.
func Of(dir, appendDir string) string {
	if appendDir == "" || appendDir == DefaultAppendDir {
		return filepath.Join(dir, folderName)
	}
	return filepath.Join(dir, appendDir, folderName)
}

// InUseError says that another process has the data folder.
type InUseError struct {
	Folder string
	Pid    int // 0: it cannot be told
}

func (e *InUseError) Error() string {
	if e.Pid == 0 {
		return fmt.Sprintf("data folder %s is used by another node", e.Folder)
	}
	return fmt.Sprintf("data folder %s is used by the node with pid %d", e.Folder, e.Pid)
}

// A Lock holds a data folder for this process. The system releases it when the process ends, however it ends.
type Lock struct{ file *os.File }

// Take creates the folder when there is none, and takes it. An *InUseError says that another process has it.
func Take(folder string) (*Lock, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, LockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := lock(f); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &InUseError{Folder: folder, Pid: readPid(f)}
		} else {
			err = fmt.Errorf("lock the data folder %s: %w", folder, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	// Written over, never emptied first: who reads it meanwhile finds a whole line.
	text := strconv.Itoa(os.Getpid()) + "\n"
	_, err = f.WriteAt([]byte(text), 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil {
		// A full disk must not keep a node from starting: the lock holds without its text.
		_ = f.Truncate(0)
	}
	return &Lock{file: f}, nil
}

// lock waits a moment for a process that is just ending, or just looking who has the folder.
func lock(f *os.File) error {
	for try := 0; ; try++ {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == lockTries {
			return err
		}
		time.Sleep(lockPause)
	}
}

// readPid returns what the holder wrote, 0 when it wrote nothing that reads as a process id.
func readPid(f *os.File) int {
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, pidBytes))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSuffix(raw, []byte("\n"))))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// Release gives the folder up. The file stays: to remove it would let two processes lock two files of one name.
func (l *Lock) Release() error { return l.file.Close() }

// Holder returns the process that has the folder: 0 and false when none has, 0 and true when it cannot be told which.
func Holder(folder string) (pid int, held bool, err error) {
	f, err := os.Open(filepath.Join(folder, LockName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("who has the data folder: %w", err)
	}
	defer f.Close() // with what it locked
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return readPid(f), true, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("who has the data folder %s: %w", folder, err)
	}
	return 0, false, nil
}

// Forget removes the lock file of a folder that this process has, and that is to be removed.
func Forget(folder string) error { return os.Remove(filepath.Join(folder, LockName)) }
