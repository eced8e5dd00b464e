package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"cairn/engine"
	"cairn/replication"
	"cairn/replication/rows"
	"cairn/server/command"
	"cairn/wal"
)

// A full sync on a replica. The new data is built beside the old, which clients read meanwhile; then one version edit
// of the store puts it in the old one's place, with the log begun anew under the primary's history. A crash leaves the
// old data with its log, or the new data: see engine.Replacement.

// loadReads is how much of the data is read ahead, bytes.
const loadReads = 256 << 10

// Load is part of replication.Applier.
func (a *applier) Load(r io.Reader, id string, offset int64) error {
	s := a.s
	next, err := s.store.NewReplacement()
	if err != nil {
		return err
	}
	defer next.Abort() //nolint:errcheck // what it leaves goes at the next start
	br := bufio.NewReaderSize(r, loadReads)
	told, err := a.read(br, next)
	if err != nil {
		return a.loadFailed(next, err)
	}
	switch _, err := br.ReadByte(); {
	case err == nil:
		return errors.New("there are bytes behind the end of the data")
	case err != io.EOF: //nolint:errorlint // bare, by io.Reader's contract
		return err
	}
	keys := next.Keys()
	if err := a.forgetSlots(); err != nil {
		return err
	}
	if err := a.swap(next, id, offset); err != nil {
		return a.loadFailed(next, err)
	}
	a.dropped.Store(false)
	if err := a.heedStates(told.SlotStates); err != nil {
		return err
	}
	s.log.Notice("the primary's data is in place", "keys", keys, "offset", s.wal.End())
	s.dropReplicas("the data was replaced by the primary's")
	return nil
}

// read reads the data, in whichever of its forms it comes.
func (a *applier) read(br *bufio.Reader, into *engine.Replacement) (told command.RDBLoaded, err error) {
	first, err := br.Peek(len(rows.Magic))
	if rows.Is(first) {
		err := command.LoadRows(br, into)
		var format *rows.FormatError
		var row *engine.RowError
		var unknown *command.UnloadableError
		if errors.As(err, &format) || errors.As(err, &row) || errors.As(err, &unknown) {
			err = &replication.RowsError{Err: err}
		}
		return told, err
	}
	if err != nil && err != io.EOF { //nolint:errorlint // bare, by io.Reader's contract
		return told, err
	}
	return command.LoadRDB(br, into, command.RDBOptions{Settings: &a.s.settings})
}

// swap makes next the data, as of offset of the primary's history.
func (a *applier) swap(next *engine.Replacement, id string, offset int64) error {
	h := wal.History{ID: newID(), ID2: noID(), Offset2: -1, Counter: a.s.wal.History().Counter + 1}
	if id != "" {
		copy(h.ID[:], id)
	}
	offset = max(offset, 0)
	return next.Commit(appendHistory(nil, h), offset, func() error { return a.s.wal.Reset(h, offset) })
}

// loadFailed makes room when two sets of data do not fit the disk: the old one goes, and the next attempt finds an
// empty node.
func (a *applier) loadFailed(next *engine.Replacement, err error) error {
	s := a.s
	// What there is of the new data goes first: it takes room, and the place of what drops the old.
	if aborted := next.Abort(); aborted != nil {
		return errors.Join(err, aborted)
	}
	if !errors.Is(err, engine.ErrDiskFull) || s.store.Keys() == 0 {
		return err
	}
	s.log.Warning("the disk has no room for the primary's data beside the old: the old data is dropped first", "keys", s.store.Keys())
	a.dropped.Store(true) // before it is so: nobody may take an empty node for one with data
	h := firstHistory()
	h.Counter = s.wal.History().Counter + 1
	if late := s.store.DropAll(appendHistory(nil, h), 0, func() error { return s.wal.Reset(h, 0) }); late != nil {
		a.dropped.Store(s.store.Keys() == 0)
		return errors.Join(err, fmt.Errorf("drop the old data: %w", late))
	}
	s.dropReplicas("the data was dropped to make room")
	return replication.ErrAgain
}
