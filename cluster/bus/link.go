package bus

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/cluster"
)

const (
	// maxQueued is how much waits to be sent on a link, whatever the operator allows, bytes.
	maxQueued = 256 << 20
	// memberAnswers is how much waits on a link that a member opened when no more is read from it.
	memberAnswers = 1 << 20
	// strangerAnswers is that of a link whose node is not known.
	strangerAnswers = 16 << 10
	// writePiece is how much a peer must take within its patience, bytes.
	writePiece = 1 << 20
	// minPatience is the least time that a peer has for one step of a transfer.
	minPatience = 5 * time.Second
)

// link is one connection of the bus. It ends when either side closes it, when the machine drops it, or when the peer takes
// too long over something that it began.
type link struct {
	id       cluster.LinkID
	out      bool
	created  int64
	remote   string // address of the other end, without port
	known    atomic.Bool
	patience time.Duration      // for one step of a transfer
	cancel   context.CancelFunc // ends its dialing; nil: accepted
	bad      int                // packets passed over; its reader's

	mu     sync.Mutex
	work   sync.Cond
	conn   net.Conn // nil while it is dialed
	queue  [][]byte
	queued int64 // bytes in queue and in the write that is going on
	shutup bool
}

// newLink makes a link. The caller holds mu of the driver.
func (d *Driver) newLink(id cluster.LinkID, out bool, remote string) *link {
	l := &link{id: id, out: out, created: d.o.Clock(), remote: remote}
	l.patience = max(time.Duration(d.o.Config.NodeTimeout)*time.Millisecond, minPatience)
	l.work.L = &l.mu
	return l
}

// enqueue adds bytes to be sent, or ends the link if too many wait. One message may always wait.
func (l *link) enqueue(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shutup {
		return
	}
	if l.queued > 0 && l.queued+int64(len(b)) > maxQueued {
		l.end()
		return
	}
	l.queue = append(l.queue, b)
	l.queued += int64(len(b))
	l.work.Broadcast()
}

// awaitReader waits until a peer that asked has read most of the answers. On a link that it opened it gets nothing else, so
// who does not read is not read from, until the writer's patience ends the link.
func (l *link) awaitReader() {
	if l.out {
		return
	}
	limit := int64(strangerAnswers)
	if l.known.Load() {
		limit = memberAnswers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queued > limit && !l.shutup {
		l.work.Wait()
	}
}

// waiting is how many bytes wait to be sent.
func (l *link) waiting() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

// shut ends the link; its goroutines notice.
func (l *link) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *link) end() {
	l.shutup = true
	l.queue = nil
	if l.cancel != nil {
		l.cancel()
	}
	if l.conn != nil {
		_ = l.conn.Close() // what is wrong with it is of no interest any more
	}
	l.work.Broadcast()
}

// attach gives the link its connection. False: it was ended meanwhile.
func (l *link) attach(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shutup {
		_ = c.Close()
		return false
	}
	l.conn = c
	return true
}

// write sends what is queued until the link ends.
func (l *link) write() {
	var sent int64
	for {
		batch, size := l.next(sent)
		if batch == nil {
			return
		}
		if l.send(batch, size) != nil {
			l.shut()
			return
		}
		sent = size
	}
}

// next waits for something to send, and gives whole messages of about writePiece bytes together; nil: the link has ended.
// sent is the size of what was sent since.
func (l *link) next(sent int64) (batch net.Buffers, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued -= sent; sent > 0 {
		l.work.Broadcast()
	}
	for len(l.queue) == 0 && !l.shutup {
		l.work.Wait()
	}
	if l.shutup {
		return nil, 0
	}
	n := 0
	for n < len(l.queue) && (n == 0 || size+int64(len(l.queue[n])) <= writePiece) {
		size += int64(len(l.queue[n]))
		n++
	}
	batch = l.queue[:n:n]
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return batch, size
}

// send writes a batch. Every piece of it has the peer's patience.
func (l *link) send(batch net.Buffers, size int64) error {
	if size <= writePiece {
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.patience)); err != nil {
			return err
		}
		_, err := batch.WriteTo(l.conn)
		return err
	}
	for rest := batch[0]; len(rest) > 0; { // one long message stands alone
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.patience)); err != nil {
			return err
		}
		n, err := l.conn.Write(rest[:min(len(rest), writePiece)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// dial opens a link that the machine asked for. The caller holds mu.
func (d *Driver) dial(c cluster.Connect) {
	l := d.newLink(c.Link, true, c.IP)
	ctx, cancel := context.WithCancel(d.stop)
	l.cancel = cancel
	d.links[c.Link] = l
	dialer := net.Dialer{Timeout: d.timeout(), KeepAliveConfig: keepAlive(d.timeout())}
	if d.o.Source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(d.o.Source)}
	}
	d.tasks.Go(func() {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.IP, strconv.Itoa(c.BusPort)))
		if err != nil || !l.attach(conn) {
			d.lost(l)
			return
		}
		d.with(func(now int64) []cluster.Effect {
			if d.links[l.id] != l {
				return nil
			}
			effects := d.machine.Connected(now, l.id, hostOf(conn.LocalAddr()))
			d.acquaint(l)
			return effects
		})
		d.serve(l)
	})
}

// timeout is cluster-node-timeout, at least a second. The caller holds mu.
func (d *Driver) timeout() time.Duration {
	return max(time.Duration(d.o.Config.NodeTimeout)*time.Millisecond, time.Second)
}

// keepAlive has the system notice a peer whose machine is gone, on a link on which nothing is said.
func keepAlive(timeout time.Duration) net.KeepAliveConfig {
	const probes = 3
	idle := 2 * timeout
	return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: max(idle/probes, time.Second), Count: probes}
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// lost tells the machine that a link is gone, unless the machine ended it.
func (d *Driver) lost(l *link) {
	l.shut()
	d.with(func(now int64) []cluster.Effect {
		if d.links[l.id] != l {
			return nil
		}
		d.forget(l.id)
		return d.machine.Closed(now, l.id)
	})
}

// forget drops a link. The caller holds mu.
func (d *Driver) forget(id cluster.LinkID) {
	l := d.links[id]
	if l == nil {
		return
	}
	delete(d.links, id)
	d.noStranger(l)
	l.shut()
}

// enforceSendLimit ends links on which too much waits. The caller holds mu.
func (d *Driver) enforceSendLimit() {
	if d.o.SendLimit <= 0 {
		return
	}
	for _, l := range d.links {
		if l.waiting() > d.o.SendLimit {
			d.overLimit++
			l.shut() // its reader tells the machine
		}
	}
}
