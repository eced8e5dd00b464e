package bus

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"time"

	"cairn/cluster"
	"cairn/cluster/wire"
)

const (
	// StrangerBytes is all the memory that a link may take whose node is not known.
	StrangerBytes = 64 << 10
	// strangerFrame is the longest packet of such a link: a ping with the gossip of almost three hundred nodes.
	strangerFrame = 32 << 10
	// memberFrame is the longest packet of a member that is no publication. More than a ping of ten thousand nodes; data of
	// modules can be longer, and is passed over.
	memberFrame = 1 << 20
	// readBuffer is that of a link, bytes.
	readBuffer = 4 << 10
	// readPiece is by how much memory for a packet grows, and what a member must send of it within its patience, bytes.
	readPiece = 1 << 20
	// keepFrame is the longest frame buffer that a link keeps for the next packet.
	keepFrame = 32 << 10
	// frameTime is how long a stranger has for a packet, from its first byte.
	frameTime = 5 * time.Second
)

// serve reads from an open link until it ends.
func (d *Driver) serve(l *link) {
	d.tasks.Go(l.write)
	err := d.read(l)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		d.queue.note(cluster.Debug, fmt.Sprintf("Link with %s ended: %v", l.conn.RemoteAddr(), err))
	}
	d.lost(l)
}

func (d *Driver) read(l *link) (err error) {
	defer func() {
		if r := recover(); r != nil {
			d.queue.note(cluster.Warning, fmt.Sprintf("BUG in the cluster's bus: %v\n%s", r, debug.Stack()))
			err = fmt.Errorf("BUG: %v", r)
		}
	}()
	in := bufio.NewReaderSize(l.conn, readBuffer)
	var frame []byte
	for {
		l.awaitReader()
		if err := d.awaitFrame(l, in); err != nil {
			return err
		}
		head, err := in.Peek(wire.HeadLength)
		if err != nil {
			return err
		}
		n, err := wire.Length(head)
		if err != nil {
			return err
		}
		pass, err := d.admit(l, in, head, n)
		if err != nil {
			return err
		}
		if pass {
			if err := l.discard(in, n); err != nil {
				return err
			}
			continue
		}
		if frame, err = l.readFrame(in, frame[:0], n); err != nil {
			return err
		}
		if err := d.take(l, frame); err != nil {
			return err
		}
		if cap(frame) > keepFrame {
			frame = nil
		}
	}
}

// awaitFrame waits for the first byte of a packet. A member may be silent for as long as the machine lets it; a stranger
// must say something soon, and all of the packet within frameTime.
func (d *Driver) awaitFrame(l *link, in *bufio.Reader) error {
	known := l.known.Load()
	if known && in.Buffered() >= wire.HeadLength {
		return nil
	}
	var until time.Time
	if !known {
		until = time.Now().Add(2*l.patience + frameTime)
	}
	if err := l.conn.SetReadDeadline(until); err != nil {
		return err
	}
	if _, err := in.Peek(1); err != nil {
		return err
	}
	step := frameTime
	if known {
		step = l.patience
	}
	return l.conn.SetReadDeadline(time.Now().Add(step))
}

// admit says whether a packet of n bytes may come, or is to be passed over unread. An error ends the link.
func (d *Driver) admit(l *link, in *bufio.Reader, head []byte, n int) (pass bool, err error) {
	if n <= strangerFrame {
		return false, nil
	}
	pass = n > memberFrame && !wire.IsPublication(head)
	if l.known.Load() {
		return pass, nil
	}
	// A member's new link is a stranger until its first packet has been looked at, and that one is long where many nodes have
	// failed; the next may come before. Whoever knows a member's id is believed to be it anyway: the bus proves nothing.
	prefix, err := in.Peek(wire.PrefixLength)
	if err != nil {
		return false, err
	}
	id, named := wire.SenderOf(prefix)
	if named && d.isMember(id) {
		return pass, nil
	}
	return false, fmt.Errorf("packet of %d bytes from a node that is not known, which may send %d", n, strangerFrame)
}

func (d *Driver) isMember(id wire.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Knows(id)
}

// readFrame reads n bytes. Memory grows with what arrives, not with what was announced. A stranger has one deadline for
// all, a member one for each piece.
func (l *link) readFrame(in *bufio.Reader, frame []byte, n int) ([]byte, error) {
	for len(frame) < n {
		if len(frame) == cap(frame) {
			grown := make([]byte, len(frame), min(n, max(2*len(frame), readBuffer)))
			copy(grown, frame)
			frame = grown
		}
		end := min(n, cap(frame), len(frame)+readPiece)
		if err := l.extend(in, end-len(frame)); err != nil {
			return frame, err
		}
		got, err := io.ReadFull(in, frame[len(frame):end])
		frame = frame[:len(frame)+got]
		if err != nil {
			return frame, err
		}
	}
	return frame, nil
}

// extend gives a member time for the next n bytes, unless they are here.
func (l *link) extend(in *bufio.Reader, n int) error {
	if !l.known.Load() || in.Buffered() >= n {
		return nil
	}
	return l.conn.SetReadDeadline(time.Now().Add(l.patience))
}

// discard passes over n bytes of a member.
func (l *link) discard(in *bufio.Reader, n int) error {
	for n > 0 {
		step := min(n, readPiece)
		if err := l.extend(in, step); err != nil {
			return err
		}
		if _, err := in.Discard(step); err != nil {
			return err
		}
		n -= step
	}
	return nil
}

// errBug ends a link whose message met a bug.
var errBug = errors.New("a message could not be taken")

// take hands one packet to the machine. One that does not decode is passed over; a link's first one is noted.
func (d *Driver) take(l *link, frame []byte) error {
	msg, err := wire.Decode(frame)
	if err != nil {
		if l.bad++; l.bad == 1 {
			d.queue.note(cluster.Verbose, fmt.Sprintf("Packet from %s ignored, and so will be others of this link: %v",
				l.conn.RemoteAddr(), err))
		}
		return nil
	}
	ok := d.with(func(now int64) []cluster.Effect {
		if d.links[l.id] != l || d.drop.has(msg.Type) {
			return nil
		}
		effects := d.machine.Step(now, l.id, msg)
		d.acquaint(l)
		return effects
	})
	if !ok {
		return errBug
	}
	return nil
}

// acquaint notes whether a link's node is a member by now. The caller holds mu.
func (d *Driver) acquaint(l *link) {
	if l.known.Load() {
		return
	}
	if _, known := d.machine.LinkPeer(l.id); known {
		l.known.Store(true)
		d.noStranger(l)
	}
}
