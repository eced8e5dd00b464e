package replication

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/internal/resp"
	"cairn/wal"
)

// Hello is what a connection has told about itself by the time it sends PSYNC or SYNC.
type Hello struct {
	Conn   net.Conn
	Framer *resp.Framer // holds what arrived behind the command
	Addr   string       // of the other side, ip:port

	ListeningPort int    // 0: not told
	IP            string // instead of the one in Addr; "": not told
	EOF           bool   // takes a data set whose end is marked
	PSYNC2        bool   // takes an id behind +CONTINUE
	Fork          bool   // can go back to a fork
	Rows          bool   // takes the data set as rows of this program's
	RDBOnly       bool   // wants the data set and no stream
	NoData        bool   // wants no keys in the data set (rdb-filter-only)
	Slots         bool   // takes CLUSTER SETSLOT in the stream: a node of Valkey 8

	Old    bool   // SYNC: no line before the data set, no acknowledgements
	ReplID []byte // PSYNC's words
	Next   int64
}

// SyncState is how far a replica's link has come.
type SyncState int32

// The states, with the words of INFO.
const (
	SyncWaiting      SyncState = iota // for its turn, or for the snapshot
	SyncSending                       // the data set is under way
	SyncTransferred                   // the data set is sent, its arrival not acknowledged
	SyncOnline                        // fed with the stream
	SyncTransferOnly                  // wanted no more than the data set, and has it
)

func (s SyncState) String() string {
	switch s {
	case SyncWaiting:
		return "wait_bgsave"
	case SyncOnline:
		return "online"
	}
	return "send_bulk"
}

// Attached is one replica. Its connection has two goroutines: one feeds, the one that called Serve; one reads.
type Attached struct {
	p    *Primary
	h    Hello
	name string // for people

	state       atomic.Int32
	acked       atomic.Int64 // offset that the replica has executed
	ackedSynced atomic.Int64 // and has on stable storage
	sent        atomic.Int64 // offset fed to it
	heard       atomic.Int64 // when it last acknowledged, Unix ms

	turn atomic.Bool // it has one: turns.go
	pace pace

	arrived chan struct{} // closed by the first acknowledgement after the data set was sent
	gone    chan struct{} // closed when the link is given up
	once    sync.Once
	why     error // read after gone is closed

	// pin keeps the log until the replica has caught up; pinMu because its feeder sets it and the clock moves it.
	pinMu  sync.Mutex
	pin    *wal.Pin
	before int64 // the log's end at the tick before
}

// AttachedStatus is what INFO, ROLE and CLIENT LIST show of a replica.
type AttachedStatus struct {
	IP    string
	Port  int
	State SyncState
	Acked int64 // offset executed, 0 before the first acknowledgement
	Lag   int64 // seconds since the last acknowledgement
}

func newAttached(p *Primary, h Hello) *Attached {
	r := &Attached{p: p, h: h, name: h.Addr, arrived: make(chan struct{}), gone: make(chan struct{})}
	if ip, _ := r.address(); h.ListeningPort != 0 {
		r.name = net.JoinHostPort(ip, strconv.Itoa(h.ListeningPort))
	}
	r.heard.Store(time.Now().UnixMilli())
	return r
}

// address is where the replica says that it listens.
func (r *Attached) address() (ip string, port int) {
	ip = r.h.IP
	if ip == "" {
		host, _, err := net.SplitHostPort(r.h.Addr)
		if err != nil {
			host = r.h.Addr // a Unix socket
		}
		ip = host
	}
	return ip, r.h.ListeningPort
}

// State is how far the link has come.
func (r *Attached) State() SyncState { return SyncState(r.state.Load()) }

func (r *Attached) status() AttachedStatus {
	ip, port := r.address()
	return AttachedStatus{IP: ip, Port: port, State: r.State(), Acked: r.acked.Load(), Lag: max(0, time.Now().UnixMilli()-r.heard.Load()) / 1000}
}

// drop gives the link up. The first reason counts.
func (r *Attached) drop(why error) {
	r.once.Do(func() {
		r.why = why
		close(r.gone)
		_ = r.h.Conn.Close() // an error says that it is closed already
	})
}

// tick is the clock: silence ends the link, and what the replica has executed need not be kept for it.
func (r *Attached) tick(now time.Time, timeout time.Duration, end int64) {
	silent := now.Sub(time.UnixMilli(r.heard.Load()))
	if st := r.State(); (st == SyncOnline || st == SyncTransferred) && !r.h.Old && silent > timeout {
		r.drop(fmt.Errorf("no acknowledgement for %d s, repl-timeout is %d s", int(silent.Seconds()), int(timeout.Seconds())))
		return
	}
	r.pinMu.Lock()
	defer r.pinMu.Unlock()
	if r.pin == nil {
		return
	}
	select {
	case <-r.pin.Lost():
		r.drop(errors.New("the log kept for it was given up: repl-pin-limit, or no room on the disk"))
		return
	default:
	}
	if r.State() != SyncOnline {
		return
	}
	has := r.acked.Load()
	if r.h.Old {
		has = r.sent.Load()
	}
	if r.before > 0 && has >= r.before {
		r.pin.Release() // caught up: from now on the log keeps repl-backlog-size for it as for everybody
		r.pin = nil
		return
	}
	r.pin.Move(has)
	r.before = end
}

// setPin keeps the log from offset on for the replica.
func (r *Attached) setPin(offset int64) error {
	pin, err := r.p.o.Log.Pin(offset)
	if err != nil {
		return err
	}
	r.pinMu.Lock()
	defer r.pinMu.Unlock()
	r.pin = pin
	return nil
}

func (r *Attached) movePin(offset int64) {
	r.pinMu.Lock()
	defer r.pinMu.Unlock()
	if r.pin != nil {
		r.pin.Move(offset)
	}
}

func (r *Attached) releasePin() {
	r.pinMu.Lock()
	defer r.pinMu.Unlock()
	if r.pin != nil {
		r.pin.Release()
		r.pin = nil
	}
}

// Limits of what a replica may send: acknowledgements, and its name while it asks again.
const (
	ackBytes = 4 << 10
	ackArgs  = 64
)

// errEnded is the end of a link from the other side.
var errEnded = errors.New("it closed the connection")

// readAcks reads what the replica sends until the link ends.
func (r *Attached) readAcks() {
	f := r.h.Framer
	f.SetLimits(resp.Limits{MaxInline: ackBytes, MaxArgs: ackArgs, MaxBulk: ackBytes, MaxQuery: 2 * ackBytes})
	for {
		for {
			args, _, ok, err := f.Next()
			if err == nil && ok {
				err = r.heed(args)
			}
			if err != nil {
				r.drop(err)
				return
			}
			if !ok {
				break
			}
		}
		if f.Buffered() == 0 {
			f.Release()
		}
		n, err := r.h.Conn.Read(f.Space(64))
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) { // of the client that the replica was
				_ = r.h.Conn.SetReadDeadline(time.Time{}) // fails on a closed one, which the read tells
				continue
			}
			r.drop(errEnded)
			return
		}
		f.Advance(n)
		// Also a bare line end, by which a replica that loads says that it is alive.
		r.heard.Store(time.Now().UnixMilli())
	}
}

// heed takes one command of the replica. None is answered: what is sent to it is the stream.
func (r *Attached) heed(args [][]byte) error {
	switch {
	case resp.IsWord(args[0], "replconf"):
		if len(args) >= 3 && resp.IsWord(args[1], "ack") {
			r.ack(args)
		}
	case resp.IsWord(args[0], "psync"), resp.IsWord(args[0], "sync"):
	case resp.IsWord(args[0], "quit"):
		return errEnded
	default:
		return fmt.Errorf("replica generated a reply to command '%.32s'", args[0])
	}
	return nil
}

// ack takes an acknowledgement: REPLCONF ACK offset [FACK offset]. A number that is none is passed over.
func (r *Attached) ack(args [][]byte) {
	offset, ok := resp.ParseInt(args[2])
	if !ok {
		return
	}
	switch r.State() {
	case SyncTransferred:
		r.state.Store(int32(SyncOnline))
		close(r.arrived)
	case SyncOnline:
	default:
		return
	}
	raise(&r.acked, offset)
	if len(args) >= 5 && resp.IsWord(args[3], "fack") {
		if synced, ok := resp.ParseInt(args[4]); ok {
			raise(&r.ackedSynced, synced)
		}
	}
	r.p.moved()
}

// raise stores n if it is more. One goroutine raises.
func raise(v *atomic.Int64, n int64) {
	if n > v.Load() {
		v.Store(n)
	}
}
