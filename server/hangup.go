package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp says whether the other side has closed a connection. Nothing is read from it.
func hungUp(conn net.Conn) (gone bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR //nolint:errorlint // a bare errno
	})
	return gone || err != nil
}
