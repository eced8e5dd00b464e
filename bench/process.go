package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"cairn/tools/node"
)

// usage is what a process has used since its start.
type usage struct {
	cpu     time.Duration // of all its threads, and of children that have ended
	written int64         // bytes given to the disk
}

// sub returns what was used since an earlier look.
func (u usage) sub(earlier usage) usage {
	return usage{u.cpu - earlier.cpu, u.written - earlier.written}
}

// processUsage reads it from /proc.
func processUsage(pid int) (u usage, err error) {
	if u.cpu, err = node.CPU(pid); err != nil {
		return u, err
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return u, fmt.Errorf("bytes written: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "write_bytes:"); ok {
			u.written, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		}
	}
	return u, err
}

// machine is where the figures come from.
type machine struct {
	Kernel      string `json:"kernel"`
	Processor   string `json:"processor"`
	Processors  int    `json:"processors"`
	MemoryMB    int64  `json:"memory_mb"`
	LoadAverage string `json:"load_average"` // when the run began
}

func thisMachine(processors int) machine {
	m := machine{Processors: processors}
	read := func(path string) string {
		raw, err := os.ReadFile(path)
		if err != nil {
			return "" // a report that lacks a line of the machine is a report
		}
		return string(raw)
	}
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	m.LoadAverage = strings.TrimSpace(read("/proc/loadavg"))
	for line := range strings.Lines(read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	for line := range strings.Lines(read("/proc/meminfo")) {
		if text, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(text + " 0")[0], 10, 64) // as above
			m.MemoryMB = kb >> 10
			break
		}
	}
	return m
}
