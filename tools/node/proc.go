package node

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of CPU times in /proc/PID/stat on every Linux that people run.
const userHz = 100

// CPUTick is how finely CPU tells time.
const CPUTick = time.Second / userHz

// CPU returns the processor time that a process has used since its start, in all its threads and
// in children that have ended.
func CPU(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("cpu time: %w", err)
	}
	// The name in parentheses may hold blanks; the numbers follow it.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("cpu time of process %d: %d fields, want at least 15", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("cpu time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

// RSS returns the bytes of memory that a process occupies now.
func RSS(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Peak returns the bytes of memory that a process has occupied at most since its start, or since ResetPeak.
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// ResetPeak lets Peak begin anew.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}

func memory(pid int, field string) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		text, ok := strings.CutPrefix(line, field)
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("memory of process %d: no line %s", pid, field)
}

// Field returns the value of a field of INFO's text, "" when it is not there.
func Field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimRight(v, "\r\n")
		}
	}
	return ""
}
