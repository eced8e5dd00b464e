package wal

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// Options configures a log.
type Options struct {
	FS  vfs.FS // all file access; default the operating system's
	Dir string // directory of the segments, created when missing

	SegmentBytes int64        // size of a segment file, default 64 MiB, at least 16 KiB; the first ones are 1, 4 and 16 MiB
	Policy       Policy       // default EverySec
	Now          func() int64 // monotonic milliseconds; default the process's clock
	BufferLimit  int64        // bytes appended but not written at which Reserve waits, default 32 MiB
	KeepBytes    int64        // bytes Trim leaves behind the end for replicas (repl-backlog-size), default 1 MiB
	PinLimit     int64        // bytes behind the end that pins may hold, default 1 GiB

	ManualTick bool // no ticker: the owner calls Tick

	Logf      func(event string, kv ...any) // default nothing
	OnFailure func(error)                   // told once, by the goroutine that met the failure; may be nil

	// Passed is told which parts of a long entry have been copied out of the memory that AppendParts was given, piece by
	// piece, by whoever does it, maybe under the log's mutex. May be nil.
	Passed func(part []byte)
}

const minSegmentBytes = 16 << 10

// firstSegmentBytes are the sizes of the first segments of a process: a small node, or one that
// restarts again and again, must not pay for 64 MiB each time.
func firstSegmentBytes(n int) int64 {
	switch n {
	case 0:
		return 1 << 20
	case 1:
		return 4 << 20
	case 2:
		return 16 << 20
	}
	return 1 << 62
}

func (o *Options) applyDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return time.Since(start).Milliseconds() }
	}
	if o.BufferLimit == 0 {
		o.BufferLimit = 32 << 20
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = 1 << 20
	}
	if o.PinLimit == 0 {
		o.PinLimit = 1 << 30
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
}

// validate reports all mistakes at once.
func (o *Options) validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("log directory: empty, want a path"))
	}
	if o.SegmentBytes < minSegmentBytes {
		errs = append(errs, fmt.Errorf("log segment size: %d bytes is below the minimum of %d bytes", o.SegmentBytes, minSegmentBytes))
	}
	if o.Policy < EverySec || o.Policy > No {
		errs = append(errs, fmt.Errorf("log policy: %d is not between %d and %d", o.Policy, EverySec, No))
	}
	for _, n := range []struct {
		name  string
		value int64
	}{{"buffer limit", o.BufferLimit}, {"keep bytes", o.KeepBytes}, {"pin limit", o.PinLimit}} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("log %s: %d bytes is below 0", n.name, n.value))
		}
	}
	return errors.Join(errs...)
}

// chunkBytes is the size of the pieces the buffer is made of, and so of most writes. Two of them fit
// the smallest segment in use.
func (o *Options) chunkBytes() int {
	return int(min(512<<10, (min(o.SegmentBytes, firstSegmentBytes(0))-record.DataAt)/2))
}
