package config

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Bounds of the settings that the machine decides, in bytes.
const (
	minMemoryBudget = 64 << 20
	maxBacklog      = 1 << 30
	minBacklog      = 16 << 20
)

// defaultBudget is half of the memory this process may use, at least
// minMemoryBudget. root is where /proc and /sys are, for tests.
func defaultBudget(root string) int64 {
	return max(memoryLimit(root)/2, minMemoryBudget)
}

// memoryLimit is the smallest of the machine's memory and the limits of the
// control groups that the process is in, in bytes; 0 when nothing can be read.
func memoryLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	if total := memTotal(filepath.Join(root, "proc/meminfo")); total > 0 {
		limit = total
	}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // absent: no groups
	for line := range strings.Lines(string(groups)) {
		// 4:memory:/a/b in version 1, 0::/a/b in version 2
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[1] == "":
			limit = min(limit, groupLimit(filepath.Join(root, "sys/fs/cgroup"), parts[2], "memory.max"))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			limit = min(limit, groupLimit(filepath.Join(root, "sys/fs/cgroup/memory"), parts[2], "memory.limit_in_bytes"))
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// groupLimit is the smallest limit on the way from a group to the top. In a
// container the path may not exist below the mount, then only the top is read.
func groupLimit(mount, group, file string) int64 {
	limit := int64(math.MaxInt64)
	for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(mount, dir, file))
		if err == nil {
			// "max", and numbers past int64, are no limit
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
		if dir == "/" {
			return limit
		}
	}
}

func memTotal(path string) int64 {
	data, _ := os.ReadFile(path) // absent on other systems: no answer
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil && kb > 0 && kb < math.MaxInt64>>10 {
				return kb << 10
			}
		}
	}
	return 0
}

// defaultBacklog is 1 GiB or 5 % of the disk that holds dir, whichever is less,
// and at least 16 MiB.
func defaultBacklog(dir string) int64 {
	total := DiskSize(dir)
	if total == 0 {
		return maxBacklog
	}
	return max(min(maxBacklog, total/20), minBacklog)
}

// DiskSize is the size in bytes of the file system that holds dir, or 0 when the
// system does not tell.
func DiskSize(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Bsize <= 0 {
		return 0
	}
	if uint64(s.Blocks) > math.MaxInt64/uint64(s.Bsize) {
		return math.MaxInt64
	}
	return int64(uint64(s.Blocks) * uint64(s.Bsize))
}
