package server

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/spill"
	"cairn/replication"
	"cairn/server/command"
	"cairn/server/pubsub"
	"cairn/wal"
)

// client is one connection. What its own goroutine alone touches has no lock; what CLIENT LIST and CLIENT KILL
// look at is atomic or under mu.
type client struct {
	s    *Server
	id   int64
	conn net.Conn

	// Of the connection's goroutine.
	framer       *resp.Framer
	raw          syscall.RawConn // to wait for bytes without room for them; nil where that cannot be
	w            resp.Writer     // replies not sent yet
	part         resp.Writer     // the piece of a streamed reply being sent
	ctx          command.Ctx
	txn          *engine.Txn
	slots        []uint16
	ahead        lookAhead
	resting      bool      // see rest
	armed        time.Time // when the bound of reads was set last; zero: anew at the next
	waitEnd      int64     // the log offset that the gathered replies rest on
	stamp        time.Time
	asking       bool
	turnedAway   bool           // the command under way was answered by turnAway
	readAny      bool           // READONLY: a replica may answer for its primary's slots
	closing      bool           // close after the replies are sent
	long         []*spill.Bytes // arguments of the command that arrives or runs, see longargs.go
	longLost     error          // why one of them is not there
	laid         []*wal.Laid    // those of the command that runs which are in the log's files already, see layahead.go
	arrivedBytes int64          // about what came since the last reply
	looked       int64          // when it was last looked whether the other side has hung up, see senders.go; 0: not since it was read from
	arrived      int64          // the log offset behind what RESTORE-ASKING brought last; 0: its reply has been sent
	writeLimited bool           // a deadline is set for writes
	streaming    bool           // what is written is part of a streamed reply
	multi        multiState
	access       []accessChange
	after        func()             // what the last command left to do, see wait.go
	lastWrite    int64              // the log offset behind its last write
	hello        *replication.Hello // what REPLCONF told; nil: nothing
	called       chan struct{}      // see turnQueue
	reading      atomic.Int64       // since when the owner of the turn waits for bytes, Unix milliseconds; 0: it does not
	wakened      atomic.Bool        // told to rest since it read last
	counted      atomic.Bool        // in clientMemory.count

	authed  atomic.Bool
	proto   atomic.Int32
	reply   replyMode
	local   bool // connected from this machine
	unix    bool
	created time.Time
	addr    string
	laddr   string
	fd      int

	killed          atomic.Bool
	lastUsed        atomic.Int64 // Unix milliseconds
	lastCmd         atomic.Pointer[command.Command]
	queued          atomic.Int32 // commands in MULTI, -1 outside
	queuedBytes     atomic.Int64
	watching        atomic.Int32
	inBuffer        atomic.Int64 // bytes of room to read into
	parsed          atomic.Int64 // bytes in it of arguments that came whole, of a command that has not
	unparsed        atomic.Int64 // bytes in it that are no argument yet
	outBuffer       atomic.Int64 // bytes of room for replies
	held            atomic.Int64 // what it adds to clientMemory.buffers, but for push
	kept            atomic.Int64 // what of that stays when the command under way is done, see keeps
	waiting         atomic.Bool  // held back by CLIENT PAUSE
	noEvict         atomic.Bool
	noTouch         atomic.Bool
	replica         atomic.Pointer[replication.Attached] // whose connection it has become; nil: of a client
	unblock         atomic.Pointer[chan string]          // takes the end of a wait; nil while there is none
	dirtyCAS        atomic.Bool                          // a watched key changed
	watchesExisting atomic.Bool

	mu      sync.Mutex // names, and everything below
	name    string
	libName string
	libVer  string
	user    string

	push        pushQueue
	subs        pubsub.Set
	wakes       []*client   // whose writers are to be woken
	ownMessages []byte      // published by the client itself; they follow the reply
	published   [][3]string // by the command under way, for the stream
	keepReply   bool        // whatever CLIENT REPLY says
}

// replyMode is CLIENT REPLY.
type replyMode uint8

const (
	replyOn replyMode = iota
	replyOff
	replySkipNext // set by SKIP: the next command's reply is left out
	replySkip     // this one's is
)

// ID is the connection's number, never used twice in the life of a node.
func (c *client) ID() int64 { return c.id }

// clientList is all connections.
type clientList struct {
	mu     sync.Mutex
	byID   map[int64]*client
	nextID atomic.Int64
	gone   sync.WaitGroup
}

func (l *clientList) init() { l.byID = make(map[int64]*client) }

// add takes a connection in, unless there are limit already.
func (l *clientList) add(c *client, limit int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(len(l.byID)) >= limit {
		return false
	}
	c.id = l.nextID.Add(1)
	l.byID[c.id] = c
	l.gone.Add(1)
	return true
}

func (l *clientList) remove(c *client) {
	l.mu.Lock()
	delete(l.byID, c.id)
	l.mu.Unlock()
	l.gone.Done()
}

// count says how many connections there are.
func (l *clientList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byID)
}

// snapshot lists the connections in order of their numbers.
func (l *clientList) snapshot() []*client {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*client, 0, len(l.byID))
	for _, c := range l.byID {
		all = append(all, c)
	}
	sortClients(all)
	return all
}

func (l *clientList) closeAll() {
	for _, c := range l.snapshot() {
		c.kill()
	}
}

func (l *clientList) wait() { l.gone.Wait() }

// kill ends the connection from outside: its goroutine meets a closed socket.
func (c *client) kill() {
	c.killed.Store(true)
	_ = c.conn.Close() // an error says that it is closed already
}
