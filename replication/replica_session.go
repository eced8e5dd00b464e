package replication

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/replication/psync"
)

// session is one connection to the primary.
type session struct {
	r    *Replica
	conn net.Conn
	in   *bufio.Reader
	mode atomic.Int32 // what the beat says each second

	writing sync.Mutex
	timeout time.Duration
}

// What the beat says.
const (
	beatNothing int32 = iota
	beatNewline       // while data is loaded: there is life here
	beatAck
)

// session connects, and stays until the connection ends. It always returns an error that says why.
func (r *Replica) session() error {
	timeout := r.o.Timeout()
	ctx, cancel := context.WithTimeout(r.life, timeout)
	conn, err := r.o.Dial(ctx, r.address())
	cancel()
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s := &session{r: r, conn: conn, timeout: timeout}
	s.in = bufio.NewReaderSize(s.counted(), 64<<10)
	r.mu.Lock()
	r.conn, r.since = conn, time.Now()
	r.laddr, r.raddr = conn.LocalAddr().String(), conn.RemoteAddr().String()
	r.mu.Unlock()
	stopBeat := s.startBeat()
	defer func() {
		stopBeat()
		r.mu.Lock()
		r.conn, r.laddr = nil, ""
		r.mu.Unlock()
		_ = conn.Close() // closed already when the link was told to end
	}()
	if r.life.Err() != nil {
		return r.life.Err()
	}
	r.state.Store(int32(Handshaking))
	return s.run()
}

// countedConn counts bytes and notes when they came.
type countedConn struct{ s *session }

func (s *session) counted() io.Reader { return countedConn{s} }

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.s.conn.Read(p)
	if n > 0 {
		st := &c.s.r.status
		st.bytesIn.Add(int64(n))
		st.lastIO.Store(time.Now().UnixMilli())
	}
	return n, err
}

// startBeat says each second what the mode asks for. The function that it returns ends that and waits.
func (s *session) startBeat() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			switch s.mode.Load() {
			case beatNewline:
				_ = s.write([]byte("\n")) // the reader meets what is wrong with the connection
			case beatAck:
				_ = s.ack() // likewise
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func (s *session) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// ack tells the primary what was executed, and what of it is synced.
func (s *session) ack() error {
	st := &s.r.status
	off, synced := st.settled.Load(), st.synced.Load()
	b := append([]byte(nil), "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n"...)
	if synced >= 0 {
		b[1] = '5'
	}
	b = appendNumber(b, off)
	if synced >= 0 {
		b = append(b, "$4\r\nFACK\r\n"...)
		b = appendNumber(b, min(synced, off))
	}
	return s.write(b)
}

// appendNumber appends a bulk string that is a number.
func appendNumber(dst []byte, n int64) []byte {
	text := strconv.AppendInt(nil, n, 10)
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(text)), 10)
	dst = append(dst, '\r', '\n')
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// run does the handshake, takes the data if there is any, and then the stream.
func (s *session) run() error {
	r := s.r
	hello := r.o.Hello()
	hello.TimeoutMs = s.timeout.Milliseconds()
	hello.Rows = !r.noRows
	if !r.forget {
		hello.ID, hello.Offset = r.o.Applier.Position()
		hello.Fork = hello.ID != ""
	}
	hs := psync.New(hello)
	e, err := s.handshake(hs)
	if err != nil {
		return err
	}
	if hello.Failover && hs.Answered() && r.o.HandedOver != nil {
		r.o.HandedOver(e.Next != psync.Retry)
	}
	switch e.Next {
	case psync.Continue:
		if e.ID != "" {
			if err := r.o.Applier.Adopt(e.ID); err != nil {
				return err
			}
		}
		r.o.Note("Successful partial resynchronization with master.", "offset", hello.Offset, "id", e.ID)
	case psync.Payload:
		if err := s.load(e, hs.Old()); err != nil {
			return err
		}
	case psync.Forked:
		return s.fork(e)
	default:
		return errors.New(e.Reason)
	}
	return s.follow(hs.Old())
}

// handshake speaks until there is something to do.
func (s *session) handshake(hs *psync.Handshake) (psync.Effect, error) {
	r := s.r
	began := time.Now()
	now := func() int64 { return time.Since(began).Milliseconds() }
	e := hs.Connected(now())
	for {
		if err := s.write(e.Write); err != nil {
			return e, fmt.Errorf("handshake: %w", err)
		}
		if e.Next != psync.Wait {
			return e, nil
		}
		if e.Reason != "" && e.Reason != r.odd {
			r.odd = e.Reason
			r.o.Warn("Handshake with master.", "primary", r.address(), "note", e.Reason)
		}
		if hs.Receiving() {
			r.state.Store(int32(Syncing))
			r.status.total.Store(-1)
			r.status.got.Store(0)
		}
		if err := s.conn.SetReadDeadline(began.Add(time.Duration(hs.Deadline()) * time.Millisecond)); err != nil {
			return e, fmt.Errorf("handshake: %w", err)
		}
		line, err := s.line()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			e = hs.Tick(max(now(), hs.Deadline()))
		case err != nil:
			return e, fmt.Errorf("handshake: %w", err)
		default:
			e = hs.Line(now(), line)
		}
	}
}

// line reads a line; a longer one than a handshake may have is cut, which the handshake sees.
func (s *session) line() ([]byte, error) {
	var line []byte
	for {
		b, err := s.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if b == '\n' {
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		if line = append(line, b); len(line) > psync.MaxLine+1 {
			return line, nil
		}
	}
}

// arriving is the connection as data is read from it: silence for the whole timeout is an error.
type arriving struct{ s *session }

// Read is io.Reader's.
func (a arriving) Read(p []byte) (int, error) {
	if a.s.in.Buffered() == 0 {
		if err := a.s.conn.SetReadDeadline(time.Now().Add(a.s.timeout)); err != nil {
			return 0, err
		}
	}
	n, err := a.s.in.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("nothing came from the primary for %v", a.s.timeout)
	}
	return n, err
}

// received counts the data set's bytes, and keeps the error that its connection had.
type received struct {
	s   *session
	r   io.Reader
	err error
}

// Read is io.Reader's.
func (c *received) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.s.r.status.got.Add(int64(n))
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// load takes a data set.
func (s *session) load(e psync.Effect, old bool) error {
	r := s.r
	r.state.Store(int32(Syncing))
	r.status.total.Store(e.Length)
	r.status.got.Store(0)
	form := "to its mark"
	in := &received{s: s}
	if e.Length >= 0 {
		form = strconv.FormatInt(e.Length, 10) + " bytes"
		in.r = &lengthReader{arriving{s}, e.Length}
	} else {
		in.r = newMarkedReader(arriving{s}, e.Mark)
	}
	r.o.Note("MASTER <-> REPLICA sync: receiving the data", "primary", r.address(), "id", e.ID, "offset", e.Offset, "form", form)
	began := time.Now()
	s.mode.Store(beatNewline)
	err := r.o.Applier.Load(in, e.ID, e.Offset)
	s.mode.Store(beatNothing)
	if err != nil {
		if in.err != nil {
			return fmt.Errorf("receive the data: %w", in.err)
		}
		if r.life.Err() != nil {
			return err
		}
		return &loadError{err}
	}
	r.o.Note("MASTER <-> REPLICA sync: Finished with success", "bytes", r.status.got.Load(), "ms", time.Since(began).Milliseconds())
	// What follows data of no known history cannot be asked for again.
	r.forget = old || e.ID == ""
	return nil
}

// follow takes the stream until it breaks.
func (s *session) follow(old bool) error {
	r := s.r
	_, at := r.o.Applier.Position()
	st := &r.status
	st.read.Store(at)
	st.applied.Store(at)
	st.settled.Store(at)
	st.synced.Store(-1)
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	r.state.Store(int32(Connected))
	r.odd = ""
	r.mu.Lock()
	r.lastErr, r.downFrom = "", time.Time{}
	r.mu.Unlock()
	r.tell(true)
	f := newFollower(s, at, old)
	defer f.in.close()
	if !old {
		// A primary that sent its data to a mark feeds the stream only after it was answered.
		if err := f.settle(); err != nil {
			return err
		}
		if err := s.ack(); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
		s.mode.Store(beatAck)
	}
	err := f.run()
	s.mode.Store(beatNothing)
	return err
}
