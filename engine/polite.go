package engine

import (
	"path/filepath"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// politeFile is a table or a file of values being written: now and then it lets others run.
//
// Pebble writes such a file with two goroutines, one that fills blocks and one that writes them, which hand each block over
// an unbuffered channel. The runtime runs a goroutine that was just woken next, before all that wait for the same
// processor, and its share of time ends only when it is seen running at the end of ten milliseconds: two that wake each other
// every few microseconds are hardly ever seen. With as many flushes and compactions as processors, replies then waited for
// more than 100 ms (measured on two cores). One that yields goes to the end of the line of all processors.
type politeFile struct {
	vfs.File
	since int // bytes written since it last yielded
}

// yieldBytes is a millisecond or two of work. Yielding more often would leave compactions and flushes hardly any time
// beside many clients, and what is not flushed is what a restart has to do again.
const yieldBytes = 256 << 10

// noRoomPause is how long a file that finds no room on the disk waits before it says so: Pebble begins a flush again as soon
// as it has failed, and would keep a processor busy with that.
const noRoomPause = 50 * time.Millisecond

// Write is vfs.File's.
func (f *politeFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if vfs.IsNoSpaceError(err) {
		time.Sleep(noRoomPause)
	}
	if f.since += n; f.since >= yieldBytes {
		f.since = 0
		runtime.Gosched()
	}
	return n, err
}

// tableSuffix ends the names of tables.
const tableSuffix = ".sst"

// isBulk tells the files that are written in bulk by the background: tables and files of values.
func isBulk(name string) bool {
	ext := filepath.Ext(name)
	return ext == tableSuffix || ext == blobSuffix
}
