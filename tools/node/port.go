package node

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// taken are the ports that FreePort gave away, each by its sign.
var taken struct {
	sync.Mutex
	signs []net.PacketConn
}

// FreePort returns a port of 127.0.0.1 on which nobody listens, and neither does
// anybody 10000 above, where a cluster node has its bus.
//
// No call is given it again before this process ends, here or in another process of
// this package: its server may be down for a while, or not yet up. It is picked at
// random from below the range that the kernel gives to outgoing connections.
func FreePort() (int, error) {
	const lowest, count = 12800, 7100 // the bus ports end below 30000
	for range 200 {
		port := lowest + rand.IntN(count)
		if reserve(port) && isFree(port) && isFree(port+10000) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: none in 200 tries from %d to %d with another one 10000 above it", lowest, lowest+count)
}

// reserve takes a port, and reports whether nobody had it. The sign is a UDP socket
// of the same number: nothing here speaks UDP, and the kernel closes it whichever
// way the process ends.
func reserve(port int) bool {
	sign, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return false
	}
	taken.Lock()
	defer taken.Unlock()
	taken.signs = append(taken.signs, sign) // or the collector would close it
	return true
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
