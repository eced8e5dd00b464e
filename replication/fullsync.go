package replication

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"cairn/replication/rdb"
)

// A full sync, what goes over the wire:
//
//	"\n" each second                    while it waits for its turn and for the snapshot
//	+FULLRESYNC <id> <offset>\r\n       not after SYNC
//	$EOF:<mark>\r\n <RDB> <mark>        to a replica that announced capa eof
//	$EOF:<mark>\r\n <rows> <mark>       to one that announced capa cairn-rows-1, too: see package rows
//	$<length>\r\n <RDB>                 to any other
//	the stream                          in the first form after the replica's first acknowledgement: read together with
//	                                    the mark, it would hide it
//
// Rows or RDB: the first bytes of the data set say which it is.
//
// The length is found by writing the RDB once to nowhere: no file, and no more memory than for the other form.

// markLen is the length of the mark at the end of a data set.
const markLen = 40

// transferBytes is how much of the data set is gathered for one write.
const transferBytes = 64 << 10

// fullSync sends the data set and returns the offset from which the stream follows.
func (r *Attached) fullSync() (from int64, err error) {
	if from, err = r.sendDataSet(); err != nil {
		r.rest()
		return 0, err
	}
	switch {
	case r.h.RDBOnly:
		r.lingerForClose()
		return 0, errors.New("it wanted the data set only")
	case r.h.EOF:
		select {
		case <-r.arrived:
		case <-r.gone:
			return 0, r.why
		}
	}
	return from, nil
}

// sendDataSet is the part of a full sync that has a turn.
func (r *Attached) sendDataSet() (from int64, err error) {
	if err := r.takeTurn(); err != nil {
		return 0, err
	}
	defer r.endTurn()
	began := time.Now()
	snapshot, err := r.snapshot()
	if err != nil {
		return 0, err
	}
	from = snapshot.Offset()
	r.movePin(from)
	r.p.Full.Add(1)
	r.p.o.Logf("full resynchronization", "replica", r.name, "offset", from)
	n, form, err := r.transfer(snapshot)
	if cerr := snapshot.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		r.p.o.Logf("data set sent", "replica", r.name, "offset", from, "form", form, "bytes", n, "ms", time.Since(began).Milliseconds())
	}
	return from, err
}

// restTime is how long a replica waits whose data set could not be sent to its end. It comes back at once and asks anew;
// if the data is to blame, it would do so many times a second.
const restTime = time.Second

// rest keeps the link for a moment after a failure.
func (r *Attached) rest() {
	timer := time.NewTimer(restTime)
	defer timer.Stop()
	select {
	case <-r.gone:
	case <-timer.C:
	}
}

// keepAlive runs f in the background and sends a line end each second until it is done, so that the replica
// does not take the node for dead. f is waited for, also when the link ends.
func (r *Attached) keepAlive(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // ends with f
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var broken error
	for {
		select {
		case err := <-done:
			if broken == nil {
				broken = err
			}
			return broken
		case <-tick.C:
			if broken == nil {
				if broken = r.write([]byte{'\n'}); broken != nil {
					r.drop(broken)
				}
			}
		}
	}
}

// snapshot takes a snapshot, with the log pinned from before it on.
func (r *Attached) snapshot() (Snapshot, error) {
	if err := r.setPin(r.p.o.Log.End()); err != nil {
		return nil, err
	}
	var s Snapshot
	err := r.keepAlive(func() (err error) {
		s, err = r.p.o.Source.Snapshot()
		return err
	})
	if err != nil && s != nil {
		_ = s.Close() // the link failed meanwhile, and that is what is told
	}
	if err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	if !r.h.RDBOnly {
		// A replica that had another database selected before starts from this one. Who reads the stream without the
		// data set expects it as the first command.
		_, err = r.p.o.Append("SELECT", "0")
		if err != nil && !errors.Is(err, ErrNotNow) {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

// transfer sends the data set and says how many bytes it has, in which form.
func (r *Attached) transfer(s Snapshot) (n int64, form string, err error) {
	write, form := s.WriteRDB, "RDB"
	switch {
	case r.h.NoData:
		write = writeEmpty
	case r.h.Rows && r.h.EOF && !r.h.Old && !r.h.RDBOnly:
		write, form = s.WriteRows, "rows"
	}
	if !r.h.Old {
		id := s.History().ID
		if err := r.write(fmt.Appendf(nil, "+FULLRESYNC %s %d\r\n", id[:], s.Offset())); err != nil {
			return 0, form, err
		}
	}
	r.state.Store(int32(SyncSending))
	if r.h.EOF {
		n, err = r.transferMarked(write, s.Offset())
	} else {
		n, err = r.transferCounted(write, s.Offset())
	}
	return n, form, err
}

// transferMarked sends the data set between marks.
func (r *Attached) transferMarked(write func(io.Writer) error, offset int64) (int64, error) {
	mark := newMark()
	out := &counter{w: linkWriter{r}}
	buf := bufio.NewWriterSize(out, transferBytes)
	_, _ = fmt.Fprintf(buf, "$EOF:%s\r\n", mark) // an error stays in buf
	if err := write(buf); err != nil {
		return 0, err
	}
	if err := buf.Flush(); err != nil {
		return 0, err
	}
	n := out.n
	// From here on an acknowledgement means that the data set has arrived.
	r.heard.Store(time.Now().UnixMilli())
	if r.h.RDBOnly {
		r.state.Store(int32(SyncTransferOnly))
	} else {
		r.acked.Store(offset)
		r.state.Store(int32(SyncTransferred))
	}
	return n - int64(len("$EOF:\r\n")) - markLen, r.write(mark)
}

// transferCounted sends the data set behind its length.
func (r *Attached) transferCounted(write func(io.Writer) error, offset int64) (int64, error) {
	size := &counter{w: &patience{r: r, last: time.Now()}}
	if err := write(size); err != nil {
		return 0, err
	}
	out := &counter{w: linkWriter{r}, limit: size.n}
	buf := bufio.NewWriterSize(out, transferBytes)
	head := fmt.Appendf(nil, "$%d\r\n", size.n)
	if err := r.write(head); err != nil {
		return 0, err
	}
	if err := write(buf); err != nil {
		return 0, err
	}
	if err := buf.Flush(); err != nil {
		return 0, err
	}
	if out.n != size.n {
		return 0, fmt.Errorf("the data set had %d bytes when counted and %d when sent", size.n, out.n)
	}
	r.heard.Store(time.Now().UnixMilli())
	if r.h.RDBOnly {
		r.state.Store(int32(SyncTransferOnly))
		return out.n, nil
	}
	r.acked.Store(offset)
	r.state.Store(int32(SyncOnline))
	r.p.moved()
	return out.n, nil
}

// newMark makes the mark that ends a data set: 40 hex digits that no data set holds but by design.
func newMark() []byte {
	var raw [markLen / 2]byte
	_, _ = rand.Read(raw[:]) // never fails, by its documentation
	return hex.AppendEncode(nil, raw[:])
}

// writeEmpty writes a data set without keys and functions.
func writeEmpty(w io.Writer) error {
	out := rdb.NewWriter(w, 0)
	if err := out.Aux("redis-ver", "7.2.4"); err != nil {
		return err
	}
	return out.Close()
}

// linkWriter writes to the replica.
type linkWriter struct{ r *Attached }

func (w linkWriter) Write(b []byte) (int, error) {
	if err := w.r.write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// counter counts what is written; more than limit, if there is one, is an error.
type counter struct {
	w        io.Writer
	n, limit int64
}

func (c *counter) Write(b []byte) (int, error) {
	if c.limit > 0 && c.n+int64(len(b)) > c.limit {
		return 0, fmt.Errorf("the data set had %d bytes when counted and has more when sent", c.limit)
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// patience takes bytes to nowhere, and tells the replica each second that it is not forgotten.
type patience struct {
	r    *Attached
	last time.Time
}

func (w *patience) Write(b []byte) (int, error) {
	if now := time.Now(); now.Sub(w.last) >= time.Second {
		w.last = now
		if err := w.r.write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
