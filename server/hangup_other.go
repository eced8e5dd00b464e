//go:build !linux

package server

import "net"

// closedByPeer says whether the other side has closed a connection and nothing that it sent is unread.
func closedByPeer(conn net.Conn) bool { return hungUp(conn) }
