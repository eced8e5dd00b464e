package engine

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// While two goroutines that wake each other write a table, as Pebble's do, a third one on the same processor gets its turn.
func TestOthersRunWhileTablesAreWritten(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const writes, size = 4000, 16 << 10
	for _, name := range []string{"000007.sst", "000007.blob"} {
		for _, category := range []vfs.DiskWriteCategory{flushCategory, "pebble-compaction"} {
			fs := &orderedFS{FS: vfs.NewMem(), barrier: func() error { return nil }}
			file, err := fs.Create(name, category)
			if err != nil {
				t.Fatal(err)
			}
			var turns atomic.Int64
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() { // ends when stop is closed
				defer close(ended)
				for {
					select {
					case <-stop:
						return
					default:
						turns.Add(1)
						runtime.Gosched()
					}
				}
			}()
			blocks, failed := make(chan []byte), make(chan error, 1)
			go func() { // ends when blocks is closed
				var err error
				for b := range blocks {
					if _, e := file.Write(b); e != nil {
						err = e
					}
				}
				failed <- err
			}()
			block := make([]byte, size)
			for range writes {
				blocks <- block
			}
			close(blocks)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			got := turns.Load()
			close(stop)
			<-ended
			if got < writes*size/yieldBytes/2 {
				t.Errorf("%s, %s: %d turns for another goroutine in %d writes", name, category, got, writes)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
