package server

import (
	"errors"
	"fmt"
	"io"

	"cairn/engine"
	"cairn/replication"
)

// Going back to a fork. A primary that lost its role may have taken writes that its successor never saw. What is behind
// the offset where the two part is discarded here, and named in the log; then the node continues from there, without
// another full sync. It is possible while Pebble's tables do not hold anything from behind the fork:
//
//	the store is opened again as its tables have it   (engine.Store.Revert)
//	the log is cut at the fork, durably               (wal.Log.CutTo)
//	what the log has up to there is executed again
//
// A crash at any step leaves a store that is not ahead of the fork, and a log that is whole or cut: the node is at its
// old end or at the fork, and asks its primary again.

// Rewind is part of replication.Applier.
func (a *applier) Rewind(offset int64) error {
	s := a.s
	end := s.wal.End()
	if offset == end {
		return nil
	}
	if durable := s.store.Durable(); offset > end || durable > offset {
		return fmt.Errorf("%w to offset %d: the tables here have everything up to %d, the log up to %d",
			replication.ErrCannotRewind, offset, durable, end)
	}
	gone, err := a.entriesBehind(offset)
	if err != nil {
		return err
	}
	// Clients would see older values until the log is executed again.
	s.loading.Store(true)
	defer s.loading.Store(false)
	durable, err := s.store.Revert()
	if errors.Is(err, engine.ErrBusy) || errors.Is(err, engine.ErrReplacing) {
		return err
	}
	if err != nil {
		return s.failRewind(err)
	}
	to := offset
	if durable > offset { // a flush was faster than this; nothing is lost, and nothing gained
		to = end
	}
	if err := s.wal.CutTo(to); err != nil {
		return s.failRewind(err)
	}
	if _, err := replay(s, s.store, s.wal, durable); err != nil {
		return s.failRewind(err)
	}
	if err := s.store.Attach(s.wal); err != nil {
		return s.failRewind(err)
	}
	s.store.SetHistory(appendHistory(nil, s.wal.History()))
	if to != offset {
		return fmt.Errorf("%w to offset %d: the tables here have everything up to %d", replication.ErrCannotRewind, offset, durable)
	}
	// What was discarded may have opened and closed slots; what is open the primary has logged again behind the fork.
	if err := a.forgetSlots(); err != nil {
		return err
	}
	s.log.Warning("writes that the primary never saw were discarded", "entries", gone, "bytes", end-offset, "from", offset, "to", end)
	s.dropReplicas("the data went back to where it parts from the primary's")
	return nil
}

// failRewind ends the node: the next start executes the log from where the store stands.
func (s *Server) failRewind(err error) error {
	err = fmt.Errorf("go back to where the histories part: %w", err)
	s.fail(err)
	return err
}

// entriesBehind counts the entries behind offset, and makes sure that it lies between two.
func (a *applier) entriesBehind(offset int64) (n int, err error) {
	s := a.s
	from := s.store.Durable()
	r, err := s.wal.NewReader(from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	in := &entryReader{r: io.LimitReader(r, s.wal.End()-from), offset: from}
	between := from == offset
	for {
		if _, err := in.next(); err != nil {
			if err == io.EOF && between {
				return n, nil
			}
			if err == io.EOF {
				err = errors.New("it lies within an entry")
			}
			return 0, fmt.Errorf("%w to offset %d: %w", replication.ErrCannotRewind, offset, err)
		}
		between = between || in.offset == offset
		if in.offset > offset {
			n++
		}
	}
}
