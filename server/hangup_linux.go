package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedByPeer says whether the other side has closed a connection, whatever it has sent before.
func closedByPeer(conn net.Conn) (closed bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, _ = unix.Poll(look, 0) // it does not wait; what fails says nothing
		closed = look[0].Revents != 0
	})
	return closed || err != nil
}
