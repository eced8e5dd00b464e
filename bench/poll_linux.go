package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is the sockets of a loop and the kernel's list of those that are ready.
type poller struct {
	epoll  int
	files  []*os.File
	fds    []int
	events []unix.EpollEvent
	ready  []readiness
	exact  bool // waits end to the microsecond, for one more system call
}

// readiness says what can be done on a lane.
type readiness struct {
	lane               int
	readable, writable bool
}

const dialTimeout = 10 * time.Second

func newPoller(addr string, conns int) (*poller, error) {
	p := &poller{epoll: -1, events: make([]unix.EpollEvent, conns), ready: make([]readiness, 0, conns)}
	if err := p.connect(addr, conns); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) connect(addr string, conns int) (err error) {
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for i := range conns {
		file, err := dialFile(addr)
		if err != nil {
			return err
		}
		p.files = append(p.files, file)
		fd := int(file.Fd())
		if err := unix.SetNonblock(fd, true); err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		p.fds = append(p.fds, fd)
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
	}
	return nil
}

// dialFile connects and takes the socket away from Go's own poller, which would be woken for each reply, too.
func dialFile(addr string) (*os.File, error) {
	conn, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close() // the file is a duplicate
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("connect %s: a %T, want TCP", addr, conn)
	}
	return tcp.File()
}

func (p *poller) close() {
	for _, f := range p.files {
		f.Close()
	}
	p.files = nil
	if p.epoll >= 0 {
		unix.Close(p.epoll)
		p.epoll = -1
	}
}

// sharpen makes waits exact. The calling thread is the one that waits.
func (p *poller) sharpen() {
	p.exact = true
	// Without it the kernel lets a wait last 50 microseconds longer, to gather wake-ups. When refused, they do.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// wait returns the lanes on which something can be done, none when the time is over first. The result is valid until
// the next call.
func (p *poller) wait(limit time.Duration) ([]readiness, error) {
	p.ready = p.ready[:0]
	timeout := int(limit / time.Millisecond)
	if p.exact && limit > 0 {
		timeout = 0
		list := [1]unix.PollFd{{Fd: int32(p.epoll), Events: unix.POLLIN}}
		ts := unix.NsecToTimespec(int64(limit))
		if n, err := unix.Ppoll(list[:], &ts, nil); n == 0 || err != nil {
			return nil, ignoreInterrupt(err)
		}
	}
	n, err := raw(unix.SYS_EPOLL_PWAIT, p.epoll, unsafe.Pointer(&p.events[0]), len(p.events), timeout)
	if err != nil {
		return nil, ignoreInterrupt(err)
	}
	for _, e := range p.events[:n] {
		p.ready = append(p.ready, readiness{
			lane:     int(e.Fd),
			readable: e.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0,
			writable: e.Events&unix.EPOLLOUT != 0,
		})
	}
	return p.ready, nil
}

// read returns 0 when there is nothing yet, and io.ErrUnexpectedEOF when the server has closed the connection.
func (p *poller) read(lane int, b []byte) (int, error) {
	n, err := raw(unix.SYS_READ, p.fds[lane], unsafe.Pointer(&b[0]), len(b), 0)
	switch {
	case err != nil:
		return 0, ignoreInterrupt(err)
	case n == 0:
		return 0, fmt.Errorf("the server closed the connection: %w", io.ErrUnexpectedEOF)
	}
	return n, nil
}

// write writes what the socket has room for.
func (p *poller) write(lane int, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := raw(unix.SYS_WRITE, p.fds[lane], unsafe.Pointer(&b[0]), len(b), 0)
	if err != nil {
		return 0, ignoreInterrupt(err)
	}
	return n, nil
}

// wantWrite says whether wait tells when the lane can be written to.
func (p *poller) wantWrite(lane int, want bool) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(lane)}
	if want {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, p.fds[lane], &event); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// raw is a system call that Go's scheduler is not told of. It would take the processor away from a thread that waits, give it to
// another thread, and the next reply would begin with getting it back: several microseconds of every exchange. Reads and
// writes do not wait here, and while the loop does, its process has nothing else to do.
func raw(number uintptr, fd int, p unsafe.Pointer, n, timeout int) (int, error) {
	r, _, errno := unix.RawSyscall6(number, uintptr(fd), uintptr(p), uintptr(n), uintptr(timeout), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// ignoreInterrupt passes errors on, but those that mean "later".
func ignoreInterrupt(err error) error {
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}
