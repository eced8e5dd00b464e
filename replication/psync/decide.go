package psync

import (
	"bytes"
	"fmt"
)

// Held is what a primary has of its stream when a replica asks to go on.
type Held struct {
	ID, ID2 [40]byte
	Offset2 int64 // the first byte that ID2 does not name, as Redis numbers bytes; -1: there is no ID2
	First   int64 // lowest offset that can be read, in bytes before it
	End     int64 // offset behind the last byte
}

// Request is what PSYNC says.
type Request struct {
	ID   []byte // "?" for a replica without a history
	Next int64  // number of the next byte wanted, counted from 1: what the replica has is Next-1
	Fork bool   // the replica can go back to a fork
}

// Kind is how a replica goes on.
type Kind uint8

// The kinds of an Answer.
const (
	Full    Kind = iota // it gets the whole data set
	Partial             // it gets the stream from an offset on
	Fork                // it is to go back to an offset first, and ask again
)

// Answer is what a primary answers to PSYNC.
type Answer struct {
	Kind Kind
	From int64 // Partial: the offset from which the stream follows; Fork: the offset to go back to
	// Reason says why it is no partial resync; "" also for a replica that did not ask for one.
	Reason string
}

// Decide says how the replica that sends r goes on. What it wants must be of the history that is here, or of the one
// before it up to where the two part, and still be in the log. The first byte that is not there yet may be asked for.
func Decide(h Held, r Request) Answer {
	if string(r.ID) == "?" {
		return Answer{Kind: Full}
	}
	from := r.Next - 1
	switch {
	case bytes.EqualFold(r.ID, h.ID[:]):
	case h.Offset2 >= 0 && bytes.EqualFold(r.ID, h.ID2[:]):
		if r.Next <= h.Offset2 {
			break
		}
		if fork := h.Offset2 - 1; r.Fork && fork >= h.First && fork <= h.End {
			return Answer{Kind: Fork, From: fork}
		}
		return Answer{Kind: Full, Reason: fmt.Sprintf("it has the former history up to offset %d, which ended at %d", from, h.Offset2-1)}
	default:
		return Answer{Kind: Full, Reason: fmt.Sprintf("its history %.40q is another one", r.ID)}
	}
	if r.Next < 1 || from < h.First {
		return Answer{Kind: Full, Reason: fmt.Sprintf("it wants the log from offset %d, which begins at %d", from, h.First)}
	}
	if from > h.End {
		return Answer{Kind: Full, Reason: fmt.Sprintf("it wants the log from offset %d, which ends at %d", from, h.End)}
	}
	return Answer{Kind: Partial, From: from}
}
