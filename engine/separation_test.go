package engine

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine/layout"
)

// TestValuesLeaveInMerges: a flush leaves values in its table, the merge into a level below takes them out, and reads do not
// see any of it.
func TestValuesLeaveInMerges(t *testing.T) {
	mem := vfs.NewMem()
	s := openForValues(t, mem, &memLog{})
	key := func(i byte) []byte { return []byte{'{', 'v', '}', i} }
	val := func(i, round byte) []byte { return bytes.Repeat([]byte{i, round}, 2500) }
	for round := range byte(2) {
		for i := range byte(40) {
			putValue(t, s, key(i), val(i, round))
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := blobFiles(t, mem); len(got) != 0 {
			t.Fatalf("files of values after a flush: %v", got)
		}
	}
	mergeAll(t, s)
	if got := blobFiles(t, mem); len(got) != 1 {
		t.Fatalf("files of values after a merge: %v, want one", got)
	}
	for i := range byte(40) {
		if v, err := value(s, key(i)); err != nil || !bytes.Equal(v, val(i, 1)) {
			t.Errorf("value %d has %d bytes, %v", i, len(v), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(s.jobs.on) != 0 { // nobody else is there any more
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
