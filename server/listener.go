package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cairn/internal/resp"
)

// listen opens all sockets of the configuration. One of the default addresses may be missing (an address with
// a leading minus); any other failure ends the start.
func (s *Server) listen() error {
	v := &s.cfg.V
	if port := v.Port.Load(); port != 0 {
		if err := s.listenTCP(v.Bind.Load(), int(port)); err != nil {
			s.closeListeners()
			return err
		}
	}
	if path := v.UnixSocket.Load(); path != "" {
		if err := s.listenUnix(path, os.FileMode(v.UnixSocketPerm.Load())); err != nil {
			s.closeListeners()
			return err
		}
	}
	for _, l := range s.listeners {
		s.startTask(func() {
			s.awaitLoad()
			s.accept(l)
		})
	}
	return nil
}

// loadPatience is how long those who connect wait for a load to end before they are told of it. Most loads are shorter, and
// then a restart shows nobody an error that a client would have to know what to do about.
const loadPatience = 500 * time.Millisecond

// awaitLoad returns when the data is there, or is not there soon.
func (s *Server) awaitLoad() {
	select {
	case <-s.loaded:
	case <-s.stop:
	case <-time.After(s.patience):
	}
}

// checkBusPort refuses a port that the cluster bus cannot have, before anything is opened or made. The bus itself opens when
// the data is there.
func (s *Server) checkBusPort() error {
	if !s.ClusterEnabled() {
		return nil
	}
	port := s.busListens()
	if port > maxPort {
		return fmt.Errorf("port %d is too high for a cluster: the cluster bus listens %d above it, and the highest port is %d, so port can be at most %d; "+
			"cluster-port puts the bus elsewhere", s.cfg.V.Port.Load(), port-int(s.cfg.V.Port.Load()), maxPort, maxPort-busAbove)
	}
	for _, b := range s.cfg.V.Bind.Load() {
		network, address := tcpAddress(strings.TrimPrefix(b, "-"), port)
		l, err := listenReuse(network, address)
		if err == nil {
			err = l.Close()
		}
		if errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("cluster bus: %w", listenError(b, port, err))
		}
	}
	return nil
}

// tcpAddress is an address of bind as the net package wants it.
func tcpAddress(host string, port int) (network, address string) {
	network = "tcp4"
	if strings.Contains(host, ":") {
		network = "tcp6"
	}
	host = strings.TrimSuffix(strings.Replace(host, "::*", "::", 1), "*")
	return network, net.JoinHostPort(host, strconv.Itoa(port))
}

func (s *Server) listenTCP(binds []string, port int) error {
	if len(binds) == 0 {
		return nil // bind "" means nowhere
	}
	opened := 0
	for _, b := range binds {
		host, optional := strings.CutPrefix(b, "-")
		l, err := listenReuse(tcpAddress(host, port))
		if err != nil {
			if optional && missingAddress(err) {
				continue
			}
			s.log.Warning("Failed listening on port " + strconv.Itoa(port) + " (tcp), aborting.")
			return listenError(b, port, err)
		}
		s.listeners = append(s.listeners, l)
		opened++
	}
	if opened == 0 {
		return fmt.Errorf("cannot listen on port %d: none of the addresses %q is there", port, binds)
	}
	return nil
}

// listenError is what an operator is told. Go's own text names the address once more, and calls the system by name.
func listenError(bind string, port int, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("cannot listen on port %d: %w", port, unix.EADDRINUSE)
	case errors.As(err, &errno):
		return fmt.Errorf("cannot listen on %s port %d: %w", bind, port, errno)
	}
	return fmt.Errorf("cannot listen on %s port %d: %w", bind, port, err)
}

func listenReuse(network, addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) (err error) {
		if network != "tcp6" {
			return nil
		}
		cerr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		})
		return errors.Join(cerr, err)
	}}
	return lc.Listen(context.Background(), network, addr)
}

// missingAddress says that the machine has no such address, or not this family.
func missingAddress(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)
}

// listenUnix opens the socket with its mode from the first moment: the mask is in force before it is there.
func (s *Server) listenUnix(path string, mode os.FileMode) error {
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove old unix socket: %w", err)
		}
	}
	if mode == 0 {
		mode = 0o755
	}
	old := unix.Umask(int(^mode & 0o777))
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return fmt.Errorf("listen on unix socket: %w", err)
	}
	s.listeners = append(s.listeners, l)
	return nil
}

func (s *Server) closeListeners() {
	s.admin.listening.mu.Lock()
	defer s.admin.listening.mu.Unlock()
	for _, l := range s.listeners {
		_ = l.Close() // a second close is no harm
	}
}

// acceptWarnEvery bounds how often a socket's failure to accept is told.
const acceptWarnEvery = time.Second

// accept takes connections in until the listener is closed.
func (s *Server) accept(l net.Listener) {
	var told time.Time
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, say: the next one may work.
			if time.Since(told) >= acceptWarnEvery {
				told = time.Now()
				s.log.Warning("accept failed", "err", err)
			}
			select {
			case <-s.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		s.welcome(conn)
	}
}

const textProtected = "-DENIED cairn is running in protected mode because protected mode is enabled and no password is set " +
	"for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect " +
	"from external computers, set a password (CONFIG SET requirepass), or disable protected mode (CONFIG SET protected-mode no " +
	"from this machine, or protected-mode no in the configuration file), or bind to loopback only.\r\n"

// welcome makes a client of a connection, or says why not.
func (s *Server) welcome(conn net.Conn) {
	c := &client{s: s, conn: conn, created: time.Now(), stamp: time.Now()}
	c.describe()
	s.setSocket(conn)
	if !c.local && s.cfg.V.ProtectedMode.Load() && s.cfg.V.RequirePass.Load() == "" {
		refuse(conn, textProtected)
		return
	}
	if !s.clients.add(c, s.cfg.V.MaxClients.Load()) {
		s.stats.rejected.Add(1)
		refuse(conn, "-ERR max number of clients reached\r\n")
		return
	}
	s.stats.connections.Add(1)
	c.framer = resp.NewFramer(resp.Limits{})
	c.framer.KeepElsewhere(longArgFrom, c.keepLongArg)
	c.w.Proto = 2
	c.proto.Store(2)
	c.queued.Store(-1)
	c.user = "default"
	c.lastUsed.Store(s.clock())
	c.authed.Store(s.cfg.V.RequirePass.Load() == "")
	c.setLimits()
	c.push.init(&s.memory)
	c.resting = true // it costs no buffer until it says something
	c.counted.Store(true)
	s.memory.count.Add(1)
	c.subs.Init(c)
	go c.serve() // ends with the connection; clients.wait waits for it
}

// refuse sends a last word without waiting for anybody to read it.
func refuse(conn net.Conn, text string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte(text)) // the peer may be gone; it is refused either way
	_ = conn.Close()
}

func (s *Server) setSocket(conn net.Conn) {
	t, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if keep := s.cfg.V.TCPKeepalive.Load(); keep > 0 {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: time.Duration(keep) * time.Second, Interval: time.Duration(max(keep/3, 1)) * time.Second, Count: 3,
		})
	} else {
		_ = t.SetKeepAlive(false)
	}
}

// describe notes where the connection comes from.
func (c *client) describe() {
	if sc, ok := c.conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
			_ = raw.Control(func(fd uintptr) { c.fd = int(fd) }) // a closed socket has none
		}
	}
	if c.conn.RemoteAddr().Network() == "unix" {
		path := c.conn.LocalAddr().String()
		c.addr, c.laddr, c.local, c.unix = path+":0", path+":0", true, true
		return
	}
	c.addr, c.laddr = c.conn.RemoteAddr().String(), c.conn.LocalAddr().String()
	if t, ok := c.conn.RemoteAddr().(*net.TCPAddr); ok {
		c.local = t.IP.IsLoopback()
	}
}

// setLimits gives the framer the limits that fit the connection's standing.
func (c *client) setLimits() {
	v := &c.s.cfg.V
	c.framer.SetLimits(resp.Limits{
		MaxBulk:         v.ProtoMaxBulkLen.Load(),
		KeptOver:        longArgOver,
		MaxQuery:        v.ClientQueryBuffer.Load(),
		Unauthenticated: !c.authed.Load(),
	})
}

// armTimeout bounds how long the next read may wait. A busy connection keeps the bound of a moment ago, since
// setting one costs as much as a small command: a read that ends too early looks at the clock and waits on.
func (c *client) armTimeout() {
	if !c.resting && c.stamp.Sub(c.armed) < restAfter/2 {
		return
	}
	c.armed = c.stamp
	var deadline time.Time
	if d := c.idleLimit(); d > 0 {
		deadline = time.UnixMilli(c.lastUsed.Load()).Add(d)
	}
	if rest := c.stamp.Add(restAfter); !c.resting && (deadline.IsZero() || rest.Before(deadline)) {
		deadline = rest
	}
	_ = c.conn.SetReadDeadline(deadline) // fails on a closed socket, which the read will tell
}

// idleLimit is how long the connection may be silent; 0: for ever.
func (c *client) idleLimit() time.Duration {
	v := &c.s.cfg.V
	d := time.Duration(v.Timeout.Load()) * time.Second
	if c.subscribed() {
		d = 0
	}
	if login := time.Duration(v.UnauthenticatedTimeout.Load()) * time.Second; !c.authed.Load() && login > 0 && (d == 0 || login < d) {
		d = login
	}
	return d
}

func (c *client) idleTooLong() bool {
	d := c.idleLimit()
	return d > 0 && time.Since(time.UnixMilli(c.lastUsed.Load())) >= d
}
