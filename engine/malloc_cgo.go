//go:build cgo && linux

package engine

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
static void cairn_tune_malloc(int arenas) {
	mallopt(M_ARENA_MAX, arenas);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
}
static void cairn_trim_malloc(void) { malloc_trim(0); }
#else
static void cairn_tune_malloc(int arenas) { (void)arenas; }
static void cairn_trim_malloc(void) {}
#endif
*/
import "C"

// pebbleOffHeap: with cgo Pebble has memtables and cached blocks from C's allocator.
const pebbleOffHeap = true

// tuneAllocator keeps C's allocator near what is asked of it. By default glibc gives each thread an arena of its own
// and raises the size from which it maps memory directly, so freed memtables stay resident in as many arenas as there
// are threads: measured, 50 MB more than what was in use under a budget of 64 MB. Few arenas suffice, since memtables
// and blocks are allocated seldom. The settings are the process's; setting them again does nothing.
func tuneAllocator(budget int64) {
	const small = 512 << 20
	arenas := 4
	if budget < small {
		arenas = 1
	}
	C.cairn_tune_malloc(C.int(arenas))
}

// ReturnFree gives back to the system what C's allocator holds and nobody uses. Cached blocks have all sizes and ages, so
// what is freed lies between what is in use, and glibc gives back only what lies at the end: measured, 25 MB of 34 under a
// budget of 128 MB. Whoever allocates meanwhile waits, a few milliseconds for as many pages.
func ReturnFree() { C.cairn_trim_malloc() }
