package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cairn/internal/resp"
	"cairn/server/command"
)

// Connections of MIGRATE to other nodes. One that did its work is kept for the next call to the same node by the same
// user: making one costs more than moving a key.

const (
	peersMost   = 64               // connections kept, as Redis
	peerIdle    = 10 * time.Second // for so long
	peerPiece   = 64 << 10         // bytes written at once; each piece may take the whole timeout
	peerLastAsk = 50 * time.Millisecond
)

// peer is a connection to the node that keys go to. One MIGRATE uses it at a time.
type peer struct {
	conn    net.Conn
	key     string // see peerKey
	address string // host and port
	old     bool   // not to be used again
	db      int64  // that is selected there; -1: not known
	timeout time.Duration
	replies replyReader
	idle    time.Time // since when
}

// peerError is trouble with a connection. The words of its reply are Redis's.
type peerError struct {
	doing string // "connecting to the client", "writing to target instance", ...
	err   error
}

func (e *peerError) Error() string { return "error or timeout " + e.doing }
func (e *peerError) Unwrap() error { return e.err }

func (e *peerError) timeout() bool {
	var n net.Error
	return errors.Is(e.err, os.ErrDeadlineExceeded) || errors.As(e.err, &n) && n.Timeout()
}

// Read is for the reader of replies.
func (p *peer) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.conn.Read(b)
}

// write sends bytes.
func (p *peer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), peerPiece)
		err := p.conn.SetWriteDeadline(time.Now().Add(p.timeout))
		if err == nil {
			_, err = p.conn.Write(b[:n])
		}
		if err != nil {
			return &peerError{"writing to target instance", err}
		}
		b = b[n:]
	}
	return nil
}

// reply reads the next reply: the text of an error that the target answers, "" for a status.
func (p *peer) reply() (refused string, err error) {
	line, err := p.replies.line()
	switch {
	case err != nil:
	case len(line) > 0 && line[0] == '-':
		return string(line[1:]), nil
	case len(line) > 0 && line[0] == '+':
		return "", nil
	default:
		err = fmt.Errorf("reply %.64q is neither a status nor an error", line)
	}
	return "", &peerError{"reading to target instance", err}
}

// ask sends one command and reads its reply.
func (p *peer) ask(args ...[]byte) (refused string, err error) {
	if err := p.write(resp.AppendCommand(nil, args...)); err != nil {
		return "", err
	}
	return p.reply()
}

// login makes the connection that of the user, with the database selected.
func (p *peer) login(m *command.Migration, fresh bool) (refused string, err error) {
	if fresh && m.Auth {
		words := [][]byte{[]byte("AUTH"), m.User, m.Password}
		if m.User == nil {
			words = [][]byte{[]byte("AUTH"), m.Password}
		}
		if refused, err = p.ask(words...); refused != "" || err != nil {
			return refused, err
		}
	}
	if p.db == m.DB {
		return "", nil
	}
	if refused, err = p.ask([]byte("SELECT"), strconv.AppendInt(nil, m.DB, 10)); refused == "" && err == nil {
		p.db = m.DB
	}
	return refused, err
}

// peerPool holds the connections.
type peerPool struct {
	buffers sync.Pool // of *[]byte, to gather in what is sent

	mu     sync.Mutex
	idle   []*peer // the one used last is the last
	busy   map[*peer]bool
	closed bool
	count  *atomic.Int64 // of all
}

func peerKey(m *command.Migration) string {
	return fmt.Sprintf("%s:%d %v %q %q", m.Host, m.Port, m.Auth, m.User, m.Password)
}

func peerAddress(m *command.Migration) string {
	return net.JoinHostPort(m.Host, strconv.FormatInt(m.Port, 10))
}

// take gives a connection that is kept, nil when there is none.
func (pp *peerPool) take(m *command.Migration) *peer {
	key := peerKey(m)
	for {
		p := pp.pick(key)
		if p == nil {
			return nil
		}
		if !hungUp(p.conn) {
			p.timeout = millis(m.TimeoutMs)
			return p
		}
		pp.drop(p)
	}
}

func (pp *peerPool) pick(key string) *peer {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	for i := len(pp.idle) - 1; i >= 0; i-- {
		if p := pp.idle[i]; p.key == key {
			pp.idle = append(pp.idle[:i], pp.idle[i+1:]...)
			pp.busy[p] = true
			return p
		}
	}
	return nil
}

// errNodeEnds ends what MIGRATE does with others when the node stops.
var errNodeEnds = errors.New("the node ends")

// dial makes a connection. Nothing is locked meanwhile.
func (pp *peerPool) dial(m *command.Migration, stop <-chan struct{}) (*peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), millis(m.TimeoutMs))
	defer cancel()
	go func() { // ends with the call
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	var d net.Dialer
	address := peerAddress(m)
	conn, err := d.DialContext(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &peerError{"writing to target instance", err} // Redis notices it there
	case err != nil:
		return nil, &peerError{"connecting to the client", err}
	}
	p := &peer{conn: conn, key: peerKey(m), address: address, db: -1, timeout: millis(m.TimeoutMs)}
	p.replies.src = p
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if pp.closed {
		return nil, errors.Join(errNodeEnds, conn.Close())
	}
	if pp.busy == nil {
		pp.busy = make(map[*peer]bool)
	}
	pp.busy[p] = true
	pp.count.Add(1)
	return p, nil
}

// put keeps a connection for the next call, unless bytes are left over of this one.
func (pp *peerPool) put(p *peer) {
	if p.replies.left() > 0 {
		pp.drop(p)
		return
	}
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if pp.closed {
		return // and so is the connection
	}
	delete(pp.busy, p)
	if p.old {
		pp.close(p)
		return
	}
	if p.idle = time.Now(); cap(p.replies.buf) > replyRead {
		p.replies.buf, p.replies.at = nil, 0
	}
	if pp.idle = append(pp.idle, p); len(pp.idle) > peersMost {
		pp.close(pp.idle[0])
		pp.idle = pp.idle[1:]
	}
}

// drop closes a connection that is in use.
func (pp *peerPool) drop(p *peer) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if !pp.closed {
		delete(pp.busy, p)
		pp.close(p)
	}
}

// errPeerOld is for a connection that was taken before another call to the same target has given up.
var errPeerOld = errors.New("an earlier call has given up")

// usable says whether a connection that was taken may bring keys: not if another call to the same target has given up since.
func (pp *peerPool) usable(p *peer) error {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	if p.old {
		return &peerError{"writing to target instance", errPeerOld}
	}
	return nil
}

// giveUp closes a connection whose target has not answered, and all that are kept to the same one: the next call makes a new
// connection, by which the target tells its keys from what it may still have of this call (senders.go).
func (pp *peerPool) giveUp(p *peer) {
	pp.drop(p)
	pp.mu.Lock()
	defer pp.mu.Unlock()
	for other := range pp.busy {
		other.old = other.old || other.address == p.address
	}
	pp.idle = slices.DeleteFunc(pp.idle, func(other *peer) bool {
		same := other.address == p.address
		if same && !pp.closed {
			pp.close(other)
		}
		return same
	})
}

func (pp *peerPool) close(p *peer) {
	_ = p.conn.Close() // nobody waits for it
	pp.count.Add(-1)
}

// buffer gives a buffer to gather in what is sent.
func (pp *peerPool) buffer() []byte {
	if b, ok := pp.buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// giveBack lets others have it, unless a value that was large for a window made it long.
func (pp *peerPool) giveBack(b []byte) {
	if cap(b) <= 4*windowBytes {
		pp.buffers.Put(&b)
	}
}

// closeIdle closes the connections that nobody has used for a while.
func (pp *peerPool) closeIdle(now time.Time) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	for len(pp.idle) > 0 && now.Sub(pp.idle[0].idle) > peerIdle {
		pp.close(pp.idle[0])
		pp.idle = pp.idle[1:]
	}
}

// closeAll closes all connections, also those in use: who uses one meets an error.
func (pp *peerPool) closeAll() {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	pp.closed = true
	for _, p := range pp.idle {
		pp.close(p)
	}
	for p := range pp.busy {
		pp.close(p)
	}
	pp.idle, pp.busy = nil, nil
}

// replyReader reads lines of replies that nobody vouches for.
type replyReader struct {
	src io.Reader
	buf []byte
	at  int // what is before was given out
}

const (
	replyKept = 1 << 10  // bytes of a line that are given out
	replyMost = 64 << 10 // of a line that is read
	replyRead = 4 << 10
)

var errLongReply = fmt.Errorf("a line of a reply is longer than %d bytes", replyMost)

// line gives the next line without its end, cut to replyKept bytes. It is valid until the next call.
func (r *replyReader) line() ([]byte, error) {
	for looked := r.at; ; {
		if i := bytes.IndexByte(r.buf[looked:], '\n'); i >= 0 {
			line := bytes.TrimSuffix(r.buf[r.at:looked+i], []byte("\r"))
			r.at = looked + i + 1
			return line[:min(len(line), replyKept)], nil
		}
		r.buf = r.buf[:copy(r.buf, r.buf[r.at:])]
		r.at, looked = 0, len(r.buf)
		if looked > replyMost {
			return nil, errLongReply
		}
		if cap(r.buf)-looked < replyRead {
			r.buf = append(make([]byte, 0, 2*looked+replyRead), r.buf...)
		}
		n, err := r.src.Read(r.buf[looked : looked+replyRead])
		r.buf = r.buf[:looked+n]
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// left is how many bytes have been read and not given out.
func (r *replyReader) left() int { return len(r.buf) - r.at }
