package wal

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned for a log that was closed.
	ErrClosed = errors.New("log closed")
	// ErrAhead is returned for an offset beyond the end of the log.
	ErrAhead = errors.New("offset beyond the end of the log")
	// ErrChanged is returned by a reader or for a wait that was begun before CutTo or Reset.
	ErrChanged = errors.New("log was cut or replaced")
	// ErrCanceled is returned by Reader.Wait when its caller gave up.
	ErrCanceled = errors.New("wait for the log canceled")
)

// FailedError says that a write or an fsync failed, after which nothing is acknowledged any more.
type FailedError struct{ Cause error }

func (e *FailedError) Error() string { return "log failed: " + e.Cause.Error() }

// Unwrap returns the disk's error.
func (e *FailedError) Unwrap() error { return e.Cause }

// TrimmedError says that the log no longer holds an offset.
type TrimmedError struct {
	Want  int64 // offset asked for
	First int64 // lowest offset the log has
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("log offset %d was trimmed, the first is %d", e.Want, e.First)
}

// DamageError says that bytes which are proven to have been on stable storage do not read back.
type DamageError struct {
	File   string
	Pos    int64 // byte of the file
	Offset int64 // stream offset from which nothing can be read
	Proven int64 // stream offset up to which the log is proven to have been synced
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("read log segment %s: byte %d: %s; the log ends at offset %d and is proven synced to %d: "+
		"restore the file, or remove the data directory and let the node resync from a replica or a backup",
		e.File, e.Pos, e.Reason, e.Offset, e.Proven)
}

// StartError says that the log does not hold the offset from which the store wants to go on.
type StartError struct {
	Dir        string
	Applied    int64 // offset the store has applied
	First, End int64 // what the log has of that history; -1 when it has nothing
	Reason     string
	missing    bool // there is no segment at all
}

func (e *StartError) Error() string {
	if e.missing {
		return fmt.Sprintf("no log in %s, but the store has applied offset %d: bring the log back", e.Dir, e.Applied)
	}
	if e.First < 0 {
		return fmt.Sprintf("the log in %s is not the one of the store, which has applied offset %d: %s", e.Dir, e.Applied, e.Reason)
	}
	return fmt.Sprintf("open log in %s: the store has applied offset %d, the log has %d to %d: %s", e.Dir, e.Applied, e.First, e.End, e.Reason)
}

// HistoryError says that a history does not continue the present one.
type HistoryError struct {
	Offset  int64 // end of the log
	Offset2 int64 // second offset given
}

func (e *HistoryError) Error() string {
	return fmt.Sprintf("set log history at offset %d: the new history must keep the id or name it as its second id with second offset %d, got %d",
		e.Offset, e.Offset+1, e.Offset2)
}
