// Package testkit starts servers for tests and speaks to them: a real
// redis-server, which gives the expected replies, and our own programs.
//
// Shape. StartRedis and StartProgram return a running process that ends with the
// test, also when the test panics or runs out of time. Dial gives a small RESP
// client that keeps the bytes of each reply. Eventually polls a condition, so that
// no test sleeps to wait for something.
//
// Units. Every wait takes a time.Duration and is a limit, not a pause.
//
// Errors. What a test cannot go on without ends it through testing.TB; these
// functions must be called from the test's own goroutine. Conn.Try, Conn.Send and
// Conn.Receive return errors and may be called from any one goroutine.
//
// If redis-server is not installed, a test that needs it is skipped; with CI set
// in the environment it fails instead, so that a broken installation cannot pass
// for success. CAIRN_TEST_REDIS names another program to use.
//
// Not here: expected values, and anything that a program of ours may import. Only
// _test.go files import this package.
package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// startLimit bounds the wait for a started server to answer. It is generous,
// because it only costs time when something is broken.
const startLimit = time.Minute

// leastPatience is what Eventually waits at least: a machine with more to do than
// it has cores may leave a program alone for many seconds. It only costs time when
// something is broken.
const leastPatience = time.Minute

// Eventually polls cond until it is true and ends the test if it is not within
// the given time, or a minute if that is longer. what, if given, is a format and
// its arguments that name the condition.
func Eventually(t testing.TB, within time.Duration, cond func() bool, what ...any) {
	t.Helper()
	within = max(within, leastPatience)
	if poll(within, cond) {
		return
	}
	name := "condition"
	if len(what) > 0 {
		name = fmt.Sprintf(fmt.Sprint(what[0]), what[1:]...)
	}
	t.Fatalf("%s: not true within %v", name, within)
}

// poll calls cond, first often and then rarely, until it is true or the time is
// over. It is called once more after the end, so that a machine that stood still
// does not fail a test.
func poll(within time.Duration, cond func() bool) bool {
	end := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		late := time.Now().After(end)
		if cond() {
			return true
		}
		if late {
			return false
		}
		time.Sleep(pause)
	}
}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on, and whose
// cluster bus port, 10000 higher, is free too.
//
// Nobody else is given it before the test ends, also not another test's process,
// and also not while a server that had it is down. It is picked at random from
// below the range that the kernel gives to outgoing connections.
func FreePort(t testing.TB) int {
	t.Helper()
	return FreePorts(t, 1)
}

// FreePorts is FreePort for n ports in a row, and returns the first.
func FreePorts(t testing.TB, n int) int {
	t.Helper()
	const lowest, count = 20000, 2700 // the bus ports end below 32768
	for range 200 {
		first := lowest + rand.IntN(count-n)
		port := first
		for port < first+n && reserve(t, port) && portIsFree(port) && portIsFree(port+10000) {
			port++
		}
		if port == first+n {
			return first
		}
	}
	t.Fatalf("no %d free ports in a row in [%d, %d) after 200 tries", n, lowest, lowest+count)
	return 0
}

// reserve takes a port for the test, and reports whether nobody had it. The sign
// is a UDP socket of the same number: nothing here speaks UDP, and the kernel closes
// it whichever way the process ends.
func reserve(t testing.TB, port int) bool {
	c, err := net.ListenPacket("udp", address(port))
	if err != nil {
		return false
	}
	t.Cleanup(func() { c.Close() })
	return true
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
