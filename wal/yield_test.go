package wal

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Who waits for the kernel lets others append first: on one processor all that are ready to go into one write. Nothing
// depends on it but the time it takes, so a few writes more are allowed.
func TestWaitersShareAWrite(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fs := &countingFS{FS: newFS(t, vfs.NewMem())}
	o := testOptions(fs)
	o.SegmentBytes = 4 << 20
	l, _ := mustOpen(t, o, fresh('a'))
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	const clients, rounds = 50, 20
	begun := fs.places.Load()
	for range rounds {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				if err := l.WaitDurable(l.Append([]byte("entry"))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if n := fs.places.Load() - begun; n > rounds*clients/4 {
		t.Errorf("%d clients, %d rounds: %d writes", clients, rounds, n)
	}
}
