package bus

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cairn/cluster"
)

// listen opens the bus port on every address. Addresses are as in the directive bind: "*" is all of IPv4, "::*" all of
// IPv6, and one with "-" in front may be missing on this machine.
func (d *Driver) listen() error {
	for _, bind := range d.o.Bind {
		address, optional := strings.CutPrefix(bind, "-")
		network := "tcp"
		switch address {
		case "*":
			network, address = "tcp4", ""
		case "::*":
			network, address = "tcp6", "::"
		}
		l, err := net.Listen(network, net.JoinHostPort(address, strconv.Itoa(d.o.Port)))
		if err != nil && optional && missingAddress(err) {
			continue
		}
		if err != nil {
			for _, open := range d.listeners {
				err = errors.Join(err, open.Close())
			}
			d.listeners = nil
			return fmt.Errorf("listen to the cluster bus on %s port %d: %w", bind, d.o.Port, err)
		}
		d.listeners = append(d.listeners, l)
		d.tasks.Go(func() { d.accept(l) })
	}
	if len(d.listeners) == 0 {
		return fmt.Errorf("listen to the cluster bus on port %d: no address to listen on", d.o.Port)
	}
	return nil
}

func missingAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

func (d *Driver) accept(from net.Listener) {
	noted := false
	for {
		conn, err := from.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !noted {
				noted = true
				d.queue.note(cluster.Warning, fmt.Sprintf("Links to the cluster bus cannot be accepted at the moment: %v", err))
			}
			select { // no file is free, most likely: soon there may be one
			case <-d.stop.Done():
				return
			case <-time.After(tickEvery):
			}
			continue
		}
		noted = false
		d.welcome(conn)
	}
}

// maxStrangers is how many links there may be that others opened and whose node is not known, and one more for each member:
// its new link is a stranger's until its first packet.
const maxStrangers = 64

func (d *Driver) welcome(conn net.Conn) {
	var l *link
	d.with(func(now int64) []cluster.Effect {
		effects := d.makeRoom(now)
		d.lastIn += 2
		l = d.newLink(d.lastIn, false, hostOf(conn.RemoteAddr()))
		l.conn = conn
		d.links[l.id] = l
		d.strangers = append(d.strangers, l)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAliveConfig(keepAlive(d.timeout())) // without it the link lives longer than it need
		}
		return append(effects, d.machine.Accepted(now, l.id, l.remote, hostOf(conn.LocalAddr()))...)
	})
	if l == nil {
		_ = conn.Close()
		return
	}
	d.tasks.Go(func() { d.serve(l) })
}

// makeRoom ends a stranger's link if there are too many: the oldest one of the address that has most of them, so that
// nobody keeps others out by holding links. The caller holds mu.
func (d *Driver) makeRoom(now int64) []cluster.Effect {
	if len(d.strangers) < maxStrangers+len(d.view.Nodes) {
		return nil
	}
	from, most := make(map[string]int), ""
	for _, l := range d.strangers {
		if from[l.remote]++; from[l.remote] > from[most] {
			most = l.remote
		}
	}
	i := slices.IndexFunc(d.strangers, func(l *link) bool { return l.remote == most })
	id := d.strangers[i].id
	d.forget(id)
	return d.machine.Closed(now, id)
}

// noStranger takes a link out of the strangers' list. The caller holds mu.
func (d *Driver) noStranger(l *link) {
	if i := slices.Index(d.strangers, l); i >= 0 {
		d.strangers = slices.Delete(d.strangers, i, i+1)
	}
}
