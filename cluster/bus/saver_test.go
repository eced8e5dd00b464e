package bus

import (
	"testing"

	"cairn/cluster"
)

// Saves that nobody waits for are held back until some time after the last one began, and the last of them is written; one
// that somebody waits for is not.
func TestSaverGathersWhatMayWait(t *testing.T) {
	s := &saver{resting: true}
	s.init()
	state := &cluster.State{}
	got := make(chan uint64)
	s.want(cluster.Save{Seq: 1, State: state, Soon: true})
	go func() {
		seq, _ := s.next()
		got <- seq
	}()
	s.want(cluster.Save{Seq: 2, State: state, Soon: true})
	s.rested()
	if seq := <-got; seq != 2 {
		t.Fatalf("save %d is written, want 2", seq)
	}
	s.mu.Lock()
	s.resting = true // whatever the timer says
	s.mu.Unlock()
	s.want(cluster.Save{Seq: 3, State: state})
	s.want(cluster.Save{Seq: 4, State: state, Soon: true})
	if seq, _ := s.next(); seq != 4 {
		t.Fatalf("save %d is written, want 4, which has what 3 is waited for", seq)
	}
}
