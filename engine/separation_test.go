package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
)

// TestValuesLeaveInMerges: a flush leaves values in its table, the merge into a level below takes them out, and reads do not
// see any of it.
func TestValuesLeaveInMerges(t *testing.T) {
	mem, log := vfs.NewMem(), &memLog{}
	s, _, err := Open(Options{FS: mem, Dir: "store", MemoryBudget: 64 << 20})
	if err == nil {
		err = s.Attach(log)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := func(i byte) []byte { return []byte{'{', 'v', '}', i} }
	val := func(i, round byte) []byte { return bytes.Repeat([]byte{i, round}, 2500) }
	for round := range byte(2) {
		for i := range byte(40) {
			putValue(t, s, key(i), val(i, round))
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if n := blobFiles(t, mem); n != 0 {
			t.Fatalf("%d files of values after a flush", n)
		}
	}
	mergeAll(t, s)
	if n := blobFiles(t, mem); n != 1 {
		t.Fatalf("%d files of values after a merge, want 1", n)
	}
	for i := range byte(40) {
		if v, err := value(s, key(i)); err != nil || !bytes.Equal(v, val(i, 1)) {
			t.Errorf("value %d has %d bytes, %v", i, len(v), err)
		}
	}
	if len(s.jobs.on) != 0 {
		t.Errorf("jobs that have ended are kept: %v", s.jobs.on)
	}
}

// mergeAll merges everything into the lowest level.
func mergeAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.db.Compact(t.Context(), []byte{layout.SpaceNode}, []byte{layout.SpaceBulk + 1}, false); err != nil {
		t.Fatal(err)
	}
}

func blobFiles(t *testing.T, fs vfs.FS) (n int) {
	t.Helper()
	names, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, blobSuffix) {
			n++
		}
	}
	return n
}

func TestJobs(t *testing.T) {
	levels := func(out int, in ...int) *pebble.CompactionInfo {
		info := &pebble.CompactionInfo{Output: pebble.LevelInfo{Level: out}}
		for _, l := range in {
			info.Input = append(info.Input, pebble.LevelInfo{Level: l})
		}
		return info
	}
	for _, tc := range []struct {
		info *pebble.CompactionInfo
		want job
	}{
		{levels(0, 0, 0), keepThem},
		{levels(4, 0, 4), takeApart},
		{levels(6, 0, 6), takeApart},
		{levels(6, 5, 6), passOver},
		{levels(6, 4, 5, 6), passOver},
		{levels(6), passOver},
	} {
		if got := jobOf(tc.info); got != tc.want {
			t.Errorf("from %v to %v: %d, want %d", tc.info.Input, tc.info.Output, got, tc.want)
		}
	}
	var j jobs
	j.begin(takeApart)
	other := make(chan job)
	go func() { other <- j.current() }()
	if a, b := j.current(), <-other; a != takeApart || b != passOver {
		t.Errorf("here %d, elsewhere %d", a, b)
	}
	j.end()
	if a := j.current(); a != passOver {
		t.Errorf("%d after the end", a)
	}
}
