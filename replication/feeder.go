package replication

import (
	"errors"
	"fmt"
	"os"
	"time"

	"cairn/replication/psync"
	"cairn/wal"
)

// feedBytes is how much of the log goes to a replica with one write.
const feedBytes = 128 << 10

// Serve takes a connection over and feeds the replica behind it until the link ends; the connection is closed then.
// onAttach is told who it is before the first byte.
func (p *Primary) Serve(h Hello, onAttach func(*Attached)) {
	_ = h.Conn.SetDeadline(time.Time{}) // fails on a closed connection, as the first write will
	h.ReplID = append([]byte(nil), h.ReplID...)
	r := newAttached(p, h)
	p.attach(r) // before the decision: a change of the history from now on reaches it
	onAttach(r)
	reading := make(chan struct{})
	go func() { // ends with the connection
		defer close(reading)
		r.readAcks()
	}()
	err := r.serve()
	r.drop(err)
	<-reading
	r.releasePin()
	p.detach(r)
	p.o.Logf("replica disconnected", "replica", r.name, "offset", r.acked.Load(), "reason", r.why)
}

// serve decides how the replica goes on and feeds it. It always returns an error, the end of the link.
func (r *Attached) serve() error {
	log := r.p.o.Log
	history := log.History()
	answer := psync.Answer{Kind: psync.Full}
	if !r.h.Old {
		answer = psync.Decide(psync.Held{
			ID: history.ID, ID2: history.ID2, Offset2: history.Offset2, First: log.First(), End: log.End(),
		}, psync.Request{ID: r.h.ReplID, Next: r.h.Next, Fork: r.h.Fork})
	}
	if answer.Kind == psync.Partial {
		// Kept while it catches up; what was trimmed since the decision is no longer there to give.
		if err := r.setPin(answer.From); err != nil {
			answer = psync.Answer{Kind: psync.Full, Reason: err.Error()}
		}
	}
	if answer.Reason != "" {
		r.p.PartialErr.Add(1)
		r.p.o.Logf("partial resynchronization refused", "replica", r.name, "reason", answer.Reason)
	}
	from := answer.From
	switch answer.Kind {
	case psync.Partial:
		line := "+CONTINUE\r\n"
		if r.h.PSYNC2 {
			line = "+CONTINUE " + string(history.ID[:]) + "\r\n"
		}
		if err := r.write([]byte(line)); err != nil {
			return err
		}
		r.acked.Store(from) // by its own word
		r.state.Store(int32(SyncOnline))
		r.p.PartialOK.Add(1)
		r.p.moved()
		r.p.o.Logf("partial resynchronization", "replica", r.name, "from", from, "bytes", log.End()-from)
	case psync.Fork:
		r.p.o.Logf("replica is to go back to where the histories part", "replica", r.name, "fork", from)
		return r.sendFork(string(history.ID[:]), from)
	case psync.Full:
		var err error
		if from, err = r.fullSync(); err != nil {
			return err
		}
	}
	return r.feed(from)
}

// errForked ends a link whose replica goes back to a fork and then comes again.
var errForked = errors.New("it goes back to where the histories part, and asks again")

// sendFork tells the replica where its history and this one part, and ends the link.
func (r *Attached) sendFork(id string, fork int64) error {
	if err := r.write(fmt.Appendf(nil, "+FORK %s %d\r\n", id, fork)); err != nil {
		return err
	}
	r.lingerForClose()
	return errForked
}

// feed sends the log from an offset on, and what is appended to it, until the link ends.
func (r *Attached) feed(from int64) error {
	rd, err := r.p.o.Log.NewReader(from)
	if err != nil {
		return err
	}
	defer rd.Close() //nolint:errcheck // of a file that was read only
	r.sent.Store(from)
	buf := make([]byte, feedBytes)
	for {
		if err := rd.Wait(r.gone); err != nil {
			if errors.Is(err, wal.ErrCanceled) {
				return r.why
			}
			return err
		}
		n, err := rd.Read(buf)
		if err != nil {
			return err
		}
		// However long it takes: a replica whose disk is full stops reading and acknowledges all the same.
		if n, err = r.h.Conn.Write(buf[:n]); err != nil {
			return err
		}
		r.sent.Add(int64(n))
		r.p.OutBytes.Add(int64(n))
	}
}

// write sends b. The replica has repl-timeout to take each part of it.
func (r *Attached) write(b []byte) error {
	for len(b) > 0 {
		timeout := r.p.o.Timeout()
		if err := r.h.Conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		r.pace.begin(time.Now())
		n, err := r.h.Conn.Write(b)
		r.pace.end(time.Now(), n)
		b = b[n:]
		r.p.OutBytes.Add(int64(n))
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("it took no byte for %d s", int(timeout.Seconds()))
			}
			return err
		}
	}
	return r.h.Conn.SetWriteDeadline(time.Time{})
}

// lingerTime is how long the other side may take to close a link that is at its end.
const lingerTime = 10 * time.Second

// lingerForClose lets the replica read to the end and close first: closed from here, what it has not read yet could
// be lost with the connection.
func (r *Attached) lingerForClose() {
	if half, ok := r.h.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails on a closed connection
	}
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-r.gone:
	case <-timer.C:
	}
}
