//go:build !(cgo && linux)

package engine

// pebbleOffHeap: without cgo all that Pebble has is on Go's heap. With cgo elsewhere than on Linux what it has is off
// the heap too, but then nobody counts on the limit.
const pebbleOffHeap = false

func tuneAllocator(int64) {}

// ReturnFree has nothing to give back.
func ReturnFree() {}
