package main

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// slowLine is a way to a server on which no more than so many bytes a second come back. It listens on a port of its own.
type slowLine struct {
	port   int
	target string
	rate   int // bytes a second towards the caller

	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

// slowStep is how often a part is let through.
const slowStep = 5 * time.Millisecond

func newSlowLine(target string, rate int) (*slowLine, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &slowLine{port: l.Addr().(*net.TCPAddr).Port, target: target, rate: rate, listener: l}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.carry(c) })
		}
	})
	return s, nil
}

func (s *slowLine) portText() string { return strconv.Itoa(s.port) }

// close breaks what stands.
func (s *slowLine) close() {
	s.cancel()
	s.listener.Close()
	s.all.Wait()
}

// carry carries bytes both ways until one side ends.
func (s *slowLine) carry(near net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	far, err := net.Dial("tcp", s.target)
	if err != nil {
		near.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() {
		near.Close()
		far.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { // as the other one
		defer cancel()
		_, _ = io.Copy(far, near) // the line ends with either side, for whatever reason
	})
	both.Go(func() { // ends when cancel closes the connections
		defer cancel()
		s.slowly(near, far)
	})
	both.Wait()
}

func (s *slowLine) slowly(dst io.Writer, src io.Reader) {
	buf := make([]byte, s.rate/int(time.Second/slowStep)+1)
	began, sent := time.Now(), 0
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		sent += n
		due := time.Duration(float64(sent) / float64(s.rate) * float64(time.Second))
		if ahead := due - time.Since(began); ahead > slowStep {
			time.Sleep(ahead)
		} else if ahead < -time.Second { // an idle line saves nothing up
			began, sent = time.Now(), 0
		}
	}
}
