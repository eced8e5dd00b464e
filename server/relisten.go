package server

import (
	"errors"
	"net"
	"slices"
	"sync"

	"cairn/server/command"
)

// listening is where the node listens for TCP, which CONFIG SET can change while it runs.
type listening struct {
	mu    sync.Mutex // also over Server.listeners, once the node runs
	binds []string
	port  int
}

// relisten moves the TCP sockets to where the configuration says now. Connections that are there stay. When the
// new place cannot be had, the old one is kept, or taken again where both could not be open together.
func (s *Server) relisten(refusal string) error {
	l, v := &s.admin.listening, &s.cfg.V
	l.mu.Lock()
	defer l.mu.Unlock()
	binds, port := v.Bind.Load(), int(v.Port.Load())
	if port == l.port && slices.Equal(binds, l.binds) {
		return nil
	}
	if s.draining.Load() {
		return errors.New("the node is ending")
	}
	var others, before []net.Listener
	for _, o := range s.listeners {
		if o.Addr().Network() == "unix" {
			others = append(others, o)
		} else {
			before = append(before, o)
		}
	}
	if port == l.port {
		closeEach(before) // an old and a new address may overlap
	}
	opened, err := s.openTCP(binds, port)
	if err != nil {
		if port == l.port {
			before, _ = s.openTCP(l.binds, l.port) // it was there a moment ago; if not, the log says so
			s.acceptEach(before)
		}
		s.listeners = append(others, before...)
		return command.Reply(refusal)
	}
	closeEach(before)
	s.acceptEach(opened)
	s.listeners = append(others, opened...)
	l.binds, l.port = binds, port
	return nil
}

// openTCP listens without taking connections yet. After an error nothing is open.
func (s *Server) openTCP(binds []string, port int) ([]net.Listener, error) {
	s.listeners = nil
	if port == 0 {
		return nil, nil
	}
	err := s.listenTCP(binds, port)
	if err != nil {
		closeEach(s.listeners)
		return nil, err
	}
	return s.listeners, nil
}

func (s *Server) acceptEach(all []net.Listener) {
	for _, l := range all {
		s.startTask(func() { s.accept(l) })
	}
}

func closeEach(all []net.Listener) {
	for _, l := range all {
		_ = l.Close() // a second close is no harm
	}
}
