package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A power cut at any moment of an Open, which makes a new MANIFEST, leaves a store that opens and has what was durable,
// whichever of the names survive that were not synced yet.
func TestPowerCutWhileOpening(t *testing.T) {
	for seed := range uint64(3) {
		fs, log := vfs.NewCrashableMem(), &cutLog{}
		s, _ := openWithLog(t, replaceOptions(fs), log)
		txn := s.NewTxn()
		for i := range 50 {
			set(t, txn, fmt.Sprint("k", i), "v")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var clones []*vfs.MemFS
		rnd := rand.New(rand.NewPCG(seed, 3))
		cutting := &cuttingFS{FS: fs, cut: func() {
			clones = append(clones, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 10 + rnd.IntN(80), RNG: rnd}))
		}}
		cutting.on.Store(true)
		for range 3 {
			s, _ := openWithLog(t, replaceOptions(cutting), log)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		cutting.on.Store(false)
		cutting.mu.Lock() // for a file that is being removed in the background
		all := clones
		cutting.mu.Unlock()
		if len(all) < 20 {
			t.Fatalf("%d cuts only", len(all))
		}
		for i, clone := range all {
			s, opened, err := Open(replaceOptions(clone))
			if err != nil {
				t.Fatalf("seed %d, cut %d of %d: %v", seed, i, len(all), err)
			}
			if opened.Fresh || s.Keys() != 50 {
				t.Errorf("seed %d, cut %d of %d: fresh: %v, %d keys", seed, i, len(all), opened.Fresh, s.Keys())
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
