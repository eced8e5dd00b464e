package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp says whether the other side has closed a connection. Nothing is read from it.
func hungUp(conn net.Conn) bool {
	return goneBy(conn, func(fd int) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR //nolint:errorlint // a bare errno
	})
}

// goneBy says whether a connection has ended, as a look at its socket tells or because there is no socket any more. What has
// no socket never ends.
func goneBy(conn net.Conn, look func(fd int) bool) (gone bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) { gone = look(int(fd)) })
	return gone || err != nil
}
