package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/replication/psync"
)

// Entry is one atomic unit of a primary's stream: a command, or all of MULTI ... EXEC.
type Entry struct {
	Raw      []byte     // its bytes in the stream, verbatim
	Commands [][][]byte // without MULTI and EXEC; arguments alias Raw
}

// Applier is this node's data, as the link to a primary sees it. One goroutine at a time calls its methods.
type Applier interface {
	// Position says where the data stands: the replication id and the offset of the last byte executed. The id is ""
	// when there is nothing to continue from.
	Position() (id string, offset int64)
	// Ahead tells which entries Apply will be given next. They stay as they are until all of them were.
	Ahead(entries []Entry)
	// Apply appends one entry to the log and executes it, as a whole. ctx ends the wait for room on the disk.
	Apply(ctx context.Context, e Entry) error
	// Settle waits until a restart of the process keeps what was applied, and says which offset is synced; -1 when the
	// primary is not to be told.
	Settle() (synced int64, err error)
	// Load reads a whole data set from r, to io.EOF, and then puts it in the place of the data: on any error before
	// that the old data stays. id and offset are the primary's; id "" and offset -1 when they are not known.
	Load(r io.Reader, id string, offset int64) error
	// Adopt makes id the history's name from here on: the primary continues under it.
	Adopt(id string) error
	// Rewind discards what lies behind offset, which no other node has. ErrCannotRewind: all stays as it is.
	Rewind(offset int64) error
}

// UnsupportedError is about something in a primary's data or stream that this node does not have. Asking again at
// once gives the same.
type UnsupportedError struct {
	What   string // "command LPUSH", "database 3"
	Offset int64  // in the stream; -1 in a data set
}

func (e *UnsupportedError) Error() string {
	if e.Offset < 0 {
		return e.What + " in the primary's data: this node does not support it; nothing was changed here"
	}
	return fmt.Sprintf("%s in the primary's stream behind offset %d: this node does not support it; nothing of it was applied",
		e.What, e.Offset)
}

// ErrAgain is what an Applier's Load returns when the next attempt will find it better prepared.
var ErrAgain = errors.New("the data is to be sent once more")

// RowsError is about data that came as rows and does not read as such. It is asked for as RDB then.
type RowsError struct{ Err error }

func (e *RowsError) Error() string { return e.Err.Error() + "; asking for RDB" }

func (e *RowsError) Unwrap() error { return e.Err }

// DivergedError is about an entry that a primary has executed and this node could not: the two do not hold the same.
// The data is asked for as a whole then.
type DivergedError struct {
	Reason string
	Offset int64 // the entry lies behind it
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("the data here is not the primary's at offset %d: %s; asking for everything anew", e.Offset, e.Reason)
}

// Options of a Replica. Functions are asked anew for each connection, so that configuration can change.
type Options struct {
	Host string
	Port int
	// Applier is this node's data.
	Applier Applier
	// Hello gives login and announced address; the link fills in the rest.
	Hello func() psync.Hello
	// Timeout is repl-timeout.
	Timeout func() time.Duration
	// Dial connects to address; nil: over TCP, from anywhere.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TempDir is where an entry over spillBytes waits for its end.
	TempDir string
	// Mapped is told where in memory such a file is shown, and Passed which part of it nobody will look at soon, so that
	// it need not stay in memory; unwatch comes before it is gone. Both may be nil.
	Mapped func(data []byte) (unwatch func())
	Passed func(part []byte)
	// Note and Warn write to the node's log.
	Note, Warn func(event string, fields ...any)
	// Changed is told when the link came up or went down; may be nil. It must not wait for the Replica.
	Changed func(up bool)
	// HandedOver is told what a primary answered that was to hand its role over (psync.Hello.Failover). It must not
	// wait for the Replica.
	HandedOver func(accepted bool)

	// retry and slowRetry are for tests; see their defaults.
	retry, slowRetry time.Duration
}

const (
	retryAfter = time.Second // Redis tries again on the tick of each second
	// firstRetry is how soon a link tries again that was up, or is new, with doubled pauses up to retryAfter: when two
	// nodes change roles, each hears of it a moment before the other is ready.
	firstRetry = 20 * time.Millisecond
	// slowRetryAfter is for what will most likely be the same again and costs the primary a snapshot.
	slowRetryAfter = time.Minute
	beatEvery      = time.Second
)

// Replica is the link of this node to its primary: it connects, again and again, until Stop.
type Replica struct {
	o      Options
	life   context.Context
	end    context.CancelFunc
	done   chan struct{}
	hurry  chan struct{}
	state  atomic.Int32
	status counters

	mu       sync.Mutex
	conn     net.Conn // in use; Drop closes it
	lastErr  string
	laddr    string
	raddr    string
	since    time.Time // of the connection
	downFrom time.Time // zero: never up

	// Of the link's goroutine.
	forget   bool   // what is here cannot be continued: ask for everything
	diverged bool   // once already
	noRows   bool   // the data is to come as RDB
	tries    uint   // since it was up
	odd      string // said of the handshake last, so that it is not said each second
}

// NewReplica makes a link. Start begins.
func NewReplica(o Options) *Replica {
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if o.retry == 0 {
		o.retry, o.slowRetry = retryAfter, slowRetryAfter
	}
	r := &Replica{o: o, done: make(chan struct{}), hurry: make(chan struct{}, 1)}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// Start connects in the background.
func (r *Replica) Start() {
	r.state.Store(int32(Connect))
	go func() { // ends with Stop
		defer close(r.done)
		r.loop()
	}()
}

// Stop ends the link. When it returns nothing more will be applied.
func (r *Replica) Stop() {
	r.end()
	r.Drop()
	<-r.done
}

// Drop closes the present connection; the link connects anew.
func (r *Replica) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close() // its reader meets that
	}
}

// Hurry makes a link that waits try again at once.
func (r *Replica) Hurry() {
	select {
	case r.hurry <- struct{}{}:
	default:
	}
}

func (r *Replica) address() string { return net.JoinHostPort(r.o.Host, strconv.Itoa(r.o.Port)) }

func (r *Replica) loop() {
	for r.life.Err() == nil {
		r.state.Store(int32(Connecting))
		upFrom := time.Now()
		err := r.session()
		wasUp := State(r.state.Swap(int32(Connect))) == Connected
		if wasUp {
			r.mu.Lock()
			r.downFrom = time.Now()
			r.mu.Unlock()
			r.tell(false)
		}
		if r.life.Err() != nil {
			return
		}
		if wasUp && time.Since(upFrom) > retryAfter {
			r.tries = 0
		}
		wait := r.failed(err)
		select {
		case <-r.life.Done():
			return
		case <-r.hurry:
		case <-time.After(wait):
		}
	}
}

// failed notes why a connection ended, and says how long to wait before the next.
func (r *Replica) failed(err error) time.Duration {
	text := err.Error()
	r.mu.Lock()
	repeated := r.lastErr == text
	r.lastErr = text
	r.mu.Unlock()
	wait := min(firstRetry<<min(r.tries, 10), r.o.retry)
	r.tries++
	var unsupported *UnsupportedError
	var load *loadError
	var diverged *DivergedError
	var rows *RowsError
	switch {
	case errors.Is(err, errRewound):
		wait = 0
	case errors.Is(err, ErrAgain):
		wait = r.o.retry
	case errors.As(err, &rows):
		r.noRows, wait = true, r.o.retry
	case errors.As(err, &unsupported), errors.As(err, &load):
		wait = r.o.slowRetry
	case errors.As(err, &diverged):
		r.forget, wait = true, r.o.retry
		if r.diverged {
			wait = r.o.slowRetry // a whole set of data did not help
		}
		r.diverged = true
	}
	// The same failure each second would fill the log.
	if !repeated && wait > 0 {
		r.o.Warn("Connection with master lost.", "primary", r.address(), "err", text, "retry", wait)
	}
	return wait
}

// loadError is a data set that arrived and could not be taken.
type loadError struct{ err error }

func (e *loadError) Error() string { return "the primary's data set was not taken: " + e.err.Error() }

func (e *loadError) Unwrap() error { return e.err }

func (r *Replica) tell(up bool) {
	if r.o.Changed != nil {
		r.o.Changed(up)
	}
}
