package replication

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// follower cuts the stream into entries and has them applied.
type follower struct {
	s   *session
	in  inbox
	cut cutter
	at  int64 // offset of the last byte applied
	old bool

	// Of one wakeup.
	batch    []Entry
	args     [][]byte
	commands [][][]byte
}

func newFollower(s *session, at int64, old bool) *follower {
	return &follower{s: s, in: inbox{dir: s.r.o.TempDir, watch: s.r.o.Mapped, passed: s.r.o.Passed}, at: at, old: old}
}

// batchKept bounds what is kept of a batch's slices for the next one.
const batchKept = 1 << 16

// run takes what has arrived, again and again.
func (f *follower) run() error {
	in := arriving{f.s}
	for {
		room, err := f.in.room()
		if err != nil {
			return err
		}
		n, err := in.Read(room)
		f.in.received(n)
		f.s.r.status.read.Add(int64(n))
		if n > 0 {
			if err := f.taken(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return errors.New("the primary closed the connection")
		}
		if err != nil {
			return err
		}
	}
}

// taken applies the whole entries that have arrived.
func (f *follower) taken() error {
	f.batch, f.args, f.commands = f.batch[:0], f.args[:0], f.commands[:0]
	var broken error
	buf := f.in.unread()
	for {
		n, err := f.cut.next(buf)
		if err != nil {
			broken = err
			break
		}
		if n == 0 {
			break
		}
		f.batch = append(f.batch, f.cut.entry(buf, &f.args, &f.commands))
		buf = buf[n:]
	}
	if len(f.batch) > 0 {
		if err := f.apply(); err != nil {
			return err
		}
	}
	// What lies in a mapped file is not to be known to anybody when that is gone.
	if cap(f.args) > batchKept || f.in.file != nil {
		f.args, f.commands = nil, nil
	}
	if cap(f.batch) > batchKept || f.in.file != nil {
		f.batch = nil
	}
	if broken != nil {
		// What comes is no stream of commands, so nothing says that the offsets here are still the primary's.
		f.s.r.forget = true
		return fmt.Errorf("the stream is broken behind offset %d: %w; asking for everything anew", f.at, broken)
	}
	return nil
}

func (f *follower) apply() error {
	r := f.s.r
	if len(f.batch) > 1 {
		r.o.Applier.Ahead(f.batch)
	}
	for _, e := range f.batch {
		if err := f.permitted(e); err != nil {
			return f.stopped(err)
		}
		if asksForAck(e) && !f.old {
			// The answer speaks of what lies before the question: a primary that waits compares with that.
			if err := f.settle(); err != nil {
				return err
			}
			if err := f.s.ack(); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
		}
		if err := r.o.Applier.Apply(r.life, e); err != nil {
			return f.stopped(err)
		}
		f.in.take(len(e.Raw))
		f.at += int64(len(e.Raw))
		r.status.applied.Store(f.at)
	}
	return f.settle()
}

// stopped makes what was applied before the error count, and completes the error.
func (f *follower) stopped(err error) error {
	if late := f.settle(); late != nil {
		return late
	}
	var unsupported *UnsupportedError
	if errors.As(err, &unsupported) {
		unsupported.Offset = f.at
	}
	var diverged *DivergedError
	if errors.As(err, &diverged) {
		diverged.Offset = f.at
	}
	return err
}

// permitted refuses another database before anything is applied to this one: the stream names it once for all that
// follows, and nobody repeats it after the link was broken.
func (f *follower) permitted(e Entry) error {
	for _, args := range e.Commands {
		if len(args) != 2 || !bytes.EqualFold(args[0], []byte("SELECT")) {
			continue
		}
		if n, err := strconv.ParseInt(string(args[1]), 10, 64); err != nil || n != 0 {
			return &UnsupportedError{What: fmt.Sprintf("database %.20s", args[1])}
		}
	}
	return nil
}

// asksForAck says whether an entry is REPLCONF GETACK.
func asksForAck(e Entry) bool {
	if len(e.Commands) != 1 {
		return false
	}
	args := e.Commands[0]
	return len(args) >= 2 && bytes.EqualFold(args[0], []byte("REPLCONF")) && bytes.EqualFold(args[1], []byte("GETACK"))
}

// settle makes what was applied something that may be acknowledged.
func (f *follower) settle() error {
	synced, err := f.s.r.o.Applier.Settle()
	if err != nil {
		return err
	}
	st := &f.s.r.status
	st.synced.Store(synced)
	st.settled.Store(f.at)
	return nil
}
