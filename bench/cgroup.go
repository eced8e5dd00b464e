package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// fence holds a process to so much memory, page cache included.
type fence struct {
	dir   string // of the control group; "" when this machine permits none
	Label string // what the report says of it
}

// cgroups are the places where a group with a memory limit can be made: version 2, and version 1.
func cgroups() []struct{ parent, limit string } {
	return []struct{ parent, limit string }{
		{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	}
}

// newFence makes a control group. Where none may be made the fence has no wall, and says so: then there is only
// memory-budget, and the caller empties the page cache.
func newFence(name string, bytes int64) *fence {
	name = fmt.Sprintf("cairn-bench-%d-%s", os.Getpid(), name)
	for _, g := range cgroups() {
		dir := filepath.Join(g.parent, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		// In version 2 the file is there only when the controller is handed down to this level.
		if err := tell(filepath.Join(dir, g.limit), bytes); err != nil {
			_ = os.Remove(dir) // it has nobody in it
			continue
		}
		return &fence{dir, fmt.Sprintf("control group of %d MB, page cache included", bytes>>20)}
	}
	return &fence{"", fmt.Sprintf("memory-budget alone, no control group permitted here: the page cache helps beyond %d MB", bytes>>20)}
}

// tell writes a number into a file of the kernel, and makes none: where version 1 is in use the folder of version 2 is an ordinary
// one, in which anything can be made that has no effect.
func tell(name string, n int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return errors.Join(err, f.Close())
}

// add puts a process inside. What it has used before counts only when it is touched again.
func (f *fence) add(pid int) error {
	if f.dir == "" {
		return nil
	}
	if err := tell(filepath.Join(f.dir, "cgroup.procs"), int64(pid)); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// remove removes the group, once its process has ended.
func (f *fence) remove() {
	if f.dir != "" {
		_ = os.Remove(f.dir) // one that is left is empty and has no effect
	}
}

// dropCaches empties the page cache, where this is permitted. Without it the first reads are faster than the disk.
func dropCaches() error {
	err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
