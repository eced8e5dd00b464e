package server

import (
	"net"

	"golang.org/x/sys/unix"
)

// closedByPeer says whether the other side has closed a connection, whatever it has sent before.
func closedByPeer(conn net.Conn) bool {
	return goneBy(conn, func(fd int) bool {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, _ = unix.Poll(look, 0) // it does not wait; what fails says nothing
		return look[0].Revents != 0
	})
}
