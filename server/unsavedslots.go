package server

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"cairn/wal"
)

// unsavedSlots knows where in the log the words on slots begin that nodes.conf may not have yet. They are answered when
// they are logged, and nodes.conf follows at leisure. But a start executes the log only from where the store stands, and
// that may be behind them by then. So the store keeps, with each group that it writes, from where a start has to read them
// again:
//
//	log    ... SETSLOT 5 IMPORTING ... SETSLOT 5 NODE ... |
//	           ^ Recall                                   ^ Applied, and nodes.conf has neither
//
// One begins before its entry is logged and ends when the cluster has done it. It is saved when nothing is under way and
// the cluster has nothing that is unsaved.
type unsavedSlots struct {
	mu    sync.Mutex
	any   bool
	from  int64 // offset of the first one; with any
	under int   // how many have begun and not ended
}

// begin comes before what end is then the start of.
func (u *unsavedSlots) begin(end func() int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.any {
		u.any, u.from = true, end()
	}
	u.under++
}

func (u *unsavedSlots) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.under--
}

// since gives the offset of the first one, or end. unsaved says whether the cluster has anything that is not saved.
func (u *unsavedSlots) since(end int64, unsaved func() bool) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.any && u.under == 0 && !unsaved() {
		u.any = false
	}
	if !u.any {
		return end
	}
	return min(u.from, end)
}

// recallFrom is engine.Options.Recall.
func (s *Server) recallFrom(end int64) int64 {
	if s.bus == nil {
		return end
	}
	return s.unsavedSlots.since(end, s.bus.Unsaved)
}

// recallEarlier reads again what the log says of slots before what is executed. What was trimmed since is old, and saved.
func (s *Server) recallEarlier(log *wal.Log, from, to int64) error {
	if s.bus == nil || from >= to || from < log.First() {
		return nil
	}
	r, err := log.NewReader(from)
	if err != nil {
		return err
	}
	defer r.Close()
	in := &entryReader{r: io.LimitReader(r, to-from), offset: from}
	for {
		e, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log for slots on their way: offset %d: %w", in.offset, err)
		}
		s.openSlots.recall(e.commands)
	}
}
