package replication

import (
	"errors"
	"fmt"

	"cairn/replication/psync"
)

// ErrCannotRewind is what an Applier's Rewind returns when the data cannot go back that far.
var ErrCannotRewind = errors.New("the data cannot go back")

// errRewound ends a connection after which the next one continues.
var errRewound = errors.New("the data is back where the histories part")

// fork goes back to where the primary's history and the one here part, if the data can. The connection ends either
// way: the next one continues from there, or asks for everything.
func (s *session) fork(e psync.Effect) error {
	r := s.r
	r.o.Note("the primary took another way", "primary", r.address(), "from", e.Offset, "id", e.ID)
	err := r.o.Applier.Rewind(e.Offset)
	if err == nil {
		return errRewound
	}
	r.forget = errors.Is(err, ErrCannotRewind)
	return fmt.Errorf("continue where the primary took another way: %w", err)
}
